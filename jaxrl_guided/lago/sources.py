"""What the cells of a grid have read: hashes that are part of each cell's identity.

A file beside the results keeps them, so that tables need nothing but the results.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxrl_guided.runtime import cells, files
from jaxrl_guided.runtime.checkpoint import file_hash
from jaxrl_guided.runtime.config import from_dict, to_dict
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.files import PathLike

FILE = "sources.json"
"""Name of the file beside the results."""


@dataclasses.dataclass(frozen=True)
class Sources:
    """Hashes of what cells read, None for what is not read.

    Attributes:
      prior: of all files.
      data: of the index, which holds the hash of every array.
    """

    prior: str | None = None
    data: str | None = None


MakeCells = Callable[[Sources], list[cells.Cell]]
"""All cells of a grid, each with the hashes of what it reads in its configuration."""


def hash_sources(prior: PathLike | None, data: PathLike | None) -> Sources:
    """Hashes of a prior's and a dataset's directory.

    Raises:
      UserError: one of them cannot be read.
    """
    return Sources(
        file_hash(prior) if prior is not None else None,
        file_hash(Path(data) / "dataset.json") if data is not None else None,
    )


def record_sources(
    make: MakeCells, prior: PathLike | None, data: PathLike, results: PathLike
) -> list[cells.Cell]:
    """The cells as they read the given directories, whose hashes are kept beside the results.

    Raises:
      UserError: cells are finished that have read something else.
    """
    sources, path = hash_sources(prior, data), Path(results) / FILE
    listed = make(sources)
    if path.exists():
        before = {cell.id: cell.hash for cell in make(_read(results))}
        for cell in listed:
            finished = (Path(results) / f"{cell.id}.json").exists()
            if finished and before[cell.id] != cell.hash:
                given = data if prior is None else f"{prior} and {data}"
                raise UserError(
                    f"{path} says that cells such as {cell.id} have read something else than "
                    f"{given}; give what they have read, or move the old results away"
                )
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, to_dict(sources))
    return listed


def load_finished(make: MakeCells, results: PathLike) -> dict[str, dict[str, Any]]:
    """Results of the finished cells by id.

    Raises:
      UserError: there is none, or one is of another configuration or has read something else.
    """
    found = {}
    if (Path(results) / FILE).exists():
        found = cells.load_grid(make(_read(results)), results)
    if not found:
        raise UserError(f"{results} holds no finished cell of this experiment")
    return found


def _read(results: PathLike) -> Sources:
    path = Path(results) / FILE
    return from_dict(Sources, files.read_json(path), str(path))
