"""The two tasks that Meta-World lacks: one part after the other, success in the second alone."""

import itertools

import numpy as np
import pytest

pytest.importorskip("metaworld.policies")

from jaxrl_guided.envs.metaworld.env import MetaWorldEnv
from jaxrl_guided.envs.metaworld.expert import expert_action, open_part

PARTS = {
    "make-coffee": ("coffee-push", "coffee-button"),
    "locked-door-open": ("door-unlock", "door-open"),
}


def play(name, seed, act=expert_action, **options):
    """Steps of an episode: state, reward, terminated, success."""
    env = MetaWorldEnv(name, distractor=False, **options)
    obs, _ = env.reset(seed=seed)
    yield obs["state"], 0.0, False, False
    done = False
    while not done:
        obs, reward, terminated, truncated, info = env.step(act(name, obs["state"]))
        yield obs["state"], reward, terminated, info["success"]
        done = terminated or truncated
    env.close()


@pytest.mark.parametrize("name", PARTS)
def test_the_expert_does_both_parts_and_success_is_of_the_second(name):
    steps = list(play(name, seed=1))
    parts = [open_part(name, state) for state, *_ in steps]
    turn = parts.index(PARTS[name][1])
    assert parts == [PARTS[name][0]] * turn + [PARTS[name][1]] * (len(parts) - turn)
    assert turn > 5
    *before, last = steps
    assert not any(success for *_, success in before)
    assert last[1:] == (10.0, True, True)
    # Ten a part: what was gained in the first counts on.
    gained = sum(reward for _, reward, *_ in steps[: turn + 1])
    assert gained > 5


def test_make_coffee_is_judged_by_mug_and_button():
    steps = list(play("make-coffee", seed=1))
    mug, button = slice(56, 59), slice(63, 66)
    goal = steps[0][0][4:7]
    for (before, *_), (state, *_) in itertools.pairwise(steps):
        if open_part("make-coffee", before) == "coffee-push":
            near = np.linalg.norm(state[mug] - goal) <= 0.07
            assert near == (open_part("make-coffee", state) == "coffee-button")
    pressed = [abs(state[5] - state[button][1]) for state, *_ in steps]
    assert pressed[-1] <= 0.02
    assert steps[0][0][5] == pytest.approx(goal[1])


def still(name, state):
    del name, state
    return np.zeros(4, np.float32)


def test_the_locked_door_does_not_open():
    """Pulled at its handle it stays, unless the lock is turned."""
    handle = slice(28, 31)

    def pull(name, state):
        """Door-open's expert, as if the lock were undone."""
        undone = state.copy()
        undone[4:7] = 0.0, 0.4, 0.15
        return expert_action(name, undone)

    steps = list(play("locked-door-open", seed=1, act=pull))
    moved = max(np.linalg.norm(state[handle] - steps[0][0][handle]) for state, *_ in steps)
    assert moved < 0.02
    assert not any(success for *_, success in steps)
    opened = list(play("locked-door-open", seed=1))
    assert np.linalg.norm(opened[-1][0][handle] - opened[0][0][handle]) > 0.2


@pytest.mark.parametrize("name", PARTS)
def test_an_episode_begins_in_the_first_part_again(name):
    first, again = (list(play(name, seed=2)) for _ in range(2))
    for (a, *_), (b, *_) in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", PARTS)
def test_nothing_is_solved_by_waiting(name):
    steps = list(play(name, seed=0, act=still))
    assert len(steps) == 101
    assert not any(success for *_, success in steps)
    assert {open_part(name, state) for state, *_ in steps} == {PARTS[name][0]}
