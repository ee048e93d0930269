"""Training on one environment, several seeds side by side: train, evaluate, sum up."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxrl_guided.learners.build import Job
from jaxrl_guided.learners.job_config import TrainConfig
from jaxrl_guided.learners.judge import judge_random, make_judge
from jaxrl_guided.learners.members import make_training, restore
from jaxrl_guided.learners.segments import Clock, Plan, train_in_segments
from jaxrl_guided.runtime.checkpoint import Checkpointer, save_alone
from jaxrl_guided.runtime.markdown import markdown_table, measure
from jaxrl_guided.runtime.mesh import is_leader
from jaxrl_guided.runtime.plots import learning_curves
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag
from jaxrl_guided.runtime.stats import INTERVALS, mean_text, middle_text

POLICY = "policy"
"""Directory of the final policies within a run."""

_MAX_ITERATIONS = 2048
"""Of a chunk: an iteration of SAC in one environment takes half a millisecond."""


def run_job(job: Job, run: RunDir, stop: StopFlag) -> dict[str, Any]:
    """Trains, evaluates and writes metrics, checkpoints, policies, summary and curve.

    Returns:
      What `train_members` returns, a member for each seed.

    Raises:
      FloatingPointError: the run has diverged.
      Stopped: asked to stop; the same call goes on from the last checkpoint.
    """
    config = job.config
    result = train_members(job, config.seeds, {}, run, stop)
    if not is_leader():
        return result
    run.write_summary(result, summary_text(config, result))
    curve = np.asarray(result["curve"]["steps"]), np.asarray(result["curve"]["return"]).T
    draw_returns(config, {config.algorithm.upper(): curve}, result, run)
    return result


def train_members(
    job: Job,
    seeds: Sequence[int],
    hyper: Mapping[str, np.ndarray],
    run: RunDir,
    stop: StopFlag,
) -> dict[str, Any]:
    """Trains a population in one program and evaluates it.

    Args:
      seeds: of the M members.
      hyper: hyper-parameters that differ between members, fields of the learner's `Hyper`, `f[M]`.
      run: gets metrics, checkpoints and the final policies; they belong to its configuration.

    Returns:
      JSON data: `final` numbers of each member, `random` ones (uniform random actions on the same
      episodes), `curve`, `steps` and `minutes`.
    """
    clock, config, learner = Clock(), job.config, job.learner
    plan = Plan(
        config.env,
        learner.config.iterations,
        learner.config.steps_at,
        config.evaluation.curve_points,
        "return",
    )
    judge_often = make_judge(job, config.evaluation.curve_episodes, sampled=False)
    judge = make_judge(job, config.evaluation.episodes)

    def start(seed: jax.Array, changes: dict[str, jax.Array]) -> Any:
        state: Any = learner.init(jax.random.key(seed))
        return dataclasses.replace(state, hyper=dataclasses.replace(state.hyper, **changes))

    changes = {name: np.asarray(values, np.float32) for name, values in hyper.items()}
    state, shardings = job.placement.init(start, np.asarray(seeds, np.uint32), changes)
    more = (None,) if job.demos is None else (None, job.demos)

    chunk = make_training(job.env, learner, _MAX_ITERATIONS, shardings)
    on_restore = functools.partial(restore, job.env)

    def point(state: Any) -> list[float]:
        return judge_often(state.policy)["return"]

    with Checkpointer(run.checkpoints, run.config) as checkpoints:
        state, curve = train_in_segments(
            plan, chunk, state, point, run, checkpoints, stop, clock, more, on_restore
        )
    save_alone(run.home / POLICY, run.config, state.policy)
    return {
        "final": judge(state.policy),
        "random": judge_random(job),
        "curve": curve,
        "steps": plan.steps_at(plan.iterations),
        "minutes": round(clock.seconds / 60, 2),
    }


def draw_returns(
    config: TrainConfig,
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    result: Mapping[str, Any],
    run: RunDir,
) -> None:
    """`curve.png`: returns over environment steps, and those of uniform random actions."""
    floor = {"uniform random": result["random"]["return"][0]}
    path, ylabel = run.path / "curve.png", "return of greedy actions"
    learning_curves(curves, path, config.env, ylabel, levels=floor)


def summary_text(config: TrainConfig, result: dict[str, Any]) -> str:
    """The result as Markdown: a row a number, with the values of the seeds."""
    rows = []
    for name, found in result["final"].items():
        title, values = measure(name.replace("_", " "), found)
        each = ", ".join(f"{value:.4g}" for value in values)
        rows.append([title, mean_text(values), middle_text(values), each])
    for name, found in result["random"].items():
        title, (value,) = measure(f"{name}, uniform random", found)
        rows.append([title, f"{value:.4g}", "", ""])
    seeds = ", ".join(map(str, config.seeds))
    columns = ["", "mean [95 %]", "interquartile mean [95 %]", f"seeds {seeds}"]
    title = f"# {config.algorithm.upper()} on {config.env}, {result['steps']:,} steps\n\n"
    return f"{title}{markdown_table(columns, rows)}\n{judged_text(config, result)}\n"


def judged_text(config: TrainConfig, result: dict[str, Any]) -> str:
    """How a table's numbers were made."""
    return (
        f"Final policies, greedy actions unless named sampled, {config.evaluation.episodes:,} "
        f"episodes each that no training has seen; {INTERVALS}. {result['steps']:,} environment "
        f"steps a seed, {result['minutes']:g} minutes in all."
    )
