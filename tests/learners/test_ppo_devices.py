"""Two devices, and a new process, give the numbers of one device in one process."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxrl_guided.envs.probes import make_probe
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.learners.train import make_chunk
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic

ENVS = 8


def learner():
    env = make_probe("joint", ENVS)
    net = make_actor_critic(env.observation_space, env.action_space, NetworkConfig((16,)))
    config = PPOConfig(num_envs=ENVS, rollout_steps=8, minibatches=4, scale_reward=True)
    ppo = make_ppo(env, net, config)
    return jax.jit(ppo.init)(jax.random.key(0)), make_chunk(ppo.iterate)


def parameters(state):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(state.policy)])


def two_devices():
    """Environments over two devices, parameters on both."""
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))

    def place(leaf):
        spec = PartitionSpec("data") if leaf.shape[:1] == (ENVS,) else PartitionSpec()
        return jax.device_put(leaf, NamedSharding(mesh, spec))

    state, chunk = learner()
    alone, _ = chunk.run(state, None, jnp.int32(3))
    state, chunk = learner()
    split = {
        name: jax.tree.map(place, getattr(state, name))
        for name in ("env_state", "obs", "episodes", "reward_scale")
    }
    state = jax.device_put(state, NamedSharding(mesh, PartitionSpec()))
    both, _ = chunk.run(dataclasses.replace(state, **split), None, jnp.int32(3))
    assert len(both.obs.sharding.device_set) == 2
    np.testing.assert_allclose(parameters(both), parameters(alone), atol=1e-4)


def save_after(path, iterations):
    state, chunk = learner()
    state, _ = chunk.run(state, None, jnp.int32(iterations))
    state = dataclasses.replace(state, key=jax.random.key_data(state.key))
    probe = dataclasses.replace(state.env_state, key=jax.random.key_data(state.env_state.key))
    np.savez(path, *jax.tree.leaves(dataclasses.replace(state, env_state=probe)))


def resume(path, iterations):
    state, chunk = learner()
    arrays = [jnp.asarray(array) for array in np.load(path).values()]
    typed = [
        jax.random.wrap_key_data(x) if x.dtype == jnp.uint32 else x.astype(old.dtype)
        for x, old in zip(arrays, jax.tree.leaves(state), strict=True)
    ]
    state = jax.tree.unflatten(jax.tree.structure(state), typed)
    return parameters(chunk.run(state, None, jnp.int32(iterations))[0])


def in_a_new_process(call, devices=1):
    flags = f"--xla_force_host_platform_device_count={devices}"
    subprocess.run(
        [sys.executable, "-c", f"from tests.learners import test_ppo_devices as t; t.{call}"],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        check=True,
        timeout=300,
    )


@pytest.mark.slow
def test_two_devices_agree_with_one():
    in_a_new_process("two_devices()", devices=2)


@pytest.mark.slow
def test_resume_in_a_new_process_is_bit_equal(tmp_path):
    in_a_new_process(f"save_after({str(tmp_path / 'state.npz')!r}, 3)")
    state, chunk = learner()
    whole, _ = chunk.run(state, None, jnp.int32(7))
    np.testing.assert_array_equal(resume(tmp_path / "state.npz", 4), parameters(whole))
