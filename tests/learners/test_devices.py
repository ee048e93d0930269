"""Many devices, and a new process, give the numbers of one device in one process."""

import dataclasses
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.probes import make_probe
from jaxrl_guided.learners import build
from jaxrl_guided.learners.job_config import TrainConfig
from jaxrl_guided.learners.placement import Placement
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.learners.sac import SACConfig, make_sac
from jaxrl_guided.learners.train import make_chunk
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from jaxrl_guided.networks.soft import SoftNetworkConfig, make_soft_network
from jaxrl_guided.runtime.mesh import make_mesh
from tests.learners.states import leaves

ENVS = 16
PPO = PPOConfig(num_envs=ENVS, rollout_steps=8, minibatches=2, scale_reward=True)
SAC = SACConfig(
    256, 4_000, num_envs=ENVS, chunk_steps=2, updates_per_step=0.25, learning_starts=32, batch=64
)

COMPILED = []


def note_compilation(event, seconds, **details):
    if "backend_compile" in event:
        COMPILED.append(seconds)


jax.monitoring.register_event_duration_secs_listener(note_compilation)


def learner(kind, mesh=None):
    env = make_probe("end" if kind == "gru" else "joint", ENVS, continuous=kind == "sac")
    spaces = env.observation_space, env.action_space
    if kind == "sac":
        return make_sac(env, make_soft_network(*spaces, SoftNetworkConfig((16,))), SAC, mesh=mesh)
    net = make_actor_critic(*spaces, NetworkConfig((16,), gru=8 if kind == "gru" else 0))
    return make_ppo(env, net, PPO, mesh=mesh)


def run(kind, members, mesh, iterations=4):
    """State after some iterations, and metrics of the last one."""
    placement = Placement(mesh, members, ENVS)
    ours = learner(kind, placement.inner)
    seeds = np.arange(members, dtype=np.uint32)
    state, shardings = placement.init(lambda seed: ours.init(jax.random.key(seed)), seeds)
    chunk = make_chunk(jax.vmap(ours.iterate, in_axes=(0, None)), 4, shardings)
    state, rows = chunk.run(state, None, np.int32(1))
    before = len(COMPILED)
    for _ in range(iterations - 1):
        state, rows = chunk.run(state, None, np.int32(1))
    assert len(COMPILED) == before > 0
    return state, {name: np.asarray(row)[0] for name, row in rows.items()}


def parameters(state):
    return np.concatenate([np.ravel(x) for x in leaves(state.policy)])


def eight_devices(kind, members):
    """Eight members are divided among the devices, of three the environments are."""
    many, metrics = run(kind, members, make_mesh(8))
    one, expected = run(kind, members, make_mesh(1))
    assert jax.device_count() == 8
    assert len(many.obs.sharding.device_set) == 8
    assert many.obs.addressable_shards[0].data.size * 8 == many.obs.size
    if kind == "sac":
        ring = jax.tree.leaves(many.replay.steps)[0]
        assert ring.addressable_shards[0].data.size * 8 == ring.size
    np.testing.assert_allclose(parameters(many), parameters(one), atol=1e-5)
    assert set(metrics) == set(expected)
    for name, value in metrics.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=1e-4, err_msg=name)


def in_a_new_process(call, devices=1):
    flags = f"--xla_force_host_platform_device_count={devices}"
    subprocess.run(
        [sys.executable, "-c", f"from tests.learners import test_devices as t; t.{call}"],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        check=True,
        timeout=600,
    )


@pytest.mark.parametrize(
    "kind, members",
    [
        ("ppo", 3),
        *(
            pytest.param(kind, members, marks=pytest.mark.slow)
            for kind in ("ppo", "gru", "sac")
            for members in (3, 8)
            if (kind, members) != ("ppo", 3)
        ),
    ],
)
def test_eight_devices_agree_with_one(kind, members):
    in_a_new_process(f"eight_devices({kind!r}, {members})", devices=8)


def start():
    ours = learner("ppo")
    return jax.jit(ours.init)(jax.random.key(0)), make_chunk(ours.iterate)


def save_after(path, iterations):
    state, chunk = start()
    state, _ = chunk.run(state, None, np.int32(iterations))
    np.savez(path, *leaves(state))


def resume(path, iterations):
    state, chunk = start()
    arrays = [jnp.asarray(array) for array in np.load(path).values()]
    typed = [
        jax.random.wrap_key_data(x) if x.dtype == jnp.uint32 else x.astype(old.dtype)
        for x, old in zip(arrays, jax.tree.leaves(state), strict=True)
    ]
    state = jax.tree.unflatten(jax.tree.structure(state), typed)
    return parameters(chunk.run(state, None, np.int32(iterations))[0])


@pytest.mark.slow
def test_resume_in_a_new_process_is_bit_equal(tmp_path):
    in_a_new_process(f"save_after({str(tmp_path / 'state.npz')!r}, 3)")
    state, chunk = start()
    whole, _ = chunk.run(state, None, np.int32(7))
    np.testing.assert_array_equal(resume(tmp_path / "state.npz", 4), parameters(whole))


def test_what_does_not_divide_is_refused():
    mesh = SimpleNamespace(size=8)
    with pytest.raises(ValueError, match="8 devices divide neither 3 members nor num_envs 12"):
        Placement(mesh, 3, 12)
    with pytest.raises(ValueError, match="a minibatch of 64 does not divide among 24 devices"):
        learner("ppo", SimpleNamespace(size=24))
    with pytest.raises(ValueError, match=r"sac\.batch of 64 does not divide among 24 devices"):
        learner("sac", SimpleNamespace(size=24))
    with pytest.raises(ValueError, match="--devices=2 must lie between 0 and 1"):
        make_mesh(2)


def test_as_many_devices_as_divide_the_work_share_it(monkeypatch, capsys):
    monkeypatch.setattr(build, "make_mesh", lambda n=0: SimpleNamespace(size=n or 8))
    monkeypatch.setattr(build.jax, "device_count", lambda: 8)
    base = TrainConfig(seeds=(0, 1, 2), ppo=PPOConfig(num_envs=12, rollout_steps=4, minibatches=2))
    recurrent = dataclasses.replace(base, network=NetworkConfig(gru=8))
    sac = dataclasses.replace(base, algorithm="sac", sac=SACConfig(1_000, num_envs=20, batch=50))
    for config, members, used in ((base, 3, 6), (base, 16, 8), (recurrent, 1, 6), (sac, 1, 5)):
        placement = build._place(config, members, 0)
        assert placement.mesh.size == used
        assert (f"{used} of 8 devices share the work" in capsys.readouterr().err) == (used < 8)
    with pytest.raises(ValueError, match="7 devices divide neither 3 members nor num_envs 12"):
        build._place(base, 3, 7)
