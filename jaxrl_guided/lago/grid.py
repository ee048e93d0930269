"""The online grid of a LaGO experiment: its cells, run here or in processes of their own."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxrl_guided.lago.cell import cell_identity, run_cell
from jaxrl_guided.lago.config import ARMS, OnlineConfig
from jaxrl_guided.lago.report import (
    as_text,
    draw_curves,
    experiment_record,
    gather,
    trials_record,
)
from jaxrl_guided.runtime import cells, files
from jaxrl_guided.runtime.config import to_dict
from jaxrl_guided.runtime.errors import UserError

PathLike = str | os.PathLike[str]
Grid = Mapping[str, OnlineConfig]
"""Cells by id."""

_STEPS_PER_MINUTE = {"plain": 600_000, "guided": 100_000}
"""Rough rates on one core, for the estimate that is shown at the start."""


def make_cells(wanted: Grid, prior: PathLike) -> list[cells.Cell]:
    """All cells of the grid; guided ones depend on the prior's content."""
    return [cells.Cell(name, cell_identity(cell, prior)) for name, cell in wanted.items()]


def estimate_minutes(cell: cells.Cell) -> float:
    """Expected minutes on one core."""
    config = cell.config["config"]
    arm = ARMS[config["arm"]]
    if not arm.learns:
        return 0.5
    steps = config["easy_steps"] if config["level"] == "easy" else config["ppo"]["total_steps"]
    rate = _STEPS_PER_MINUTE["guided" if arm.guided else "plain"]
    return 0.5 + steps * arm.steps_factor * len(config["seeds"]) / rate


def run_in_processes(
    wanted: Grid,
    prior: PathLike,
    data: PathLike,
    work: PathLike,
    results: PathLike,
    **options: Any,
) -> cells.GridReport:
    """Runs the unfinished cells, each in a process on one core.

    Args:
      prior, data: directories that the cells read.
      work: directory for the cells' run directories.
      results: directory for their JSON files.
      **options: `cores`, `only`, `max_minutes` of `cells.run_grid`.
    """
    work = Path(work)

    def command(cell: cells.Cell, out: Path) -> list[str]:
        described = work / f"{cell.id}.json"
        files.write_json(described, to_dict(wanted[cell.id]))
        flags: dict[str, PathLike] = {"cell": described, "run_dir": work / cell.id, "out": out}
        flags |= {"prior": prior, "data": data, "compile_cache": work / "compiled"}
        given = [f"--{name}={value}" for name, value in flags.items()]
        return [sys.executable, "-m", "experiments.train_online", *given]

    work.mkdir(parents=True, exist_ok=True)
    return cells.run_grid(
        make_cells(wanted, prior), command, results, estimate_minutes=estimate_minutes, **options
    )


def run_here(
    wanted: Grid, prior: PathLike, data: PathLike, work: PathLike, results: PathLike
) -> None:
    """Runs the unfinished cells one after another in this process."""
    finished = cells.load_grid(make_cells(wanted, prior), results)
    Path(results).mkdir(parents=True, exist_ok=True)
    for name, cell in wanted.items():
        if name not in finished:
            run_cell(cell, prior, data, Path(work) / name, Path(results) / f"{name}.json")


def report(wanted: Grid, prior: PathLike, results: PathLike, pictures: PathLike) -> dict[str, Any]:
    """Records by reward of what is finished; draws the curves into `pictures`.

    Raises:
      UserError: no cell is finished, or results of several configurations are mixed.
    """
    finished = cells.load_grid(make_cells(wanted, prior), results)
    if not finished:
        raise UserError(f"{results} holds no finished cell of this experiment")
    records: dict[str, Any] = {}
    for reward in dict.fromkeys(cell.reward for cell in wanted.values()):
        found = gather(list(finished.values()), reward)
        if not found.scores:
            continue
        draw_curves(found, pictures)
        title = f"LaGO on CLEVR-Robot, reward '{reward}'"
        records[reward] = experiment_record(found, title)
    return records


def report_trials(wanted: Grid, prior: PathLike, results: PathLike) -> dict[str, Any]:
    """Record of the tuning trials that are finished."""
    finished = cells.load_grid(make_cells(wanted, prior), results)
    return trials_record(finished, "Choice of hyper-parameters on Real, reward 'goal'")


def summary_text(records: dict[str, Any]) -> str:
    """All tables as Markdown, the answers first."""
    return "\n".join(as_text(record) for record in records.values())
