"""Numbers that a whole vmapped population shares, so that control flow stays what it is.

Under `vmap` a batched condition turns `cond` into both branches, and a batched index turns an
update in place into a scatter that copies its array.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp


@jax.custom_batching.custom_vmap
def same_for_all(x: jax.Array) -> jax.Array:
    """A number that is equal for all members, as a count of iterations: theirs is the first's."""
    return x


@same_for_all.def_vmap
def _first(axis_size: int, in_batched: list[bool], x: jax.Array) -> tuple[jax.Array, bool]:
    del axis_size
    return same_for_all(x[0] if in_batched[0] else x), False


@jax.custom_batching.custom_vmap
def any_of_all(flags: jax.Array) -> jax.Array:
    """`bool[]`: whether any flag of any member is up."""
    return jnp.any(flags)


@any_of_all.def_vmap
def _any(axis_size: int, in_batched: list[bool], flags: jax.Array) -> tuple[jax.Array, bool]:
    del axis_size, in_batched
    return any_of_all(flags), False


def write(array: jax.Array, rows: jax.Array, at: jax.Array) -> jax.Array:
    """`array [M, …]` with `rows [T, …]` from row `at` on, which all members have in common."""
    return _writer(0)(array, rows, at)


@functools.lru_cache
def _writer(axis: int) -> Callable[[jax.Array, jax.Array, jax.Array], jax.Array]:
    """Writes along `axis`; each vmap puts one more in front of it."""

    @jax.custom_batching.custom_vmap
    def write(array: jax.Array, rows: jax.Array, at: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(array, rows, at, axis)

    @write.def_vmap
    def _all(
        axis_size: int, in_batched: list[bool], array: jax.Array, rows: jax.Array, at: jax.Array
    ) -> tuple[jax.Array, bool]:
        array, rows = (
            x if batched else jnp.broadcast_to(x, (axis_size, *x.shape))
            for x, batched in zip((array, rows), in_batched[:2], strict=True)
        )
        return _writer(axis + 1)(array, rows, at[0] if in_batched[2] else at), True

    return write
