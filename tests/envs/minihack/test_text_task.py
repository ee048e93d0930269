"""A game of MiniHack in text, against the same game in arrays."""

import numpy as np
import pytest

from jaxrl_guided.envs.minihack import text
from jaxrl_guided.envs.minihack.host import Host, HostConfig
from jaxrl_guided.envs.minihack.tasks import MAX_STEPS
from jaxrl_guided.envs.minihack.text_task import MiniHackText, goal_of, system_prompt
from jaxrl_guided.envs.text.registry import make_text_task

SEEN = ("message", "chars_crop", "symbols_crop")


def test_every_task_has_a_goal():
    goals = {task: goal_of(task) for task in MAX_STEPS}
    assert goals["Room-5x5"] == "reach the stairs down, drawn as >, in a room"
    assert goals["Room-Ultimate-5x5"].endswith("hidden traps move you elsewhere")
    assert "lava" in goals["River-MonsterLava"]
    assert "monsters" in goals["River-MonsterLava"]


@pytest.mark.parametrize("compact", [False, True])
def test_it_is_the_game_in_arrays(compact):
    task, host = (
        MiniHackText("Room-Random-5x5", compact=compact),
        Host("Room-Random-5x5", HostConfig(SEEN)),
    )
    rng = np.random.default_rng(0)
    for seed in range(3):
        opening, (obs, _) = task.reset(seed), host.reset(seed=seed)
        assert opening.system == system_prompt("Room-Random-5x5", host.actions, compact)
        shown = opening.observation
        for _ in range(30):
            seen = [obs[name] for name in SEEN]
            expected = text.render_compact(*seen) if compact else text.render(*seen, host.actions)
            assert shown == expected
            action = int(rng.integers(len(host.actions)))
            reply = task.step(f"<answer>{host.actions[action]}</answer>")
            obs, reward, terminated, truncated, info = host.step(action)
            assert reply.rewards == {"task": reward}
            assert (reply.terminated, reply.truncated) == (terminated, truncated)
            assert reply.success == bool(info["success"])
            shown = reply.observation
            if terminated:
                break
    task.close()
    host.close()


def test_an_answer_without_action_takes_no_time():
    task = make_text_task("minihack/Room-5x5", max_turns=5)
    shown = task.reset(1).observation
    reply = task.step("I do not know.")
    assert not reply.acted
    assert not reply.terminated
    assert reply.rewards == {}
    assert reply.observation.startswith("Note: no <answer>")
    assert reply.observation.endswith(shown)
    moved = task.step("<answer>nowhere</answer> <answer>0</answer>")
    assert moved.acted
    task.close()


def test_bad_tasks_are_refused():
    with pytest.raises(ValueError, match="unknown 'minihack/Room'; did you mean minihack/"):
        make_text_task("minihack/Room")
    with pytest.raises(ValueError, match="max_turns must be at least 1"):
        make_text_task("minihack/Room-5x5", max_turns=0)
