"""Scripted players solve mazes, key rooms and rivers from the text that a language model sees."""

import pytest

pytest.importorskip("minihack")

from jaxrl_guided.envs.text.record import play
from jaxrl_guided.envs.text.registry import make_demonstrator, make_text_task


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize(
    "name, turns", [("MazeWalk-9x9", 60), ("KeyRoom-Dark-S5", 50), ("River-Narrow", 200)]
)
def test_every_level_is_solved(name, turns, compact):
    task = make_text_task(f"minihack/{name}", compact=compact, max_turns=turns)
    player = make_demonstrator(f"minihack/{name}")
    for seed in range(10):
        player.reset(seed)
        *_, last = play(task, player.answer, task.reset(seed).observation)
        assert last.reply.success, seed
    task.close()
