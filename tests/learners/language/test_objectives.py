"""Losses of tokens against numpy, and their gradients against the closed form."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.learners.language.batches import MicroBatch
from jaxrl_guided.learners.language.objectives import CISPOConfig, GRPOConfig, token_losses

ROWS, LENGTH = 6, 7


def batch(reference=False, seed=0):
    rng = np.random.default_rng(seed)
    tokens = rng.random((ROWS, LENGTH)) < 0.7
    weight = np.where(tokens, rng.random((ROWS, LENGTH)), 0.0)
    old = -rng.random((ROWS, LENGTH)) * 2
    scored = MicroBatch(
        tokens=jnp.zeros((ROWS, LENGTH), jnp.int32),
        spoken=jnp.asarray(tokens),
        temperature=jnp.ones(ROWS),
        behaviour=jnp.asarray(old + rng.normal(0, 0.5, old.shape), jnp.float32),
        old=jnp.asarray(old, jnp.float32),
        reference=jnp.asarray(old + 0.3, jnp.float32) if reference else None,
        advantage=jnp.asarray(rng.normal(size=ROWS), jnp.float32),
        weight=jnp.asarray(weight, jnp.float32),
    )
    return scored, jnp.asarray(old + rng.normal(0, 0.3, old.shape), jnp.float32)


def loss_of(objective, log_prob, scored):
    losses, metrics = token_losses(objective, log_prob, scored)
    return (losses * scored.weight).sum(), metrics


loss_and_grad = jax.jit(jax.value_and_grad(loss_of, argnums=1, has_aux=True), static_argnums=0)


@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_grpo_is_the_clipped_surrogate(ratio):
    objective = GRPOConfig(ratio, clip_low=0.1, clip_high=0.3, max_importance=1.2, kl_weight=0.5)
    scored, log_prob = batch(reference=True)
    (loss, metrics), grad = loss_and_grad(objective, log_prob, scored)
    x = jax.tree.map(lambda v: np.asarray(v, np.float64), (scored, log_prob))
    scored64, lp = x
    used, total, clipped, expected_grad = scored64.weight > 0, 0.0, 0.0, np.zeros((ROWS, LENGTH))
    for row in range(ROWS):
        change = (lp - scored64.old)[row]
        for t in np.flatnonzero(used[row]):
            r = np.exp(change[used[row]].sum() if ratio == "sequence" else change[t])
            a, w = scored64.advantage[row], scored64.weight[row, t]
            importance = min(np.exp((scored64.old - scored64.behaviour)[row, t]), 1.2)
            inside = np.clip(r, 0.9, 1.3) * a
            apart = scored64.reference[row, t] - lp[row, t]
            total += w * (-importance * min(r * a, inside) + 0.5 * (np.exp(apart) - apart - 1))
            clipped += w * (r * a > inside)
            slope = -w * importance * r * a if r * a <= inside else 0.0
            where = used[row] if ratio == "sequence" else t
            expected_grad[row, where] += slope
            expected_grad[row, t] += w * 0.5 * (1 - np.exp(apart))
    np.testing.assert_allclose(loss, total, rtol=1e-5)
    np.testing.assert_allclose(grad, expected_grad, atol=1e-5)
    np.testing.assert_allclose(metrics["clipped"], clipped, rtol=1e-5)
    assert metrics["importance_truncated"] > 0


def test_cispo_without_a_range_is_reinforce():
    scored, log_prob = batch()
    _, grad = loss_and_grad(CISPOConfig(clip_low=0.0, clip_high=0.0), log_prob, scored)
    slope = -np.asarray(scored.weight) * np.asarray(scored.advantage)[:, None]
    np.testing.assert_allclose(grad, slope, atol=1e-6)


def test_cispo_keeps_the_gradient_of_what_it_clips():
    scored, log_prob = batch()
    (loss, metrics), grad = loss_and_grad(CISPOConfig(), log_prob, scored)
    ratio = np.exp(np.asarray(log_prob - scored.behaviour, np.float64))
    kept = np.clip(ratio, 0.9, 1.1)
    slope = -np.asarray(scored.weight) * kept * np.asarray(scored.advantage)[:, None]
    np.testing.assert_allclose(grad, slope, atol=1e-6)
    np.testing.assert_allclose(loss, (slope * np.asarray(log_prob)).sum(), rtol=1e-4)
    share = (np.asarray(scored.weight) * (ratio != kept)).sum()
    assert share > 0.1
    np.testing.assert_allclose(metrics["clipped"], share, rtol=1e-5)


@pytest.mark.parametrize("objective", [GRPOConfig(), GRPOConfig("sequence"), CISPOConfig()])
def test_on_policy_the_gradient_is_that_of_reinforce(objective):
    scored, _ = batch()
    scored = scored.replace(behaviour=scored.old)
    (_, metrics), grad = loss_and_grad(objective, scored.old, scored)
    weight = np.asarray(scored.weight)
    if objective == GRPOConfig("sequence"):
        weight = np.where(weight > 0, weight.sum(1, keepdims=True), 0)
    np.testing.assert_allclose(grad, -weight * np.asarray(scored.advantage)[:, None], atol=1e-6)
    assert metrics["clipped"] == 0


@pytest.mark.parametrize("objective", [GRPOConfig(kl_weight=0.1), CISPOConfig()])
def test_tokens_without_weight_may_be_anything(objective):
    scored, log_prob = batch(reference=True)
    (loss, _), grad = loss_and_grad(objective, log_prob, scored)
    free = scored.weight == 0
    wild = jax.tree.map(
        lambda x: jnp.where(free, 1e4, x) if x.shape == free.shape else x, scored
    ).replace(weight=scored.weight)
    (again, _), grad_again = loss_and_grad(objective, jnp.where(free, -1e4, log_prob), wild)
    np.testing.assert_allclose(again, loss, rtol=1e-6)
    np.testing.assert_allclose(grad_again, grad, atol=1e-6)


@pytest.mark.parametrize(
    "make,message",
    [
        (lambda: GRPOConfig(ratio="word"), "ratio must be one of token, sequence, not 'word'"),
        (lambda: GRPOConfig(clip_low=0.0), "clip_low must be between 0 and 1"),
        (lambda: GRPOConfig(clip_low=1.0), "clip_low must be between 0 and 1"),
        (lambda: GRPOConfig(clip_high=float("nan")), "clip_high must be positive and finite"),
        (lambda: GRPOConfig(clip_high=1e39), "clip_high must be positive and finite"),
        (lambda: GRPOConfig(max_importance=0.0), "max_importance must be positive"),
        (lambda: GRPOConfig(max_importance=float("inf")), "max_importance must .* not inf"),
        (lambda: GRPOConfig(kl_weight=float("inf")), "kl_weight must .* not inf"),
        (lambda: GRPOConfig(kl_weight=-1.0), "kl_weight must be at least 0"),
        (lambda: CISPOConfig(clip_low=1.5), r"clip_low must be in \[0, 1\]"),
        (lambda: CISPOConfig(clip_high=-0.1), "clip_high must be at least 0"),
        (lambda: CISPOConfig(clip_high=1e300), "clip_high must be .* not 1e\\+300"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("far", [-1000.0, 1000.0])
def test_policies_that_are_far_apart_give_finite_gradients(ratio, advantage, far):
    """Without a bound an infinite ratio times an advantage of 0 is no number."""
    scored, log_prob = batch(reference=True)
    scored = dataclasses.replace(
        scored, advantage=jnp.full(ROWS, advantage), reference=scored.reference + far
    )
    for objective in (GRPOConfig(ratio, kl_weight=0.1), CISPOConfig()):
        for shifted in (
            (scored, log_prob + far),
            (dataclasses.replace(scored, behaviour=scored.behaviour + far), log_prob),
        ):
            (loss, metrics), grad = loss_and_grad(objective, shifted[1], shifted[0])
            assert np.isfinite(grad).all()
            assert np.isfinite([loss, *metrics.values()]).all()
