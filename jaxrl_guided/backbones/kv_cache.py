"""Keys and values of tokens read before, one array a layer, written in place."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

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


def init_cache(
    config: BackboneConfig, rows: int, size: int, dtype: jax.typing.DTypeLike = jnp.float32
) -> Cache:
    """An empty cache for `rows` sequences of up to `size` tokens."""
    shape = (rows, config.num_kv_heads, size, config.head_dim)
    keys, values = (
        tuple(jnp.zeros(shape, dtype) for _ in range(config.num_layers)) for _ in range(2)
    )
    return Cache(keys, values, jnp.zeros(rows, jnp.int32))


def part(cache: Cache, rows: jax.Array | None, reach: int) -> Cache:
    """Some rows `i32[R]` (None: all) and their first `reach` tokens; a copy unless it is all."""
    if rows is None and reach == cache.size:
        return cache
    chosen = slice(None) if rows is None else rows
    keys, values = (
        tuple(x[chosen, :, :reach] for x in layers) for layers in (cache.keys, cache.values)
    )
    return Cache(keys, values, cache.length[chosen])


def put_part(cache: Cache, rows: jax.Array | None, reach: int, new: Cache) -> Cache:
    """The cache with a `part` of it replaced; rows that it does not have are dropped."""
    if rows is None and reach == cache.size:
        return new
    chosen = slice(None) if rows is None else rows

    def put(layers: tuple[jax.Array, ...], parts: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(
            x.at[chosen, :, :reach].set(y, mode="drop") for x, y in zip(layers, parts, strict=True)
        )

    keys, values = put(cache.keys, new.keys), put(cache.values, new.values)
    return Cache(keys, values, cache.length.at[chosen].set(new.length, mode="drop"))


class Slots(NamedTuple):
    """Where the tokens of a forward go.

    Attributes:
      cache: before them.
      entry: `i32[B, T]`, where a token is written; S (nowhere) for padding.
      readable: `bool[B, T, S]`, what a token reads.
      length: `i32[B]`, entries after the tokens.
    """

    cache: Cache
    entry: jax.Array
    readable: jax.Array
    length: jax.Array


def find(cache: Cache, valid: jax.Array) -> Slots:
    """The next entries of all rows, for the valid ones of tokens `bool[B, T]`."""
    entry = cache.length[:, None] + jnp.cumsum(valid, axis=1, dtype=jnp.int32) - 1
    readable = (jnp.arange(cache.size) <= entry[..., None]) & valid[..., None]
    length = cache.length + valid.sum(1, dtype=jnp.int32)
    return Slots(cache, jnp.where(valid, entry, cache.size), readable, length)


def store(
    stored: Params, slots: Slots, keys: jax.Array, values: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Writes a layer's new keys and values `[B, T, K, head_dim]`; what has no slot is dropped."""
    at = jnp.arange(keys.shape[0])[:, None], slice(None), slots.entry
    old_keys, old_values = stored["keys"], stored["values"]
    return (
        old_keys.at[at].set(keys.astype(old_keys.dtype), mode="drop"),
        old_values.at[at].set(values.astype(old_values.dtype), mode="drop"),
    )
