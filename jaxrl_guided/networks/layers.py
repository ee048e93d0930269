"""Parts of small networks."""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from jaxrl_guided.envs.types import PyTree

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "silu": jax.nn.silu}


def check_layers(hidden: tuple[int, ...], activation: str) -> None:
    """Raises ValueError for sizes or an activation that no network can have."""
    if not hidden or min(hidden) < 1:
        raise ValueError(f"hidden must be positive sizes, not {hidden}")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"activation must be one of {known}, not {activation!r}")


@jax.custom_vjp
def product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`x @ kernel` for `f32[..., K]` and `f32[K, M]`; on a CPU the kernel's gradient is faster.

    That gradient sums over the rows of both its factors, which XLA's products on a CPU do at half
    their speed; with the transposed inputs in memory they do not.
    """
    return x @ kernel


def _product_forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, PyTree]:
    return x @ kernel, (x, kernel)


def _product_backward(saved: PyTree, grad: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = saved
    rows, grads = (y.reshape(-1, y.shape[-1]) for y in (x, grad))
    if kernel.shape[-1] == 1:  # A product of a matrix and a vector is none of those.
        to_kernel = rows.T @ grads
    else:
        to_kernel = jax.lax.platform_dependent(
            rows,
            grads,
            cpu=lambda rows, grads: jax.lax.optimization_barrier(rows.T) @ grads,
            default=lambda rows, grads: rows.T @ grads,
        )
    return (grad @ kernel.T).astype(x.dtype), to_kernel.astype(kernel.dtype)


product.defvjp(_product_forward, _product_backward)


class Linear(nnx.Module):
    """`x @ kernel + bias`; the kernel is orthogonal at first, scaled by `gain`."""

    def __init__(self, inputs: int, outputs: int, gain: float, rngs: nnx.Rngs) -> None:
        # Keys are drawn as nnx.Linear draws them, so that a seed stays the same network.
        kernel = nnx.initializers.orthogonal(gain)(rngs.params(), (inputs, outputs))
        self.kernel = nnx.Param(kernel)
        self.bias = nnx.Param(nnx.initializers.zeros(rngs.params(), (outputs,)))

    def __call__(self, x: jax.Array) -> jax.Array:
        return product(x, self.kernel[...]) + self.bias[...]


class MLP(nnx.Module):
    """Linear layers with orthogonal kernels; `gain` is that of the last one."""

    def __init__(
        self, sizes: tuple[int, ...], activation: str, gain: float, rngs: nnx.Rngs
    ) -> None:
        gains = [math.sqrt(2)] * (len(sizes) - 2) + [gain]
        # Zero-padded names: lists become integer keys, which sort as strings in some checkpoints.
        self.layers = nnx.Dict(
            {
                f"layer_{i:02d}": Linear(sizes[i], sizes[i + 1], gains[i], rngs)
                for i in range(len(sizes) - 1)
            }
        )
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        *hidden, last = self.layers.values()
        for layer in hidden:
            x = ACTIVATIONS[self.activation](layer(x))
        return last(x)


class Convolutions(nnx.Module):
    """3 × 3 convolutions, stride 1, without padding; the result is flattened.

    Each is a matrix product with the nine shifted images side by side: with a kernel for each seed
    XLA's own convolution becomes a grouped one, eight times slower in PPO on Breakout on a CPU.
    """

    def __init__(
        self, channels: tuple[int, ...], first: int, activation: str, rngs: nnx.Rngs
    ) -> None:
        self.layers = nnx.Dict(
            {
                f"layer_{i:02d}": Linear(9 * before, after, math.sqrt(2), rngs)
                for i, (before, after) in enumerate(zip((first, *channels), channels, strict=False))
            }
        )
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers.values():
            x = ACTIVATIONS[self.activation](layer(_patches(x)))
        return x.reshape(*x.shape[:-3], -1)


class GRU(nnx.Module):
    """A gated recurrent unit over steps or sequences of episodes (arXiv 1406.1078)."""

    def __init__(self, inputs: int, units: int, rngs: nnx.Rngs) -> None:
        self.cell = nnx.GRUCell(inputs, units, rngs=rngs)

    def __call__(
        self, memory: jax.Array, x: jax.Array, done: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Memory `f32[N, units]` after the inputs, and the outputs.

        Args:
          x: `f32[N, inputs]`, or a sequence `f32[N, T, inputs]` with `done`.
          done: `bool[N, T]`: the episode ended with this step, the memory after it is zero.
        """
        if done is None:
            return self.cell(memory, x)
        graph, params = nnx.split(self.cell)

        def step(memory: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[PyTree, jax.Array]:
            x, done = now
            memory, out = nnx.merge(graph, params)(memory, x)
            return forget(memory, done), out

        memory, outs = jax.lax.scan(step, memory, (x.swapaxes(0, 1), done.swapaxes(0, 1)))
        return memory, outs.swapaxes(0, 1)


def forget(memory: PyTree, done: jax.Array) -> PyTree:
    """Memory `[N, units]` where an episode goes on, zero where it is `done` (`bool[N]`)."""
    return jax.tree.map(lambda x: jnp.where(done[:, None], 0.0, x), memory)


def _patches(x: jax.Array) -> jax.Array:
    """`[..., H, W, C]` to `[..., H - 2, W - 2, 9 C]`: row, column, channel of each 3 × 3 patch."""
    height, width = x.shape[-3] - 2, x.shape[-2] - 2
    shifted = [x[..., i : i + height, j : j + width, :] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, axis=-1)
