"""Kinds of actions: losses against sampling and quadrature, embeddings, labels and refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.lago.actions import (
    CLIP,
    STD_HIGH,
    STD_LOW,
    ContinuousActions,
    DiscreteActions,
    from_map,
    of_policy,
    recorded_map,
)
from jaxrl_guided.networks.distributions import (
    Categorical,
    ClippedNormal,
    MultiCategorical,
    TanhNormal,
)

TWO = ContinuousActions(2)
BOUNDS = ((-1.0, -1.0), (1.0, 1.0))
SAID = TanhNormal(jnp.float32([0.4, -1.1]), jnp.log(jnp.float32([0.3, 0.9])), *BOUNDS)
POLICY = TanhNormal(jnp.float32([-0.2, 0.3]), jnp.log(jnp.float32([0.5, 1.4])), *BOUNDS)
DRAWS = 200_000


def drawn(distribution):
    """`f64[DRAWS, 2]` raw actions."""
    noise = np.random.default_rng(0).normal(size=(DRAWS, 2))
    return np.float64(distribution.mean) + np.exp(np.float64(distribution.log_std)) * noise


def normal_log_density(distribution, raw):
    """`f64[...]`, summed over the two dimensions."""
    mean, std = np.float64(distribution.mean), np.exp(np.float64(distribution.log_std))
    each = -0.5 * ((raw - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    return each.sum(-1)


def close_to_mean(found, samples):
    """Within four standard errors of the mean of samples."""
    assert abs(float(found) - samples.mean()) < 4 * samples.std() / np.sqrt(len(samples))
    assert samples.std() > 0.1


def test_gaussian_losses_are_the_means_of_samples():
    raw = drawn(SAID)
    close_to_mean(TWO.cross_entropy(SAID, POLICY), -normal_log_density(POLICY, raw))
    close_to_mean(TWO.entropy(SAID), -normal_log_density(SAID, raw))
    label = np.float32([0.7, -2.0])
    want = -normal_log_density(POLICY, np.float64(label))
    np.testing.assert_allclose(TWO.nll(POLICY, label), want, rtol=1e-5)


def test_cross_entropy_of_actions_differs_by_the_expected_slope_of_tanh():
    """And KL divergences, either way round, do not differ at all."""
    raw = drawn(SAID)
    slope = np.log(1 - np.tanh(raw) ** 2).sum(-1)
    action_density = np.asarray(POLICY.log_prob(jnp.float32(raw)), np.float64)
    close_to_mean(TWO.cross_entropy(SAID, POLICY) + slope.mean(), -action_density)
    for p, q in ((SAID, POLICY), (POLICY, SAID)):
        at = jnp.float32(drawn(p))
        divergence = np.asarray(p.log_prob(at) - q.log_prob(at), np.float64)
        close_to_mean(TWO.cross_entropy(p, q) - TWO.entropy(p), divergence)


def test_gradients_are_those_of_the_density_of_actions():
    """The expectation by quadrature of 20 x 20 nodes, which is exact for the squares in it."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = np.outer(weights, weights) / weights.sum() ** 2
    noise = jnp.float32(np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1))

    def slowly(policy):
        return -jnp.sum(jnp.float32(weights) * policy.log_prob(SAID.at(noise)))

    found = jax.grad(lambda policy: TWO.cross_entropy(SAID, policy))(POLICY)
    wanted = jax.grad(slowly)(POLICY)
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-4)
    np.testing.assert_allclose(found.log_std, wanted.log_std, rtol=1e-4)
    assert np.abs(wanted.mean).min() > 0.1


@pytest.mark.parametrize("mean", [-10.0, 10.0])
@pytest.mark.parametrize("log_std", [-5.0, 2.0])
def test_losses_far_out_are_finite(mean, log_std):
    policy = TanhNormal(jnp.full(2, mean), jnp.full(2, log_std), *BOUNDS)
    said = TanhNormal(jnp.full(2, -mean), jnp.full(2, np.log(0.3)), *BOUNDS)

    def losses(policy):
        reverse = TWO.cross_entropy(policy, said) - TWO.entropy(policy)
        return jnp.stack(
            [TWO.cross_entropy(said, policy), TWO.nll(policy, TWO.raw(jnp.ones(2))), reverse]
        )

    values, gradients = losses(policy), jax.jacobian(losses)(policy)
    for array in (values, gradients.mean, gradients.log_std):
        assert np.isfinite(array).all()
    assert (np.abs(gradients.mean) > 0).all()


def test_deviations_lie_in_their_range_and_above_the_floor():
    outputs = jnp.float32([[3.0, -4.0, 0.0, 0.0], [0.0, 0.0, -50.0, 50.0]])
    said = TWO.distribution(outputs)
    np.testing.assert_array_equal(said.mean, outputs[:, :2])
    np.testing.assert_allclose(np.exp(said.log_std[0]), 1.0, rtol=1e-5)
    np.testing.assert_allclose(np.exp(said.log_std[1]), [STD_LOW, STD_HIGH], rtol=1e-5)
    np.testing.assert_allclose(STD_HIGH, np.arctanh(CLIP))
    floored = TWO.distribution(outputs, std_floor=0.3)
    np.testing.assert_allclose(np.exp(floored.log_std[1]), [0.3, STD_HIGH], rtol=1e-5)
    np.testing.assert_array_equal(floored.log_std[0], said.log_std[0])
    assert (said.low, said.high) == BOUNDS


def test_labels_of_saturated_experts_are_finite():
    raw = TWO.raw(jnp.float32([[1.0, -1.0], [0.5, -0.99]]))
    want = [[2.29756, -2.29756], [0.549306, -2.29756]]  # atanh of .98 and of .5
    np.testing.assert_allclose(raw, want, rtol=1e-5)
    np.testing.assert_array_equal(DiscreteActions(3).raw(jnp.int32([2])), [2])


def test_agreement_by_literals():
    mean = jnp.arctanh(jnp.float32([[0.5, -0.95], [0.0, 0.0]]))
    policy = TanhNormal(mean, jnp.zeros((2, 2)), *BOUNDS)
    found = TWO.agreement(policy, jnp.float32([[0.59, -1.0], [0.0, 0.11]]))
    np.testing.assert_array_equal(found, [1.0, 0.5])
    found = DiscreteActions(2).agreement(Categorical(jnp.eye(2)), jnp.int32([0, 0]))
    np.testing.assert_array_equal(found, [1.0, 0.0])


def test_embeddings_and_actions_that_are_not_shown():
    rng = np.random.default_rng(1)
    actions = rng.uniform(-1, 1, (5, 2)).astype(np.float32)
    actions[1] = 1.0  # at the bound, and shown
    weights = {
        "kernel": jnp.float32(rng.normal(size=(2, 7))),
        "bias": jnp.float32(rng.normal(size=7)),
        "not_shown": jnp.float32(rng.normal(size=7)),
    }
    where = np.array([False, False, True, False, True])
    found = TWO.embed(weights, TWO.hide(jnp.asarray(actions), jnp.asarray(where)))
    want = actions @ np.asarray(weights["kernel"]) + np.asarray(weights["bias"])
    want[where] = weights["not_shown"]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    table = jnp.float32(rng.normal(size=(4, 7)))
    three = DiscreteActions(3)
    found = three.embed(table, three.hide(jnp.int32([0, 2, 1]), jnp.array([False, True, False])))
    np.testing.assert_array_equal(found, table[jnp.array([0, 3, 1])])


@pytest.mark.parametrize("actions", [DiscreteActions(30), ContinuousActions(30)])
def test_first_embeddings_have_the_size_of_tokens(actions):
    weights = actions.init_embedding(jax.random.key(0), 200, jnp.float32(0.7))
    shown = actions.empty((4,))
    if actions == ContinuousActions(30):
        shown = jnp.sign(jax.random.normal(jax.random.key(1), (4, 30)))
    for token in (shown, actions.hide(shown, jnp.ones(4, bool))):
        rms = np.sqrt(np.mean(np.square(actions.embed(weights, token))))
        assert rms == pytest.approx(0.7, rel=0.15)


def test_the_actions_of_a_policy():
    assert of_policy(Categorical(jnp.zeros((5, 3)))) == DiscreteActions(3)
    assert of_policy(POLICY) == TWO


@pytest.mark.parametrize(
    "policy, message",
    [
        (ClippedNormal(jnp.zeros(2), jnp.zeros(2), *BOUNDS), "network.policy must be 'tanh'"),
        (MultiCategorical(jnp.zeros(5), (2, 3)), "network.policy must be .*not MultiCategorical"),
        (
            dataclasses.replace(POLICY, high=(1.0, 2.0)),
            r"actions must lie in -1 … 1 .*not in \(-1.0, -1.0\) … \(1.0, 2.0\)",
        ),
    ],
)
def test_policies_that_cannot_be_guided_or_cloned_are_refused(policy, message):
    with pytest.raises(ValueError, match=message):
        of_policy(policy)


def test_action_maps():
    continuous = {"kind": "continuous", "size": 4, "low": -1.0, "high": 1.0, "action": "push"}
    assert from_map(continuous) == ContinuousActions(4)
    assert recorded_map(continuous) == continuous | {"squash": "tanh", "clip": 0.98}
    discrete = {"kind": "discrete", "n": 6}
    assert from_map(discrete) == DiscreteActions(6)
    assert recorded_map(discrete) == discrete
    for changes in ({"kind": "other"}, {"size": 0}, {"size": 2.0}, {"high": 2.0}, {"low": None}):
        with pytest.raises(ValueError, match="action_map must have kind 'discrete' and"):
            from_map(continuous | changes)
    with pytest.raises(ValueError, match="not None"):
        from_map(None)


@pytest.mark.parametrize(
    "actions, inside",
    [
        (np.int32([0, 2]), True),
        (np.int32([0, 3]), False),
        (np.int32([-1, 0]), False),
        (np.float32([0, 1]), False),
        (np.int32([[0], [1]]), False),
    ],
)
def test_discrete_actions_of_a_dataset(actions, inside):
    assert DiscreteActions(3).contains(actions) == inside


@pytest.mark.parametrize(
    "actions, inside",
    [
        (np.float32([[1, -1], [0, 0.5]]), True),
        (np.float32([[1.01, 0]]), False),
        (np.float32([[np.nan, 0]]), False),
        (np.float32([[np.inf, 0]]), False),
        (np.float32([[0, 0, 0]]), False),
        (np.int32([[0, 1]]), False),
    ],
)
def test_continuous_actions_of_a_dataset(actions, inside):
    assert TWO.contains(actions) == inside
