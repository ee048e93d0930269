"""What a learner does around each step of its environments, and the scan that does it in JAX.

`on_host` has the loop that does the same from the host.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from jaxrl_guided.envs.types import PyTree, TimeStep, VectorEnv


@dataclasses.dataclass(frozen=True)
class Interaction:
    """Pure functions that make a rollout of T steps in N environments.

    Attributes:
      begin: `state -> (state, fixed, carry, keys [T])`: what stays the same for all steps, what
        goes from step to step, and a key for each.
      decide: `(fixed, carry, key) -> (carry, action [N, …])`.
      record: `(fixed, carry, TimeStep) -> (carry, seen)`, with the carry of `decide`.
      end: `(state, env_state, carry, seen [T, …]) -> (state, *what was collected)`.
    """

    begin: Callable[[Any], tuple[Any, PyTree, PyTree, jax.Array]]
    decide: Callable[[PyTree, PyTree, jax.Array], tuple[PyTree, jax.Array]]
    record: Callable[[PyTree, PyTree, TimeStep], tuple[PyTree, PyTree]]
    end: Callable[[Any, PyTree, PyTree, PyTree], tuple[Any, ...]]


def witnessed(
    interaction: Interaction, look: Callable[[jax.Array, TimeStep], PyTree]
) -> Interaction:
    """The same rollout, with `look(action [N, …], TimeStep)` of every step `[T, …]` at the end."""

    def decide(fixed: PyTree, carry: PyTree, key: jax.Array) -> tuple[PyTree, jax.Array]:
        carry, action = interaction.decide(fixed, carry, key)
        return (carry, action), action

    def record(fixed: PyTree, now: PyTree, after: TimeStep) -> tuple[PyTree, PyTree]:
        carry, action = now
        carry, seen = interaction.record(fixed, carry, after)
        return carry, (seen, look(action, after))

    def end(state: Any, env_state: PyTree, carry: PyTree, seen: PyTree) -> tuple[Any, ...]:
        seen, looked = seen
        return *interaction.end(state, env_state, carry, seen), looked

    return Interaction(interaction.begin, decide, record, end)


def collect(env: VectorEnv, interaction: Interaction, state: Any) -> tuple[Any, ...]:
    """The learner's state after a rollout, and what `Interaction.end` makes of it."""
    state, fixed, carry, keys = interaction.begin(state)

    def step(now: PyTree, key: jax.Array) -> tuple[PyTree, PyTree]:
        env_state, carry = now
        carry, action = interaction.decide(fixed, carry, key)
        env_state, after = env.step(env_state, action)
        carry, seen = interaction.record(fixed, carry, after)
        return (env_state, carry), seen

    (env_state, carry), seen = jax.lax.scan(step, (state.env_state, carry), keys)
    return interaction.end(state, env_state, carry, seen)
