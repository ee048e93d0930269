"""Advantages of whole episodes, and how much each of their tokens counts in a loss.

On the host, in numpy: a batch has some hundred numbers, of sizes that change.
"""

from typing import Literal, get_args

import numpy as np

Norm = Literal["std", "mean"]
Aggregation = Literal["seq_mean_token_mean", "token_mean", "fixed_length"]
NORMS, AGGREGATIONS = get_args(Norm), get_args(Aggregation)

STD_FLOOR = 1e-3


def group_advantages(
    rewards: np.ndarray, groups: np.ndarray, norm: Norm = "std"
) -> tuple[np.ndarray, float]:
    """GRPO's advantages: rewards against those of the same group.

    Complementary RL (arXiv 2603.17621 §3) makes the guided and the free rollouts of a task groups
    of their own.

    Args:
      rewards: `f32[N]`.
      groups: `i32[N]`, any numbers.
      norm: `std` divides by the group's standard deviation (of the population, at least
        `STD_FLOOR`), `mean` only takes the mean off.

    Returns:
      `f32[N]`, zero for groups of one and groups without variance; and the share of such groups.
    """
    advantages, flat = np.zeros(len(rewards)), []
    for group in np.unique(groups):
        member = groups == group
        own = np.asarray(rewards, np.float64)[member]
        flat.append(bool(np.ptp(own) == 0))
        if not flat[-1]:
            scale = max(own.std(), STD_FLOOR) if norm == "std" else 1.0
            advantages[member] = (own - own.mean()) / scale
    return advantages.astype(np.float32), float(np.mean(flat)) if flat else 0.0


def batch_advantages(rewards: np.ndarray) -> np.ndarray:
    """CISPO's advantages for the extractor: rewards `f32[N]` less their mean."""
    return (rewards - np.mean(rewards, dtype=np.float64)).astype(np.float32)


def reuse_factor(times_trained: np.ndarray, steps_since: np.ndarray, pause: int = 1) -> np.ndarray:
    """How much a sample that has been trained on still counts (arXiv 2603.17621 §4).

    Args:
      times_trained: `i32[N]`.
      steps_since: `i32[N]`, optimiser steps since the last time; any number if there was none.
      pause: δ, steps within which it does not count at all.

    Returns:
      `f32[N]`: (1 + times)^−½, or 0 within the pause.
    """
    again = (times_trained > 0) & (steps_since <= pause)
    return np.where(again, 0.0, (1.0 + times_trained) ** -0.5).astype(np.float32)


def token_weights(
    tokens: np.ndarray, parts: np.ndarray, aggregation: Aggregation, fixed_length: int = 0
) -> np.ndarray:
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
    weight = np.zeros(tokens.shape)
    found = np.unique(parts[lengths > 0])
    for part in found:
        rows = (parts == part) & (lengths > 0)
        if aggregation == "token_mean":
            each = np.full(rows.sum(), 1.0 / lengths[rows].sum())
        elif aggregation == "seq_mean_token_mean":
            each = 1.0 / (rows.sum() * lengths[rows])
        else:
            each = np.full(rows.sum(), 1.0 / (rows.sum() * fixed_length))
        weight[rows] = each[:, None] / len(found)
    return np.where(tokens, weight, 0.0).astype(np.float32)
