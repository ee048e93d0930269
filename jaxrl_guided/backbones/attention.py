"""Grouped-query attention as parts of one softmax: own tokens, a cache, a shared text prefix.

Each part covers some of the keys a query may read and keeps its softmax unnormalised; `merge`
joins the parts. Scores, maxima and sums are float32. Masks are explicit everywhere.

Shapes: B rows, T tokens, K key/value heads, R query heads per key/value head, h head size.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

_MASKED = -1e30  # finite: a query that may read nothing gives a finite value, never NaN

# About so many queries share one product with the keys they may reach. Smaller blocks read fewer
# keys that the mask throws away, larger ones make larger products and copy keys less often.
_BLOCK = 50


class Part(NamedTuple):
    """The softmax over some keys, before normalisation.

    Attributes:
      top: `f32[B, T, K, R]`, largest score (without gradient).
      total: `f32[B, T, K, R]`, sum of exp(score − top).
      value: `f32[B, T, K, R, h]`, sum of exp(score − top) · value.
    """

    top: jax.Array
    total: jax.Array
    value: jax.Array


def merge(*parts: Part) -> jax.Array:
    """Normalises the softmax over all keys of all parts: `f32[B, T, K, R, h]`."""
    if len(parts) == 1:
        return parts[0].value / parts[0].total[..., None]
    top = functools.reduce(jnp.maximum, [part.top for part in parts])
    weights = [jnp.exp(part.top - top) for part in parts]
    sums = [w * part.total for w, part in zip(weights, parts, strict=True)]
    total = functools.reduce(jnp.add, sums)
    # Dividing the small weights instead of the wide values saves a pass over the values.
    terms = [(w / total)[..., None] * part.value for w, part in zip(weights, parts, strict=True)]
    return functools.reduce(jnp.add, terms)


def keys_part(q: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array) -> Part:
    """Attention to explicit keys.

    Args:
      q: `[N, T, K, R, h]`, already divided by √h.
      keys, values: `[N, S, K, h]`.
      mask: `bool[N, T, S]`, True where a query may read a key.
    """
    return _softmax_part(q, keys, values, mask, heads=2)


def cache_part(q: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array) -> Part:
    """`keys_part` of keys and values `[N, K, S, h]`, which a product reads without a copy."""
    return _softmax_part(q, keys, values, mask, heads=1)


def _softmax_part(
    q: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array, heads: int
) -> Part:
    """`heads` is the axis of the heads in keys and values, 1 or 2; the other one is S."""
    # Written out, because einsum may swap the operands, which copies the scores transposed.
    score = _batched_dot(q, keys, (4, 3), (0, 2), (0, heads))  # [N, K, T, R, S]
    score = jnp.where(mask[:, None, :, None], score, _MASKED)
    top = lax.stop_gradient(score.max(-1))
    weight = jnp.exp(score - top[..., None])
    value = _batched_dot(weight.astype(values.dtype), values, (4, 3 - heads), (0, 1), (0, heads))
    return Part._make(jnp.swapaxes(x, 1, 2) for x in (top, weight.sum(-1), value))


def _batched_dot(
    left: jax.Array,
    right: jax.Array,
    contract: tuple[int, int],
    left_batch: tuple[int, ...],
    right_batch: tuple[int, ...],
) -> jax.Array:
    """Product over `contract` axes, batch axes first, accumulated in float32."""
    dimensions = (((contract[0],), (contract[1],)), (left_batch, right_batch))
    return lax.dot_general(
        left,
        right,
        dimensions,
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )


def own_part(q: jax.Array, keys: jax.Array, values: jax.Array) -> Part:
    """Attention of every token to itself alone: q `[B, T, K, R, h]`, the others `[B, T, K, h]`."""
    # A product, because XLA's sum over the last axis takes ten times as long on a CPU.
    score = _batched_dot(q, keys, (4, 3), (0, 1, 2), (0, 1, 2))
    top = lax.stop_gradient(score)
    total = jnp.exp(score - top)
    return Part(top, total, total[..., None] * values.astype(jnp.float32)[:, :, :, None])


def prefix_part(
    q: jax.Array, keys: jax.Array, values: jax.Array, index: jax.Array, mask: jax.Array
) -> Part:
    """Attention to shared prefixes.

    Args:
      q: `[B, T, K, R, h]`; the T tokens are G equal consecutive groups.
      keys, values: `[I, P, K, h]`, the table of prefixes.
      index: `i32[B, G]`, the prefix of each group.
      mask: `bool[B, T, P]` from `prefix_mask`.
    """
    (rows, tokens), groups = q.shape[:2], index.shape[1]
    each = (rows * groups, tokens // groups)
    index = index.reshape(-1)
    part = keys_part(
        q.reshape(*each, *q.shape[2:]), keys[index], values[index], mask.reshape(*each, -1)
    )
    return Part._make(x.reshape(rows, tokens, *x.shape[2:]) for x in part)


def window_part(
    q: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array, window: int
) -> Part:
    """Attention to itself and the last `window` >= 1 tokens, in blocks: cost O(T · window).

    Args:
      q: `[B, T, K, R, h]`.
      keys, values: `[B, T, K, h]`.
      mask: from `window_mask`.
    """
    rows, tokens = q.shape[:2]
    part = keys_part(
        _queries(q, window), _reachable(keys, window), _reachable(values, window), mask
    )
    return Part._make(x.reshape(rows, -1, *x.shape[2:])[:, :tokens] for x in part)


def segment_mask(segment_ids: jax.Array) -> jax.Array:
    """Causal within equal segments; padding (0) reads itself only. `i32[B, T] -> bool[B, T, T]`."""
    tokens = segment_ids.shape[1]
    step = jnp.arange(tokens)
    same = (segment_ids[:, :, None] == segment_ids[:, None]) & (segment_ids[:, :, None] != 0)
    return (same & (step[:, None] >= step)) | (step[:, None] == step)


def window_mask(segment_ids: jax.Array, window: int) -> jax.Array:
    """`segment_mask` cut to the last `window` tokens, as `window_part` lays out its keys.

    Returns:
      `bool[B · blocks, block, reach]`.
    """
    query, key = _queries(segment_ids, window), _reachable(segment_ids, window)
    same = (query[:, :, None] == key[:, None]) & (query[:, :, None] != 0)
    block, reach = block_sizes(window)
    # Query i of a block has reach - block keys before the block's first token.
    back = jnp.arange(block)[:, None] + (reach - block) - jnp.arange(reach)
    return (same & (back >= 0) & (back <= window)) | (back == 0)


def prefix_mask(length: jax.Array, index: jax.Array, size: int, valid: jax.Array) -> jax.Array:
    """What tokens may read of their prefix.

    Args:
      length: `i32[I]`, valid entries of each prefix.
      index: `i32[B, G]`.
      size: P, entries of a prefix with its padding.
      valid: `bool[B, T]`, False for padding, which reads nothing.

    Returns:
      `bool[B, T, P]`.
    """
    shown = jnp.repeat(length[index], valid.shape[1] // index.shape[1], axis=1)
    return (jnp.arange(size) < shown[..., None]) & valid[..., None]


def block_sizes(window: int) -> tuple[int, int]:
    """Queries of a block, and the keys it reads: its own and those of whole blocks before it."""
    before = max(1, round(window / _BLOCK))
    block = -(-window // before)
    return block, (before + 1) * block


def _queries(x: jax.Array, window: int) -> jax.Array:
    """`[B, T, …] -> [B · blocks, block, …]`, padded with zeros at the end."""
    block, _ = block_sizes(window)
    return _padded(x, 0, -x.shape[1] % block).reshape(-1, block, *x.shape[2:])


def _reachable(x: jax.Array, window: int) -> jax.Array:
    """`[B, T, …] -> [B · blocks, reach, …]`: what each block reads, zeros before the start."""
    (rows, tokens), (block, reach) = x.shape[:2], block_sizes(window)
    blocks = -(-tokens // block)
    x = _padded(x, reach - block, -tokens % block)
    shifted = [
        x[:, start : start + blocks * block].reshape(rows, blocks, block, *x.shape[2:])
        for start in range(0, reach, block)
    ]
    return jnp.concatenate(shifted, axis=2).reshape(rows * blocks, reach, *x.shape[2:])


def _padded(x: jax.Array, before: int, after: int) -> jax.Array:
    """Zeros before and after the tokens of `[B, T, …]`."""
    return jnp.pad(x, [(0, 0), (before, after)] + [(0, 0)] * (x.ndim - 2))
