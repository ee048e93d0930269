"""Diversified retrieval against its formula, one candidate after the other."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.complementary.retrieval import RetrievalConfig, diversified


def by_hand(config, retrievals, ages, there):
    """Scores of one question's candidates, sorted."""
    scored = [
        (
            -rank
            - config.usage_weight * math.log(1 + retrievals[rank])
            - config.recent_weight * (ages[rank] < config.recent),
            -rank,
        )
        for rank in range(len(retrievals))
        if there[rank]
    ]
    best = sorted(scored, reverse=True)[: config.top]
    return [-rank for _, rank in best] + [len(retrievals)] * (config.top - len(best))


@pytest.mark.parametrize("numpy", [np, jnp])
@pytest.mark.parametrize("top", [1, 3])
def test_the_formula(numpy, top):
    config = RetrievalConfig(top=top, usage_weight=0.9, recent_weight=2.5, recent=10.0)
    random = np.random.default_rng(0)
    retrievals = random.integers(0, 200, (50, 16)).astype(np.int32)
    ages = np.where(random.random((50, 16)) < 0.3, np.inf, random.uniform(0, 20, (50, 16)))
    there = np.arange(16) < random.integers(0, 17, (50, 1))
    found = diversified(config, numpy.asarray(retrievals), numpy.asarray(ages), there, numpy)
    expected = [by_hand(config, *row) for row in zip(retrievals, ages, there, strict=True)]
    np.testing.assert_array_equal(found, expected)
    assert len({tuple(row) for row in expected}) > 3


def test_used_and_recent_entries_stand_back():
    config = RetrievalConfig()
    there, never = np.ones(3, bool), np.full(3, np.inf)
    unused = np.zeros(3, np.int32)
    assert diversified(config, unused, never, there) == [0]
    assert diversified(config, np.array([0, 0, 0]), np.array([299.0, np.inf, np.inf]), there) == [0]
    often = np.array([20, 0, 0])  # .4 · log 21 = 1.2, more than the next rank costs
    assert diversified(config, often, never, there) == [1]
    assert diversified(config, np.array([2, 0, 0]), np.array([0.0, np.inf, 5.0]), there) == [1]


@pytest.mark.parametrize(
    "fields", [{"top": 0}, {"oversampling": 0}, {"recent": -1.0}, {"recency": "days"}]
)
def test_bad_configurations(fields):
    with pytest.raises(ValueError, match=f"retrieval.{next(iter(fields))}"):
        RetrievalConfig(**fields)
