"""The task for memory: its rules, its instances, and what players with and without memory get."""

import pytest

from jaxrl_guided.envs.text.registry import make_demonstrator, make_text_task, text_task_names
from jaxrl_guided.envs.text.route import CROSSINGS, DIRECTIONS, Route, RouteDemonstrator, route_of
from jaxrl_guided.learners.language.demonstrations import demonstrate


def test_an_episode_by_hand():
    task, route = Route(), ("west", "north", "north", "east", "north", "south", "south")
    (seed,) = (seed for seed in range(Route.instances) if route_of(seed) == route)
    shown = task.reset(seed).observation
    assert shown == "Route: west north north east north south south. Crossing 1"
    for crossing, word in enumerate(route[:-1], 2):
        reply = task.step(f"Now I GO {word.upper()}.")
        assert reply.observation == f"Crossing {crossing}"
        assert reply.acted
        assert not reply.terminated
        assert reply.rewards == {}
    reply = task.step("go north, no, go south")
    assert reply.terminated
    assert reply.success
    assert reply.rewards == {"task": 1.0}


def test_the_first_wrong_turn_ends_the_episode():
    task = Route()
    task.reset(0)  # north all the way
    task.step("go north")
    reply = task.step("go east")
    assert reply.terminated
    assert not reply.success
    assert reply.rewards == {"task": 0.0}


def test_what_is_no_direction_changes_nothing():
    task = Route()
    shown = task.reset(0).observation
    for answer in ("", "dance", "north", "ego north", "go northeast", "go up"):
        reply = task.step(answer)
        assert not reply.acted
        assert reply.observation == f"Say go and a direction. {shown}"
    assert task.step("go north").observation == "Crossing 2"


def test_seeds_are_different_episodes():
    routes = {route_of(seed) for seed in range(Route.instances)}
    assert len(routes) == Route.instances == 4**CROSSINGS
    for part in (range(2048), range(2048, 4096)):  # what is judged, what is shown
        for place in range(CROSSINGS):
            count = [sum(route_of(s)[place] == word for s in part) for word in DIRECTIONS]
            assert min(count) > 450


@pytest.mark.parametrize(
    ("memory", "expected"),
    [(1, 0.25 ** (CROSSINGS - 1)), (CROSSINGS - 1, 0.25), (CROSSINGS, 1.0)],
    ids=["one turn", "all but one", "all"],
)
def test_success_is_a_matter_of_memory(memory, expected):
    shown = demonstrate(Route(), RouteDemonstrator(memory), range(4000))
    success = sum(episode.success for episode in shown) / len(shown)
    assert abs(success - expected) < 0.02


def test_the_route_is_told_once():
    for episode in demonstrate(Route(), RouteDemonstrator(CROSSINGS), range(50)):
        later = [message["content"] for _, message in episode.turns if message]
        assert later == [f"Crossing {number}" for number in range(2, CROSSINGS + 1)]


def test_tasks_are_found_by_name():
    assert isinstance(make_text_task("route"), Route)
    assert {"route", "minihack/Room-5x5"} <= set(text_task_names())
    with pytest.raises(ValueError, match="unknown 'root'; did you mean route"):
        make_text_task("root")
    with pytest.raises(TypeError, match="route has no option size; it has none"):
        make_text_task("route", size=3)
    with pytest.raises(ValueError, match="nobody demonstrates 'minihack/River'"):
        make_demonstrator("minihack/River")
