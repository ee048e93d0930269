"""Runs a grid of independent cells, each a process on one core that writes one small JSON file.

Finished cells are skipped, so a grid can be stopped and gone on with at any time and in any order.
Children share the process group of the runner: Ctrl-Z pauses and Ctrl-C ends them all.
"""

import contextlib
import dataclasses
import datetime
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jaxrl_guided.runtime import files, versions
from jaxrl_guided.runtime.config import config_hash, to_dict
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.progress import format_duration
from jaxrl_guided.runtime.signals import StopFlag, catch_signals

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 30.0
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One piece of work.

    Attributes:
      id: file name without suffix, of letters, digits, `.`, `_` and `-`.
      config: configuration (dataclass or JSON data) that decides the result.
    """

    id: str
    config: Any

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(f"id must be letters, digits, '.', '_' or '-', got {self.id!r}")

    @property
    def hash(self) -> str:
        """Hash of the configuration."""
        return config_hash(self.config)


@dataclasses.dataclass(frozen=True)
class GridReport:
    """Ids of the cells by what happened to them; `left` were not started or were stopped.

    `stopped` tells whether a signal has ended the work.
    """

    done: tuple[str, ...]
    skipped: tuple[str, ...]
    failed: tuple[str, ...]
    left: tuple[str, ...]
    stopped: bool = False


def write_result(path: files.PathLike, config: Any, result: dict[str, Any]) -> None:
    """Called by a cell's process at its end: writes its JSON in one step.

    The file holds `config_hash`, `git` (revision) and what `result` names.

    Raises:
      ValueError: `result` names one of the two.
      UserError: the file cannot be written.
    """
    stamp = {"config_hash": config_hash(config), "git": versions.git_revision()}
    if taken := stamp.keys() & result.keys():
        raise ValueError(f"result may not name {', '.join(sorted(taken))}")
    files.write_json(path, {**stamp, **result})


def revisions_of(records: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The git revisions at which cells ran."""
    return tuple(sorted({record["git"] for record in records if "git" in record}))


def stamp(revisions: Sequence[str]) -> dict[str, Any]:
    """Date, machine and versions of a record, and the revisions of the cells that it is made of."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": date, "revisions": list(revisions), **versions.snapshot()}


def _read_cell(path: pathlib.Path, cell: Cell) -> dict[str, Any]:
    record = files.read_json(path)
    if not isinstance(record, dict) or "config_hash" not in record:
        raise UserError(f"{path} is no cell's result; move it away")
    if record["config_hash"] != cell.hash:
        raise UserError(
            f"{path} is of configuration {record['config_hash']}, this grid has {cell.hash} for "
            f"{cell.id}; results are not mixed: move the old ones away"
        )
    return record


def load_grid(cells: Sequence[Cell], directory: files.PathLike) -> dict[str, dict[str, Any]]:
    """Reads the finished cells of a grid, by id.

    Raises:
      UserError: a result is damaged or of another configuration than its cell.
    """
    pairs = [(cell, pathlib.Path(directory) / f"{cell.id}.json") for cell in cells]
    return {cell.id: _read_cell(path, cell) for cell, path in pairs if path.exists()}


def matching(ids: Sequence[str], only: str) -> list[str]:
    """The ids that contain the regular expression `only`.

    Raises:
      UserError: it is none, or no id contains it.
    """
    try:
        pattern = re.compile(only)
    except re.error as error:
        raise UserError(f"--only={only} is no regular expression: {error}") from error
    found = [name for name in ids if pattern.search(name)]
    if not found:
        raise UserError(f"--only={only} matches no cell; ids look like {list(ids)[:3]}")
    return found


class _Running:
    """A cell's process, pinned to one core; its output goes to a log that success removes."""

    def __init__(self, cell: Cell, argv: list[str], directory: pathlib.Path, core: int):
        self.cell, self.core = cell, core
        self._result = directory / f"{cell.id}.json"
        self.log = directory / f"{cell.id}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        # XLA makes as many threads as it may use cores, and the child has not come to that yet.
        if hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(ProcessLookupError):  # it may have ended already
                os.sched_setaffinity(self.process.pid, {core})
        self.started = time.monotonic()

    def failure(self) -> str | None:
        """Why the ended process gave no result, or None when it did."""
        code = self.process.returncode
        if code != 0:
            return f"exit code {code}"
        try:
            _read_cell(self._result, self.cell)
        except UserError as error:
            return str(error)
        self.log.unlink()
        return None


def _select(
    cells: Sequence[Cell], directory: pathlib.Path, only: str
) -> tuple[list[Cell], list[str]]:
    """Cells to run and ids of those that are finished."""
    ids = [cell.id for cell in cells]
    if len(set(ids)) != len(ids):
        raise UserError(f"cells need different ids; twice: {[i for i in ids if ids.count(i) > 1]}")
    wanted = set(matching(ids, only))
    chosen = [cell for cell in cells if cell.id in wanted]
    finished = load_grid(chosen, directory)
    return [cell for cell in chosen if cell.id not in finished], list(finished)


def _stop(running: Sequence[_Running]) -> None:
    for child in running:
        child.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    for child in running:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def check_minutes(max_minutes: float) -> None:
    """Raises UserError unless it is a time."""
    if not max_minutes >= 0:
        raise UserError(f"--max_minutes={max_minutes} must be at least 0")


def _cores(wanted: int) -> list[int]:
    available = versions.cores()
    if not 1 <= wanted <= len(available):
        raise UserError(f"--cores={wanted} must lie between 1 and {len(available)}")
    return available[:wanted]


def script_command(
    program: Sequence[str],
    work: files.PathLike,
    name: str,
    config: Any,
    **flags: files.PathLike,
) -> list[str]:
    """Command line of a script that runs one cell, which it reads from a file written here.

    Args:
      program: command of the script, without its flags.
      work: directory of the cells' descriptions, run directories and compiled programs.
      name: the cell's id.
      config: dataclass that the script reads with `--cell`.
      **flags: what else it is given.
    """
    work = pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    described = work / f"{name}.json"
    files.write_json(described, to_dict(config))
    given = {"cell": described, "run_dir": work / name, "compile_cache": work / "compiled", **flags}
    return [*program, *(f"--{flag}={value}" for flag, value in given.items())]


def run_grid(
    cells: Sequence[Cell],
    command: Callable[[Cell, pathlib.Path], list[str]],
    directory: files.PathLike,
    cores: int = 1,
    estimate_minutes: Callable[[Cell], float] = lambda cell: 30.0,
    only: str = "",
    max_minutes: float = float("inf"),
) -> GridReport:
    """Runs the cells that have no result yet, one process per core.

    A failing cell is reported, its log stays beside the results, and the others go on. SIGINT and
    SIGTERM end the children and return.

    Args:
      cells: the whole grid.
      command: gives a cell's command line; it must write the given path by `write_result`.
      directory: holds one `ID.json` per finished cell.
      cores: number of cores to use.
      estimate_minutes: expected minutes of a cell on one core, for the total shown at the start.
      only: regular expression that the ids to run must contain.
      max_minutes: start no cell after this time (time in which the runner is paused excluded).

    Raises:
      UserError: a bad argument, or a result in `directory` that is of another configuration.
    """
    check_minutes(max_minutes)
    free = _cores(cores)
    folder = pathlib.Path(directory)
    waiting, skipped = _select(cells, folder, only)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be created: {error.strerror}") from error
    total = sum(map(estimate_minutes, waiting)) / cores
    _say(
        f"{len(waiting)} cells to run, {len(skipped)} finished; about "
        f"{format_duration(60 * total)} on {cores} cores"
    )
    with catch_signals() as stop:
        done, failed, ended_early = _schedule(waiting, command, folder, free, max_minutes, stop)
    if failed:
        _say("failed: " + ", ".join(f"{name} (see {folder / name}.log)" for name in failed))
    left = [*ended_early, *(cell.id for cell in waiting)]
    return GridReport(tuple(done), tuple(skipped), tuple(failed), tuple(left), stop.requested)


def run_scripts(
    listed: Sequence[Cell],
    wanted: Mapping[str, Any],
    reads: Mapping[str, files.PathLike],
    program: Sequence[str],
    work: files.PathLike,
    results: files.PathLike,
    **options: Any,
) -> GridReport:
    """Runs the cells that have no result yet, each by a script in a process on one core.

    Args:
      listed: the whole grid.
      wanted: configurations by id.
      reads: other flags of the script, directories that it reads.
      program: command of the script, without its flags.
      work: see `script_command`.
      results: holds one `ID.json` per finished cell.
      **options: of `run_grid`.

    Raises:
      UserError: as `run_grid`.
    """

    def command(cell: Cell, out: pathlib.Path) -> list[str]:
        return script_command(program, work, cell.id, wanted[cell.id], **reads, result=out)

    return run_grid(listed, command, results, **options)


def _schedule(
    waiting: list[Cell],
    command: Callable[[Cell, pathlib.Path], list[str]],
    folder: pathlib.Path,
    free: list[int],
    max_minutes: float,
    stop: StopFlag,
) -> tuple[list[str], list[str], list[str]]:
    """Keeps every core busy; takes cells from `waiting`. Returns done, failed, stopped ids."""
    running: list[_Running] = []
    done: list[str] = []
    failed: list[str] = []
    elapsed = 0.0
    try:
        while running or (waiting and elapsed < 60 * max_minutes):
            while waiting and free and elapsed < 60 * max_minutes:
                cell = waiting.pop(0)
                argv = command(cell, folder / f"{cell.id}.json")
                running.append(_Running(cell, argv, folder, free.pop()))
            time.sleep(_POLL_SECONDS)
            elapsed += _POLL_SECONDS
            if stop.requested:  # before a look at the children, whom Ctrl-C has reached, too
                break
            for child in [c for c in running if c.process.poll() is not None]:
                running.remove(child)
                free.append(child.core)
                failure = child.failure()
                (failed if failure else done).append(child.cell.id)
                spent = format_duration(time.monotonic() - child.started)
                _say(f"{child.cell.id}: {failure or 'done'} after {spent}, {len(waiting)} waiting")
    finally:
        _stop(running)
    return done, failed, [child.cell.id for child in running]
