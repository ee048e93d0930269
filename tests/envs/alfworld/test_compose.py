"""Rooms and goals, in a world of our own: what is drawn, and that it can be played."""

import random
import re
from collections import Counter

import pytest

from jaxrl_guided.envs.alfworld import package
from jaxrl_guided.envs.alfworld.compose import (
    Wanted,
    compose,
    draw_goal,
    draw_room,
    goal_in_pddl,
    wanted_in,
)
from jaxrl_guided.envs.alfworld.engine import NOTHING, Engine, demangled
from jaxrl_guided.envs.alfworld.package import TASK_TYPES, Scene, make_scene
from jaxrl_guided.envs.alfworld.player import AlfworldPlayer
from jaxrl_guided.envs.alfworld.room import holders, sparse
from jaxrl_guided.envs.alfworld.text_task import AlfworldText
from tests.envs.alfworld.household import CATALOGUE

STANDING = (
    "Fridge|+01.00|+00.00|-02.00",
    "Sink|-01.90|+00.97|-01.50|SinkBasin",
    "Shelf|+00.10|+00.20|+00.30",
    "Shelf|+00.10|+00.90|+00.30",
    "Chair|+00.10|+00.90|+00.30",
)
KITCHEN = make_scene(
    7,
    "Kitchen",
    STANDING,
    ("Shelf", "Fridge", "Sink", "SinkBasin", "StoveBurner", "Apple", "Mug", "Pan", "Window"),
    CATALOGUE,
)
BEDROOM = Scene(301, "Bedroom", ("Desk", "Shelf"), ("Book", "DeskLamp", "Mug"))
SCENES = (KITCHEN, BEDROOM)


def test_a_scene_from_a_layout():
    assert Counter(KITCHEN.receptacles) == {
        "Fridge": 1,
        "Shelf": 2,
        "SinkBasin": 1,
        "StoveBurner": 4,  # named as a type only: a stove has four
    }
    assert KITCHEN.objects == ("Apple", "Mug", "Pan", "Sink", "Window")


def test_where_things_may_be():
    assert holders("Apple", KITCHEN.receptacles, CATALOGUE) == ["Fridge", "Shelf", "SinkBasin"]
    assert holders("Window", KITCHEN.receptacles, CATALOGUE) == []
    assert holders("DeskLamp", BEDROOM.receptacles, CATALOGUE) == ["Desk", "Shelf"]
    assert holders("FloorLamp", ["Fridge", "SinkBasin"], CATALOGUE) == ["SinkBasin"]


def test_a_sparse_scene_has_one_receptacle_of_each_type():
    small = sparse(KITCHEN, CATALOGUE)
    assert small == sparse(KITCHEN, CATALOGUE)
    assert small.receptacles == ("Fridge", "Shelf", "SinkBasin")
    assert small.objects == ("Apple", "Mug")  # nothing else has two places to be


def test_the_goals_that_a_scene_allows():
    assert {(w.thing, w.place) for w in wanted_in(KITCHEN, TASK_TYPES[0], CATALOGUE)} == {
        (thing, place) for thing in ("Apple", "Mug") for place in ("Fridge", "Shelf", "SinkBasin")
    }  # a pan is on the stove or nowhere
    heated = [*wanted_in(KITCHEN, "pick_heat_then_place_in_recep", CATALOGUE)]
    assert heated == []  # there is no microwave
    cooled = {w.thing for w in wanted_in(KITCHEN, "pick_cool_then_place_in_recep", CATALOGUE)}
    assert cooled == {"Apple"}
    lit = [*wanted_in(BEDROOM, "look_at_obj_in_light", CATALOGUE)]
    assert lit == [
        Wanted("look_at_obj_in_light", thing, "", "DeskLamp") for thing in ("Book", "Mug")
    ]


@pytest.mark.parametrize("task", [TASK_TYPES[0], TASK_TYPES[2], TASK_TYPES[4], TASK_TYPES[5]])
def test_things_are_not_where_they_belong(task):
    for seed in range(60):
        rng = random.Random(seed)
        wanted = draw_goal(rng, KITCHEN, task, CATALOGUE)
        room = draw_room(rng, KITCHEN, wanted, CATALOGUE, 2)
        count = Counter(thing.type for thing in room.things)
        assert count[wanted.thing] >= (2 if task == TASK_TYPES[5] else 1)
        assert max(count.values()) <= 2
        assert all(wanted.thing not in inside for inside in room.inside(wanted.place))
        for thing in room.things:
            assert thing.type in CATALOGUE.holds[room.receptacles[thing.place]]


@pytest.mark.parametrize("task", [TASK_TYPES[0], TASK_TYPES[1]])
def test_a_goal_has_as_many_brackets_as_it_needs(task):
    goal = goal_in_pddl(Wanted(task, "Apple", "Fridge", "DeskLamp"), CATALOGUE.goals[task])
    assert goal.startswith("(:goal (and (exists (?")
    assert goal.count("(") == goal.count(")")
    assert "#" not in goal
    assert "AppleType" in goal


def test_a_game_is_its_seed():
    def some(seed):
        return compose(seed, SCENES, TASK_TYPES[:2], CATALOGUE, 3)

    assert some("a 1") == some("a 1")
    assert len({some(f"a {n}").problem for n in range(40)}) > 30


def test_a_game_by_hand():
    game = compose("train 3", (BEDROOM,), TASK_TYPES[:1], CATALOGUE, 1)
    goal = re.fullmatch(r"put a (\w+) in (\w+)", game.goal)
    engine = Engine(game)
    assert engine.text.startswith("-= Hello =-\n\nYou see a desk 1, and a shelf 1.\n\n")
    assert engine.text.endswith(f"Your task is to: {game.goal}.")
    assert engine.admissible == ["go to desk 1", "go to shelf 1"]
    assert not engine.step("go to fridge 1")
    assert engine.text == NOTHING
    start = "shelf 1" if goal[2] == "desk" else "desk 1"
    for command, seen in (
        (f"go to {start}", f"You arrive at {start}. On the {start}, you see "),
        (f"take {goal[1]} 1 from {start}", f"You pick up the {goal[1]} 1 from the {start}."),
        (f"go to {goal[2]} 1", f"You arrive at {goal[2]} 1."),
        (f"put {goal[1]} 1 in/on {goal[2]} 1", f"You put the {goal[1]} 1 in/on the {goal[2]} 1."),
    ):
        assert not engine.won
        assert engine.step(command)
        assert engine.text.startswith(seen)
    assert engine.won


def test_names_count_downwards():
    ids = ["agent1", "bathtub_bar_03_bar_bathtubbasin", "drawer_bar_00", "drawer_bar_02"]
    assert demangled(ids) == {
        "agent1": "agent1 ",
        "bathtub_bar_03_bar_bathtubbasin": "bathtubbasin 1",
        "drawer_bar_00": "drawer 2",
        "drawer_bar_02": "drawer 1",
    }


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    package.read_catalogue.cache_clear()
    for make in (AlfworldText, AlfworldPlayer):
        with pytest.raises(ValueError, match=r"needs alfworld; install jaxrl_guided\[alfworld\]"):
            make()
