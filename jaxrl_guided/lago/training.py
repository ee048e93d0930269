"""PPO on a level of instructions, with a prior or without, for all seeds of a cell."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.lago.artifact import TrainedPrior, freeze
from jaxrl_guided.lago.config import OnlineConfig
from jaxrl_guided.lago.guidance import FrozenPrior, GuidanceConfig, make_guidance
from jaxrl_guided.lago.judge import judge_policy, level_env, make_network
from jaxrl_guided.lago.prior import PriorSpec
from jaxrl_guided.learners.ppo import PPO, Policy, PPOConfig, make_ppo
from jaxrl_guided.learners.segments import Clock, Plan, train_in_segments
from jaxrl_guided.learners.train import Chunk, make_chunk
from jaxrl_guided.runtime.checkpoint import Checkpointer
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag


def train_policies(
    config: OnlineConfig,
    run: RunDir,
    stop: StopFlag,
    start: Policy | None,
    prior: TrainedPrior | None,
    frozen: FrozenPrior | None,
    clock: Clock,
) -> tuple[Policy, dict[str, Any]]:
    """The policies of all seeds after training, and the curve."""
    ppo, chunk = make_program(config, prior if frozen is not None else None)
    state = init_states(ppo, config)
    if start is not None:
        state = dataclasses.replace(state, policy=start)
    plan = plan_of(config, ppo)

    def judge(state: Any) -> list[float]:
        return judge_policy(config, state.policy, config.level, curve=True)["success"]

    with Checkpointer(run.checkpoints, config.used()) as checkpoints:
        state, curve = train_in_segments(
            plan, chunk, state, judge, run, checkpoints, stop, clock, frozen
        )
    return state.policy, {"steps": ppo.config.steps_at(ppo.config.iterations), "curve": curve}


def plan_of(config: OnlineConfig, ppo: PPO) -> Plan:
    """The whole run of an arm."""
    return Plan(
        f"{config.level}-{config.reward}-{config.arm}",
        ppo.config.iterations,
        ppo.config.steps_at,
        config.eval.curve_points,
        "success",
    )


def init_states(ppo: PPO, config: OnlineConfig) -> Any:
    """States of all seeds."""
    return jax.vmap(ppo.init)(jnp.stack([jax.random.key(seed) for seed in config.seeds]))


def freeze_prior(level: str, prior: TrainedPrior) -> FrozenPrior:
    """The prior with the texts of a level."""
    return freeze(prior.spec, prior.prior, prior.tokenizer, instruction_set(level).texts)


def ppo_config(config: OnlineConfig) -> PPOConfig:
    """PPO with the arm's budget."""
    return dataclasses.replace(config.ppo, total_steps=config.total_steps)


def make_program(config: OnlineConfig, prior: TrainedPrior | None) -> tuple[PPO, Chunk]:
    """PPO on the level for any number of seeds, and its compiled loop; guided with a prior."""
    # All that decides the program: arms that share it are compiled once.
    shared = dataclasses.replace(config, arm="ppo", seeds=(0,), ppo=ppo_config(config))
    return _program(shared, None if prior is None else (prior.spec, config.arm_guidance))


@functools.lru_cache(maxsize=4)
def _program(
    config: OnlineConfig, guided: tuple[PriorSpec, GuidanceConfig] | None
) -> tuple[PPO, Chunk]:
    env = level_env(config, config.level, config.ppo.num_envs)
    network = make_network(config, config.level, env)
    guidance = make_guidance(*guided) if guided is not None else None
    ppo = make_ppo(env, network, config.ppo, guidance)
    return ppo, make_chunk(jax.vmap(ppo.iterate, in_axes=(0, None)))
