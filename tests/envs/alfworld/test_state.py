"""PDDL: what is read, which conditions hold, and what actions change."""

import itertools

import pytest

from jaxrl_guided.envs.alfworld.pddl import (
    Domain,
    Problem,
    _plain,
    read,
    read_domain,
    read_problem,
)
from jaxrl_guided.envs.alfworld.state import State
from tests.envs.alfworld.household import DOMAIN

PROBLEM = """
(define (problem p) (:domain tiny)
 (:objects agent1 - agent home here there - location shelf fridge - receptacle
  apple lamp - object shelftype fridgetype - rtype appletype - otype)
 (:init (= (total-cost) 0) (atLocation agent1 home)
  (receptacleAtLocation shelf here) (receptacleAtLocation fridge there) (openable fridge)
  (receptacleType shelf shelftype) (receptacleType fridge fridgetype) (objectType apple appletype)
  (canContain fridgetype appletype) (inReceptacle apple shelf) (pickupable apple)
  (inReceptacle lamp fridge) (toggleable lamp))
 (:goal (exists (?r - receptacle) (and (inReceptacle apple ?r) (openable ?r)))))
"""


@pytest.fixture
def game():
    domain, problem = read_domain(DOMAIN), read_problem(PROBLEM)
    state = State(domain, problem)
    actions = {action.name: action for action in domain.actions}

    def ways(name):
        return sorted(tuple(way.values()) for way in map(sorted_values, state.ways(actions[name])))

    def sorted_values(way):
        return {name: way[name] for name in sorted(way)}

    def do(name, **wanted):
        (way,) = (
            way
            for way in state.ways(actions[name])
            if all(way[f"?{key}"] == value for key, value in wanted.items())
        )
        state.apply(actions[name], way)

    return state, problem, ways, do


def test_a_text_is_nested_lists():
    assert read("(A (b ?C) ; gone )\n ())") == ["a", ["b", "?c"], []]
    for wrong in ("(a", "a)", "(a) (b)", "a"):
        with pytest.raises(ValueError, match="PDDL: a bracket"):
            read(wrong)


@pytest.mark.parametrize(
    "text, message",
    [
        ("(define (problem p) (:init) (:goal (a)))", "a problem must have :objects"),
        (PROBLEM.replace(":goal", ":aim"), "a problem must have :goal"),
    ],
)
def test_problems_that_are_not_understood_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_problem(text)


def test_effects_on_all_objects_are_refused():
    text = DOMAIN.replace(":effect (opened ?r)", ":effect (and (forall (?x) (opened ?x)))")
    with pytest.raises(ValueError, match="effects with 'forall' are not understood"):
        read_domain(text)


def test_a_domain_must_have_actions():
    with pytest.raises(ValueError, match="must have actions"):
        read_domain("(define (domain d) (:types a))")


def test_one_goes_everywhere_but_where_one_is(game):
    state, _, ways, do = game
    assert {way[-1] for way in ways("gotolocation")} == {"fridge", "shelf"}
    do("gotolocation", r="shelf")
    assert [way[-1] for way in ways("gotolocation")] == ["fridge"]
    assert [*state.of("atlocation")] == [("agent1", "here")]
    assert [*state.of("not_atlocation")] == [("agent1", "home")]


def test_a_closed_door_hides_what_is_behind_it(game):
    state, problem, ways, do = game
    do("gotolocation", r="shelf")
    do("pickupobject")
    assert ways("pickupobject") == []  # the hand is full
    do("gotolocation", r="fridge")
    assert ways("putobject") == []
    do("openobject")
    assert ways("openobject") == []
    assert not state.holds(problem.goal)
    do("putobject")
    assert state.holds(problem.goal)
    assert sorted(state.of("inreceptacle")) == [("apple", "fridge"), ("lamp", "fridge")]


def test_a_shelf_that_cannot_contain_it_does_not_get_it_back(game):
    _, _, ways, do = game
    do("gotolocation", r="shelf")
    do("pickupobject")
    assert ways("putobject") == []  # nothing says that a shelf can contain apples


def test_a_switch_goes_on_and_off(game):
    state, _, _, do = game
    do("gotolocation", r="fridge")
    for is_on in (True, False, True):
        do("toggleobject")
        assert [*state.of("ison")] == [("lamp",)] * is_on
    assert [*state.of("istoggled")] == [("lamp",)]


OBJECTS = {"x": "a", "y": "a", "z": "b", "w": "b"}
FACTS = [("p", "x", "y"), ("p", "y", "y"), ("p", "z", "w"), ("q", "x"), ("q", "z")]


@pytest.mark.parametrize(
    "text, check",
    [
        ("(p ?u ?v)", lambda u, v: ("p", u, v) in FACTS),
        ("(and (p ?u ?v) (q ?u))", lambda u, v: ("p", u, v) in FACTS and ("q", u) in FACTS),
        (
            "(and (q ?u) (not (p ?u ?v)))",
            lambda u, v: ("q", u) in FACTS and ("p", u, v) not in FACTS,
        ),
        ("(or (p ?u ?v) (q ?v))", lambda u, v: ("p", u, v) in FACTS or ("q", v) in FACTS),
        ("(not (= ?u ?v))", lambda u, v: u != v),
        (
            "(and (q ?v) (exists (?u - object) (p ?u ?v)))",
            lambda u, v: ("q", v) in FACTS and any(("p", o, v) in FACTS for o in OBJECTS),
        ),
        (
            "(not (exists (?t - b) (p ?t ?v)))",
            lambda u, v: not any(("p", o, v) in FACTS for o in "zw"),
        ),
        (
            "(forall (?t - b) (p ?t ?v))",
            lambda u, v: all(("p", o, v) in FACTS for o in "zw"),
        ),
        (
            "(imply (q ?u) (p ?u ?v))",
            lambda u, v: ("q", u) not in FACTS or ("p", u, v) in FACTS,
        ),
        ("(and (forall (?t - b) (imply (q ?t) (p ?t w))) (q ?u))", lambda u, v: ("q", u) in FACTS),
        ("()", lambda u, v: True),
    ],
)
def test_conditions_hold_for_what_a_search_of_everything_finds(text, check):
    domain = Domain({"a": "object", "b": "object"}, ())
    state = State(domain, Problem(OBJECTS, FACTS, []))
    for kinds in itertools.product(("object", "a", "b"), repeat=2):
        of_kind = [[o for o, t in OBJECTS.items() if kind in (t, "object")] for kind in kinds]
        parameters = dict(zip(("?u", "?v"), kinds, strict=True))
        found = {
            (whole["?u"], whole["?v"])
            for way in state.satisfy(_plain(read(text)), {}, parameters)
            for whole in state._complete(way, parameters)
        }
        assert found == {(u, v) for u, v in itertools.product(*of_kind) if check(u, v)}
