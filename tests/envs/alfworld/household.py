"""A tiny world of our own for tests that need no extra, and the guard of those that need it."""

import importlib.util

import pytest

from jaxrl_guided.envs.alfworld.package import TASK_TYPES, Catalogue, Goal


def need(*modules):
    """Skips the tests of a module unless packages are there; imports none of them."""
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        pytest.skip(
            f"needs {' and '.join(missing)}: pip install 'jaxrl_guided[alfworld]'",
            allow_module_level=True,
        )


DOMAIN = """
(define (domain tiny) ; a comment (with a bracket
 (:types agent location receptacle object rtype otype)
 (:predicates (atLocation ?a - agent ?l - location))
 (:action GotoLocation
  :parameters (?a - agent ?lStart - location ?lEnd - location ?r - receptacle)
  :precondition (and (atLocation ?a ?lStart) (receptacleAtLocation ?r ?lEnd))
  :effect (and (not (atLocation ?a ?lStart)) (atLocation ?a ?lEnd) (increase (total-cost) 1)))
 (:action OpenObject
  :parameters (?a - agent ?l - location ?r - receptacle)
  :precondition (and (openable ?r) (atLocation ?a ?l) (receptacleAtLocation ?r ?l)
                     (not (opened ?r)))
  :effect (opened ?r))
 (:action PickupObject
  :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
  :precondition (and (pickupable ?o) (atLocation ?a ?l) (receptacleAtLocation ?r ?l)
                     (inReceptacle ?o ?r) (not (holdsAny ?a))
                     (or (not (openable ?r)) (opened ?r)))
  :effect (and (not (inReceptacle ?o ?r)) (holds ?a ?o) (holdsAny ?a)))
 (:action PutObject
  :parameters (?a - agent ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype)
  :precondition (and (holds ?a ?o) (atLocation ?a ?l) (receptacleAtLocation ?r ?l)
                     (or (not (openable ?r)) (opened ?r))
                     (objectType ?o ?ot) (receptacleType ?r ?rt) (canContain ?rt ?ot))
  :effect (and (inReceptacle ?o ?r) (not (holds ?a ?o)) (not (holdsAny ?a))))
 (:action ToggleObject
  :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
  :precondition (and (toggleable ?o) (atLocation ?a ?l) (receptacleAtLocation ?r ?l)
                     (inReceptacle ?o ?r))
  :effect (and (when (isOn ?o) (not (isOn ?o))) (when (not (isOn ?o)) (isOn ?o)) (isToggled ?o)))
)
"""

GRAMMAR = '''
grammar :: """
 {"intro": [{"rhs": "-= Hello =-\\n\\nYou see #all#.\\n\\n#task#"}],
  "all": [{"rhs": "[{#named# | receptacleatlocation(r:receptacle, l:location)}]"}],
  "named": [{"rhs": "{r.indefinite + ' ' + r.name}"}],
  "task": [{"rhs": "Your task is to: UNKNOWN GOAL."}],
  "list_empty": [{"rhs": "nothing"}],
  "list_separator": [{"rhs": ", "}],
  "list_last_separator": [{"rhs": ", and "}],
  "inside": [{"condition": "openable(r:receptacle) & opened(r:receptacle)",
              "rhs": "The {r.name} is open. In it, you see #things#."},
             {"condition": "openable(r:receptacle)", "rhs": "The {r.name} is closed."},
             {"rhs": "On the {r.name}, you see #things#."}],
  "things": [{"rhs": "[{o.indefinite + ' ' + o.name | inreceptacle(o:object, r:receptacle)}]"}]}
""";
action GotoLocation {
 template :: "go to [{r.name | receptacleatlocation(r:receptacle, lend:location)}]";
 feedback :: "You arrive at {r.name}. #inside#";
}
action OpenObject { template :: "open {r}"; feedback :: "You open the {r.name}. #inside#"; }
action PickupObject {
 template :: "take {o} from {r}";
 feedback :: "You pick up the {o.name} from the {r.name}.";
}
action PutObject { template :: "put {o} in/on {r}"; feedback :: "#put#";
 grammar :: """ {"put": [{"rhs": "You put the {o.name} in/on the {r.name}."}]} """;
}
action ToggleObject { template :: "use {o}"; feedback :: "You turn on the {o.name}."; }
'''

_PLACED = """ (:goal (and (exists (?r # receptacle) (exists (?o # object) (and
 (inReceptacle ?o ?r) (objectType ?o {obj}Type) (receptacleType ?r {recep}Type))))))
) """
_LIT = """ (:goal (and (exists (?o # object) (and (objectType ?o {toggle}Type) (isToggled ?o)))
 (exists (?o # object ?a # agent) (and (objectType ?o {obj}Type) (holds ?a ?o))) """
"""Brackets too many, and too few, as in the package."""

CATALOGUE = Catalogue(
    domain=DOMAIN,
    grammar=GRAMMAR,
    goals={
        task: Goal(_LIT, ("look at {obj} under the {toggle}",))
        if task == "look_at_obj_in_light"
        else Goal(_PLACED, ("put a {obj} in {recep}",))
        for task in TASK_TYPES
    },
    rooms={
        task: {"Kitchen"} if "heat" in task or "cool" in task else {"Kitchen", "Bedroom"}
        for task in TASK_TYPES
    },
    holds={
        "Shelf": {"Apple", "Mug", "Book"},
        "Fridge": {"Apple", "Mug"},
        "SinkBasin": {"Apple", "Mug"},
        "StoveBurner": {"Pan"},
        "Desk": {"Book", "Mug"},
    },
    openable={"Fridge"},
    vessels={"Mug"},
    can={
        "Cleanable": {"Apple", "Mug"},
        "Heatable": {"Apple"},
        "Coolable": {"Apple"},
        "Sliceable": {"Apple"},
        "Toggleable": {"DeskLamp", "FloorLamp"},
    },
)
