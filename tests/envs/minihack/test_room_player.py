"""The scripted player of rooms: what it reads, where it goes, how often it arrives."""

import numpy as np
import pytest

from jaxrl_guided.envs.minihack.room_player import RoomPlayer, read_map
from jaxrl_guided.envs.text.registry import make_demonstrator, make_text_task
from jaxrl_guided.learners.language.demonstrations import demonstrate

SEEN = "You kill the lichen!\n__...\n_.@..\n..<..\n^..>."


def test_a_map_is_what_follows_the_words():
    cells = read_map(SEEN)
    assert cells[1, 2] == "@"
    assert cells[3, 3] == ">"
    assert (0, 0) not in cells
    assert len(cells) == 3 + 4 + 5 + 5
    assert read_map("no map here") == {}
    # A row of which nothing is seen lies between others.
    assert read_map("It's solid stone.\n.@\n\n_.") == {(0, 0): ".", (0, 1): "@", (2, 1): "."}


def test_both_renderings_are_read():
    for compact in (False, True):
        task = make_text_task("minihack/Room-5x5", compact=compact)
        cells = read_map(task.reset(1).observation)
        task.close()
        assert sum(char not in "|-" for char in cells.values()) == 25
        assert {"@", ">"} <= set(cells.values())


@pytest.mark.parametrize(
    ("observation", "legs", "direction"),
    [
        (SEEN, ("north",), "southeast"),  # two rows down and one column right
        ("...\n.@.\n...", ("east", "south"), "east"),
        ("..\n.@\n..", ("east", "south"), "south"),  # nothing is seen in the east: a wall
        ("..\n.@", ("east", "south", "west"), "west"),
        ("F", ("west", "east"), "west"),  # it sees neither itself nor the stairs
    ],
)
def test_it_walks_to_the_stairs_or_along_a_leg(observation, legs, direction):
    assert RoomPlayer(legs).answer(observation) == f"<answer>{direction}</answer>"


def test_a_leg_lasts_until_it_is_blocked():
    player = RoomPlayer(("east", "south"))
    rows = ["...\n@..\n...", "...\n.@.\n...", "...\n.@.\n..."]  # the third step did not work
    said = [player.answer(row) for row in rows]
    assert said == ["<answer>east</answer>"] * 2 + ["<answer>south</answer>"]


def test_how_it_searches_decides_how_often_it_arrives():
    task = make_text_task("minihack/Room-Ultimate-5x5", compact=True, max_turns=16)
    rates = []
    for legs in (("southeast", "west", "north", "east", "south"), ("north", "south")):
        shown = demonstrate(task, RoomPlayer(legs), range(100))
        rates.append(np.mean([episode.success for episode in shown]))
    task.close()
    assert rates[0] > 0.85
    assert 0.4 < rates[1] < 0.7


@pytest.mark.parametrize(
    ("name", "compact", "least"),
    [
        ("Room-Random-5x5", True, 0.95),
        ("Room-Random-5x5", False, 0.95),
        ("Room-Ultimate-5x5", True, 0.9),
        ("Room-Dark-15x15", True, 0.3),  # 225 cells of which it sees nine at a time
    ],
)
def test_it_arrives_within_thirty_turns(name, compact, least):
    task = make_text_task(f"minihack/{name}", compact=compact, max_turns=30)
    shown = demonstrate(task, make_demonstrator(f"minihack/{name}"), range(100))
    task.close()
    assert np.mean([episode.success for episode in shown]) >= least
