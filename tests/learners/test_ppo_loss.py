"""PPO's loss against literals and rlax."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxrl_guided.learners.ppo.config import PPOConfig, make_hyper
from jaxrl_guided.learners.ppo.loss import Batch, ppo_loss
from jaxrl_guided.networks.distributions import Categorical

PLAIN = PPOConfig(normalise_advantage=False, value_weight=0.0, entropy_weight=0.0)


def evaluate(config, probs, old_probs, advantage, value=(0.0,), target=(0.0,), old_value=None):
    """The loss where each state offers two actions and the first was taken."""
    probs = np.float32(probs)
    batch = Batch(
        obs=None,
        raw_action=jnp.zeros(len(probs), jnp.int32),
        log_prob=jnp.log(np.float32(old_probs)),
        advantage=np.float32(advantage),
        target=np.float32(target),
        value=None if old_value is None else np.float32(old_value),
        guidance=None,
    )
    policy = Categorical(jnp.log(jnp.stack([probs, 1 - probs], axis=1)))
    return ppo_loss(policy, jnp.float32(value), batch, config, make_hyper(config))


def test_surrogate_clips_only_what_it_would_gain_from():
    # Ratios 1.5 and .5 with clip .2, for both signs of the advantage.
    loss, metrics = evaluate(PLAIN, [0.6, 0.6, 0.2, 0.2], 0.4 * np.ones(4), [1, -1, 1, -1])
    assert loss == pytest.approx(-np.mean([1.2, -1.5, 0.5, -0.8]), rel=1e-5)
    assert metrics["clip_fraction"] == 1


def test_surrogate_equals_rlax():
    rng = np.random.default_rng(0)
    probs, old = rng.uniform(0.2, 0.8, (2, 32))
    advantage = rng.normal(size=32)
    loss, _ = evaluate(PLAIN, probs, old, advantage)
    want = rlax.clipped_surrogate_pg_loss(jnp.float32(probs / old), jnp.float32(advantage), 0.2)
    assert loss == pytest.approx(float(want), rel=1e-5)


def test_advantages_are_normalised_within_the_minibatch():
    config = dataclasses.replace(PLAIN, normalise_advantage=True)
    loss, _ = evaluate(config, [0.44, 0.36], [0.4, 0.4], [300.0, 100.0])
    assert loss == pytest.approx(-np.mean([1.1 * 1, 0.9 * -1]), rel=1e-5)


def test_value_loss_is_half_the_squared_error():
    config = dataclasses.replace(PLAIN, value_weight=0.5)
    loss, metrics = evaluate(config, [0.5, 0.5], [0.5, 0.5], [0, 0], [1.0, 2.0], [4.0, 2.0])
    assert metrics["value_loss"] == pytest.approx(0.5 * 9 / 2)
    assert loss == pytest.approx(0.5 * 0.5 * 9 / 2)


def test_clipped_values_take_the_larger_error():
    config = dataclasses.replace(PLAIN, value_clip=0.5)
    # From 0 towards 3: at 2 the clipped value .5 is further off. From 0 to -2, target 0: 2 is.
    _, metrics = evaluate(config, [0.5] * 2, [0.5] * 2, [0] * 2, [2.0, -2.0], [3.0, 0.0], [0, 0])
    assert metrics["value_loss"] == pytest.approx(0.5 * np.mean([2.5**2, 2.0**2]))


def test_entropy_is_a_bonus():
    config = dataclasses.replace(PLAIN, entropy_weight=0.1)
    loss, metrics = evaluate(config, [0.5], [0.5], [0.0])
    assert metrics["entropy"] == pytest.approx(np.log(2))
    assert loss == pytest.approx(-0.1 * np.log(2))


def test_kl_estimate_is_unbiased_and_never_negative():
    # Weighted by the acting policy, the estimates of the two actions sum to the divergence.
    old, new = np.array([0.3, 0.7]), np.array([0.45, 0.55])
    each = [evaluate(PLAIN, [n], [o], [0.0])[1]["kl"] for n, o in zip(new, old, strict=True)]
    assert min(each) > 0
    assert np.dot(old, each) == pytest.approx(np.sum(old * np.log(old / new)), rel=1e-4)


def test_gradients_of_the_unclipped_surrogate_are_the_policy_gradient():
    """At ratio 1, d loss / d logits = -advantage · (onehot - probs)."""

    def loss(logits):
        batch = Batch(
            None, jnp.int32([0]), jnp.log(jnp.float32([0.5])), jnp.float32([2.0]), 0, 0, 0
        )
        return ppo_loss(Categorical(logits), jnp.zeros(1), batch, PLAIN, make_hyper(PLAIN))[0]

    np.testing.assert_allclose(jax.grad(loss)(jnp.zeros((1, 2))), [[-1, 1]], rtol=1e-5)
