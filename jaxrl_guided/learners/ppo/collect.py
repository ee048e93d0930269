"""Collecting a rollout."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl_guided.envs.population import any_of_all
from jaxrl_guided.envs.types import PyTree, VectorEnv
from jaxrl_guided.learners.episodes import add_step
from jaxrl_guided.learners.normaliser import normalise
from jaxrl_guided.learners.ppo.state import PPOState, Rollout
from jaxrl_guided.networks.actor_critic import Memory, Network
from jaxrl_guided.networks.layers import forget


def collect(
    env: VectorEnv, network: Network, steps: int, state: PPOState
) -> tuple[PPOState, Rollout]:
    """Act for `steps` steps in every environment, parameters and statistics fixed."""
    policy = state.policy

    def value(memory: Memory, obs: PyTree) -> jax.Array:
        return network.value(policy.params, memory, normalise(policy.normaliser, obs))

    def step(carry: PyTree, key: jax.Array) -> tuple[PyTree, PyTree]:
        env_state, obs, memory, episodes = carry
        memory, distribution, now = network.step(
            policy.params, memory, normalise(policy.normaliser, obs)
        )
        raw = distribution.sample(key)
        env_state, after = env.step(env_state, network.action(raw))
        # Most steps truncate nothing, and then the critic's second pass is not made.
        final_value = jax.lax.cond(
            any_of_all(after.truncated),
            value,
            lambda *_: jnp.zeros_like(now),
            memory,
            after.final_obs,
        )
        episodes, sums = add_step(episodes, after)
        seen = {
            "obs": obs,
            "raw_action": raw,
            "log_prob": distribution.log_prob(raw),
            "value": now,
            "reward": after.reward,
            "terminated": after.terminated,
            "truncated": after.truncated,
            "final_value": final_value,
        }
        return (env_state, after.obs, forget(memory, after.done), episodes), (seen, sums)

    key, act_key = jax.random.split(state.key)
    start = (state.env_state, state.obs, state.memory, state.episodes)
    (env_state, obs, memory, episodes), (seen, sums) = jax.lax.scan(
        step, start, jax.random.split(act_key, steps)
    )
    rollout = Rollout(
        **seen,
        memory=state.memory,
        last_value=value(memory, obs),
        episodes=jax.tree.map(lambda x: x.sum(axis=0), sums),
    )
    return dataclasses.replace(
        state, env_state=env_state, obs=obs, memory=memory, episodes=episodes, key=key
    ), rollout
