"""Instruction following: does a choice turn round when the direction in the text is swapped?

A text and its twin (same pattern, same balls, opposite direction) are asked in the same state. The
measure tells a prior that reads the direction from one that pushes the named balls anywhere.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.clevr.instructions import GOALS, InstructionSet, instruction_set
from jaxrl_guided.envs.clevr.table import COMPASS, DIRECTIONS
from jaxrl_guided.lago.guidance import FrozenPrior
from jaxrl_guided.lago.prior import PriorSpec, Steps, action_outputs

Choice = Callable[[jax.Array, jax.Array], jax.Array]
"""`(instruction i32[n], state f32[n, 10]) -> action i32[n]`."""

PUSHES = DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)
"""Unit vectors of the 8 pushes."""


def relative_push(action: jax.Array, relation: jax.Array) -> jax.Array:
    """Where a push moves the source as seen from the destination, as a unit vector `f32[n, 2]`.

    It is the push if the source is pushed, the opposite if the destination is, else zero.

    Args:
      action: `i32[n]`, ball · 8 + direction.
      relation: `i32[n, 3]`, (source, destination, direction).
    """
    ball, push = jnp.divmod(action, len(DIRECTIONS))
    sign = (ball == relation[:, 0]).astype(jnp.float32) - (ball == relation[:, 1])
    return sign[:, None] * jnp.asarray(PUSHES, jnp.float32)[push]


def turned(
    action: jax.Array, twin_action: jax.Array, relation: jax.Array, twin_relation: jax.Array
) -> jax.Array:
    """`bool[n]`: the change of the push has a part along the change of the direction.

    Args:
      action, twin_action: `i32[n]`, what was chosen for a relation and for its twin.
      relation, twin_relation: `i32[n, 3]`.
    """
    compass = jnp.asarray(COMPASS)
    asked = compass[twin_relation[:, 2]] - compass[relation[:, 2]]
    done = relative_push(twin_action, twin_relation) - relative_push(action, relation)
    return jnp.sum(asked * done, axis=-1) > 0


def opposite_twins(instructions: InstructionSet) -> np.ndarray:
    """`i32[I]`: index of the text with the same pattern and balls and the opposite direction.

    -1 where the set has none, as for texts that are not of Real or Rephrase.
    """
    twin_of = {}
    for level in ("real", "rephrase"):
        texts = instruction_set(level).texts  # goal by goal, the same patterns for each
        goal, pattern = np.divmod(np.arange(len(texts)), len(texts) // len(GOALS))
        opposite = goal - goal % 4 + (goal + 2) % 4  # of a goal, the direction counts fastest
        twins = opposite * (len(texts) // len(GOALS)) + pattern
        twin_of.update({text: texts[twin] for text, twin in zip(texts, twins, strict=True)})
    index = {text: i for i, text in enumerate(instructions.texts)}
    return np.array([index.get(twin_of.get(text, ""), -1) for text in instructions.texts], np.int32)


def share_turned(choose: Choice, instructions: InstructionSet, states: np.ndarray) -> float:
    """Share of questions in which a policy's choice turns towards the other direction.

    A policy that follows every text scores 1, one that is blind to the direction 0, and uniform
    random actions .24.

    Every text that has a twin and every state are used at least once: question i is text i with
    state i, and the shorter of the two lists starts anew.

    Args:
      choose: the policy, greedy.
      instructions: of Real or Rephrase.
      states: `f32[M, 10]`.

    Raises:
      ValueError: no text has a twin, or there is no state.
    """
    twins = opposite_twins(instructions)
    texts = np.flatnonzero(twins >= 0)
    if not len(texts):
        raise ValueError(
            f"instructions: no text of '{instructions.level}' has a twin with the opposite "
            "direction; use 'real' or 'rephrase'"
        )
    if not len(states):
        raise ValueError("states: at least one is needed")
    question = np.arange(max(len(texts), len(states)))
    text = jnp.asarray(texts[question % len(texts)])
    state = jnp.asarray(states)[question % len(states)]
    twin, relations = jnp.asarray(twins)[text], jnp.asarray(instructions.relations[:, 0])
    done = turned(choose(text, state), choose(twin, state), relations[text], relations[twin])
    return float(jnp.mean(done))


_CHUNK = 64


@functools.partial(jax.jit, static_argnames="spec")
def first_actions(
    spec: PriorSpec, frozen: FrozenPrior, instruction: jax.Array, state: jax.Array
) -> jax.Array:
    """The prior's greedy actions `i32[n]` at first states of episodes, some at a time.

    Args:
      instruction: `i32[n]`.
      state: `f32[n, S]` raw.
    """

    def choose(question: tuple[jax.Array, jax.Array]) -> jax.Array:
        one = jnp.ones((1, 1), jnp.int32)
        instruction, state = (part[None, None] for part in question)
        steps = Steps(state, 0 * one, 0 * one, one, instruction)
        logits = action_outputs(spec, frozen.prior, frozen.texts, steps)
        return jnp.argmax(logits[0, 0]).astype(jnp.int32)

    return jax.lax.map(choose, (instruction, state), batch_size=_CHUNK)


def instruction_following(
    spec: PriorSpec, frozen: FrozenPrior, instructions: InstructionSet, states: np.ndarray
) -> float:
    """`share_turned` of a prior whose text table was made from `instructions.texts`."""
    return share_turned(functools.partial(first_actions, spec, frozen), instructions, states)
