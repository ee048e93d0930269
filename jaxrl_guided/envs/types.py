"""The one environment interface that learners see: pure functions over a pytree state.

An environment is a batch of `N` parallel episodes. Episodes restart by themselves; the observation
before the restart is kept in `TimeStep.final_obs`, so that learners bootstrap correctly.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

PyTree = Any
"""A nest of arrays."""


@dataclasses.dataclass(frozen=True)
class Box:
    """Real vectors `dtype[shape]` between `low` and `high` (scalars or broadcastable arrays).

    Attributes:
      normalise: whether learners may scale it by what they have seen; not, where its numbers are of
        size 1 and what was seen says little of what will be.

    Raises:
      ValueError: a lower bound is above its upper one.
    """

    shape: tuple[int, ...]
    low: float | np.ndarray = -np.inf
    high: float | np.ndarray = np.inf
    dtype: Any = jnp.float32
    normalise: bool = True

    def __post_init__(self) -> None:
        if not np.all(np.asarray(self.low) <= np.asarray(self.high)):
            raise ValueError(
                f"low must nowhere be above high, but they are {self.low}, {self.high}"
            )

    @property
    def bounded(self) -> bool:
        """Whether all numbers have finite bounds."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())


@dataclasses.dataclass(frozen=True)
class Discrete:
    """Integers 0 … n − 1."""

    n: int
    shape: tuple[int, ...] = ()
    dtype: Any = jnp.int32


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """Vectors of K integers, the k-th in 0 … sizes[k] − 1."""

    sizes: tuple[int, ...]
    dtype: Any = jnp.int32

    @property
    def shape(self) -> tuple[int, ...]:
        """`(K,)`."""
        return (len(self.sizes),)


@dataclasses.dataclass(frozen=True)
class Dict:
    """A dictionary of spaces; a value is a dictionary of arrays."""

    spaces: Mapping[str, "Space"]


Space = Box | Discrete | MultiDiscrete | Dict


def map_leaves(fn: Callable[..., Any], space: Space, *trees: PyTree) -> PyTree:
    """Apply `fn(leaf_space, *leaves)` to every leaf of `space`; returns a nest like `space`."""
    if isinstance(space, Dict):
        return {
            name: map_leaves(fn, sub, *(tree[name] for tree in trees))
            for name, sub in space.spaces.items()
        }
    return fn(space, *trees)


@struct.dataclass
class TimeStep:
    """What one step of `N` environments returns.

    Attributes:
      obs: pytree `[N, …]`, the observation to act on next (of the new episode after a restart).
      reward: `f32[N]`.
      terminated: `bool[N]`, the task ended in this step (value of what follows is zero).
      truncated: `bool[N]`, the episode was cut by a limit (bootstrap from `final_obs`).
      final_obs: pytree `[N, …]`, the observation that this step led to, before any restart.
      info: named arrays `[N, …]`, the same names in every step.
    """

    obs: PyTree
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    final_obs: PyTree
    info: dict[str, jax.Array]

    @property
    def done(self) -> jax.Array:
        """`bool[N]`: the episode is over, for either reason."""
        return self.terminated | self.truncated


@dataclasses.dataclass(frozen=True)
class HostSide:
    """Environments outside of programs: the halves of a step, and what has no place in a state.

    Attributes:
      members: states under one `vmap`, each with `num_envs` environments of its own; 1 for none.
      outcome: shapes of what a step gives, of one member.
      step: `(clock, action) -> outcome`, numpy arrays `[N, …]` or `[members, N, …]`; `clock` is
        the number of steps that the state has done.
      clock: `EnvState -> ` that number.
      advance: `(EnvState, action, outcome) -> (EnvState, TimeStep)`, pure, of one member.
      restore: `(EnvState, obs)`, concrete ones that were saved: brings the environments to where
        they say.
      close: ends them.
    """

    members: int
    outcome: PyTree
    step: Callable[[int, np.ndarray], PyTree]
    clock: Callable[[PyTree], int]
    advance: Callable[[PyTree, jax.Array, PyTree], tuple[PyTree, TimeStep]]
    restore: Callable[[PyTree, PyTree], None]
    close: Callable[[], None]


@dataclasses.dataclass(frozen=True)
class VectorEnv:
    """`num_envs` parallel environments with automatic restart.

    Attributes:
      name: registry name, as `clevr/real`.
      num_envs: N.
      observation_space: space of one environment's observation.
      action_space: space of one environment's action.
      reset: `key -> (EnvState, obs[N, …])`.
      step: `(EnvState, action[N, …]) -> (EnvState, TimeStep)`; the key lives in the state.
      host: where the environments run outside of programs: then a state can be stepped once.
    """

    name: str
    num_envs: int
    observation_space: Space
    action_space: Space
    reset: Callable[[jax.Array], tuple[PyTree, PyTree]]
    step: Callable[[PyTree, jax.Array], tuple[PyTree, TimeStep]]
    host: HostSide | None = None

    def close(self) -> None:
        """Frees what is not in the state, as processes."""
        if self.host is not None:
            self.host.close()
