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
      keys, values: of each of the L layers `[B, K, S, head_dim]`: arrays of their own, which a
        loop over tokens writes in place.
      length: `i32[B]`, valid entries of each row; new tokens are written from here on.
        Tokens beyond S are not stored: callers compare `length` with S.
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]
    length: jax.Array

    @property
    def size(self) -> int:
        """S, the most tokens of a row."""
        return self.keys[0].shape[2]


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
    shape = (rows, config.num_kv_heads, size, config.head_dim)
    keys, values = (
        tuple(jnp.zeros(shape, dtype) for _ in range(config.num_layers)) for _ in range(2)
    )
    return Cache(keys, values, jnp.zeros(rows, jnp.int32))


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
    rows: jax.Array | None = None,
    window: int | None = None,
    remat: bool = False,
    compute_dtype: jax.typing.DTypeLike = jnp.float32,
) -> tuple[jax.Array, Cache | None]:
    """Runs the decoder over B rows of T tokens given as embeddings.

    A token reads itself, the tokens of its segment before it, and the valid entries of its prefix.
    RoPE phases, norms and the softmax are float32 whatever `compute_dtype` is.

    Args:
      config: shape of the decoder.
      params: its parameters; with a cache, its layers may be a tuple (`params.unstack`).
      x: `[B, T, D]` embeddings: of tokens (`embed`), or of anything projected to D numbers.
      positions: `i32[B, T]` rotary positions.
      segment_ids: `i32[B, T]`; tokens read equal ids only. 0 is padding, which reads itself only
        and enters no cache. None means all 1. With a cache, a row's tokens are one segment.
      lora: adapters `{name: {"a": [L, in, r], "b": [L, r, out]}}` of some linear layers.
      lora_scale: α / r.
      prefix: shared texts.
      cache: tokens read before; new tokens are appended to it.
      rows: `i32[B]`, distinct: which rows of the cache these are; one that it does not have is
        padding. None: they are all of them in order.
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
    slots = None if cache is None else _cache_slots(cache, rows, segment_ids != 0)
    hidden, kept = _forward(
        config, params, x, positions, segment_ids, adapters, prefix, slots, options
    )
    return hidden, kept if slots is None else _with_entries(slots, kept)


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
    _, (keys, values) = _forward(config, params, x, positions, valid, adapters, None, None, options)
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
    slots: "_Slots | None",
    options: _Options,
) -> tuple[jax.Array, Any]:
    """All layers: hidden states, and what the layers keep.

    That is their part of the cache, or with `collect` their keys and values, or nothing.
    """
    dtype, valid = options.compute_dtype, segment_ids != 0
    cos, sin = rope.phases(config, positions)
    read_own = _self_attention(segment_ids, options.window) if slots is None else None
    read_prefix = None if prefix is None else _prefix_attention(prefix, valid)

    def layer(h: jax.Array, xs: Params) -> tuple[jax.Array, Any]:
        weights, lora = xs["weights"], xs["lora"]

        def dense(name: str, y: jax.Array) -> jax.Array:
            return _linear(y, weights[name], lora.get(name), adapters.scale, dtype)

        y = rms_norm(h, weights["attn_norm"], config.norm_eps).astype(dtype)
        q, k, v = _heads(config, weights, dense("q", y), dense("k", y), dense("v", y), cos, sin)
        kept, parts = ((k, v) if options.collect else None), []
        if read_own is not None:
            parts.append(read_own(q, k, v))
        if slots is not None:
            kept = _store(xs["stored"], slots, k, v)
            keys, values = _rows_of(kept, slots)
            parts.append(attention.cache_part(q, keys, values, slots.readable))
        if read_prefix is not None:
            parts.append(read_prefix(q, xs["table"]["keys"], xs["table"]["values"]))
        mixed = attention.merge(*parts).astype(dtype)
        h = h + dense("o", mixed.reshape(*positions.shape, -1))
        y = rms_norm(h, weights["mlp_norm"], config.norm_eps).astype(dtype)
        h = h + dense("down", jax.nn.silu(dense("gate", y)) * dense("up", y))
        return h, kept

    xs = {"weights": params["layers"], "lora": adapters.tree}
    if prefix is not None:
        xs["table"] = {"keys": prefix.keys, "values": prefix.values}
    if slots is not None:
        xs["stored"] = {"keys": slots.cache.keys, "values": slots.cache.values}
    each_layer = _scanned if slots is None else _unrolled
    body = jax.checkpoint(layer) if options.remat else layer
    h, kept = each_layer(body, x.astype(dtype), xs, config.num_layers)
    return rms_norm(h, params["final_norm"], config.norm_eps), kept


def _scanned(
    body: Callable[..., Any], h: jax.Array, xs: Params, layers: int
) -> tuple[jax.Array, Any]:
    """Layers stacked on leading axes: one body is compiled, whatever their number."""
    return lax.scan(body, h, xs, length=layers)


def _unrolled(
    body: Callable[..., Any], h: jax.Array, xs: Params, layers: int
) -> tuple[jax.Array, Any]:
    """One after the other: a scan would copy each layer's weights and cache before it reads them.

    Returns:
      `h`, and what the layers keep as a tuple for each of its entries.
    """
    kept = []
    for number in range(layers):
        h, entry = body(h, _of_layer(xs, number))
        kept.append(entry)
    return h, tuple(zip(*kept, strict=True))


def _of_layer(tree: Any, number: int) -> Any:
    """One layer: of a stacked array its part, of a tuple its entry."""
    return jax.tree.map(lambda x: x[number], tree, is_leaf=lambda x: isinstance(x, tuple))


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
    cache: Cache
    rows: jax.Array | None  # i32[B]: rows of the cache; None: all in order
    entry: jax.Array  # i32[B, T]: where a token is written; S (nowhere) for padding
    readable: jax.Array  # bool[B, T, S]: what a token reads
    length: jax.Array  # i32[B]: entries after the tokens


def _cache_slots(cache: Cache, rows: jax.Array | None, valid: jax.Array) -> _Slots:
    before = cache.length if rows is None else cache.length[rows]
    entry = before[:, None] + jnp.cumsum(valid, axis=1, dtype=jnp.int32) - 1
    readable = (jnp.arange(cache.size) <= entry[..., None]) & valid[..., None]
    length = before + valid.sum(1, dtype=jnp.int32)
    return _Slots(cache, rows, jnp.where(valid, entry, cache.size), readable, length)


def _with_entries(slots: _Slots, kept: tuple[tuple[jax.Array, ...], ...]) -> Cache:
    keys, values = kept
    length = slots.length
    if slots.rows is not None:
        length = slots.cache.length.at[slots.rows].set(length, mode="drop")
    return Cache(keys, values, length)


def _store(
    stored: Params, slots: _Slots, keys: jax.Array, values: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Writes a layer's new keys and values in place; what has no slot is dropped."""
    rows = jnp.arange(keys.shape[0]) if slots.rows is None else slots.rows
    at = rows[:, None], slice(None), slots.entry
    old_keys, old_values = stored["keys"], stored["values"]
    return (
        old_keys.at[at].set(keys.astype(old_keys.dtype), mode="drop"),
        old_values.at[at].set(values.astype(old_values.dtype), mode="drop"),
    )


def _rows_of(stored: tuple[jax.Array, jax.Array], slots: _Slots) -> tuple[jax.Array, jax.Array]:
    """A layer's keys and values of the rows in question."""
    keys, values = stored
    return stored if slots.rows is None else (keys[slots.rows], values[slots.rows])
