"""One cell of the online grid: reads what earlier stages wrote, runs an arm, writes its result."""

import contextlib
from typing import Any

import numpy as np

from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.lago.artifact import TrainedPrior
from jaxrl_guided.lago.config import ARMS, OnlineConfig
from jaxrl_guided.lago.offline import load_data, load_trained
from jaxrl_guided.lago.online import check_inputs, run_arm
from jaxrl_guided.lago.sources import Sources, hash_sources
from jaxrl_guided.runtime import cells, files, rundir
from jaxrl_guided.runtime.config import to_dict
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.markdown import markdown_table
from jaxrl_guided.runtime.plots import learning_curves
from jaxrl_guided.runtime.signals import StopFlag, catch_signals

_SHOWN = {
    "success": "success of greedy actions, %",
    "sampled_success": "success of sampled actions, %",
}


def cell_identity(config: OnlineConfig, sources: Sources) -> dict[str, Any]:
    """What decides a cell's result: what its arm uses of the configuration, the prior, the data."""
    arm = ARMS[config.arm]
    return {
        "config": config.used(),
        "prior": sources.prior if arm.guided else None,
        "data": sources.data if arm.from_bc else None,
    }


def load_inputs(
    config: OnlineConfig, prior: PathLike | None, data: PathLike | None
) -> tuple[TrainedPrior | None, Episodes | None]:
    """The prior and the expert's episodes, each where the arm uses it.

    Raises:
      UserError: they are missing, damaged, or do not fit the configuration.
    """
    arm = ARMS[config.arm]
    trained = load_trained(prior, config.env) if arm.guided and prior is not None else None
    expert = load_data(data, config.env) if arm.from_bc and data is not None else None
    check_inputs(config, trained, expert)
    return trained, expert


def run_cell(
    config: OnlineConfig,
    prior: PathLike | None,
    data: PathLike | None,
    run_dir: PathLike | None,
    out: PathLike | None = None,
    stop: StopFlag | None = None,
) -> dict[str, Any]:
    """Runs an arm with the prior and dataset at the given paths.

    Args:
      run_dir: of this cell, made for its configuration, prior and data; None makes a new one.
      out: the result's JSON file, as `cells.write_result` writes it; None writes the summary only.
      stop: the caller's, who has caught signals for several cells; None catches them here.

    Raises:
      UserError: bad input, found before anything is written.
      Stopped: by a signal; the same call goes on.
    """
    if out is not None:
        files.check_new(out, "result")
    trained, expert = load_inputs(config, prior, data)
    read = hash_sources(prior if trained else None, data if expert else None)
    identity = cell_identity(config, read)
    with (
        rundir.open_run(run_dir, f"online-{config.arm}", identity) as run,
        contextlib.nullcontext(stop) if stop else catch_signals() as asked,
    ):
        result = run_arm(config, run, asked, trained, expert)
        record = {"config": to_dict(config), **result}
        run.write_summary(record, summary_text(config, result))
        _draw_curve(config, result["curve"], run.path / "curve.png")
    if out is not None:
        cells.write_result(out, identity, record)
    return result


def summary_text(config: OnlineConfig, result: dict[str, Any]) -> str:
    """The cell's result as Markdown: success of every seed, greedy and sampled."""
    seeds = ", ".join(map(str, config.seeds))
    rows = [
        [level, *(", ".join(f"{100 * x:.1f}" for x in numbers[name]) for name in _SHOWN)]
        for level, numbers in result["final"].items()
    ]
    columns = ["level", *_SHOWN.values()]
    title = f"{ARMS[config.arm].title} on {config.env}/{config.level}, reward {config.reward}"
    return f"# {title}, seeds {seeds}\n\n{markdown_table(columns, rows)}"


def _draw_curve(config: OnlineConfig, curve: dict[str, Any], path: PathLike) -> None:
    """Greedy success over environment steps, for an arm that has learned."""
    if curve["steps"]:
        points = np.asarray(curve["steps"]), 100 * np.asarray(curve["success"]).T
        title = f"{config.env}/{config.level}, reward {config.reward}"
        learning_curves(
            {ARMS[config.arm].title: points}, path, title, "success of greedy actions, %"
        )
