"""The matrix products of a decoder alone, at the shapes of a forward: the floor that no pass beats.

Products only: no norms, rotations, masks, exponentials, gathers, activations or residuals.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.params import linear_shapes

PEAK_SIZE = 2048
PEAK_OPERATIONS = 2.0 * PEAK_SIZE**3


class Attention(NamedTuple):
    """`blocks` times, `queries` tokens read `keys` others."""

    blocks: int
    queries: int
    keys: int


class Shapes(NamedTuple):
    """A forward: `chunks` times so many `tokens`, with attention in several parts."""

    chunks: int
    tokens: int
    attention: tuple[Attention, ...]


class Operands(NamedTuple):
    """What `run_products` multiplies; each kernel is an array of its own, so none is sliced."""

    x: jax.Array
    queries: list[jax.Array]
    keys: list[jax.Array]
    values: list[jax.Array]
    kernels: list[dict[str, jax.Array]]


@jax.jit
def peak(left: jax.Array, right: jax.Array) -> jax.Array:
    """One product of `PEAK_SIZE`³: what the machine can do at best."""
    return _dot(left, right)


def operations(config: BackboneConfig, shapes: Shapes) -> float:
    """Floating-point operations of `run_products`."""
    linear = sum(a * b for a, b in linear_shapes(config).values()) * shapes.tokens
    pairs = sum(part.blocks * part.queries * part.keys for part in shapes.attention)
    mixing = 2 * config.num_heads * config.head_dim * pairs
    return 2.0 * shapes.chunks * config.num_layers * (linear + mixing)


def operands(config: BackboneConfig, shapes: Shapes) -> Operands:
    """Random numbers of such size that a chain of products neither grows nor vanishes."""
    rng = np.random.default_rng(0)

    def normal(*shape: int, fan_in: int = 1) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, np.float32) / np.float32(fan_in**0.5))

    groups, size = config.num_kv_heads, config.head_dim
    repeat = config.num_heads // groups
    linear = linear_shapes(config)
    return Operands(
        x=normal(shapes.tokens, config.hidden_size),
        queries=[normal(p.blocks * groups, p.queries * repeat, size) for p in shapes.attention],
        keys=[normal(p.blocks * groups, size, p.keys, fan_in=size) for p in shapes.attention],
        values=[normal(p.blocks * groups, p.keys, size, fan_in=p.keys) for p in shapes.attention],
        kernels=[
            {name: normal(*shape, fan_in=shape[0]) for name, shape in linear.items()}
            for _ in range(config.num_layers)
        ],
    )


@functools.partial(jax.jit, static_argnums=0)
def run_products(chunks: int, given: Operands) -> tuple[jax.Array, ...]:
    """Seven linear products a layer and two for each part of attention, chunk after chunk.

    Every product feeds a later one or, through one of its numbers, the result: none is left out.
    """

    def chunk(
        _: jax.Array, carry: tuple[jax.Array, list[jax.Array], jax.Array]
    ) -> tuple[jax.Array, list[jax.Array], jax.Array]:
        x, queries, used = carry
        for kernel in given.kernels:
            mixed, k, v = (_dot(x, kernel[name]) for name in "qkv")
            parts = zip(queries, given.keys, given.values, strict=True)
            queries = [_dot(_dot(q, keys), values) for q, keys, values in parts]
            x = _dot(mixed, kernel["o"])
            up = _dot(x, kernel["up"])
            x = _dot(_dot(x, kernel["gate"]), kernel["down"])
            # Without the barrier the compiler would make one number of these products only.
            x, k, v, up = lax.optimization_barrier((x, k, v, up))
            used = used + k[0, 0] + v[0, 0] + up[0, 0]
        return x, queries, used

    return lax.fori_loop(0, chunks, chunk, (given.x, given.queries, jnp.float32(0)))


def _dot(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)
