"""Spoilt priors are wrong in the way that they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.clevr.table import DIRECTIONS, NUM_ACTIONS, OPPOSITE
from jaxrl_guided.lago.controls import spoil
from jaxrl_guided.lago.prior import read_actions
from tests.lago.tiny import trained_prior


@pytest.fixture(scope="module")
def prior():
    return trained_prior()


def logits(prior):
    width = prior.spec.backbone.hidden_size
    return np.asarray(read_actions(prior.prior, jax.random.normal(jax.random.key(1), (64, width))))


def test_opposite_pushes_cancel():
    ball, direction = np.divmod(np.arange(NUM_ACTIONS), len(DIRECTIONS))
    other_ball, other = np.divmod(OPPOSITE, len(DIRECTIONS))
    np.testing.assert_array_equal(ball, other_ball)
    np.testing.assert_array_equal(DIRECTIONS[direction], -DIRECTIONS[other])


def test_reversed(prior):
    found = logits(spoil(prior, "reversed"))
    np.testing.assert_array_equal(found[:, OPPOSITE], logits(prior))


def test_random_is_as_sure_and_says_something_else(prior):
    before, found = logits(prior), logits(spoil(prior, "random"))
    assert found.std() == pytest.approx(before.std(), rel=0.3)
    assert abs(np.corrcoef(before.ravel(), found.ravel())[0, 1]) < 0.3
    head, new = (p.prior.heads["policy"]["kernel"] for p in (prior, spoil(prior, "random")))
    np.testing.assert_array_equal(jnp.sort(head.ravel()), jnp.sort(new.ravel()))
    np.testing.assert_array_equal(found, logits(spoil(prior, "random")))


def test_none_is_the_prior(prior):
    assert spoil(prior, "none") is prior
