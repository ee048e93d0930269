"""Rotary position embedding in float32, with Llama-3's frequency scaling."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.backbones.config import BackboneConfig


def frequencies(config: BackboneConfig) -> np.ndarray:
    """Angular frequencies `f32[head_dim / 2]`, fastest first."""
    exponent = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    plain = 1.0 / np.float32(config.rope_theta) ** exponent
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    turns = scaling.original_max_positions * plain / np.float32(2 * np.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (plain * (keep + (1.0 - keep) / scaling.factor)).astype(np.float32)


def phases(config: BackboneConfig, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine `f32[..., head_dim / 2]` of integer positions `i32[...]`."""
    angle = positions.astype(jnp.float32)[..., None] * frequencies(config)
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotates the pairs (x_i, x_{i + head_dim / 2}) of every head, in float32.

    Args:
      x: `[B, T, heads, head_dim]`.
      cos, sin: `f32[B, T, head_dim / 2]` from `phases`.

    Returns:
      `f32[B, T, heads, head_dim]`.
    """
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[:, :, None], sin[:, :, None]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
