"""Meta-World as a vector environment: the numbers of stepping by hand, through processes."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("metaworld.policies")

from jaxrl_guided.envs.bridge.slot import episode_seed
from jaxrl_guided.envs.metaworld.env import MetaWorldEnv
from jaxrl_guided.envs.metaworld.family import list_names, make_metaworld
from jaxrl_guided.envs.types import Box, Dict, Discrete

TASKS = ("reach", "door-unlock")


def test_two_processes_give_the_numbers_of_stepping_by_hand():
    """1,000 steps, two of whose environments share a process and its models."""
    env = make_metaworld("real", 4, tasks=TASKS, horizon=40, workers=2)
    state, obs = env.reset(jax.random.key(0))
    seeds = np.asarray(state.seed).tolist()
    tables = [MetaWorldEnv("real", tasks=TASKS, horizon=40) for _ in seeds]
    expected = [t.reset(seed=episode_seed(s, 0))[0] for t, s in zip(tables, seeds, strict=True)]
    rng, endings = np.random.default_rng(0), set()
    for _ in range(250):
        for i, known in enumerate(expected):
            np.testing.assert_array_equal(obs["state"][i], known["state"])
            assert obs["instruction"][i] == known["instruction"]
        # What leads a hand to its target solves some of the episodes.
        towards = np.asarray(obs["state"])[:, 4:7] - np.asarray(obs["state"])[:, :3]
        action = np.clip(np.c_[10 * towards, rng.uniform(-1, 1, 4)], -1, 1).astype(np.float32)
        state, step = env.step(state, action)
        for i, table in enumerate(tables):
            after, reward, terminated, truncated, info = table.step(action[i])
            np.testing.assert_array_equal(step.final_obs["state"][i], after["state"])
            assert step.reward[i] == np.float32(reward)
            assert (step.terminated[i], step.truncated[i]) == (terminated, truncated)
            assert step.info["success"][i] == info["success"]
            if terminated or truncated:
                endings.add(terminated)
                seed = episode_seed(seeds[i], int(state.episode[i]))
                after, _ = table.reset(seed=seed)
            expected[i] = after
        obs = step.obs
    assert endings == {True, False}
    env.close()


def test_spaces_and_names():
    env = make_metaworld("easy", 1, workers=0, distractor=False)
    assert env.name == "metaworld/easy"
    assert env.action_space == Box((4,), -1.0, 1.0)
    assert env.observation_space == Dict({"state": Box((91,)), "instruction": Discrete(160)})
    env.close()
    some = {"real", "rephrase", "easy", "hard", "reach", "rephrase-reach", "real-heldout"}
    assert some <= set(list_names())
    assert len(list_names()) == 4 + 22 + 32 + 1


def test_open_episodes_are_played_again():
    env, other = (make_metaworld("reach", 2, workers=0, horizon=12) for _ in range(2))
    state, _ = env.reset(jax.random.key(1))
    action = np.full((2, 4), 0.5, np.float32)
    for _ in range(15):
        state, step = env.step(state, action)
    saved = jax.device_get((state, step.obs))
    other.host.restore(*saved)
    opened = jax.tree.map(jnp.asarray, saved[0])
    _, expected = env.step(state, action)
    _, found = other.step(opened, action)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    env.close()
    other.close()


def test_bad_arguments_are_told_before_processes_are_made():
    with pytest.raises(ValueError, match="tasks: must be out of reach-wall"):
        make_metaworld("easy", 1, tasks=("reach",))


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxrl_guided.envs.metaworld.env", None)
    with pytest.raises(ValueError, match=r"'metaworld/real' needs .* jaxrl_guided\[metaworld\]"):
        make_metaworld("real", 1)
