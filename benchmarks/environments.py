"""Environments of packages for the contenders of a race, each with its own pins.

An environment `NAME` holds what `peers/requirements/NAME.txt` says. One that was made already costs
nothing.
"""

import pathlib
import re
import subprocess
import sys

from jaxrl_guided.runtime.errors import UserError

REQUIREMENTS = pathlib.Path(__file__).parent / "peers" / "requirements"

_STAMP = ".installed"
_UNREACHABLE = re.compile(
    r"connection|resolve|timed out|no matching distribution|temporary failure", re.IGNORECASE
)


def make_environment(name: str, root: pathlib.Path) -> pathlib.Path:
    """The interpreter of an environment, made under `root` if need be.

    Raises:
      UserError: it cannot be made; the message is one line.
    """
    wanted = (REQUIREMENTS / f"{name}.txt").read_text()
    directory = root.absolute() / name
    python, stamp = directory / "bin" / "python", directory / _STAMP
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--envs={root} cannot be written: {error.strerror}") from error
    log = directory / "install.log"
    print(f"installing the peer environment {name} into {directory} (log: {log}) …", flush=True)
    install = [python, "-m", "pip", "install", "--disable-pip-version-check"]
    commands = [
        [sys.executable, "-m", "venv", directory],
        [*install, "-r", REQUIREMENTS / f"{name}.txt"],
    ]
    with log.open("w") as file:
        for command in commands:
            done = subprocess.run(list(map(str, command)), stdout=file, stderr=file)
            if done.returncode:
                raise UserError(_reason(name, log))
    stamp.write_text(wanted)
    return python


def _reason(name: str, log: pathlib.Path) -> str:
    """For notes of results, too: names no path."""
    if _UNREACHABLE.search(log.read_text()):
        return f"the package index could not be reached or lacks a pin of {name}.txt ({log.name})"
    return f"installation of {name}.txt failed ({log.name})"
