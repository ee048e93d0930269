"""Comparing whole training states."""

import jax
import jax.numpy as jnp
import numpy as np


def leaves(tree):
    """All numbers of a state, as numpy arrays; typed keys as their data."""
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(tree)
    ]


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))
