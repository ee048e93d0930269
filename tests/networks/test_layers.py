"""The dense product and its own gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxrl_guided.networks.layers import Linear, product


@pytest.mark.parametrize("outputs", [1, 2, 64])
@pytest.mark.parametrize("leading", [(5,), (3, 4), (2, 3, 2), ()])
def test_gradients_are_those_of_a_plain_product(leading, outputs):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(*leading, 7)).astype(np.float32)
    kernel = rng.normal(size=(7, outputs)).astype(np.float32)
    grad = rng.normal(size=(*leading, outputs)).astype(np.float32)
    out, pull = jax.vjp(jax.jit(product), x, kernel)
    to_x, to_kernel = pull(jnp.asarray(grad))
    wide = x.astype(np.float64).reshape(-1, 7)
    np.testing.assert_allclose(out, x @ kernel, atol=1e-5)
    np.testing.assert_allclose(to_x, grad @ kernel.T, atol=1e-5)
    np.testing.assert_allclose(to_kernel, wide.T @ grad.reshape(-1, outputs), atol=1e-5)


@pytest.mark.parametrize("types", [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_gradients_have_the_types_of_what_they_belong_to(types):
    x, kernel = jnp.ones((3, 4), types[0]), jnp.ones((4, 2), types[1])
    grads = jax.grad(lambda x, kernel: product(x, kernel).sum(), argnums=(0, 1))(x, kernel)
    assert tuple(grad.dtype.name for grad in grads) == types


@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None)])
def test_members_have_their_own_gradients(axes):
    rng = np.random.default_rng(1)
    xs, kernels = rng.normal(size=(3, 6, 4)), rng.normal(size=(3, 4, 2))
    x, kernel = (
        jnp.float32(many if axis == 0 else many[0])
        for many, axis in zip((xs, kernels), axes, strict=True)
    )

    def loss(times):
        def total(x, kernel):
            return jnp.sin(times(x, kernel)).sum()

        return jax.jit(jax.vmap(jax.grad(total, argnums=(0, 1)), in_axes=axes))(x, kernel)

    for ours, plain in zip(loss(product), loss(jnp.matmul), strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-5)


def test_linear_adds_its_bias():
    layer = Linear(3, 2, 1.0, nnx.Rngs(0))
    layer.bias[...] = jnp.array([1.0, -2.0])
    x = jnp.arange(12.0).reshape(4, 3)
    np.testing.assert_allclose(layer(x), x @ layer.kernel[...] + jnp.array([1.0, -2.0]), atol=1e-5)
