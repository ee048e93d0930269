"""Collecting a rollout."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl_guided.envs.population import any_of_all
from jaxrl_guided.envs.types import PyTree, TimeStep
from jaxrl_guided.learners.episodes import add_step
from jaxrl_guided.learners.interaction import Interaction
from jaxrl_guided.learners.normaliser import normalise
from jaxrl_guided.learners.ppo.state import Policy, PPOState, Rollout
from jaxrl_guided.networks.actor_critic import Memory, Network
from jaxrl_guided.networks.layers import forget


def make_interaction(network: Network, steps: int) -> Interaction:
    """Acting for `steps` steps, parameters and statistics fixed; `end` gives a `Rollout`."""

    def value(policy: Policy, memory: Memory, obs: PyTree) -> jax.Array:
        return network.value(policy.params, memory, normalise(policy.normaliser, obs))

    def begin(state: PPOState) -> tuple[PPOState, Policy, PyTree, jax.Array]:
        key, act_key = jax.random.split(state.key)
        carry = (state.obs, state.memory, state.episodes)
        state = dataclasses.replace(state, key=key)
        return state, state.policy, carry, jax.random.split(act_key, steps)

    def decide(policy: Policy, carry: PyTree, key: jax.Array) -> tuple[PyTree, jax.Array]:
        obs, memory, episodes = carry
        memory, distribution, now = network.step(
            policy.params, memory, normalise(policy.normaliser, obs)
        )
        raw = distribution.sample(key)
        log_prob = distribution.log_prob(raw)
        seen = {"obs": obs, "raw_action": raw, "log_prob": log_prob, "value": now}
        return (seen, memory, episodes), network.action(raw)

    def record(policy: Policy, carry: PyTree, after: TimeStep) -> tuple[PyTree, PyTree]:
        seen, memory, episodes = carry
        # Most steps truncate nothing, and then the critic's second pass is not made.
        final_value = jax.lax.cond(
            any_of_all(after.truncated),
            value,
            lambda *_: jnp.zeros_like(seen["value"]),
            policy,
            memory,
            after.final_obs,
        )
        episodes, sums = add_step(episodes, after)
        seen = seen | {
            "reward": after.reward,
            "terminated": after.terminated,
            "truncated": after.truncated,
            "final_value": final_value,
        }
        return (after.obs, forget(memory, after.done), episodes), (seen, sums)

    def end(
        state: PPOState, env_state: PyTree, carry: PyTree, seen: PyTree
    ) -> tuple[PPOState, Rollout]:
        (obs, memory, episodes), (seen, sums) = carry, seen
        rollout = Rollout(
            **seen,
            memory=state.memory,
            last_value=value(state.policy, memory, obs),
            episodes=jax.tree.map(lambda x: x.sum(axis=0), sums),
        )
        return dataclasses.replace(
            state, env_state=env_state, obs=obs, memory=memory, episodes=episodes
        ), rollout

    return Interaction(begin, decide, record, end)
