"""Which two run directories belong together, where actor and extractor are two programs."""

import uuid
from typing import Any, Literal

from jaxrl_guided.runtime import files
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.rundir import RunDir

Role = Literal["both", "actor", "extractor"]

_FILE = "pair.json"


def check_role(run: RunDir, role: Role) -> None:
    """Raises UserError if the directory has been another role's."""
    theirs = _read(run).get("role", "both" if _has_checkpoints(run) else role)
    if theirs != role:
        raise UserError(
            f"--run_dir={run.home} holds a run of --role={theirs}, not {role}; name another "
            "directory, or that role"
        )


def pair_of(run: RunDir) -> str:
    """The name of the actor's pair; a new one where it has none yet."""
    if not (known := _read(run)):
        known = {"role": "actor", "pair": uuid.uuid4().hex}
        files.write_json(run.path / _FILE, known)
    return known["pair"]


def join_pair(run: RunDir, pair: str) -> None:
    """The extractor's directory is of this pair from now on.

    Raises:
      UserError: it is of another one.
    """
    known = _read(run)
    if not known:
        files.write_json(run.path / _FILE, {"role": "extractor", "pair": pair})
    elif known["pair"] != pair:
        raise UserError(
            f"--run_dir={run.home} belongs to another run than the actor's --run_dir; name the two "
            "that were started together, or a new one each"
        )


def _read(run: RunDir) -> dict[str, Any]:
    path = run.path / _FILE
    return files.read_json(path) if path.exists() else {}


def _has_checkpoints(run: RunDir) -> bool:
    return run.checkpoints.exists() and any(p.name.isdigit() for p in run.checkpoints.iterdir())
