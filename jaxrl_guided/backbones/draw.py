"""Draws tokens from logits, one uniform number a token, with the log-probability of what was drawn.

Temperature divides the logits here as in the trainer. Cutting the distribution (`top_k`, `top_p`)
is for evaluation: the log-probabilities are then those of the cut distribution, which no trainer
recomputes.
"""

import dataclasses

import jax
import jax.numpy as jnp

_BLOCK = 128  # tokens summed at once; the vocabulary is searched block by block, then within one


@dataclasses.dataclass(frozen=True)
class Cut:
    """What is left of a distribution before a token is drawn, in this order.

    Attributes:
      top_k: only the k likeliest tokens (and what ties with the last of them); 0: all.
      top_p: only the likeliest tokens that together reach this probability; 1: all.

    Raises:
      ValueError: `top_k` is negative, or `top_p` not in (0, 1].
    """

    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                f"top_k must be 0 or more and top_p in (0, 1], got {self.top_k} and {self.top_p}"
            )


NOTHING = Cut()


def draw(
    logits: jax.Array, uniform: jax.Array, temperature: jax.Array, cut: Cut = NOTHING
) -> tuple[jax.Array, jax.Array]:
    """One token a row, by the inverse of its distribution function.

    Args:
      logits: `f32[B, V]`.
      uniform: `f32[B]` in [0, 1), independent of everything else.
      temperature: `f32[B]`, not negative; 0 takes the likeliest token, under temperature 1.
      cut: static.

    Returns:
      Tokens `i32[B]` and their log-probabilities `f32[B]`. A row with a NaN gives some token and
      NaN.
    """
    greedy, top = temperature == 0, logits.max(-1)
    heat = jnp.where(greedy, 1.0, temperature)
    # Differences are divided: a small temperature would make the logits themselves infinite. They
    # are read below once more as they are, since XLA is five times as slow if it keeps these.
    apart = (logits - top[:, None]) / heat[:, None]
    sampled, total = _inverse(jnp.exp(_cut(apart, cut)), uniform)
    # `argmax` takes thirty times as long as two passes on a CPU.
    place = jnp.arange(logits.shape[1], dtype=jnp.int32)
    likeliest = jnp.where(logits == top[:, None], place, logits.shape[1] - 1).min(-1)
    token = jnp.where(greedy, likeliest, sampled).astype(jnp.int32)
    chosen = jnp.take_along_axis(logits, token[:, None], axis=1)[:, 0]
    return token, (chosen - top) / heat - jnp.log(total)


def _inverse(weight: jax.Array, uniform: jax.Array) -> tuple[jax.Array, jax.Array]:
    """First token at which the running sum of `f32[B, V]` exceeds uniform · total, and the total.

    Two searches, since a running sum over the whole vocabulary is slow and loses digits.
    """
    rows, size = weight.shape
    blocks = jnp.pad(weight, [(0, 0), (0, -size % _BLOCK)]).reshape(rows, -1, _BLOCK)
    sums = blocks.sum(-1)
    reached = jnp.cumsum(sums, axis=1)
    total = reached[:, -1]
    target = uniform * total
    block, before = _search(reached, target)
    inner = jnp.cumsum(jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0], axis=1)
    within, _ = _search(inner, target - before)
    return block * _BLOCK + within, total


def _search(reached: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Index of the first running sum above the target, and the sum before it.

    Where rounding puts the target at or above all sums, the last entry that adds to them is taken,
    so that nothing without weight is ever drawn.
    """
    last = (reached < reached[:, -1:]).sum(-1)
    index = jnp.minimum((reached <= target[:, None]).sum(-1), last)
    padded = jnp.pad(reached, [(0, 0), (1, 0)])
    return index, jnp.take_along_axis(padded, index[:, None], axis=1)[:, 0]


def _cut(logits: jax.Array, cut: Cut) -> jax.Array:
    if 0 < cut.top_k < logits.shape[-1]:
        least = jax.lax.top_k(logits, cut.top_k)[0][:, -1:]
        logits = jnp.where(logits < least, -jnp.inf, logits)
    if cut.top_p < 1:
        ordered = -jnp.sort(-logits, axis=-1)
        shares = jax.nn.softmax(ordered, axis=-1)
        kept = jnp.cumsum(shares, axis=-1) - shares < cut.top_p
        least = jnp.where(kept, ordered, jnp.inf).min(-1, keepdims=True)
        logits = jnp.where(logits < least, -jnp.inf, logits)
    return logits
