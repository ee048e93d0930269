"""Parts of small networks."""

import math

import jax
import jax.numpy as jnp
from flax import nnx

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "silu": jax.nn.silu}


class MLP(nnx.Module):
    """Linear layers with orthogonal kernels; `gain` is that of the last one."""

    def __init__(
        self, sizes: tuple[int, ...], activation: str, gain: float, rngs: nnx.Rngs
    ) -> None:
        gains = [math.sqrt(2)] * (len(sizes) - 2) + [gain]
        # Zero-padded names: lists become integer keys, which sort as strings in some checkpoints.
        self.layers = nnx.Dict(
            {
                f"layer_{i:02d}": nnx.Linear(
                    sizes[i],
                    sizes[i + 1],
                    kernel_init=nnx.initializers.orthogonal(gains[i]),
                    rngs=rngs,
                )
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
    """3 × 3 convolutions, stride 1, without padding; the result is flattened."""

    def __init__(
        self, channels: tuple[int, ...], first: int, activation: str, rngs: nnx.Rngs
    ) -> None:
        gain = nnx.initializers.orthogonal(math.sqrt(2))
        self.layers = nnx.Dict(
            {
                f"layer_{i:02d}": nnx.Conv(
                    before, after, (3, 3), padding="VALID", kernel_init=gain, rngs=rngs
                )
                for i, (before, after) in enumerate(zip((first, *channels), channels, strict=False))
            }
        )
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers.values():
            x = ACTIVATIONS[self.activation](layer(x))
        return x.reshape(*x.shape[:-3], -1)
