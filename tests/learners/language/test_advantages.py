"""Advantages and token weights against loops in numpy."""

import numpy as np
import pytest

from jaxrl_guided.learners.language.advantages import (
    AGGREGATIONS,
    batch_advantages,
    group_advantages,
    reuse_factor,
    token_weights,
)


@pytest.mark.parametrize("norm", ["std", "mean"])
def test_rewards_are_compared_within_their_group(norm):
    rng = np.random.default_rng(0)
    rewards, groups = rng.normal(size=40).astype(np.float32), rng.integers(0, 6, 40)
    advantages, _ = group_advantages(rewards, groups, norm)
    for group in range(6):
        member = groups == group
        expected = rewards[member] - rewards[member].mean()
        if norm == "std":
            expected = expected / rewards[member].std()
        np.testing.assert_allclose(advantages[member], expected, atol=2e-6)


def test_groups_that_teach_nothing_are_counted():
    #        equal        alone  mixed
    rewards = [0.1, 0.1, 0.1, 5.0, 0.0, 1.0]
    groups = [0, 0, 0, 1, 7, 7]
    advantages, share = group_advantages(np.array(rewards, np.float32), np.array(groups))
    np.testing.assert_allclose(advantages, [0, 0, 0, 0, -1, 1], atol=1e-6)
    np.testing.assert_allclose(share, 2 / 3, atol=1e-6)


def test_small_deviations_are_not_blown_up():
    advantages, share = group_advantages(np.array([0.0, 1e-4]), np.array([0, 0]))
    np.testing.assert_allclose(advantages, [-0.05, 0.05], atol=1e-6)
    assert share == 0


def test_advantages_of_a_batch_sum_to_nothing():
    advantages = batch_advantages(np.array([1.0, -1.0, -1.0]))
    np.testing.assert_allclose(advantages, [4 / 3, -2 / 3, -2 / 3], atol=1e-6)


def test_samples_count_less_each_time_and_not_at_once():
    factor = reuse_factor(np.array([0, 0, 1, 1, 3]), np.array([0, 9, 1, 2, 5]))
    np.testing.assert_allclose(factor, [1, 1, 0, 2**-0.5, 0.5], atol=1e-6)


def by_hand(tokens, parts, aggregation, loss, fixed):
    means = []
    for part in sorted(set(parts)):
        rows = [r for r in range(len(parts)) if parts[r] == part and tokens[r].any()]
        if not rows:
            continue
        if aggregation == "token_mean":
            means.append(np.concatenate([loss[r][tokens[r]] for r in rows]).mean())
        elif aggregation == "seq_mean_token_mean":
            means.append(np.mean([loss[r][tokens[r]].mean() for r in rows]))
        else:
            means.append(np.mean([loss[r][tokens[r]].sum() / fixed for r in rows]))
    return np.mean(means)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights_make_the_mean_of_parts(aggregation):
    rng = np.random.default_rng(1)
    tokens = rng.random((9, 12)) < 0.4
    tokens[2] = tokens[5] = False  # one row of each of two parts, and all of part 7
    parts = np.array([0, 1, 1, 0, 0, 7, 1, 0, 0])
    loss = rng.normal(size=(9, 12))
    weight = token_weights(tokens, parts, aggregation, 10)
    expected = by_hand(tokens, parts, aggregation, loss, 10)
    np.testing.assert_allclose((weight * loss).sum(), expected, atol=1e-6)
    assert (weight[~tokens] == 0).all()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_batch_without_tokens_weighs_nothing(aggregation):
    weight = token_weights(np.zeros((2, 3), bool), np.zeros(2, int), aggregation, 5)
    assert (weight == 0).all()
