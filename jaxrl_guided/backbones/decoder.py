"""The one decoder (Llama, Qwen2, Qwen3): embeddings in, hidden states out; weights as in `params`.

The prior, the sampler, the trainer and the embedder all call `apply`, so they cannot disagree.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxrl_guided.backbones import attention, rope
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.params import Params


@struct.dataclass
class Cache:
    """Keys and values of the tokens read so far; callers donate it.

    Attributes:
      keys, values: `[L, B, S, K, head_dim]`.
      length: `i32[B]`, valid entries of each row; new tokens are written from here on.
        Tokens beyond S are not stored: callers compare `length` with S.
    """

    keys: jax.Array
    values: jax.Array
    length: jax.Array


@struct.dataclass
class Prefix:
    """A table of shared texts that rows read before their own tokens.

    Attributes:
      keys, values: `[L, I, P, K, head_dim]`, right-padded.
      length: `i32[I]`, valid entries of each text.
      index: `i32[B, G]`: the T tokens of row b are G equal consecutive groups, and group g reads
        text `index[b, g]`.
    """

    keys: jax.Array
    values: jax.Array
    length: jax.Array
    index: jax.Array


def embed(params: Params, tokens: jax.Array) -> jax.Array:
    """Token embeddings `[..., D]` of ids `i32[...]`; an id outside the table gives NaN."""
    return jnp.take(params["embed"], tokens, axis=0)


def logits(config: BackboneConfig, params: Params, hidden: jax.Array) -> jax.Array:
    """Next-token logits `f32[..., V]` of hidden states `f32[..., D]`, always in float32."""
    hidden = hidden.astype(jnp.float32)
    if config.tie_embeddings:
        table = params["embed"].astype(jnp.float32)
        return jnp.einsum("...d,vd->...v", hidden, table, precision=lax.Precision.HIGHEST)
    return _dot(hidden, params["lm_head"]["kernel"].astype(jnp.float32))


def init_cache(
    config: BackboneConfig, rows: int, size: int, dtype: jax.typing.DTypeLike = jnp.float32
) -> Cache:
    """An empty cache for `rows` sequences of up to `size` tokens."""
    shape = (config.num_layers, rows, size, config.num_kv_heads, config.head_dim)
    return Cache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), jnp.zeros(rows, jnp.int32))


def apply(
    config: BackboneConfig,
    params: Params,
    x: jax.Array,
    positions: jax.Array,
    *,
    segment_ids: jax.Array | None = None,
    lora: Params | None = None,
    lora_scale: float = 1.0,
    prefix: Prefix | None = None,
    cache: Cache | None = None,
    window: int | None = None,
    remat: bool = False,
    compute_dtype: jax.typing.DTypeLike = jnp.float32,
) -> tuple[jax.Array, Cache | None]:
    """Runs the decoder over B rows of T tokens given as embeddings.

    A token reads itself, the tokens of its segment before it, and the valid entries of its prefix.
    RoPE phases, norms and the softmax are float32 whatever `compute_dtype` is.

    Args:
      config: shape of the decoder.
      params: its parameters.
      x: `[B, T, D]` embeddings: of tokens (`embed`), or of anything projected to D numbers.
      positions: `i32[B, T]` rotary positions.
      segment_ids: `i32[B, T]`; tokens read equal ids only. 0 is padding, which reads itself only
        and enters no cache. None means all 1. With a cache, a row's tokens are one segment.
      lora: adapters `{name: {"a": [L, in, r], "b": [L, r, out]}}` of some linear layers.
      lora_scale: α / r.
      prefix: shared texts.
      cache: tokens read before; new tokens are appended to it.
      window: w, static: tokens read only the last w tokens (of their segment) and themselves, at
        cost O(T · w), in blocks (`attention.block_sizes`); w = 0 is itself and the prefix. Not
        together with a cache.
      remat: recompute layers in the backward pass, to save memory.
      compute_dtype: type of the matrix products and of the residual stream.

    Returns:
      Hidden states `f32[B, T, D]` after the final norm, and the cache with the new tokens.

    Raises:
      ValueError: `window` with a cache, or T is not a multiple of the prefix's groups.
    """
    if cache is not None and window is not None:
        raise ValueError("window cannot be combined with cache: leave one of them None")
    if prefix is not None and positions.shape[1] % prefix.index.shape[1]:
        raise ValueError(
            f"prefix.index has {prefix.index.shape[1]} groups, which must divide "
            f"T = {positions.shape[1]}"
        )
    if segment_ids is None:
        segment_ids = jnp.ones(positions.shape, jnp.int32)
    adapters = _Adapters(lora or {}, lora_scale)
    options = _Options(window, remat, compute_dtype)
    hidden, cache, _ = _forward(
        config, params, x, positions, segment_ids, adapters, prefix, cache, options
    )
    return hidden, cache


def prefix_from_embeddings(
    config: BackboneConfig,
    params: Params,
    x: jax.Array,
    length: jax.Array,
    *,
    lora: Params | None = None,
    lora_scale: float = 1.0,
    remat: bool = False,
    compute_dtype: jax.typing.DTypeLike = jnp.float32,
) -> Prefix:
    """Reads I texts given as embeddings; gradients flow through (fine-tuning).

    Args:
      x: `[I, P, D]`, right-padded; positions are 0 … P − 1.
      length: `i32[I]`, valid entries of each text.

    Returns:
      Prefix with `index = [[0], [1], …]`: row b reads text b. Replace `index` for other uses.
    """
    texts, size = x.shape[:2]
    positions = jnp.broadcast_to(jnp.arange(size), (texts, size))
    valid = (positions < length[:, None]).astype(jnp.int32)
    adapters = _Adapters(lora or {}, lora_scale)
    options = _Options(None, remat, compute_dtype, collect=True)
    _, _, (keys, values) = _forward(
        config, params, x, positions, valid, adapters, None, None, options
    )
    return Prefix(keys, values, length, jnp.arange(texts)[:, None])


def prefix_from_tokens(
    config: BackboneConfig,
    params: Params,
    tokens: jax.Array,
    length: jax.Array,
    *,
    lora: Params | None = None,
    lora_scale: float = 1.0,
    chunk: int = 64,
    compute_dtype: jax.typing.DTypeLike = jnp.float32,
) -> Prefix:
    """`prefix_from_embeddings` of token ids `i32[I, P]`, `chunk` texts at a time."""
    texts, size = tokens.shape
    short = -texts % chunk

    def read(part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        prefix = prefix_from_embeddings(
            config,
            params,
            embed(params, part[0]),
            part[1],
            lora=lora,
            lora_scale=lora_scale,
            compute_dtype=compute_dtype,
        )
        return prefix.keys, prefix.values

    chunks = (
        jnp.pad(tokens, [(0, short), (0, 0)]).reshape(-1, chunk, size),
        jnp.pad(length, (0, short)).reshape(-1, chunk),
    )
    keys, values = jax.tree.map(
        lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:])[:, :texts],
        lax.map(read, chunks),
    )
    return Prefix(keys, values, length, jnp.arange(texts)[:, None])


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """x / sqrt(mean x² + eps) · weight over the last axis, in float32."""
    x = x.astype(jnp.float32)
    mean = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * lax.rsqrt(mean + eps) * weight.astype(jnp.float32)


class _Adapters(NamedTuple):
    tree: Params
    scale: float


class _Options(NamedTuple):
    window: int | None
    remat: bool
    compute_dtype: jax.typing.DTypeLike
    collect: bool = False


def _forward(
    config: BackboneConfig,
    params: Params,
    x: jax.Array,
    positions: jax.Array,
    segment_ids: jax.Array,
    adapters: _Adapters,
    prefix: Prefix | None,
    cache: Cache | None,
    options: _Options,
) -> tuple[jax.Array, Cache | None, Any]:
    """All layers: hidden states, cache, and with `collect` every layer's keys and values."""
    dtype, valid = options.compute_dtype, segment_ids != 0
    cos, sin = rope.phases(config, positions)
    read_own = _self_attention(segment_ids, options.window) if cache is None else None
    read_prefix = None if prefix is None else _prefix_attention(prefix, valid)
    slots = None if cache is None else _cache_slots(cache, valid)

    def layer(carry: tuple[jax.Array, Any], xs: tuple[Any, ...]) -> tuple[Any, Any]:
        (h, stored), (number, weights, lora, table) = carry, xs

        def dense(name: str, y: jax.Array) -> jax.Array:
            return _linear(y, weights[name], lora.get(name), adapters.scale, dtype)

        y = rms_norm(h, weights["attn_norm"], config.norm_eps).astype(dtype)
        q, k, v = _heads(config, weights, dense("q", y), dense("k", y), dense("v", y), cos, sin)
        parts = []
        if read_own is not None:
            parts.append(read_own(q, k, v))
        if slots is not None:
            stored = _store(stored, number, slots, k, v)
            seen = stored[0][number], stored[1][number]
            parts.append(attention.keys_part(q, *seen, slots.readable))
        if read_prefix is not None:
            parts.append(read_prefix(q, *table))
        mixed = attention.merge(*parts).astype(dtype)
        h = h + dense("o", mixed.reshape(*positions.shape, -1))
        y = rms_norm(h, weights["mlp_norm"], config.norm_eps).astype(dtype)
        h = h + dense("down", jax.nn.silu(dense("gate", y)) * dense("up", y))
        return (h, stored), ((k, v) if options.collect else None)

    table = None if prefix is None else (prefix.keys, prefix.values)
    stored: Any = None if cache is None else (cache.keys, cache.values)
    xs = (jnp.arange(config.num_layers), params["layers"], adapters.tree, table)
    body = jax.checkpoint(layer) if options.remat else layer
    (h, stored), collected = lax.scan(body, (x.astype(dtype), stored), xs)
    hidden = rms_norm(h, params["final_norm"], config.norm_eps)
    if cache is None:
        return hidden, None, collected
    length = cache.length + valid.sum(1, dtype=jnp.int32)
    return hidden, Cache(keys=stored[0], values=stored[1], length=length), collected


def _dot(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """x @ kernel; float32 inputs are multiplied in float32 on every device."""
    return jnp.matmul(x, kernel, precision=lax.Precision.HIGHEST)


def _linear(
    x: jax.Array,
    weights: Params,
    adapter: Params | None,
    scale: float,
    dtype: jax.typing.DTypeLike,
) -> jax.Array:
    """x W + bias + scale (x A) B."""
    y = _dot(x, weights["kernel"].astype(dtype))
    if "bias" in weights:
        y = y + weights["bias"].astype(dtype)
    if adapter is not None:
        down, up = adapter["a"].astype(dtype), adapter["b"].astype(dtype)
        y = y + scale * _dot(_dot(x, down), up)
    return y


def _heads(
    config: BackboneConfig,
    weights: Params,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    cos: jax.Array,
    sin: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Splits heads, normalises (Qwen3), rotates, and scales q by 1 / √head_dim."""
    rows, tokens = q.shape[:2]
    size, groups = config.head_dim, config.num_kv_heads
    q, k, v = (x.reshape(rows, tokens, -1, size) for x in (q, k, v))
    dtype = v.dtype
    if config.qk_norm:
        q = rms_norm(q, weights["q_norm"], config.norm_eps)
        k = rms_norm(k, weights["k_norm"], config.norm_eps)
    q = (rope.rotate(q, cos, sin) * size**-0.5).astype(dtype)
    k = rope.rotate(k, cos, sin).astype(dtype)
    return q.reshape(rows, tokens, groups, -1, size), k, v


def _self_attention(
    segment_ids: jax.Array, window: int | None
) -> Callable[[jax.Array, jax.Array, jax.Array], attention.Part]:
    """Attention among the given tokens, (q, k, v) -> Part; masks are made once for all layers."""
    if window == 0:
        return attention.own_part
    if window is None or attention.block_sizes(window)[1] >= segment_ids.shape[1]:
        mask = attention.segment_mask(segment_ids)
        return lambda q, k, v: attention.keys_part(q, k, v, mask)
    mask = attention.window_mask(segment_ids, window)
    return lambda q, k, v: attention.window_part(q, k, v, mask, window)


def _prefix_attention(prefix: Prefix, valid: jax.Array) -> Callable[..., attention.Part]:
    """Attention to the texts, (q, one layer's keys, its values) -> Part."""
    mask = attention.prefix_mask(prefix.length, prefix.index, prefix.keys.shape[2], valid)
    return lambda q, keys, values: attention.prefix_part(q, keys, values, prefix.index, mask)


class _Slots(NamedTuple):
    entry: jax.Array  # i32[B, T]: where a token is written; S (nowhere) for padding
    readable: jax.Array  # bool[B, T, S]: what a token reads


def _cache_slots(cache: Cache, valid: jax.Array) -> _Slots:
    size = cache.keys.shape[2]
    entry = cache.length[:, None] + jnp.cumsum(valid, axis=1, dtype=jnp.int32) - 1
    readable = (jnp.arange(size) <= entry[..., None]) & valid[..., None]
    return _Slots(jnp.where(valid, entry, size), readable)


def _store(
    stored: tuple[jax.Array, jax.Array],
    layer: jax.Array,
    slots: _Slots,
    keys: jax.Array,
    values: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Writes one layer's new keys and values in place; what has no slot is dropped."""
    rows = jnp.arange(keys.shape[0])[:, None]
    old_keys, old_values = stored
    return (
        old_keys.at[layer, rows, slots.entry].set(keys.astype(old_keys.dtype), mode="drop"),
        old_values.at[layer, rows, slots.entry].set(values.astype(old_values.dtype), mode="drop"),
    )
