"""Densities, entropies and actions of policies against float64 closed forms and integrals."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from jaxrl_guided.networks.distributions import (
    Categorical,
    ClippedNormal,
    MultiCategorical,
    TanhNormal,
)

LOW, HIGH = (-1.0, 0.5), (3.0, 0.75)


def one_dimensional(mean, std, low=-1.0, high=3.0, family=TanhNormal):
    return family(np.float32([mean]), np.log(np.float32([std])), (low,), (high,))


@jax.jit
def log_prob(policy, raw):
    return policy.log_prob(raw)


@jax.jit
def entropy(policy):
    return policy.entropy()


def tanh_log_density(action, mean, std, low, high):
    """Float64 log-density of low + (high - low)(tanh u + 1)/2, by change of variable."""
    unit = 2 * (action - low) / (high - low) - 1
    slope = (high - low) / 2 * (1 - unit**2)
    return stats.norm.logpdf(np.arctanh(unit), mean, std) - np.log(slope)


@pytest.mark.parametrize("mean, std", [(-1.5, 0.3), (0.0, 1.0), (0.7, 1.0)])
def test_tanh_density_integrates_to_one_over_asymmetric_bounds(mean, std):
    policy = one_dimensional(mean, std)
    actions = np.linspace(-1, 3, 200_001)[1:-1]
    raw = np.arctanh((actions - 1) / 2)
    density = np.exp(np.asarray(log_prob(policy, np.float32(raw)[:, None])))
    assert integrate.trapezoid(density, actions) == pytest.approx(1, abs=1e-3)


def test_tanh_log_prob_of_two_dimensions_is_the_sum():
    policy = TanhNormal(np.float32([[0.2, -0.4]]), np.log(np.float32([[0.5, 2.0]])), LOW, HIGH)
    raw = np.float32([[0.6, -1.1]])
    action = np.asarray(policy.action(raw), np.float64)[0]
    want = sum(
        tanh_log_density(action[i], (0.2, -0.4)[i], (0.5, 2.0)[i], LOW[i], HIGH[i]) for i in (0, 1)
    )
    assert log_prob(policy, raw)[0] == pytest.approx(want, abs=1e-4)


@pytest.mark.parametrize("mean", [-10.0, 10.0])
def test_saturated_tanh_log_prob_is_accurate_and_has_finite_gradients(mean):
    @jax.jit
    @partial(jax.value_and_grad, argnums=(0, 1, 2))
    def log_prob(mean, log_std, raw):
        return TanhNormal(mean[None], log_std[None], (-1.0,), (3.0,)).log_prob(raw[None])

    for raw in (mean - 2.0, mean, mean + 2.0):
        # log(1 - tanh²u) = 2 log 2 - 2u - 2 log(1 + e^(-2u)), in float64.
        slope = np.log(2.0) + 2 * np.log(2) - 2 * raw - 2 * np.logaddexp(0, -2 * raw)
        want = stats.norm.logpdf(raw, mean, 0.5) - slope
        arguments = np.float32(mean), np.log(np.float32(0.5)), np.float32(raw)
        got, gradients = log_prob(*arguments)
        assert got == pytest.approx(want, abs=1e-3)
        assert np.isfinite(gradients).all()


@pytest.mark.parametrize("mean, std", [(0.0, 0.1), (0.0, 1.0), (1.5, 0.5), (-0.5, 2.0)])
def test_tanh_entropy_is_the_integral(mean, std):
    def integrand(u):
        log_slope = np.log(2.0) + 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))
        return -stats.norm.pdf(u, mean, std) * (stats.norm.logpdf(u, mean, std) - log_slope)

    want, _ = integrate.quad(integrand, mean - 10 * std, mean + 10 * std, points=[0.0], limit=200)
    assert entropy(one_dimensional(mean, std)) == pytest.approx(want, abs=0.02)


def test_tanh_actions_stay_in_bounds_and_the_mode_is_the_mean():
    policy = TanhNormal(jnp.zeros((1000, 2)), jnp.ones((1000, 2)), LOW, HIGH)
    actions = np.asarray(policy.action(policy.sample(jax.random.key(0))))
    assert (actions >= np.float32(LOW)).all()
    assert (actions <= np.float32(HIGH)).all()
    assert (actions.max(0) > np.float32(HIGH) - 0.05).all()
    np.testing.assert_allclose(policy.action(policy.mode())[0], [1.0, 0.625], rtol=1e-6)


def test_normal_samples_have_the_stated_moments():
    policy = one_dimensional(0.7, 0.4)
    raw = np.asarray(jax.vmap(policy.sample)(jax.random.split(jax.random.key(1), 20_000)))
    assert raw.mean() == pytest.approx(0.7, abs=0.01)
    assert raw.std() == pytest.approx(0.4, abs=0.01)


def test_clipped_normal_is_scaled_to_the_bounds_and_its_density_is_scipys():
    policy = one_dimensional(0.2, 0.5, family=ClippedNormal)
    raw = np.float32([0.3])
    assert policy.action(raw) == pytest.approx(1 + 2 * 0.3)
    assert policy.action(np.float32([1.7])) == 3.0
    assert log_prob(policy, raw) == pytest.approx(stats.norm.logpdf(1.6, 1.4, 1.0), abs=1e-5)
    assert entropy(policy) == pytest.approx(stats.norm.entropy(1.4, 1.0), abs=1e-5)


def test_programs_of_one_kind_are_never_taken_for_the_other():
    kinds = [one_dimensional(0.2, 0.5, family=kind) for kind in (TanhNormal, ClippedNormal)]
    structures = [jax.tree.structure(kind) for kind in kinds]
    assert structures[0] != structures[1]
    assert structures[0] == jax.tree.structure(one_dimensional(0.3, 0.1))


def test_clipped_normal_without_bounds_is_a_normal():
    policy = one_dimensional(0.2, 0.5, -np.inf, np.inf, ClippedNormal)
    assert policy.action(np.float32([123.0])) == 123.0
    assert log_prob(policy, np.float32([1.0])) == pytest.approx(
        stats.norm.logpdf(1.0, 0.2, 0.5), abs=1e-5
    )


def test_categorical_matches_scipy():
    logits = np.float32([[1.0, -2.0, 0.5], [0.0, 0.0, 30.0]])
    probs = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    policy = Categorical(jnp.asarray(logits))
    np.testing.assert_allclose(
        log_prob(policy, np.int32([1, 2])), np.log([probs[0, 1], probs[1, 2]]), atol=1e-5
    )
    np.testing.assert_allclose(entropy(policy), stats.entropy(probs, axis=1), atol=1e-5)
    assert policy.mode().tolist() == [0, 2]


def test_categorical_samples_have_the_stated_frequencies():
    probs = np.array([0.1, 0.6, 0.3])
    policy = Categorical(jnp.log(np.float32(probs)))
    drawn = np.asarray(jax.vmap(policy.sample)(jax.random.split(jax.random.key(0), 20_000)))
    assert drawn.dtype == np.int32
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), probs, atol=0.015)


def test_independent_choices_are_the_joint_distribution_of_all_combinations():
    """Every one of the 3 · 2 · 4 actions, against float64 products of softmaxes."""
    sizes = (3, 2, 4)
    logits = np.random.default_rng(0).normal(size=(5, 9)).astype(np.float32)
    policy = MultiCategorical(logits, sizes)
    parts = np.split(logits.astype(np.float64), [3, 5], axis=1)
    chances = [np.exp(part) / np.exp(part).sum(axis=1, keepdims=True) for part in parts]
    joint = np.einsum("ni,nj,nk->nijk", *chances)
    entropy_wanted = -(joint * np.log(joint)).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(policy.entropy(), entropy_wanted, rtol=1e-5)
    for action in np.ndindex(*sizes):
        raw = np.tile(np.int32(action), (5, 1))
        got = np.exp(np.asarray(log_prob(policy, raw)))
        np.testing.assert_allclose(got, joint[(slice(None), *action)], rtol=1e-5)
    best = [np.unravel_index(table.argmax(), sizes) for table in joint]
    np.testing.assert_array_equal(policy.mode(), best)
    assert policy.mode().dtype == jnp.int32


def test_independent_choices_are_drawn_with_their_probabilities():
    logits = np.log(np.float32([0.5, 0.3, 0.2, 0.9, 0.1]))
    policy = MultiCategorical(np.tile(logits, (20_000, 1)), (3, 2))
    drawn = np.asarray(policy.sample(jax.random.key(0)))
    assert drawn.shape == (20_000, 2)
    counts = np.zeros((3, 2))
    np.add.at(counts, tuple(drawn.T), 1 / len(drawn))
    np.testing.assert_allclose(counts, np.outer([0.5, 0.3, 0.2], [0.9, 0.1]), atol=0.01)
