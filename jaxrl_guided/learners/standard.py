"""How both learners do on well-known tasks: a table made of cells, a task and a learner each."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl_guided.learners.build import prepare
from jaxrl_guided.learners.job import run_job
from jaxrl_guided.learners.job_config import TrainConfig
from jaxrl_guided.learners.presets import BREAKOUT, CARTPOLE, MINIHACK, PENDULUM
from jaxrl_guided.runtime import cells, files, rundir
from jaxrl_guided.runtime.config import from_dict, to_dict
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.plots import Panel, panels
from jaxrl_guided.runtime.signals import catch_signals
from jaxrl_guided.runtime.stats import mean_text, middle_text

_MINATAR = ("Breakout", "Asterix", "Freeway", "SpaceInvaders")
_EASY_ROOMS = ("Room-5x5", "Room-Random-5x5")
_HARD_ROOMS = ("Room-Ultimate-5x5", "Room-Dark-15x15")


def _tasks() -> dict[str, TrainConfig]:
    """Cells by id. Settings are those of the presets, never chosen on these tables."""
    acrobot = dataclasses.replace(CARTPOLE, env="gymnax/Acrobot-v1")
    recall = dataclasses.replace(
        CARTPOLE,
        env="gymnax/MemoryChain-bsuite",
        options=("memory_length=10", "max_steps_in_episode=12"),
    )
    discrete = dataclasses.replace(
        PENDULUM.sac, num_envs=4, updates_per_step=0.5, total_steps=50_000, replay_capacity=50_000
    )
    found = {
        "cartpole-ppo": CARTPOLE,
        "cartpole-sac": dataclasses.replace(PENDULUM, env="gymnax/CartPole-v1", sac=discrete),
        "acrobot-ppo": acrobot,
        "pendulum-ppo": dataclasses.replace(
            PENDULUM, algorithm="ppo", ppo=dataclasses.replace(PENDULUM.ppo, total_steps=1_000_000)
        ),
        "pendulum-sac": PENDULUM,
        "memorychain-ppo": recall,
        "memorychain-ppo-gru": dataclasses.replace(
            recall, network=dataclasses.replace(recall.network, gru=32)
        ),
    }
    for game in _MINATAR:
        found[f"{game.lower()}-ppo"] = dataclasses.replace(BREAKOUT, env=f"gymnax/{game}-MinAtar")
    for room in _EASY_ROOMS:
        found[f"{room.lower()}-ppo"] = dataclasses.replace(MINIHACK, env=f"minihack/{room}")
    for room in _HARD_ROOMS:
        longer = dataclasses.replace(MINIHACK.ppo, total_steps=500_000)
        memory = dataclasses.replace(MINIHACK.network, gru=64)
        task = dataclasses.replace(MINIHACK, env=f"minihack/{room}", ppo=longer, network=memory)
        found[f"{room.lower()}-ppo-gru"] = task
    return {name: dataclasses.replace(task, seeds=tuple(range(5))) for name, task in found.items()}


TASKS = _tasks()
_MINUTES = {
    "cartpole-sac": 10.0,
    "pendulum-sac": 5.0,
    **{f"{game.lower()}-ppo": 8.0 for game in (*_MINATAR, *_EASY_ROOMS)},
    **{f"{room.lower()}-ppo-gru": 20.0 for room in _HARD_ROOMS},
}
"""Of the longer cells, on one core."""


def make_cells() -> list[cells.Cell]:
    """All cells of the table."""
    return [cells.Cell(name, to_dict(task)) for name, task in TASKS.items()]


def estimate_minutes(cell: cells.Cell) -> float:
    """Expected minutes on one core."""
    return _MINUTES.get(cell.id, 2.0)


def run_in_processes(
    work: PathLike, results: PathLike, program: Sequence[str], **options: Any
) -> cells.GridReport:
    """Runs the unfinished cells, each in a process on one core.

    Args:
      work: directory for the cells' run directories.
      results: directory for their JSON files.
      program: command of `experiments.train`, without its flags.
      **options: `cores`, `only`, `max_minutes` of `cells.run_grid`.

    Raises:
      UserError: a bad option, or finished cells are of another configuration.
    """
    options["estimate_minutes"] = estimate_minutes
    return cells.run_scripts(make_cells(), TASKS, {}, program, work, results, **options)


def run_cell(config: TrainConfig, run_dir: PathLike | None, out: PathLike) -> dict[str, Any]:
    """Runs a cell on one device and writes its result.

    Raises:
      UserError: bad input, found before anything is written.
      Stopped: by a signal; the same call goes on.
    """
    files.check_new(out, "result")
    with (
        contextlib.closing(prepare(config, len(config.seeds), devices=1)) as job,
        rundir.open_run(run_dir, "cell", config) as run,
        catch_signals() as stop,
    ):
        result = run_job(job, run, stop)
    record = {"config": to_dict(config), **result}
    cells.write_result(out, to_dict(config), record)
    return result


def standard_record(results: PathLike, picture: PathLike) -> dict[str, Any]:
    """The table of the finished cells, and their learning curves as one picture.

    Raises:
      UserError: a result is damaged or of another configuration.
    """
    finished = cells.load_grid(make_cells(), results)
    rows, pictures = [], {}
    for name, record in finished.items():
        config = from_dict(TrainConfig, record["config"], name)
        rows.append(_row(config, record))
        steps, returns = (np.asarray(record["curve"][key]) for key in ("steps", "return"))
        floor = {"uniform random": record["random"]["return"][0]}
        pictures[_title(config)] = Panel({"greedy return": (steps, returns.T)}, floor)
    if pictures:
        panels(pictures, picture)
    return {
        "title": "PPO and SAC on well-known tasks",
        "first_line": f"{len(finished)} of {len(TASKS)} cells are finished; five seeds each.",
        "columns": _COLUMNS,
        "rows": rows,
        "note": "Means over seeds [95 % bootstrap interval], 100 episodes each; settings are those "
        "of the presets (`learners/standard.py`).",
        **cells.stamp(cells.revisions_of(finished.values())),
    }


_COLUMNS = (
    "task",
    "learner",
    "steps",
    "return, greedy",
    "interquartile mean",
    "return, sampled",
    "uniform random",
)


def _title(config: TrainConfig) -> str:
    memory = " with a GRU" if config.algorithm == "ppo" and config.network.gru else ""
    return f"{config.env.partition('/')[2]}, {config.algorithm.upper()}{memory}"


def _row(config: TrainConfig, record: Mapping[str, Any]) -> list[str]:
    final = record["final"]
    task, learner = _title(config).split(", ")
    return [
        task,
        learner,
        f"{record['steps']:,}",
        mean_text(final["return"]),
        middle_text(final["return"]),
        mean_text(final["sampled_return"]),
        f"{record['random']['return'][0]:.4g}",
    ]
