"""PPO as a handful of pure functions over one state."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxrl_guided.envs.types import PyTree, VectorEnv
from jaxrl_guided.learners.episodes import no_episodes
from jaxrl_guided.learners.guidance import Guidance
from jaxrl_guided.learners.interaction import Interaction, collect
from jaxrl_guided.learners.normaliser import init_normaliser, init_reward_scale, normalise
from jaxrl_guided.learners.placement import check_division
from jaxrl_guided.learners.ppo.collect import make_interaction
from jaxrl_guided.learners.ppo.config import PPOConfig, make_hyper
from jaxrl_guided.learners.ppo.state import Metrics, Policy, PPOState, Rollout
from jaxrl_guided.learners.ppo.update import make_optimiser, make_update
from jaxrl_guided.networks.actor_critic import Memory, Network


@dataclasses.dataclass(frozen=True)
class PPO:
    """Pure functions; `frozen` is the guidance's frozen prior, None without guidance.

    Attributes:
      config: as given.
      init: `key -> PPOState`.
      interaction: the parts of `collect`, for environments that the host steps.
      collect: `state -> (state, Rollout)`.
      update: `(state, Rollout, frozen=None) -> (state, Metrics)`.
      iterate: `(state, frozen=None) -> (state, Metrics)`, both in turn.
      memory: `N -> memory` of the policy at the start of an episode.
      act: `(policy, memory, key, obs [N, …], greedy=False) -> (memory, action [N, …])`.
    """

    config: PPOConfig
    init: Callable[[jax.Array], PPOState]
    interaction: Interaction
    collect: Callable[[PPOState], tuple[PPOState, Rollout]]
    update: Callable[..., tuple[PPOState, Metrics]]
    iterate: Callable[..., tuple[PPOState, Metrics]]
    memory: Callable[[int], Memory]
    act: Callable[..., tuple[Memory, jax.Array]]


def make_ppo(
    env: VectorEnv,
    network: Network,
    config: PPOConfig,
    guidance: Guidance | None = None,
    mesh: Mesh | None = None,
) -> PPO:
    """Compose PPO from its parts.

    Args:
      mesh: devices among which each minibatch is divided; see `placement`.

    Raises:
      ValueError: `env` and `config` disagree about the number of environments, the sequences of a
        recurrent network do not divide into minibatches, or these not among the devices.
    """
    if env.num_envs != config.num_envs:
        raise ValueError(
            f"ppo.num_envs is {config.num_envs}, but {env.name} has {env.num_envs} environments"
        )
    if network.recurrent and config.num_envs % config.minibatches:
        raise ValueError(
            f"ppo.num_envs {config.num_envs} does not divide into ppo.minibatches "
            f"{config.minibatches}, and network.gru needs the rollouts of environments whole"
        )
    check_division("ppo: a minibatch", config.minibatch_items(network.recurrent), mesh)
    optimiser = make_optimiser(config)
    update = make_update(network, config, optimiser, guidance, mesh)

    def init(key: jax.Array) -> PPOState:
        key, params_key, env_key, guide_key = jax.random.split(key, 4)
        params = network.init(params_key)
        env_state, obs = env.reset(env_key)
        return PPOState(
            policy=Policy(
                params=params,
                normaliser=init_normaliser(env.observation_space) if config.normalise_obs else None,
            ),
            opt_state=optimiser.init(params),
            hyper=make_hyper(config),
            env_state=env_state,
            obs=obs,
            memory=network.memory(env.num_envs),
            episodes=no_episodes(env.num_envs),
            reward_scale=init_reward_scale(env.num_envs) if config.scale_reward else None,
            guidance=guidance.init(env.num_envs, guide_key) if guidance else None,
            key=key,
            iteration=jnp.int32(0),
        )

    interaction = make_interaction(network, config.rollout_steps)
    collect_rollout = functools.partial(collect, env, interaction)

    def iterate(state: PPOState, frozen: PyTree = None) -> tuple[PPOState, Metrics]:
        return update(*collect_rollout(state), frozen)

    return PPO(
        config,
        init,
        interaction,
        collect_rollout,
        update,
        iterate,
        network.memory,
        functools.partial(act, network),
    )


def act(
    network: Network,
    policy: Policy,
    memory: Memory,
    key: jax.Array,
    obs: PyTree,
    greedy: bool = False,
) -> tuple[Memory, jax.Array]:
    """Actions `[N, …]` for the environments, sampled or of the largest density."""
    obs = normalise(policy.normaliser, obs)
    memory, distribution, _ = network.step(policy.params, memory, obs)
    return memory, network.action(distribution.mode() if greedy else distribution.sample(key))
