"""Encoding of observations, and the actor-critic against a forward pass in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.types import Box, Dict, Discrete, MultiDiscrete
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from jaxrl_guided.networks.observations import make_encoder
from jaxrl_guided.runtime.config import from_dict, to_dict

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
        ("initial_std", float("nan")),
        ("conv", (8, 0)),
    ],
)
def test_wrong_configurations_name_the_field(field, value):
    with pytest.raises(ValueError, match=f"^{field} must be"):
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
    _, policy, value = jax.jit(network.step)(params, {}, obs)
    inputs = np.concatenate([FEATURES[[2, 0]], obs["state"]], axis=1)
    np.testing.assert_allclose(policy.logits, forward(params["actor"]["layers"], inputs), atol=1e-5)
    want = forward(params["critic"]["layers"], inputs)[:, 0]
    np.testing.assert_allclose(value, want, atol=1e-5)
    np.testing.assert_allclose(jax.jit(network.value)(params, {}, obs), want, atol=1e-5)


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
    _, policy, _ = network.step(params, {}, jnp.zeros((3, 2)))
    np.testing.assert_allclose(np.exp(policy.log_std), [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(network.action(policy.mode()), [[0.5, 1.0]] * 3, atol=1e-6)
    assert not [leaf for leaf in jax.tree.leaves(params) if leaf.weak_type]


def test_several_choices_become_a_one_hot_vector_each():
    size, encode = make_encoder(MultiDiscrete((2, 3)))
    assert size == 5
    np.testing.assert_array_equal(encode(jnp.int32([[1, 0]])), [[0, 1, 1, 0, 0]])


IMAGE = Box((6, 5, 2))


def convolved(layers, x):
    """3 × 3 cross-correlations of `x [N, H, W, C]` in float64, then ReLU, then flat."""
    for name in sorted(layers):
        kernel, bias = np.float64(layers[name]["kernel"]), np.float64(layers[name]["bias"])
        kernel = kernel.reshape(3, 3, x.shape[-1], -1)
        height, width = x.shape[1] - 2, x.shape[2] - 2
        out = np.zeros((len(x), height, width, kernel.shape[-1])) + bias
        for i in range(3):
            for j in range(3):
                out += x[:, i : i + height, j : j + width] @ kernel[i, j]
        x = np.maximum(out, 0)
    return x.reshape(len(x), -1)


def dense(layers, x, last=False):
    """Linear layers with ReLU between them, and after the last one if asked."""
    names = sorted(layers)
    for name in names:
        x = x @ np.float64(layers[name]["kernel"]) + layers[name]["bias"]
        if last or name != names[-1]:
            x = np.maximum(x, 0)
    return x


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("conv", [(), (3,), (4, 3)])
def test_images_and_shared_layers(conv, shared):
    config = NetworkConfig((8,), "relu", conv=conv, shared=shared)
    network = make_actor_critic(IMAGE, Discrete(4), config)
    params = network.init(jax.random.key(0))
    obs = np.random.default_rng(0).normal(size=(7, 6, 5, 2)).astype(np.float32)
    _, policy, value = network.step(params, {}, jnp.asarray(obs))

    def image(name):
        x = np.float64(obs)
        return convolved(params[name]["layers"], x) if conv else x.reshape(7, -1)

    parts = {name: params[name]["layers"] for name in ("actor", "critic")}
    if shared:
        x = dense(params["body"]["layers"], image("conv"), last=True)
        inputs = {"actor": x, "critic": x}
    else:
        inputs = {name: image(f"{name}_conv") for name in parts}
    wanted = {name: dense(parts[name], inputs[name]) for name in parts}
    np.testing.assert_allclose(policy.logits, wanted["actor"], atol=1e-5)
    np.testing.assert_allclose(value, wanted["critic"][:, 0], atol=1e-5)
    np.testing.assert_array_equal(network.value(params, {}, jnp.asarray(obs)), value)
    # Time and environments in front, as in a rollout.
    both = network.value(params, {}, jnp.asarray(obs)[None])
    np.testing.assert_allclose(both[0], value, rtol=1e-5)


def test_convolutions_need_an_image_that_is_large_enough():
    config = NetworkConfig(conv=(4, 4, 4))
    with pytest.raises(ValueError, match=r"network.conv \(4, 4, 4\) is too deep for an image"):
        make_actor_critic(IMAGE, Discrete(2), config)
    with pytest.raises(ValueError, match=r"network\.conv needs observations"):
        make_actor_critic(Box((4,)), Discrete(2), config)


def test_a_field_that_came_later_is_not_part_of_what_was_made_before():
    plain = to_dict(NetworkConfig())
    assert set(plain) == {"hidden", "activation", "policy", "initial_std"}
    assert from_dict(NetworkConfig, plain) == NetworkConfig()
    image = NetworkConfig(conv=(16,), shared=True)
    assert to_dict(image) == plain | {"conv": [16], "shared": True}
    assert from_dict(NetworkConfig, to_dict(image)) == image
