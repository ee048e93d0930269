"""Advantages of whole episodes, and how much each of their tokens counts in a loss."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp

Norm = Literal["std", "mean"]
Aggregation = Literal["seq_mean_token_mean", "token_mean", "fixed_length"]
NORMS, AGGREGATIONS = get_args(Norm), get_args(Aggregation)

STD_FLOOR = 1e-3


def group_advantages(
    rewards: jax.Array, groups: jax.Array, num_groups: int, norm: Norm = "std"
) -> tuple[jax.Array, jax.Array]:
    """GRPO's advantages: rewards against those of the same group.

    Complementary RL (arXiv 2603.17621 §3) makes the guided and the free rollouts of a task groups
    of their own.

    Args:
      rewards: `f32[N]`.
      groups: `i32[N]` in 0 … `num_groups` − 1; others, as −1, are dropped samples.
      num_groups: G, static.
      norm: `std` divides by the group's standard deviation (of the population, at least
        `STD_FLOOR`), `mean` only takes the mean off.

    Returns:
      `f32[N]`, zero for dropped samples, groups of one, and groups without variance; and the share
      of such groups among those with samples.
    """
    used = (groups >= 0) & (groups < num_groups)
    index = jnp.where(used, groups, num_groups)

    def total(x: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(jnp.where(used, x, 0.0), index, num_groups + 1)

    count = total(jnp.ones_like(rewards))
    mean = total(rewards) / jnp.maximum(count, 1)
    centred = jnp.where(used, rewards - mean[index], 0.0)
    std = jnp.sqrt(total(jnp.square(centred)) / jnp.maximum(count, 1))
    # The mean of equal rewards may be off by a rounding error: that is no variance.
    flat = std <= 1e-6 * jnp.maximum(jnp.abs(mean), 1.0)
    advantages = jnp.where(flat[index], 0.0, centred)
    if norm == "std":
        advantages = advantages / jnp.maximum(std, STD_FLOOR)[index]
    filled = count[:num_groups] > 0
    share = (filled & flat[:num_groups]).sum() / jnp.maximum(filled.sum(), 1)
    return advantages, share


def batch_advantages(rewards: jax.Array, used: jax.Array) -> jax.Array:
    """CISPO's advantages for the extractor: rewards less their mean over the used samples."""
    mean = jnp.where(used, rewards, 0.0).sum() / jnp.maximum(used.sum(), 1)
    return jnp.where(used, rewards - mean, 0.0)


def reuse_factor(times_trained: jax.Array, steps_since: jax.Array, pause: int = 1) -> jax.Array:
    """How much a sample that has been trained on still counts (arXiv 2603.17621 §4).

    Args:
      times_trained: `i32[N]`.
      steps_since: `i32[N]`, optimiser steps since the last time; any number if there was none.
      pause: δ, steps within which it does not count at all.

    Returns:
      (1 + times)^−½, or 0 within the pause.
    """
    again = (times_trained > 0) & (steps_since <= pause)
    return jnp.where(again, 0.0, (1.0 + times_trained) ** -0.5)


def token_weights(
    tokens: jax.Array, parts: jax.Array, aggregation: Aggregation, fixed_length: int = 0
) -> jax.Array:
    """Weights that make a loss of tokens' losses: Σ weight · loss over the whole batch.

    Summed over micro-batches they give the same number, so accumulation is exact.

    Args:
      tokens: `bool[B, T]`, those that carry loss. Rows without any do not count.
      parts: `i32[B]`; the loss is the mean over the parts, of which each has its own mean. Guided
        and free rollouts are two parts, whatever their numbers.
      aggregation: within a part: `seq_mean_token_mean` is the mean over sequences of the mean over
        their tokens, `token_mean` the mean over tokens, `fixed_length` the mean over sequences of
        the sum over their tokens divided by `fixed_length`.
      fixed_length: for the last of these.

    Returns:
      `f32[B, T]`, zero where there is no loss.
    """
    lengths = tokens.sum(1)
    sequences = lengths > 0
    same = (parts[:, None] == parts) & sequences & sequences[:, None]  # [B, B]: of the same part
    # Each part counts once: its sequences share 1.
    share = jnp.where(sequences, 1.0 / jnp.maximum(same.sum(1), 1), 0.0)
    num_parts = jnp.maximum(jnp.round(share.sum()), 1)
    if aggregation == "token_mean":
        each = 1.0 / jnp.maximum((same * lengths).sum(1), 1)
    elif aggregation == "seq_mean_token_mean":
        each = share / jnp.maximum(lengths, 1)
    else:
        each = share / fixed_length
    return jnp.where(tokens, (each / num_parts)[:, None], 0.0)
