"""MiniHack in pools: the same games as by hand, and an environment that learners take."""

import functools
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.bridge.pool import Pool
from jaxrl_guided.envs.bridge.slot import episode_seed
from jaxrl_guided.envs.minihack.family import list_names, make_minihack
from jaxrl_guided.envs.minihack.host import Host, HostConfig
from jaxrl_guided.envs.types import Box, Dict, Discrete
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from tests.envs import conformance


@pytest.fixture
def make():
    """Makes environments that are closed after the test."""
    made = []

    def build(task="Room-Random-5x5", num_envs=3, **options):
        made.append(make_minihack(task, num_envs, **({"workers": 0} | options)))
        return made[-1]

    yield build
    for env in made:
        env.close()


@pytest.mark.parametrize("workers, spares", [(0, False), (2, False), (2, True)])
def test_games_are_those_of_playing_by_hand(workers, spares):
    config = HostConfig(observe=("symbols_crop", "stats", "glyphs", "message"), max_steps=15)
    factory = functools.partial(Host, "Room-Random-5x5", config)
    options = {"workers": workers, "spares": spares, "info": ("success",)}
    pool = Pool("minihack/Room-Random-5x5", factory, 3, **options)
    hosts, seeds, episodes = [factory() for _ in range(3)], [4, 5, 6], [0] * 3
    obs = pool.reset(np.array(seeds, np.uint32))
    for i, host in enumerate(hosts):
        expected, _ = host.reset(seed=episode_seed(seeds[i], 0))
        assert all(np.array_equal(obs[name][i], expected[name]) for name in expected)
    rng, endings = np.random.default_rng(0), set()
    for _ in range(1000 // 3):
        actions = rng.integers(8, size=3)
        step = pool.step(actions)
        for i, host in enumerate(hosts):
            final, reward, terminated, truncated, info = host.step(actions[i])
            truncated = truncated and not terminated
            now = final
            if terminated or truncated:
                endings.add((terminated, reward))
                episodes[i] += 1
                now, _ = host.reset(seed=episode_seed(seeds[i], episodes[i]))
            for name in now:
                np.testing.assert_array_equal(step.final_obs[name][i], final[name])
                np.testing.assert_array_equal(step.obs[name][i], now[name])
            outcome = (step.reward[i], step.terminated[i], step.truncated[i])
            assert outcome == (reward, terminated, truncated)
            assert step.info["success"][i] == info["success"]
    assert endings == {(True, 1.0), (False, 0.0)}
    pool.close()
    for host in hosts:
        host.close()


def test_spaces(make):
    env = make()
    assert env.name == "minihack/Room-Random-5x5"
    assert env.action_space == Discrete(8)
    assert env.observation_space == Dict(
        {
            "symbols_crop": Discrete(39, (9, 9)),
            "stats": Box((22,), -1.0, 1.0),
            "inventory": Box((18,), 0.0, 1.0),
        }
    )
    conformance.check(env)


def test_raw_parts(make):
    space = make(observe=("glyphs", "chars_crop", "message", "blstats")).observation_space
    assert {
        name: (part.shape, jnp.dtype(part.dtype).name) for name, part in space.spaces.items()
    } == {
        "glyphs": ((21, 79), "int16"),
        "chars_crop": ((9, 9), "uint8"),
        "message": ((256,), "uint8"),
        "blstats": ((27,), "int32"),
    }


def test_options_reach_the_game(make):
    env = make("Room-5x5", 2, max_steps=4, actions=("southeast", "north"), members=1)
    state, _ = env.reset(jax.random.key(0))
    actions = jnp.array([[0, 1]] * 4)
    _, steps = jax.jit(lambda s, a: jax.lax.scan(env.step, s, a))(state, actions)
    assert steps.terminated.tolist() == [[False] * 2] * 3 + [[True, False]]
    assert steps.truncated.tolist() == [[False] * 2] * 3 + [[False, True]]
    assert steps.reward.tolist() == [[0, 0]] * 3 + [[1, 0]]
    assert steps.info["success"].tolist() == [[0, 0]] * 3 + [[1, 0]]


def test_learners_take_them(make):
    env = make(num_envs=4)
    config = PPOConfig(total_steps=64, num_envs=4, rollout_steps=8, epochs=1, minibatches=2)
    network = make_actor_critic(env.observation_space, env.action_space, NetworkConfig((8,)))
    ppo = make_ppo(env, network, config)
    state = jax.jit(ppo.init)(jax.random.key(0))
    _, metrics = jax.jit(ppo.iterate)(state)
    assert all(np.isfinite(value) for value in metrics.values())


def test_wrong_options_are_named_before_anything_starts():
    with pytest.raises(ValueError, match="observe must be a list of different names"):
        make_minihack("Room-5x5", 1, observe=("pixels",))


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"needs minihack and pkg_resources; install jaxrl_guided\["
    ):
        make_minihack("Room-5x5", 1)


def test_names():
    assert {"Room-5x5", "MazeWalk-Mapped-9x9", "KeyRoom-Dark-S5", "River", "Sokoban1a"} <= set(
        list_names()
    )
    assert len(list_names()) == 36
