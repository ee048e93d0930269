"""What the alfworld package carries, read from its files.

The package is not imported: that makes a folder in the user's home, and needs much that is of no
use here.
"""

import dataclasses
import functools
import importlib.util
import json
import pathlib
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jaxrl_guided.runtime.extras import check_installed

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)

_BASINS = {"Sink": "SinkBasin", "Bathtub": "BathtubBasin"}
_BURNERS = 4


@dataclasses.dataclass(frozen=True)
class Goal:
    """How a type of task is said.

    Attributes:
      pddl: with the fields obj, recep and toggle.
      sentences: with the same fields.
    """

    pddl: str
    sentences: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """Rules of the world; all names are types, as `ButterKnife`.

    Attributes:
      domain: PDDL.
      grammar: its texts, with `UNKNOWN GOAL` for the goal.
      goals: by type of task.
      rooms: kinds of rooms in which a type of task is possible.
      holds: objects that a receptacle can contain, by receptacle that stays where it is.
      openable: receptacles with a door.
      vessels: objects that can contain others.
      can: objects of which something can be done, as `Cleanable`.
    """

    domain: str
    grammar: str
    goals: Mapping[str, Goal]
    rooms: Mapping[str, Collection[str]]
    holds: Mapping[str, Collection[str]]
    openable: Collection[str]
    vessels: Collection[str]
    can: Mapping[str, Collection[str]]


@dataclasses.dataclass(frozen=True)
class Scene:
    """A room without what stands for an episode only.

    Attributes:
      number: of its floor plan.
      kind: as `Kitchen`.
      receptacles: types, as often as there are such.
      objects: types of things in it.
    """

    number: int
    kind: str
    receptacles: Sequence[str]
    objects: Sequence[str]


@functools.cache
def read_catalogue() -> Catalogue:
    """The rules of the installed package.

    Raises:
      ValueError: it is not installed.
    """
    check_installed("task: 'alfworld'", ("alfworld",), "alfworld")
    constants, library = _module("constants"), _module("goal_library").gdict
    lasting = set(constants.STATIC_RECEPTACLES)
    holds = constants.VAL_RECEPTACLE_OBJECTS
    return Catalogue(
        domain=_text("data/alfred.pddl"),
        grammar=_text("data/alfred.twl2"),
        goals={t: Goal(library[t]["pddl"], tuple(library[t]["templates"])) for t in TASK_TYPES},
        rooms={t: frozenset(constants.GOALS_VALID[t]) for t in TASK_TYPES},
        holds={name: frozenset(holds[name]) for name in sorted(lasting & set(holds))},
        openable=frozenset(constants.OPENABLE_CLASS_LIST),
        vessels=frozenset(constants.MOVABLE_RECEPTACLES),
        can={name: frozenset(some) for name, some in constants.VAL_ACTION_OBJECTS.items()},
    )


@functools.cache
def read_scenes(unseen: bool) -> Sequence[Scene]:
    """All rooms that are used for training, or all others."""
    constants, catalogue = _module("constants"), read_catalogue()
    numbers = constants.TEST_SCENE_NUMBERS if unseen else constants.TRAIN_SCENE_NUMBERS
    scenes = []
    for kind, range_ in constants.SCENE_TYPE.items():
        for number in sorted(set(numbers) & set(range_)):
            layout = f"gen/layouts/FloorPlan{number}"
            standing = json.loads(_text(f"{layout}-openable.json"))
            objects = json.loads(_text(f"{layout}-objects.json"))
            scenes.append(make_scene(number, kind, standing, objects, catalogue))
    return tuple(scenes)


def make_scene(
    number: int,
    kind: str,
    standing: Collection[str],
    objects: Collection[str],
    catalogue: Catalogue,
) -> Scene:
    """A room from its layout.

    Args:
      number: of the floor plan.
      kind: of the room.
      standing: ids of receptacles that can be reached, as `Sink|-01.90|+00.97|-01.50|SinkBasin`.
      objects: all types in the room; receptacles among them that cannot be reached are added.
      catalogue: what is a receptacle.
    """
    types = [_BASINS.get(name, name) for name in (key.split("|")[0] for key in sorted(standing))]
    receptacles = [name for name in types if name in catalogue.holds]
    for name in sorted(set(objects) & set(catalogue.holds) - set(receptacles)):
        receptacles += [name] * (_BURNERS if name == "StoveBurner" else 1)
    things = sorted(name for name in objects if name not in catalogue.holds)
    return Scene(number, kind, tuple(sorted(receptacles)), tuple(things))


def _root() -> pathlib.Path:
    spec = importlib.util.find_spec("alfworld")
    assert spec is not None
    assert spec.origin is not None
    return pathlib.Path(spec.origin).parent


def _text(path: str) -> str:
    return (_root() / path).read_text(encoding="utf-8")


@functools.cache
def _module(name: str) -> types.ModuleType:
    """A module of alfworld.gen on its own, without the packages around it."""
    path = _root() / "gen" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"_alfworld_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
