"""The online grid of a LaGO experiment: its cells, run here or in processes of their own."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl_guided.lago.cell import Sources, cell_identity, hash_sources, run_cell
from jaxrl_guided.lago.config import ARMS, OnlineConfig
from jaxrl_guided.lago.report import (
    draw_curves,
    experiment_record,
    gather,
    trials_record,
)
from jaxrl_guided.runtime import cells, files
from jaxrl_guided.runtime.config import from_dict, to_dict
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.signals import catch_signals

Grid = Mapping[str, OnlineConfig]
"""Cells by id."""

SOURCES = "sources.json"
"""File beside the results with the hashes of what the cells have read."""

_STEPS_PER_MINUTE, _SCORED_PER_MINUTE = 1_900_000, 200_000
"""Rates on one core (PPO's environment steps, states scored by a prior of 8 SmolLM2 layers)."""


def make_cells(wanted: Grid, sources: Sources) -> list[cells.Cell]:
    """All cells of the grid; with what they read they decide which results are theirs."""
    return [cells.Cell(name, cell_identity(cell, sources)) for name, cell in wanted.items()]


def record_sources(wanted: Grid, prior: PathLike, data: PathLike, results: PathLike) -> Sources:
    """Hashes of what the cells read, kept beside their results: tables need nothing else.

    Raises:
      UserError: cells are finished that have read something else.
    """
    sources, path = hash_sources(prior, data), Path(results) / SOURCES
    if path.exists():
        before = _read_sources(results)
        finished = [name for name in wanted if (Path(results) / f"{name}.json").exists()]
        for name in finished:
            if cell_identity(wanted[name], before) != cell_identity(wanted[name], sources):
                raise UserError(
                    f"{path} says that cells such as {name} have read another prior or dataset "
                    f"than {prior} and {data}; give those, or move the old results away"
                )
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, to_dict(sources))
    return sources


def _read_sources(results: PathLike) -> Sources:
    path = Path(results) / SOURCES
    return from_dict(Sources, files.read_json(path), str(path))


def estimate_minutes(cell: cells.Cell) -> float:
    """Expected minutes on one core."""
    config = cell.config["config"]
    arm = ARMS[config["arm"]]
    if not arm.learns:
        return 0.5
    steps = config["easy_steps"] if config["level"] == "easy" else config["ppo"]["total_steps"]
    per_step = 1 / _STEPS_PER_MINUTE
    if arm.guided:
        per_step += config["guidance"]["prior_fraction"] / _SCORED_PER_MINUTE
    return 0.5 + steps * arm.steps_factor * len(config["seeds"]) * per_step


def run_in_processes(
    wanted: Grid,
    prior: PathLike,
    data: PathLike,
    work: PathLike,
    results: PathLike,
    program: Sequence[str],
    **options: Any,
) -> cells.GridReport:
    """Runs the unfinished cells, each in a process on one core.

    Args:
      prior, data: directories that the cells read.
      work: directory for the cells' run directories.
      results: directory for their JSON files.
      program: command of `experiments.train_online`, without its flags.
      **options: `cores`, `only`, `max_minutes` of `cells.run_grid`.

    Raises:
      UserError: a bad option, or finished cells are of another configuration, prior or dataset.
    """

    def command(cell: cells.Cell, out: Path) -> list[str]:
        paths = {"prior": prior, "data": data, "out": out}
        return cells.script_command(program, work, cell.id, wanted[cell.id], **paths)

    listed = make_cells(wanted, record_sources(wanted, prior, data, results))
    return cells.run_grid(listed, command, results, estimate_minutes=estimate_minutes, **options)


def run_here(
    wanted: Grid,
    prior: PathLike,
    data: PathLike,
    work: PathLike,
    results: PathLike,
    only: str = "",
    max_minutes: float = float("inf"),
) -> cells.GridReport:
    """Runs the unfinished cells one after another in this process; see `run_in_processes`."""
    chosen = cells.matching(list(wanted), only)
    listed = make_cells(wanted, record_sources(wanted, prior, data, results))
    finished = cells.load_grid([cell for cell in listed if cell.id in chosen], results)
    waiting = [name for name in chosen if name not in finished]
    done: list[str] = []
    end = time.monotonic() + 60 * max_minutes
    with catch_signals() as stop:
        while waiting and time.monotonic() < end and not stop.requested:
            name = waiting.pop(0)
            out = Path(results) / f"{name}.json"
            run_cell(wanted[name], prior, data, Path(work) / name, out, stop)
            done.append(name)
    return cells.GridReport(tuple(done), tuple(finished), (), tuple(waiting), stop.requested)


def _finished(wanted: Grid, results: PathLike) -> dict[str, dict[str, Any]]:
    """Results of the finished cells by id.

    Raises:
      UserError: there is none, or one is of another configuration or has read something else.
    """
    found = {}
    if (Path(results) / SOURCES).exists():
        found = cells.load_grid(make_cells(wanted, _read_sources(results)), results)
    if not found:
        raise UserError(f"{results} holds no finished cell of this experiment")
    return found


def report(
    wanted: Grid,
    results: PathLike,
    pictures: PathLike,
    title: str = "LaGO on CLEVR-Robot",
    name: str = "curve",
) -> dict[str, Any]:
    """Records by reward of what is finished; draws curves `pictures/NAME_LEVEL_REWARD.png`.

    Raises:
      UserError: no cell is finished, or results of several configurations are mixed.
    """
    finished = _finished(wanted, results)
    records: dict[str, Any] = {}
    for reward in dict.fromkeys(cell.reward for cell in wanted.values()):
        found = gather(list(finished.values()), reward, wanted.values())
        if not found.scores:
            continue
        draw_curves(found, pictures, name)
        records[reward] = experiment_record(found, f"{title}, reward '{reward}'")
    return records


def report_trials(wanted: Grid, results: PathLike) -> dict[str, Any]:
    """Record of the tuning trials that are finished; see `report`."""
    title = "Choice of hyper-parameters on Real, reward 'goal'"
    return trials_record(_finished(wanted, results), title)
