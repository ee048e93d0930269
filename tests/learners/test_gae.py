"""Advantages against literals, a Python loop and rlax."""

import jax
import numpy as np
import pytest
import rlax

from jaxrl_guided.learners import gae

generalised_advantages = jax.jit(gae.generalised_advantages)


def python_loop(reward, terminated, truncated, value, final_value, last_value, gamma, lam):
    """One environment, float64, written from the definition."""
    advantages, following = [], 0.0
    for t in reversed(range(len(reward))):
        ahead = last_value if t == len(reward) - 1 else value[t + 1]
        if terminated[t]:
            ahead = 0.0
        elif truncated[t]:
            ahead = final_value[t]
        if terminated[t] or truncated[t]:
            following = 0.0
        following = reward[t] + gamma * ahead - value[t] + gamma * lam * following
        advantages.append(following)
    return advantages[::-1]


@pytest.fixture
def rollout():
    rng = np.random.default_rng(0)
    steps, envs = 40, 6
    terminated = rng.random((steps, envs)) < 0.1
    truncated = (rng.random((steps, envs)) < 0.1) & ~terminated
    reward, value, final_value = rng.normal(size=(3, steps, envs)).astype(np.float32)
    return reward, terminated, truncated, value, final_value, value[0] + 1


def test_scan_equals_a_python_loop(rollout):
    got = generalised_advantages(*rollout, 0.97, 0.9)
    want = [
        python_loop(*(np.float64(leaf[..., n]) for leaf in rollout), 0.97, 0.9)
        for n in range(rollout[0].shape[1])
    ]
    np.testing.assert_allclose(got, np.transpose(want), atol=1e-5)


def test_rlax_agrees_when_the_final_value_is_put_into_the_reward(rollout):
    reward, terminated, truncated, value, final_value, last_value = rollout
    discount = np.float32(0.97) * ~(terminated | truncated)
    values = np.concatenate([value, last_value[None]])
    estimate = rlax.truncated_generalized_advantage_estimation
    want = jax.jit(jax.vmap(estimate, (1, 1, None, 1), 1))(
        reward + np.float32(0.97) * final_value * truncated, discount, 0.9, values
    )
    np.testing.assert_allclose(generalised_advantages(*rollout, 0.97, 0.9), want, atol=1e-5)


@pytest.mark.parametrize("cut", ["terminated", "truncated"])
def test_two_episodes_joined_equal_each_apart(cut):
    rng = np.random.default_rng(1)
    reward, value, final_value = rng.normal(size=(3, 7, 1)).astype(np.float32)
    flags = {"terminated": np.zeros((7, 1), bool), "truncated": np.zeros((7, 1), bool)}
    flags[cut][2] = True

    def advantages(part, last_value):
        return generalised_advantages(
            reward[part],
            flags["terminated"][part],
            flags["truncated"][part],
            value[part],
            final_value[part],
            last_value,
            0.9,
            0.8,
        )

    last = np.float32([0.3])
    apart = [advantages(slice(0, 3), np.float32([123.0])), advantages(slice(3, 7), last)]
    np.testing.assert_allclose(advantages(slice(0, 7), last), np.concatenate(apart), atol=1e-6)


def test_targets_at_the_two_kinds_of_end():
    """One step: r at termination, r + γV(final) at truncation, r + γV(next) otherwise."""
    ones = np.ones((1, 3), np.float32)
    advantage = generalised_advantages(
        ones,
        np.array([[True, False, False]]),
        np.array([[False, True, False]]),
        0.5 * ones,
        7 * ones,
        np.float32([20, 20, 20]),
        0.9,
        0.95,
    )
    np.testing.assert_allclose(advantage + 0.5, [[1, 1 + 0.9 * 7, 1 + 0.9 * 20]], rtol=1e-6)
