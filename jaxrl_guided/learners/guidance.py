"""The hook through which a frozen prior guides a learner; learners know nothing else of it.

Once per iteration `targets` turns a rollout into per-state targets; `loss` compares the learner's
distribution with them in every minibatch. `frozen` (the prior's weights) is an argument of the
jitted update: never closed over, never donated, never batched over seeds.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from flax import struct

from jaxrl_guided.envs.types import PyTree


@struct.dataclass
class GuidedRollout:
    """What a prior may read of a rollout of T steps in N environments, time axis first.

    Attributes:
      obs: pytree `[T, N, …]`, raw (never normalised) observations that were acted on.
      action: `[T, N, …]`, the actions that the environments received.
      done: `bool[T, N]`, the episode ended with this step.
    """

    obs: PyTree
    action: jax.Array
    done: jax.Array


@dataclasses.dataclass(frozen=True)
class Guidance:
    """Four pure functions.

    Attributes:
      init: `(num_envs, key) -> state`; part of the learner's state, checkpointed.
      targets: `(frozen, state, GuidedRollout) -> (targets [T, N, …], state)`, once an iteration.
      loss: `(distribution, targets [B, …], state) -> (scalar, metrics)`, beta included.
      after_update: `(state, metrics, progress f32[]) -> state`; metrics are the learner's of this
        iteration, those of `loss` and the sums over ended episodes among them; progress in 0 … 1
        is the share of the run that is done, and sets the beta of the next iteration.
    """

    init: Callable[[int, jax.Array], PyTree]
    targets: Callable[[PyTree, PyTree, GuidedRollout], tuple[PyTree, PyTree]]
    loss: Callable[[Any, PyTree, PyTree], tuple[jax.Array, dict[str, jax.Array]]]
    after_update: Callable[[PyTree, dict[str, jax.Array], jax.Array], PyTree]
