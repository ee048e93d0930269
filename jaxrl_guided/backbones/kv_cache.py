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


class Slots(NamedTuple):
    """Where the tokens of a forward go.

    Attributes:
      cache: before them.
      rows: `i32[B]`, rows of the cache; None: all in order.
      entry: `i32[B, T]`, where a token is written; S (nowhere) for padding.
      readable: `bool[B, T, S]`, what a token reads.
      length: `i32[B]`, entries after the tokens.
    """

    cache: Cache
    rows: jax.Array | None
    entry: jax.Array
    readable: jax.Array
    length: jax.Array


def find(cache: Cache, rows: jax.Array | None, valid: jax.Array) -> Slots:
    """The next entries of these rows, for the valid ones of tokens `bool[B, T]`."""
    before = cache.length if rows is None else cache.length[rows]
    entry = before[:, None] + jnp.cumsum(valid, axis=1, dtype=jnp.int32) - 1
    readable = (jnp.arange(cache.size) <= entry[..., None]) & valid[..., None]
    length = before + valid.sum(1, dtype=jnp.int32)
    return Slots(cache, rows, jnp.where(valid, entry, cache.size), readable, length)


def store(
    stored: Params, slots: Slots, keys: jax.Array, values: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Writes a layer's new keys and values `[B, T, K, head_dim]`; what has no slot is dropped."""
    rows = jnp.arange(keys.shape[0]) if slots.rows is None else slots.rows
    at = rows[:, None], slice(None), slots.entry
    old_keys, old_values = stored["keys"], stored["values"]
    return (
        old_keys.at[at].set(keys.astype(old_keys.dtype), mode="drop"),
        old_values.at[at].set(values.astype(old_values.dtype), mode="drop"),
    )


def read(stored: tuple[jax.Array, jax.Array], slots: Slots) -> tuple[jax.Array, jax.Array]:
    """A layer's keys and values of the rows in question, `[B, K, S, head_dim]`."""
    keys, values = stored
    return stored if slots.rows is None else (keys[slots.rows], values[slots.rows])


def updated(slots: Slots, kept: tuple[tuple[jax.Array, ...], ...]) -> Cache:
    """The cache after all layers have stored their parts."""
    (keys, values), length = kept, slots.length
    if slots.rows is not None:
        length = slots.cache.length.at[slots.rows].set(length, mode="drop")
    return Cache(keys, values, length)
