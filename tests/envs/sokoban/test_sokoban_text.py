"""Sokoban in text: what is shown and read, and that its player solves every level."""

import pytest

from jaxrl_guided.envs.sokoban.level import Level, Position
from jaxrl_guided.envs.sokoban.text_task import SokobanText, draw
from jaxrl_guided.envs.text.registry import make_demonstrator, make_text_task

FLOOR = frozenset((row, column) for row in (1, 2, 3) for column in (1, 2, 3))


@pytest.mark.parametrize("compact", [False, True])
def test_the_player_solves_every_level_in_the_fewest_moves(compact):
    task, player = make_text_task("sokoban", compact=compact), make_demonstrator("sokoban")
    for seed in range(60):
        observation, turns = task.reset(seed).observation, 0
        player.reset(seed)
        while True:
            reply = task.step(player.answer(observation))
            observation, turns = reply.observation, turns + 1
            if reply.terminated:
                break
            assert reply.rewards == {"task": 0.0}
        assert reply.success
        assert reply.rewards == {"task": 1.0}
        assert turns == task._level.moves <= task.max_turns == 20


def test_all_that_a_cell_can_be_is_drawn():
    level = Level(5, FLOOR, frozenset({(1, 1), (2, 2)}), Position((0, 0), frozenset()), 0)
    assert draw(level, Position((1, 1), frozenset({(2, 2), (3, 1)}))) == (
        "#####\n#+__#\n#_*_#\n#$__#\n#####"
    )
    assert draw(level, Position((3, 3), frozenset())) == "#####\n#.__#\n#_._#\n#__@#\n#####"


def test_what_is_no_move_changes_nothing():
    task = SokobanText()
    shown = task.reset(1).observation
    reply = task.step("<answer>jump</answer>")
    assert not reply.acted
    assert reply.observation == (f"Note: 'jump' is none of: 0 up, 1 right, 2 down, 3 left\n{shown}")
    assert not task.step("I go up").acted
    assert task.step("<answer>UP</answer>").acted


def test_a_wall_takes_a_turn():
    task = SokobanText()
    task.reset(1)
    for _ in range(6):
        reply = task.step("<answer>left</answer>")
    again = task.step("<answer>left</answer>")
    assert again.acted
    assert again.observation == reply.observation


@pytest.mark.parametrize(
    "options, message",
    [
        ({"size": 4}, "size must be from 5 to 8, not 4"),
        ({"boxes": 0}, "boxes must be from 1 to 3, not 0"),
        ({"shortest": 30}, "shortest must be from 1 to max_turns = 20, not 30"),
        ({"size": 5, "boxes": 1, "shortest": 60, "max_turns": 60}, "no level of size 5"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SokobanText(**options)
