"""The one decoder (Llama, Qwen2, Qwen3): embeddings in, hidden states out; weights as in `params`.

The prior, the sampler, the trainer and the embedder all call `apply`, so they cannot disagree.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from jaxrl_guided.backbones import attention, kv_cache, rope
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.kv_cache import Cache
from jaxrl_guided.backbones.params import FUSED, Params, linear_shapes


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
      params: its parameters; with a cache, its layers may be a tuple (`params.unstack`).
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
    slots = None if cache is None else kv_cache.find(cache, segment_ids != 0)
    hidden, kept = _forward(
        config, params, x, positions, segment_ids, adapters, prefix, slots, options
    )
    if slots is None:
        return hidden, kept
    keys, values = kept
    return hidden, Cache(keys, values, slots.length)


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
    slots: kv_cache.Slots | None,
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

        def dense(y: jax.Array, *names: str) -> list[jax.Array]:
            products = _products(config, weights, names, y, dtype)
            pairs = zip(products, names, strict=True)
            return [_adapted(y, out, lora.get(name), adapters.scale, dtype) for out, name in pairs]

        y = rms_norm(h, weights["attn_norm"], config.norm_eps).astype(dtype)
        q, k, v = _heads(config, weights, dense(y, "q", "k", "v"), cos, sin)
        kept, parts = ((k, v) if options.collect else None), []
        if read_own is not None:
            parts.append(read_own(q, k, v))
        if slots is not None:
            kept = kv_cache.store(xs["stored"], slots, k, v)
            parts.append(attention.cache_part(q, *kept, slots.readable))
        if read_prefix is not None:
            parts.append(read_prefix(q, xs["table"]["keys"], xs["table"]["values"]))
        mixed = attention.merge(*parts).astype(dtype)
        h = h + dense(mixed.reshape(*positions.shape, -1), "o")[0]
        y = rms_norm(h, weights["mlp_norm"], config.norm_eps).astype(dtype)
        gate, up = dense(y, "gate", "up")
        return h + dense(jax.nn.silu(gate) * up, "down")[0], kept

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


def _products(
    config: BackboneConfig,
    weights: Params,
    names: tuple[str, ...],
    x: jax.Array,
    dtype: jax.typing.DTypeLike,
) -> list[jax.Array]:
    """x W + bias of linear layers with the same input, which may lie side by side (`unstack`)."""
    if names in FUSED and "_".join(names) in weights:
        sizes = [linear_shapes(config)[name][1] for name in names]
        product = _linear(x, weights["_".join(names)], dtype)
        return jnp.split(product, np.cumsum(sizes)[:-1].tolist(), axis=-1)
    return [_linear(x, weights[name], dtype) for name in names]


def _linear(x: jax.Array, weights: Params, dtype: jax.typing.DTypeLike) -> jax.Array:
    y = _dot(x, weights["kernel"].astype(dtype))
    return y + weights["bias"].astype(dtype) if "bias" in weights else y


def _adapted(
    x: jax.Array,
    y: jax.Array,
    adapter: Params | None,
    scale: float,
    dtype: jax.typing.DTypeLike,
) -> jax.Array:
    """y + scale (x A) B."""
    if adapter is None:
        return y
    down, up = adapter["a"].astype(dtype), adapter["b"].astype(dtype)
    return y + scale * _dot(_dot(x, down), up)


def _heads(
    config: BackboneConfig,
    weights: Params,
    projected: list[jax.Array],
    cos: jax.Array,
    sin: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Splits q, k, v into heads, normalises (Qwen3), rotates, and scales q by 1 / √head_dim."""
    rows, tokens = projected[0].shape[:2]
    size, groups = config.head_dim, config.num_kv_heads
    q, k, v = (x.reshape(rows, tokens, -1, size) for x in projected)
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
