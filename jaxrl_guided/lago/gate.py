"""Gated LaGO: guided and plain PPO are tried, and for each seed the better one goes on.

Plain PPO has its own best settings. Both trials count in the budget, and the choice reads nothing
but the returns of training: guidance goes on only where it was clearly better.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxrl_guided.lago.artifact import TrainedPrior
from jaxrl_guided.lago.config import OnlineConfig
from jaxrl_guided.lago.guidance import FrozenPrior
from jaxrl_guided.lago.judge import judge_policy, open_judge
from jaxrl_guided.lago.training import Program, freeze_prior, open_program
from jaxrl_guided.learners.ppo import Policy, PPOState
from jaxrl_guided.learners.segments import Clock, Plan, train_in_segments
from jaxrl_guided.learners.train import Chunk
from jaxrl_guided.runtime.checkpoint import Checkpointer
from jaxrl_guided.runtime.rundir import RunDir, open_run
from jaxrl_guided.runtime.signals import StopFlag, Stopped

GUIDED, PLAIN = "lago", "ppo"
"""The arms that are tried."""

CONFIDENCE = 1.645
"""Standard errors by which guidance must be ahead: one-sided, 95 %."""


@struct.dataclass
class Tried:
    """A learner's state, and sums over the episodes of training so far.

    Attributes:
      learner: PPO's state.
      sums: `f32[S, 3]`: episodes that have ended, the sum of their returns, and of the squares.
    """

    learner: PPOState
    sums: jax.Array

    @property
    def iteration(self) -> jax.Array:
        """Of the learner."""
        return self.learner.iteration


@dataclasses.dataclass(frozen=True)
class _Side:
    """One of the two that are tried.

    Attributes:
      config: of the arm, its budget that of what it would do if it went on.
      prior: None without guidance.
      frozen: the same with the texts of the level.
    """

    config: OnlineConfig
    prior: TrainedPrior | None
    frozen: FrozenPrior | None

    def of(self, seeds: np.ndarray) -> "_Side":
        """For some of the seeds alone."""
        chosen = tuple(self.config.seeds[i] for i in seeds)
        return dataclasses.replace(self, config=dataclasses.replace(self.config, seeds=chosen))


@dataclasses.dataclass(frozen=True)
class Gated:
    """What a gated run has found.

    Attributes:
      results: JSON data: `steps`, `curve` and, for each seed, the arm that was `chosen`.
      judge: `level -> numbers`, lists over seeds.
    """

    results: dict[str, Any]
    judge: Callable[[str], dict[str, list[float]]]


def run_gated(
    config: OnlineConfig, run: RunDir, stop: StopFlag, prior: TrainedPrior, clock: Clock
) -> Gated:
    """Tries both, chooses for each seed, and trains on.

    Raises:
      Stopped: asked to stop; the same call goes on from the last checkpoint.
    """
    tried = trial_iterations(config)
    sides = {
        GUIDED: _side(config, GUIDED, tried, prior),
        PLAIN: _side(config, PLAIN, tried, None),
    }
    states, returns = {}, {}
    for name, side in sides.items():
        states[name], returns[name] = _try(side, tried, run, stop, clock)
    guided = choose(returns[GUIDED], returns[PLAIN])
    parts = {}
    for name, side in sides.items():
        mine = np.flatnonzero(guided == (name == GUIDED))
        if len(mine):
            start = jax.tree.map(lambda x, mine=mine: x[mine], states[name])
            part = side.of(mine)
            parts[name] = mine, part.config, *_go_on(part, start, run, stop, clock)
    curves = {name: (mine, curve["success"]) for name, (mine, _, _, curve) in parts.items()}
    spent = config.ppo.steps_at(tried)
    (steps, *_) = [curve["steps"] for _, _, _, curve in parts.values()]
    results = {
        "steps": config.ppo.steps_at(config.learner.iterations),
        "curve": {
            "steps": [spent + step for step in steps],
            "success": [_merged(curves, point) for point in range(len(steps))],
        },
        "chosen": [GUIDED if won else PLAIN for won in guided],
    }

    def judge(level: str) -> dict[str, list[float]]:
        found = {
            name: (mine, judge_policy(part, policy, level))
            for name, (mine, part, policy, _) in parts.items()
        }
        names = next(iter(found.values()))[1]
        return {key: _merged(found, key) for key in names}

    return Gated(results, judge)


def trial_iterations(config: OnlineConfig) -> int:
    """Iterations of each of the two trials; the second half of them counts."""
    return max(1, round(config.trial_share / 2 * config.learner.iterations))


def choose(guided: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """`bool[S]`: where guidance was clearly better.

    Args:
      guided, plain: `f[S, 3]`, differences of `Tried.sums`.
    """
    mean, error = zip(*(_mean_and_error(sums) for sums in (guided, plain)), strict=True)
    ahead = mean[0] - mean[1] - CONFIDENCE * np.sqrt(error[0] + error[1])
    return ahead > 0  # nan, where nothing ended, is not


def _mean_and_error(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean return and its squared standard error."""
    count, total, squares = np.moveaxis(np.asarray(sums, np.float64), -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count
        return mean, np.maximum(squares / count - mean**2, 0) / np.maximum(count - 1, 0)


def _side(config: OnlineConfig, arm: str, tried: int, prior: TrainedPrior | None) -> _Side:
    settings = config if arm == GUIDED else config.alone.applied(config)
    steps = config.ppo.steps_at(config.learner.iterations - tried)
    ppo = dataclasses.replace(settings.ppo, total_steps=steps)
    part = dataclasses.replace(settings, arm=arm, ppo=ppo, easy_steps=steps)
    frozen = freeze_prior(config, config.level, prior) if prior is not None else None
    return _Side(part, prior, frozen)


def _try(
    side: _Side, iterations: int, run: RunDir, stop: StopFlag, clock: Clock
) -> tuple[Tried, np.ndarray]:
    """All seeds after the trial, and the sums over its second half."""

    def sums(state: Tried) -> Any:
        return np.asarray(state.sums).tolist()

    with open_program(side.config, side.prior) as program:
        plan = dataclasses.replace(
            program.plan(side.config), iterations=iterations, points=2, measure="sums"
        )
        learner = program.init(side.config, side.frozen)
        start = Tried(learner, jnp.zeros((len(side.config.seeds), 3)))
        name = f"trial_{side.config.arm}"
        state, curve = _train(side, program, name, plan, start, sums, run, stop, clock)
    *half, end = np.asarray(curve["sums"])
    return state, end - half[0] if half else end


def _go_on(
    side: _Side, start: Tried, run: RunDir, stop: StopFlag, clock: Clock
) -> tuple[Policy, dict[str, Any]]:
    """The policies of these seeds at the end, and their curve."""
    config = side.config
    with (
        open_program(config, side.prior) as program,
        open_judge(config, config.level, curve=True) as judge,
    ):
        program.restore(start.learner)

        def success(state: Tried) -> list[float]:
            return judge(state.learner.policy)["success"]

        name, plan = f"rest_{config.arm}", program.plan(config)
        state, curve = _train(side, program, name, plan, start, success, run, stop, clock)
    return state.learner.policy, curve


def _train(
    side: _Side,
    program: Program,
    name: str,
    plan: Plan,
    start: Tried,
    judge: Callable[[Tried], Any],
    run: RunDir,
    stop: StopFlag,
    clock: Clock,
) -> tuple[Tried, dict[str, Any]]:
    """A stretch of training in a run directory of its own."""
    with (
        open_run(run.path / name, name, side.config.used()) as part,
        Checkpointer(part.checkpoints, side.config.used()) as checkpoints,
    ):
        try:
            return train_in_segments(
                plan,
                _with_sums(program.chunk),
                start,
                judge,
                part,
                checkpoints,
                stop,
                clock,
                (side.frozen,),
                lambda state: program.restore(state.learner),
            )
        except Stopped as error:
            raise Stopped(f"the same command goes on with --run_dir={run.home}") from error


def _with_sums(chunk: Chunk) -> Chunk:
    """The loop over `Tried`."""

    def run(state: Tried, frozen: Any, count: Any) -> tuple[Tried, dict[str, Any]]:
        learner, rows = chunk.run(state.learner, frozen, count)
        names = ("episodes", "return_sum", "squared_return_sum")
        sums = np.array(state.sums)
        for row in np.stack([np.asarray(rows[name]) for name in names], axis=-1)[:count]:
            sums += row  # one by one: the sums do not depend on how the run was cut
        return Tried(learner, jnp.asarray(sums)), rows

    return Chunk(run, chunk.max_iterations)


def _merged(parts: dict[str, tuple[np.ndarray, Any]], key: Any) -> list[float]:
    """Numbers of all seeds in their order, from those of the two groups."""
    pairs = [
        (int(seed), value)
        for mine, numbers in parts.values()
        for seed, value in zip(mine, numbers[key], strict=True)
    ]
    return [value for _, value in sorted(pairs)]
