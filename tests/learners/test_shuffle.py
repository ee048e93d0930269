"""The sort-free shuffle is a permutation, and an even one."""

import functools

import jax
import numpy as np
import pytest

from jaxrl_guided.learners.shuffle import shuffled


@functools.cache
def draws(length, count):
    keys = jax.random.split(jax.random.key(0), count)
    return np.asarray(jax.jit(jax.vmap(lambda key: shuffled(key, length)))(keys))


@pytest.mark.parametrize("length, count", [(1, 2), (3, 10), (24, 20_000), (64, 20_000), (8192, 3)])
def test_every_index_appears_once(length, count):
    drawn = draws(length, count)
    assert drawn.dtype == np.int32
    assert (np.sort(drawn, axis=1) == np.arange(length)).all()


@pytest.mark.parametrize("length", [24, 64])
def test_every_index_is_equally_often_at_every_place(length):
    drawn = draws(length, 20_000)
    counts = np.stack([np.bincount(column, minlength=length) for column in drawn.T])
    expected = len(drawn) / length
    chi_square = ((counts - expected) ** 2 / expected).sum() / (length - 1) ** 2
    assert chi_square < 1.15


@pytest.mark.parametrize("length", [24, 64])
@pytest.mark.parametrize("distance", [1, 2, 12])
def test_pairs_share_a_minibatch_as_often_as_chance(length, distance):
    """Any two indices meet in one of four minibatches with probability (n/4 - 1)/(n - 1)."""
    place = np.argsort(draws(length, 20_000), axis=1) * 4 // length
    together = (place == np.roll(place, distance, axis=1)).mean()
    assert together == pytest.approx((length / 4 - 1) / (length - 1), abs=0.01)
