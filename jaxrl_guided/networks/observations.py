"""From an observation of any space to one real vector per environment."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxrl_guided.envs.types import Box, Dict, MultiDiscrete, PyTree, Space

INSTRUCTION = "instruction"
"""Name of the `Discrete` leaf that is looked up in the table of text features."""


def make_encoder(
    space: Space, features: jax.Array | None = None
) -> tuple[int, Callable[[PyTree], jax.Array]]:
    """How an observation enters a network.

    `Box` leaves are flattened, `Discrete` and `MultiDiscrete` ones become one-hot vectors, and a
    `Discrete` leaf named `instruction` becomes its row of `features`: rollouts store ids only, and
    the `[..., d]` vectors exist for one batch at a time. Leaves are joined in the order of their
    names.

    Args:
      space: observation space of one environment.
      features: `f32[I, d]`, one row per instruction id.

    Returns:
      The length of the vector, and `obs [..., *leaf.shape] -> f32[..., length]`.

    Raises:
      ValueError: `features` does not have one row per instruction, or has no leaf to serve.
    """
    if features is not None and not _has_instruction(space):
        raise ValueError(f"features were given, but no leaf of {space} is named {INSTRUCTION!r}")
    return _encoder("", space, features)


def _has_instruction(space: Space) -> bool:
    return isinstance(space, Dict) and any(
        name == INSTRUCTION or _has_instruction(sub) for name, sub in space.spaces.items()
    )


def _encoder(
    name: str, space: Space, features: jax.Array | None
) -> tuple[int, Callable[[PyTree], jax.Array]]:
    """`make_encoder` for the part of an observation that is called `name`."""
    if isinstance(space, Dict):
        parts = {sub: _encoder(sub, space.spaces[sub], features) for sub in sorted(space.spaces)}

        def join(obs: PyTree) -> jax.Array:
            return jnp.concatenate([encode(obs[sub]) for sub, (_, encode) in parts.items()], -1)

        return sum(size for size, _ in parts.values()), join

    def flatten(leaf: jax.Array, trailing: int) -> jax.Array:
        return leaf.reshape(*leaf.shape[: leaf.ndim - trailing], -1)

    size, rank = math.prod(space.shape), len(space.shape)
    if isinstance(space, Box):
        return size, lambda obs: flatten(obs.astype(jnp.float32), rank)
    if isinstance(space, MultiDiscrete):
        return sum(space.sizes), lambda obs: jnp.concatenate(
            [jax.nn.one_hot(obs[..., k], n) for k, n in enumerate(space.sizes)], axis=-1
        )
    if name == INSTRUCTION and features is not None:
        table = jnp.asarray(features, jnp.float32)
        if rank or table.ndim != 2 or len(table) != space.n:
            raise ValueError(
                f"features must be [{space.n}, d], a row for each of the {space.n} instructions, "
                f"not {table.shape}"
            )
        return table.shape[1], lambda obs: table[obs]
    return size * space.n, lambda obs: flatten(jax.nn.one_hot(obs, space.n), rank + 1)
