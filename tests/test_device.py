"""What must agree between an accelerator and the host (`make device-check`)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.backbones import decoder
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.params import init_params
from jaxrl_guided.envs import make
from jaxrl_guided.envs.clevr import push
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.learners.train import make_chunk, train
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic

pytestmark = pytest.mark.device


@pytest.fixture
def accelerator():
    device = jax.devices()[0]
    if device.platform == "cpu":
        pytest.fail("no accelerator: run `make device-check` on a machine with a GPU or TPU")
    return device


def on_both(function, *arguments, accelerator):
    """Results of a jitted function on the accelerator and on the host."""
    results = []
    for device in (accelerator, jax.devices("cpu")[0]):
        placed = jax.device_put(arguments, device)
        results.append(jax.tree.map(np.asarray, jax.jit(function)(*placed)))
    return results


def test_decoder_equals_host(accelerator):
    config = BackboneConfig(256, 64, 128, 4, 4, 2, 16, tie_embeddings=True)
    params = init_params(config, 0, std=0.2)
    x = jax.random.normal(jax.random.key(1), (4, 32, 64))
    positions = jnp.broadcast_to(jnp.arange(32), (4, 32))

    def hidden(params, x, positions):
        return decoder.apply(config, params, x, positions)[0]

    ours, host = on_both(hidden, params, x, positions, accelerator=accelerator)
    np.testing.assert_allclose(ours, host, atol=2e-4, rtol=2e-4)


def test_push_equals_host(accelerator):
    env = make("clevr/real", num_envs=64)
    state, _ = env.reset(jax.random.key(0))
    action = jax.random.randint(jax.random.key(1), (64,), 0, 40)
    ours, host = on_both(push, state.positions, state.velocities, action, accelerator=accelerator)
    error = np.abs(ours[0] - host[0]).max((1, 2))
    assert np.median(error) < 1e-4  # contacts amplify rounding in single episodes


def test_ppo_learns_easy(accelerator):
    env = make("clevr/easy", num_envs=256)
    network = make_actor_critic(env.observation_space, env.action_space, NetworkConfig())
    config = PPOConfig(total_steps=1_000_000, num_envs=256, rollout_steps=32)
    ppo = make_ppo(env, network, config)
    shares = []

    def note(state, metrics, iteration):
        shares.append(metrics["success_sum"].sum() / metrics["episodes"].sum())

    state = jax.jit(ppo.init)(jax.random.key(0))
    train(make_chunk(ppo.iterate), state, config.iterations, on_chunk=note)
    assert shares[-1] > 0.3  # uniform actions solve 7.5 %
