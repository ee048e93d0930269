"""Names, limits and actions: those of MiniHack's own registry, and every task can be played."""

import re

import gymnasium
import pytest

from jaxrl_guided.envs.minihack.host import Host, HostConfig
from jaxrl_guided.envs.minihack.tasks import KEYS, MAX_STEPS, actions_of, gymnasium_id


def theirs(task):
    """MiniHack's own environment, as it makes it."""
    return gymnasium.make(gymnasium_id(task), disable_env_checker=True).unwrapped


def test_names_are_those_of_minihacks_registry():
    import minihack  # noqa: F401

    families = re.compile(r"MiniHack-(Room|MazeWalk|KeyRoom|River|Sokoban)\b.*|MiniHack-Sokoban.*")
    assert {gymnasium_id(task) for task in MAX_STEPS} == {
        name for name in gymnasium.registry if families.fullmatch(name)
    }


@pytest.mark.parametrize("task", MAX_STEPS)
def test_every_task_is_minihacks_and_can_be_played(task):
    game, host = theirs(task), Host(task, HostConfig())
    assert MAX_STEPS[task] == game._max_episode_steps
    assert [KEYS[name] for name in actions_of(task)] == [int(key) for key in game.actions]
    obs, _ = host.reset(seed=1)
    assert obs in host.observation_space
    for action in range(host.action_space.n):
        obs, _, terminated, truncated, _ = host.step(action)
        assert obs in host.observation_space
        if terminated or truncated:
            host.reset(seed=1)
    game.close()
    host.close()
