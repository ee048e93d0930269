"""Initial layouts of CLEVR-Robot by rejection (LaGO, arXiv 2606.24669; KALM, 2404.09248).

Ball after ball gets the first of ten uniform candidates that keeps its distance from the balls
before it; if none does, the layout starts over. A layout succeeds with probability .40.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.clevr.table import NUM_BALLS

SPAWN_LOW = np.array([-0.5, -0.3], np.float32)
SPAWN_HIGH = np.array([0.5, 0.5], np.float32)
MIN_DISTANCE = 0.36
MIN_AXIS_GAP = 0.01
"""Balls may share a coordinate exactly, but not differ by less than this in one."""
TRIES = 10

_SHARE = 8  # layouts are attempted for this part of the batch at a time: few episodes end at once


def _attempt(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One layout `f32[5, 2]` and whether every ball found a place."""
    # One random word gives both coordinates, 16 bits (15 µm) each: words are the cost.
    words = jax.random.bits(key, (NUM_BALLS, TRIES))
    unit = jnp.stack([words >> 16, words & 0xFFFF], axis=-1).astype(jnp.float32) / 2**16
    candidates = unit * (SPAWN_HIGH - SPAWN_LOW) + SPAWN_LOW
    placed, complete = candidates[:1, 0], jnp.array(True)
    for ball in range(1, NUM_BALLS):
        gap = jnp.abs(candidates[ball][:, None] - placed)
        near = jnp.sum(gap**2, axis=-1) < MIN_DISTANCE**2
        aligned = jnp.any((gap > 0.0) & (gap < MIN_AXIS_GAP), axis=-1)
        free = ~jnp.any(near | aligned, axis=-1)
        choice = jnp.argmax(free)
        placed = jnp.concatenate([placed, candidates[ball, choice][None]])
        complete &= free[choice]
    return placed, complete


def sample_scenes(keys: jax.Array, positions: jax.Array, needed: jax.Array) -> jax.Array:
    """Replaces the layouts that are `needed` by new ones; each depends on its own key alone.

    Args:
      keys: `key[N]`.
      positions: `f32[N, 5, 2]` ball centres in metres.
      needed: `bool[N]`.

    Returns:
      `f32[N, 5, 2]`.
    """
    num_envs = needed.shape[0]
    chunk = -(-num_envs // _SHARE)

    def attempt_some(
        carry: tuple[jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        keys, positions, pending = carry
        (index,) = jnp.nonzero(pending, size=chunk, fill_value=num_envs)
        following, drawn = jax.vmap(jax.random.split, out_axes=1)(keys[index])
        scenes, complete = jax.vmap(_attempt)(drawn)
        done = jnp.where(complete, index, num_envs)
        return (
            keys.at[index].set(following, mode="drop"),
            positions.at[done].set(scenes, mode="drop"),
            pending.at[done].set(False, mode="drop"),
        )

    return jax.lax.while_loop(
        lambda carry: jnp.any(carry[2]), attempt_some, (keys, positions, needed)
    )[1]
