"""Running statistics against numpy over all samples."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.types import Box, Dict, Discrete
from jaxrl_guided.learners.normaliser import (
    Moments,
    init_normaliser,
    init_reward_scale,
    merge,
    normalise,
    scale_rewards,
    update_normaliser,
)

SPACE = Dict({"state": Box((3,)), "instruction": Discrete(5)})


def test_statistics_equal_numpys_over_all_batches():
    rng = np.random.default_rng(0)
    batches = [
        rng.normal([1000, -3, 0], [0.5, 20, 1e-3], (size, 4, 3)).astype(np.float32)
        for size in (1, 7, 30)
    ]
    normaliser = init_normaliser(SPACE)
    for batch in batches:
        ids = jnp.zeros(batch.shape[:2], jnp.int32)
        normaliser = jax.jit(update_normaliser)(normaliser, {"state": batch, "instruction": ids})
    seen = np.concatenate([batch.reshape(-1, 3) for batch in batches]).astype(np.float64)
    assert normaliser["instruction"] is None
    moments = normaliser["state"]
    assert moments.count == len(seen)
    np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moments.var, seen.var(0), rtol=1e-3)


def test_statistics_move_as_they_should_after_a_billion_samples():
    moments = Moments(jnp.float32(1e9), jnp.float32(2), jnp.float32(4))
    for _ in range(3):
        moments = jax.jit(merge)(moments, np.full(10_000_000, 3.0, np.float32))
    share = 3e7 / (1e9 + 3e7)
    np.testing.assert_allclose(moments.mean, 2 + share, rtol=1e-5)
    np.testing.assert_allclose(moments.var, (1 - share) * 4 + share * (1 - share), rtol=1e-5)


def test_normalised_observations_and_untouched_ids():
    normaliser = init_normaliser(SPACE)
    raw = {"state": jnp.float32([[1, 2, 50]]), "instruction": np.int32([4])}
    unchanged = normalise(normaliser, raw)
    np.testing.assert_allclose(unchanged["state"], [[1, 2, 10]], rtol=1e-6)
    normaliser["state"] = Moments(jnp.float32(9), jnp.float32([1, 0, 0]), jnp.float32([1, 4, 100]))
    scaled = normalise(normaliser, raw)
    np.testing.assert_allclose(scaled["state"], [[0, 1, 5]], rtol=1e-6)
    assert scaled["instruction"].tolist() == [4]
    assert normalise(None, raw) is raw


def test_numbers_that_are_of_size_one_stay_as_they_are():
    normaliser = init_normaliser(Dict({"state": Box((2,)), "seen": Box((2,), normalise=False)}))
    batch = {name: jnp.float32([[0, 8], [4, 8]]) for name in ("state", "seen")}
    normaliser = update_normaliser(normaliser, batch)
    scaled = normalise(normaliser, batch)
    np.testing.assert_array_equal(scaled["seen"], batch["seen"])
    np.testing.assert_allclose(scaled["state"], [[-1, 0], [1, 0]], rtol=1e-6)


def test_rewards_are_divided_by_the_deviation_of_discounted_returns():
    rng = np.random.default_rng(1)
    reward = (100 * rng.normal(size=(2, 20, 3))).astype(np.float32)
    done = rng.random((2, 20, 3)) < 0.2
    scale, total, totals = init_reward_scale(3), np.zeros(3), []
    for part in range(2):
        scale, scaled = jax.jit(scale_rewards)(scale, reward[part], done[part], 0.9)
        for t in range(20):
            total = 0.9 * total + reward[part, t]
            totals.append(total)
            total = np.where(done[part, t], 0, total)
        want = np.clip(reward[part] / np.std(totals), -10, 10)
        np.testing.assert_allclose(scaled, want, rtol=1e-3)
