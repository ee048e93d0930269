"""Encoding of observations, and the actor-critic against a forward pass in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.types import Box, Dict, Discrete
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from jaxrl_guided.networks.observations import make_encoder

TEXTS = Dict({"state": Box((2,)), "instruction": Discrete(3)})
FEATURES = np.float32([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])


def test_instructions_become_rows_of_the_features():
    size, encode = make_encoder(TEXTS, FEATURES)
    obs = {"state": jnp.float32([[0.5, -0.5], [1, 2]]), "instruction": jnp.int32([2, 0])}
    assert size == 6
    np.testing.assert_array_equal(encode(obs), [[9, 10, 11, 12, 0.5, -0.5], [1, 2, 3, 4, 1, 2]])


def test_other_leaves_are_flattened_or_one_hot_and_joined_by_name():
    space = Dict({"b": Box((2, 2)), "a": Discrete(3), "c": Dict({"instruction": Discrete(2)})})
    size, encode = make_encoder(space)
    obs = {
        "b": jnp.arange(8.0).reshape(1, 2, 2, 2),
        "a": jnp.int32([[1, 2]]),
        "c": {"instruction": jnp.int32([[0, 1]])},
    }
    assert size == 9
    want = [[[0, 1, 0, 0, 1, 2, 3, 1, 0], [0, 0, 1, 4, 5, 6, 7, 0, 1]]]
    np.testing.assert_array_equal(encode(obs), want)


def test_wrong_features_are_refused():
    with pytest.raises(ValueError, match=r"features must be \[3, d\].* not \(2, 4\)"):
        make_encoder(TEXTS, FEATURES[:2])
    with pytest.raises(ValueError, match=r"no leaf of .* is named 'instruction'"):
        make_encoder(Box((2,)), FEATURES)


@pytest.mark.parametrize(
    "field, value",
    [
        ("hidden", ()),
        ("hidden", (8, 0)),
        ("activation", "gelu"),
        ("policy", "beta"),
        ("initial_std", 0.0),
    ],
)
def test_wrong_configurations_name_the_field(field, value):
    with pytest.raises(ValueError, match=rf"network\.{field}"):
        NetworkConfig(**{field: value})


@pytest.mark.parametrize("space", [Discrete(3, (2,)), Box((2, 2), -1.0, 1.0), Dict({})])
def test_unsupported_action_spaces_are_refused(space):
    with pytest.raises(ValueError, match="action space must be"):
        make_actor_critic(Box((2,)), space, NetworkConfig())


def test_tanh_policies_need_bounds():
    with pytest.raises(ValueError, match="finite action bounds"):
        make_actor_critic(Box((2,)), Box((1,)), NetworkConfig())
    make_actor_critic(Box((2,)), Box((1,)), NetworkConfig(policy="clipped"))


def forward(layers, x):
    """The MLP in float64."""
    *hidden, last = [layers[name] for name in sorted(layers)]
    for layer in hidden:
        x = np.tanh(x @ np.float64(layer["kernel"]) + layer["bias"])
    return x @ np.float64(last["kernel"]) + last["bias"]


@pytest.fixture(scope="module")
def network():
    return make_actor_critic(TEXTS, Discrete(5), NetworkConfig((16, 8)), FEATURES)


@pytest.fixture(scope="module")
def params(network):
    return jax.jit(network.init)(jax.random.key(0))


def test_policy_and_value_equal_numpys_forward_pass(network, params):
    obs = {"state": np.float32([[0.5, -0.5], [1, 2]]), "instruction": np.int32([2, 0])}
    policy, value = jax.jit(network.apply)(params, obs)
    inputs = np.concatenate([FEATURES[[2, 0]], obs["state"]], axis=1)
    np.testing.assert_allclose(policy.logits, forward(params["actor"]["layers"], inputs), atol=1e-5)
    want = forward(params["critic"]["layers"], inputs)[:, 0]
    np.testing.assert_allclose(value, want, atol=1e-5)
    np.testing.assert_allclose(jax.jit(network.value)(params, obs), want, atol=1e-5)


def test_initial_parameters_are_orthogonal_with_a_small_last_layer_of_the_actor(params):
    for trunk, gain in (("actor", 0.01), ("critic", 1.0)):
        layers = params[trunk]["layers"]
        hidden = np.asarray(layers["layer_01"]["kernel"])
        np.testing.assert_allclose(hidden.T @ hidden, 2 * np.eye(8), atol=1e-5)
        last = np.asarray(layers["layer_02"]["kernel"])
        np.testing.assert_allclose(last.T @ last, gain**2 * np.eye(last.shape[1]), atol=1e-6)
        assert not any(layer["bias"].any() for layer in layers.values())


def test_real_actions_start_at_the_centre_with_the_configured_deviation():
    actions = Box((2,), np.float32([-1, 0]), 2.0)
    network = make_actor_critic(Box((2,)), actions, NetworkConfig((2,), initial_std=0.5))
    params = jax.jit(network.init)(jax.random.key(0))
    policy, _ = network.apply(params, jnp.zeros((3, 2)))
    np.testing.assert_allclose(np.exp(policy.log_std), [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(network.action(policy.mode()), [[0.5, 1.0]] * 3, atol=1e-6)
    assert not [leaf for leaf in jax.tree.leaves(params) if leaf.weak_type]
