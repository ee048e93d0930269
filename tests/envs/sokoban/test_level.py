"""Levels of Sokoban: the rules by hand, and every level solved by a search that plays forwards."""

import pytest

from jaxrl_guided.envs.sokoban.level import MOVES, Position, make_level, move, solve

CORRIDOR = frozenset((1, column) for column in range(1, 6))


@pytest.mark.parametrize(
    "agent, boxes, name, then_agent, then_boxes",
    [
        (1, {3}, "right", 2, {3}),
        (2, {3}, "right", 3, {4}),
        (2, {3, 4}, "right", 2, {3, 4}),
        (4, {5}, "right", 4, {5}),
        (4, {3}, "left", 3, {2}),
        (4, {2}, "up", 4, {2}),
        (3, {2}, "right", 4, {2}),
    ],
)
def test_a_step_pushes_one_box_where_there_is_room(agent, boxes, name, then_agent, then_boxes):
    def position(column, columns):
        return Position((1, column), frozenset((1, c) for c in columns))

    assert move(CORRIDOR, position(agent, boxes), MOVES[name]) == position(then_agent, then_boxes)


def test_a_shortest_solution_by_hand():
    assert solve(CORRIDOR, frozenset({(1, 5)}), Position((1, 1), frozenset({(1, 3)}))) == (
        ["right"] * 3
    )
    assert solve(CORRIDOR, frozenset({(1, 1)}), Position((1, 1), frozenset({(1, 3)}))) is None


@pytest.mark.parametrize("size, boxes, longest", [(6, 2, 20), (5, 1, 12), (7, 3, 16)])
def test_every_level_takes_as_many_moves_as_it_says(size, boxes, longest):
    lengths = set()
    for seed in range(40):
        level = make_level(seed, size, boxes, 4, longest)
        moves = solve(level.floor, level.targets, level.start)
        position = level.start
        for name in moves:
            position = move(level.floor, position, MOVES[name])
        assert position.boxes == level.targets
        assert len(moves) == level.moves
        assert 4 <= level.moves <= longest
        assert len(level.start.boxes) == boxes
        assert level.start.agent in level.floor - level.start.boxes
        assert level.start.boxes <= level.floor
        lengths.add(level.moves)
    assert len(lengths) >= 4


def test_a_seed_is_a_level():
    levels = [make_level(seed, 6, 2, 4, 20) for seed in range(50)]
    assert levels == [make_level(seed, 6, 2, 4, 20) for seed in range(50)]
    assert len({(level.floor, level.targets, level.start) for level in levels}) == 50


def test_a_level_that_there_is_not():
    with pytest.raises(ValueError, match="no level of size 5 with 1 boxes takes from 60 to 60"):
        make_level(0, 5, 1, 60, 60)
