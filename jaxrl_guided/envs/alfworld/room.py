"""Rooms of an episode: what stands in them, what lies where, and their description in PDDL."""

import dataclasses
import random
from collections.abc import Collection, Iterator, Mapping, Sequence

from jaxrl_guided.envs.alfworld.package import Catalogue, Scene

LAMPS = ("DeskLamp", "FloorLamp")

_PREDICATES = {
    "Cleanable": "cleanable",
    "Heatable": "heatable",
    "Coolable": "coolable",
    "Sliceable": "sliceable",
}
_KNOWN_TYPES = ("SinkBasin", "Microwave", "Fridge"), ("Knife", "ButterKnife")
"""Receptacles and objects that rules of the domain name, whether the room has them or not."""

_MOST_ALIKE = 3
_PLACES_OF_LAMPS = ("Desk", "SideTable", "Dresser", "DiningTable", "CoffeeTable", "Shelf")
_SPARSE_RECEPTACLES, _SPARSE_OBJECTS = 6, 7


@dataclasses.dataclass(frozen=True)
class Thing:
    """An object.

    Attributes:
      type: as `Apple`.
      place: where it is, a place in the list of receptacles.
    """

    type: str
    place: int


@dataclasses.dataclass(frozen=True)
class Room:
    """A room.

    Attributes:
      receptacles: their types.
      things: all objects.
    """

    receptacles: Sequence[str]
    things: Sequence[Thing]

    def inside(self, receptacle: str) -> list[list[str]]:
        """Types of the objects in each receptacle of a type."""
        numbers = [n for n, name in enumerate(self.receptacles) if name == receptacle]
        return [[thing.type for thing in self.things if thing.place == n] for n in numbers]


def holders(thing: str, receptacles: Collection[str], catalogue: Catalogue) -> list[str]:
    """Types of receptacles, of those in a room, where an object of a type may be."""
    names = sorted(set(receptacles))
    if thing not in LAMPS:
        return [name for name in names if thing in catalogue.holds[name]]
    tables = [name for name in names if name in _PLACES_OF_LAMPS]
    return tables or [name for name in names if name not in catalogue.openable]


def sparse(scene: Scene, catalogue: Catalogue) -> Scene:
    """A few of a scene's receptacles, one of each type, and of its objects; always the same."""
    rng = random.Random(f"sparse {scene.number}")
    names = sorted(set(scene.receptacles))
    kept = [name for name in names if name in _KNOWN_TYPES[0]]
    others = [name for name in names if name not in kept and len(catalogue.holds[name]) > 1]
    # The first is a place for whatever there is.
    others.sort(key=lambda name: (len(catalogue.holds[name]), name), reverse=True)
    others = others[:1] + rng.sample(others[1:], len(others) - 1)
    receptacles = (kept + others)[:_SPARSE_RECEPTACLES]
    lamps = [name for name in scene.objects if name in LAMPS]
    movable = [
        name
        for name in scene.objects
        if name not in lamps and len(holders(name, receptacles, catalogue)) > 1
    ]
    objects = lamps[:1] + rng.sample(movable, min(_SPARSE_OBJECTS, len(movable)))
    return Scene(scene.number, scene.kind, tuple(sorted(receptacles)), tuple(sorted(objects)))


def furnish(
    rng: random.Random,
    scene: Scene,
    catalogue: Catalogue,
    least: Mapping[str, int],
    banned: Mapping[str, str],
    most: int = _MOST_ALIKE,
) -> Room:
    """A room with the objects of a scene, in places that are drawn.

    Args:
      rng: what to draw from.
      scene: the room.
      catalogue: what can be where.
      least: how many objects there are of some types at least.
      banned: types of receptacles in which objects of some types are not.
      most: how many objects of a type there are at most.
    """
    things = []
    for name in scene.objects:
        where = [h for h in holders(name, scene.receptacles, catalogue) if h != banned.get(name)]
        if not where:
            continue
        low = least.get(name, 1)
        for _ in range(1 if name in LAMPS else rng.randint(low, max(low, most))):
            kind = rng.choice(where)
            numbers = [n for n, other in enumerate(scene.receptacles) if other == kind]
            things.append(Thing(name, rng.choice(numbers)))
    return Room(scene.receptacles, tuple(things))


def problem(room: Room, goal: str, catalogue: Catalogue) -> str:
    """A room and a goal as a problem in PDDL."""
    places = list(_receptacle_ids(room.receptacles))
    rtypes = sorted({*room.receptacles, *_KNOWN_TYPES[0]})
    otypes = sorted({*(thing.type for thing in room.things), *_KNOWN_TYPES[1]})
    ids = [f"{thing.type}_bar_{number:02}" for number, thing in enumerate(room.things)]
    objects = [
        "agent1 - agent",
        "loc_start - location",
        *(f"{id_} - receptacle\n loc_{n:02} - location" for n, id_ in enumerate(places)),
        *(f"{id_} - object" for id_ in ids),
        *(f"{name}Type - rtype" for name in rtypes),
        *(f"{name}Type - otype" for name in otypes),
    ]
    facts = ["(= (total-cost) 0)", "(atLocation agent1 loc_start)"]
    for number, (name, id_) in enumerate(zip(room.receptacles, places, strict=True)):
        facts += [
            f"(receptacleType {id_} {name}Type)",
            f"(receptacleAtLocation {id_} loc_{number:02})",
        ]
        if name in catalogue.openable:
            facts.append(f"(openable {id_})")
    for thing, id_ in zip(room.things, ids, strict=True):
        facts += _facts_of(thing, id_, places[thing.place], catalogue)
    for rtype in sorted(set(room.receptacles)):
        facts += [
            f"(canContain {rtype}Type {otype}Type)"
            for otype in otypes
            if otype in catalogue.holds[rtype]
        ]
    parts = ["(:domain alfred)", _block(":objects", objects), _block(":init", facts), goal]
    metric = "(:metric minimize (total-cost))"
    return "\n".join(["(define (problem composed)", *parts, metric, ")"])


def _receptacle_ids(receptacles: Sequence[str]) -> Iterator[str]:
    """Names of receptacles; the demangler says of a sink's basin whose it is."""
    for number, name in enumerate(receptacles):
        owner = name.removesuffix("Basin")
        tail = f"_bar_{name}" if owner != name else ""
        yield f"{owner}_bar_{number:02}{tail}"


def _facts_of(thing: Thing, id_: str, receptacle: str, catalogue: Catalogue) -> list[str]:
    can = catalogue.can
    facts = [
        f"(objectType {id_} {thing.type}Type)",
        f"(inReceptacle {id_} {receptacle})",
        f"(wasInReceptacle {id_} {receptacle})",
        f"(objectAtLocation {id_} loc_{thing.place:02})",
        f"({'toggleable' if thing.type in can['Toggleable'] else 'pickupable'} {id_})",
    ]
    facts += [f"({fact} {id_})" for name, fact in _PREDICATES.items() if thing.type in can[name]]
    if thing.type in catalogue.vessels:
        facts.append(f"(isReceptacleObject {id_})")
    return facts


def _block(name: str, lines: Sequence[str]) -> str:
    body = "\n ".join(lines)
    return f"({name}\n {body}\n)"
