"""PPO or SAC on a level of instructions, with a prior or without, for all seeds of a cell."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_guided.envs.types import PyTree, VectorEnv
from jaxrl_guided.lago.artifact import TrainedPrior, freeze
from jaxrl_guided.lago.config import OnlineConfig
from jaxrl_guided.lago.guidance import FrozenPrior, GuidanceConfig, make_guidance
from jaxrl_guided.lago.judge import level_env, make_network, make_soft, open_judge
from jaxrl_guided.lago.prior import PriorSpec
from jaxrl_guided.learners.members import make_training, restore
from jaxrl_guided.learners.ppo import PPO, Policy, PPOConfig, make_ppo
from jaxrl_guided.learners.sac import SAC, SACConfig, make_sac
from jaxrl_guided.learners.segments import Clock, Plan, train_in_segments
from jaxrl_guided.learners.train import Chunk
from jaxrl_guided.runtime.checkpoint import Checkpointer
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag


@dataclasses.dataclass(frozen=True)
class Program:
    """A learner on a level for any seeds, and its compiled loop.

    Attributes:
      learner: of one seed.
      chunk: of all seeds; its second argument is `(frozen prior or None,)`.
      env: that it trains in.
    """

    learner: PPO | SAC
    chunk: Chunk
    env: VectorEnv

    def init(self, config: OnlineConfig, frozen: FrozenPrior | None) -> Any:
        """States of all seeds."""
        keys = jnp.stack([jax.random.key(seed) for seed in config.seeds])
        if isinstance(self.learner, PPO):
            return jax.vmap(self.learner.init)(keys)
        return jax.vmap(self.learner.init, in_axes=(0, None))(keys, frozen)

    def restore(self, state: Any) -> None:
        """Brings environments that the host steps to where a learner's state says."""
        restore(self.env, state)

    def plan(self, config: OnlineConfig) -> Plan:
        """The whole run of an arm."""
        return Plan(
            f"{config.level}-{config.reward}-{config.arm}",
            self.learner.config.iterations,
            self.learner.config.steps_at,
            config.eval.curve_points,
            "success",
        )


def train_policies(
    config: OnlineConfig,
    run: RunDir,
    stop: StopFlag,
    start: Policy | None,
    prior: TrainedPrior | None,
    clock: Clock,
) -> tuple[PyTree, dict[str, Any]]:
    """The policies of all seeds after training, and the curve.

    Args:
      start: policies of PPO to start from.
      prior: guides; None without guidance.
    """
    frozen = freeze_prior(config, config.level, prior) if prior is not None else None
    with (
        open_program(config, prior) as program,
        open_judge(config, config.level, curve=True) as judge,
        Checkpointer(run.checkpoints, config.used()) as checkpoints,
    ):
        state = program.init(config, frozen)
        if start is not None:
            state = dataclasses.replace(state, policy=start)
        plan = program.plan(config)
        state, curve = train_in_segments(
            plan,
            program.chunk,
            state,
            lambda state: judge(state.policy)["success"],
            run,
            checkpoints,
            stop,
            clock,
            (frozen,),
            program.restore,
        )
    return state.policy, {"steps": plan.steps_at(plan.iterations), "curve": curve}


def freeze_prior(config: OnlineConfig, level: str, prior: TrainedPrior) -> FrozenPrior:
    """The prior with the texts of a level."""
    texts = config.family.instructions(level).texts
    return freeze(prior.spec, prior.prior, prior.tokenizer, texts)


@contextlib.contextmanager
def open_program(config: OnlineConfig, prior: TrainedPrior | None) -> Iterator[Program]:
    """The learner of an arm with its budget, guided with a prior; closes its environments."""
    # All that decides the program: arms that share it are compiled once.
    shared = dataclasses.replace(config, arm=config.algorithm, seeds=(0,))
    own = config.learner
    guided = None if prior is None else (prior.spec, config.arm_guidance)
    if not config.on_host:
        yield _program(shared, own, guided)
        return
    env = level_env(config, config.level, own.num_envs, members=len(config.seeds))
    with contextlib.closing(env):
        yield _make_program(shared, own, guided, env)


Guided = tuple[PriorSpec, GuidanceConfig] | None
"""By what a learner is guided."""


@functools.lru_cache(maxsize=4)
def _program(config: OnlineConfig, own: PPOConfig | SACConfig, guided: Guided) -> Program:
    env = level_env(config, config.level, own.num_envs)
    return _make_program(config, own, guided, env)


def _make_program(
    config: OnlineConfig, own: PPOConfig | SACConfig, guided: Guided, env: VectorEnv
) -> Program:
    guidance = make_guidance(*guided) if guided is not None else None
    learner: PPO | SAC
    if isinstance(own, SACConfig):
        learner = make_sac(env, make_soft(config, config.level, env), own, guidance)
    else:
        learner = make_ppo(env, make_network(config, config.level, env), own, guidance)
    return Program(learner, make_training(env, learner), env)
