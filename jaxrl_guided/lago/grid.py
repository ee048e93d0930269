"""The online grid of a LaGO experiment: its cells, run here or in processes of their own."""

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl_guided.envs import registry
from jaxrl_guided.lago.cell import cell_identity, run_cell
from jaxrl_guided.lago.config import ARMS, OnlineConfig
from jaxrl_guided.lago.families import family_of
from jaxrl_guided.lago.report import (
    draw_curves,
    experiment_record,
    gather,
    trials_record,
)
from jaxrl_guided.lago.sources import Sources, load_finished, record_sources
from jaxrl_guided.runtime import cells
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.signals import catch_signals

Grid = Mapping[str, OnlineConfig]
"""Cells by id."""

_SCORED_PER_MINUTE, _SAC_UPDATES_PER_MINUTE = 160_000, 60_000
"""Rates on one core: states scored by a prior of 8 SmolLM2 layers, and updates of SAC."""


def make_cells(wanted: Grid, sources: Sources) -> list[cells.Cell]:
    """All cells of the grid; with what they read they decide which results are theirs."""
    return [cells.Cell(name, cell_identity(cell, sources)) for name, cell in wanted.items()]


def estimate_minutes(cell: cells.Cell) -> float:
    """Expected minutes on one core."""
    config = cell.config["config"]
    arm, family = ARMS[config["arm"]], family_of(config["env"])
    fixed = 0.5
    if registry.on_host(f"{config['env']}/{config['level']}"):  # else playing takes seconds
        parts = config["judge_levels"] or family.parts_of(config["level"])
        episodes = 2 * len(config["seeds"]) * len(parts) * config["eval"]["episodes"]
        fixed += episodes * config["horizon"] / family.steps_per_minute
    if not arm.learns:
        return fixed
    settings = config[arm.algorithm]
    steps = settings["total_steps"]
    if config["level"] == "easy":
        steps = min(steps, config["easy_steps"])
    per_step = 1 / family.steps_per_minute
    if arm.algorithm == "sac":
        per_step += settings["updates_per_step"] / _SAC_UPDATES_PER_MINUTE
    if arm.guided:
        per_step += config["guidance"]["prior_fraction"] / _SCORED_PER_MINUTE
    return fixed + steps * arm.steps_factor * len(config["seeds"]) * per_step


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
    listed = record_sources(functools.partial(make_cells, wanted), prior, data, results)
    places = {"prior": prior, "data": data}, program, work, results
    options["estimate_minutes"] = estimate_minutes
    return cells.run_scripts(listed, wanted, *places, **options)


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
    cells.check_minutes(max_minutes)
    chosen = cells.matching(list(wanted), only)
    listed = record_sources(functools.partial(make_cells, wanted), prior, data, results)
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


def report(
    wanted: Grid,
    results: PathLike,
    pictures: PathLike,
    title: str = "",
    name: str = "curve",
) -> dict[str, Any]:
    """Records by reward of what is finished; draws curves `pictures/NAME_LEVEL_REWARD.png`.

    Args:
      title: of the records; `LaGO on …` without one.

    Raises:
      UserError: no cell is finished, or results of several configurations are mixed.
    """
    finished = load_finished(functools.partial(make_cells, wanted), results)
    records: dict[str, Any] = {}
    for reward in dict.fromkeys(cell.reward for cell in wanted.values()):
        found = gather(list(finished.values()), reward, wanted.values())
        if not found.scores:
            continue
        draw_curves(found, pictures, name)
        named = title or f"LaGO on {found.family.title}"
        records[reward] = experiment_record(found, f"{named}, reward '{reward}'")
    return records


def report_trials(wanted: Grid, results: PathLike) -> dict[str, Any]:
    """Record of the tuning trials that are finished; see `report`."""
    (family,) = {cell.family.title for cell in wanted.values()}
    title = f"Choice of hyper-parameters on Real of {family}, reward 'goal'"
    finished = load_finished(functools.partial(make_cells, wanted), results)
    return trials_record(finished, title)
