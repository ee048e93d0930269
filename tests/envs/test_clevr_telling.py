"""CLEVR-Robot in text, read back."""

import re

import numpy as np

from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.clevr.table import DIRECTIONS
from jaxrl_guided.envs.clevr.telling import make_teller
from jaxrl_guided.envs.text.telling import messages_of

COLOURS = ["red", "blue", "green", "purple", "cyan"]
SIDES = {"right": (1, 0), "left": (-1, 0), "rear": (0, 1), "front": (0, -1)}


def test_every_push_is_told_by_ball_and_direction():
    teller = make_teller(instruction_set("real"))
    told = [teller.action(action) for action in range(40)]
    assert len(set(told)) == 40
    for action, text in enumerate(told):
        colour, where = re.fullmatch(r"push (\w+) to the ([a-z ]+)", text).groups()
        assert COLOURS.index(colour) == action // 8
        forces = np.sum([SIDES[side] for side in where.split()], axis=0)
        np.testing.assert_array_equal(forces, np.sign(DIRECTIONS[action % 8]))


def test_an_episode_is_a_conversation():
    instructions = instruction_set("easy")
    teller = make_teller(instructions)
    state = np.linspace(-0.5, 0.4, 10).astype(np.float32)
    observations = [{"state": state + 0.1 * row, "instruction": np.int32(7)} for row in range(2)]
    first, second, third, fourth = messages_of(teller, observations, np.array([3, 8]))
    text, places = first[1].split("\n")
    assert text == instructions.texts[7] == teller.description(observations[0])
    assert places == "red -50 -40, blue -30 -20, green -10 0, purple 10 20, cyan 30 40"
    assert second == ("assistant", "push red to the front")
    assert third[0] == first[0] == "user"
    assert third[1].startswith("red -40 -30")
    assert fourth == ("assistant", "push blue to the right")
    fast = {"state": np.concatenate([state, np.ones(10)]), "instruction": np.int32(0)}
    assert teller.observation(fast) == places  # velocities are not told
