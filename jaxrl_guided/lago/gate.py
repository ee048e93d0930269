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
from jaxrl_guided.lago.judge import judge_policy
from jaxrl_guided.lago.training import freeze_prior, init_states, make_program, plan_of, ppo_config
from jaxrl_guided.learners.ppo import PPO, Policy, PPOState
from jaxrl_guided.learners.segments import Clock, train_in_segments
from jaxrl_guided.learners.train import Chunk, make_chunk
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
      sums: `f32[3]`: episodes that have ended, the sum of their returns, and that of the squares.
    """

    learner: PPOState
    sums: jax.Array

    @property
    def iteration(self) -> jax.Array:
        """Of the learner."""
        return self.learner.iteration

    @property
    def trained(self) -> Any:
        """What must stay finite (`train`)."""
        return self.learner.trained


@dataclasses.dataclass(frozen=True)
class _Side:
    """One of the two that are tried.

    Attributes:
      config: of the arm, its budget that of what it would do if it went on.
      frozen: the prior; None without.
      ppo, chunk: the program, over `Tried`.
    """

    config: OnlineConfig
    frozen: FrozenPrior | None
    ppo: PPO
    chunk: Chunk


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
    whole = ppo_config(config)
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
            parts[name] = mine, *_go_on(side, mine, start, run, stop, clock)
    curves = {name: (mine, curve["success"]) for name, (mine, _, _, curve) in parts.items()}
    spent = whole.steps_at(tried)
    (steps, *_) = [curve["steps"] for _, _, _, curve in parts.values()]
    results = {
        "steps": whole.steps_at(whole.iterations),
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
    return max(1, round(config.trial_share / 2 * ppo_config(config).iterations))


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
    whole = ppo_config(config)
    steps = whole.steps_at(whole.iterations - tried)
    ppo = dataclasses.replace(settings.ppo, total_steps=steps)
    part = dataclasses.replace(settings, arm=arm, ppo=ppo, easy_steps=steps)
    learner, _ = make_program(part, prior)

    def iterate(state: Tried, frozen: Any) -> tuple[Tried, Any]:
        after, metrics = learner.iterate(state.learner, frozen)
        names = ("episodes", "return_sum", "squared_return_sum")
        return Tried(after, state.sums + jnp.stack([metrics[name] for name in names])), metrics

    frozen = freeze_prior(config.level, prior) if prior is not None else None
    return _Side(part, frozen, learner, make_chunk(jax.vmap(iterate, in_axes=(0, None))))


def _try(
    side: _Side, iterations: int, run: RunDir, stop: StopFlag, clock: Clock
) -> tuple[Tried, np.ndarray]:
    """All seeds after the trial, and the sums over its second half."""
    plan = dataclasses.replace(
        plan_of(side.config, side.ppo), iterations=iterations, points=2, measure="sums"
    )
    start = Tried(init_states(side.ppo, side.config), jnp.zeros((len(side.config.seeds), 3)))

    def sums(state: Tried) -> Any:
        return np.asarray(state.sums).tolist()

    state, curve = _train(side, f"trial_{side.config.arm}", plan, start, sums, run, stop, clock)
    *half, end = np.asarray(curve["sums"])
    return state, end - half[0] if half else end


def _go_on(
    side: _Side, seeds: np.ndarray, start: Tried, run: RunDir, stop: StopFlag, clock: Clock
) -> tuple[OnlineConfig, Policy, dict[str, Any]]:
    """The configuration of these seeds, their policies at the end, and their curve."""
    config = dataclasses.replace(side.config, seeds=tuple(side.config.seeds[i] for i in seeds))

    def judge(state: Tried) -> list[float]:
        return judge_policy(config, state.learner.policy, config.level, curve=True)["success"]

    name, plan = f"rest_{config.arm}", plan_of(config, side.ppo)
    state, curve = _train(
        dataclasses.replace(side, config=config), name, plan, start, judge, run, stop, clock
    )
    return config, state.learner.policy, curve


def _train(
    side: _Side,
    name: str,
    plan: Any,
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
                plan, side.chunk, start, judge, part, checkpoints, stop, clock, side.frozen
            )
        except Stopped as error:
            raise Stopped(f"the same command goes on with --run_dir={run.home}") from error


def _merged(parts: dict[str, tuple[np.ndarray, Any]], key: Any) -> list[float]:
    """Numbers of all seeds in their order, from those of the two groups."""
    pairs = [
        (int(seed), value)
        for mine, numbers in parts.values()
        for seed, value in zip(mine, numbers[key], strict=True)
    ]
    return [value for _, value in sorted(pairs)]
