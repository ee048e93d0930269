"""Running mean and variance of observations, and a running scale of rewards."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_guided.envs.types import Box, PyTree, Space, map_leaves

_EPSILON = 1e-8
CLIP = 10.0
"""Largest normalised number."""


@struct.dataclass
class Moments:
    """Count, mean and variance of the samples of one leaf; safe in float32 at any count.

    Attributes:
      count: `f32[]`.
      mean, var: `f32[*leaf.shape]`; 0 and 1 while nothing has been seen.
    """

    count: jax.Array
    mean: jax.Array
    var: jax.Array


def init_moments(shape: tuple[int, ...] = ()) -> Moments:
    return Moments(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))


def merge(moments: Moments, batch: jax.Array) -> Moments:
    """Add the samples `batch [..., *leaf.shape]` (the parallel update of Chan et al.).

    Variances, not sums of squares, are kept, and both sides enter with their share of the new
    count, so that no number grows with the length of a run.
    """
    axes = tuple(range(batch.ndim - moments.mean.ndim))
    batch = batch.astype(jnp.float32)
    added = batch.size / moments.mean.size
    count = moments.count + added
    share = added / count
    delta = jnp.mean(batch, axes) - moments.mean
    within = (1 - share) * moments.var + share * jnp.var(batch, axes)
    return Moments(
        count=count,
        mean=moments.mean + share * delta,
        var=within + share * (1 - share) * delta**2,
    )


Normaliser = PyTree
"""Nested like the observation space: `Moments` for `Box` leaves to `normalise`, else None."""


def init_normaliser(space: Space) -> Normaliser:
    """A normaliser that changes nothing yet."""
    return map_leaves(
        lambda leaf: init_moments(leaf.shape) if isinstance(leaf, Box) and leaf.normalise else None,
        space,
    )


def update_normaliser(normaliser: Normaliser, obs: PyTree) -> Normaliser:
    """Add a batch of raw observations, leaves `[..., *leaf.shape]`."""
    return jax.tree.map(
        lambda moments, leaf: None if moments is None else merge(moments, leaf),
        normaliser,
        obs,
        is_leaf=_is_moments,
    )


def normalise(normaliser: Normaliser, obs: PyTree) -> PyTree:
    """Observations with mean 0 and variance 1, clipped at ±10; as they are without a normaliser."""
    if normaliser is None:
        return obs

    def scaled(moments: Moments | None, leaf: jax.Array) -> jax.Array:
        if moments is None:
            return leaf
        return jnp.clip((leaf - moments.mean) / jnp.sqrt(moments.var + _EPSILON), -CLIP, CLIP)

    return jax.tree.map(scaled, normaliser, obs, is_leaf=_is_moments)


def _is_moments(node: PyTree) -> bool:
    return node is None or isinstance(node, Moments)


@struct.dataclass
class RewardScale:
    """Rewards are divided by the standard deviation of their discounted sum.

    Attributes:
      discounted: `f32[N]`, the discounted sum of the open episode of each environment.
      moments: of all such sums.
    """

    discounted: jax.Array
    moments: Moments


def init_reward_scale(num_envs: int) -> RewardScale:
    return RewardScale(jnp.zeros(num_envs), init_moments())


def scale_rewards(
    scale: RewardScale, reward: jax.Array, done: jax.Array, gamma: jax.Array
) -> tuple[RewardScale, jax.Array]:
    """Add a rollout to the scale, then apply it.

    Args:
      reward, done: `[T, N]`.

    Returns:
      The new scale, and `f32[T, N]` rewards, clipped at ±10.
    """

    def step(total: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, done = now
        total = gamma * total + reward
        return jnp.where(done, 0.0, total), total

    discounted, totals = jax.lax.scan(step, scale.discounted, (reward, done))
    moments = merge(scale.moments, totals)
    scaled = jnp.clip(reward / jnp.sqrt(moments.var + _EPSILON), -CLIP, CLIP)
    return RewardScale(discounted, moments), scaled
