"""Games of ALFWorld (Shridhar et al. 2021) from a seed: a room, a goal, and both in PDDL.

The goal is not reached at the start, and can be reached: what it needs is in the room, outside of
where it belongs, and every receptacle can be opened.
"""

import dataclasses
import random
from collections.abc import Iterator, Sequence

from jaxrl_guided.envs.alfworld.package import Catalogue, Goal, Scene
from jaxrl_guided.envs.alfworld.room import LAMPS, Room, furnish, holders, problem

UNKNOWN_GOAL = "UNKNOWN GOAL"

_CHANGES = {
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge"),
}
"""What must be possible with the object, and the receptacle that does it."""

_LOOK, _TWO = "look_at_obj_in_light", "pick_two_obj_and_place"


@dataclasses.dataclass(frozen=True)
class Game:
    """What PddlEnv plays.

    Attributes:
      goal: a sentence without its full stop.
      domain, grammar, problem: texts.
    """

    goal: str
    domain: str
    grammar: str
    problem: str


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A goal; all but `task` are types.

    Attributes:
      task: one of `TASK_TYPES`.
      thing: what to find.
      place: the receptacle where it belongs; empty for those that are looked at.
      lamp: the light in which they are; else empty.
    """

    task: str
    thing: str
    place: str
    lamp: str


def compose(
    seed: str, scenes: Sequence[Scene], tasks: Sequence[str], catalogue: Catalogue, most: int
) -> Game:
    """The game of a seed: always the same one.

    Args:
      seed: any text.
      scenes: rooms of which one is drawn; each task is possible in one at least.
      tasks: types of which one is drawn.
      catalogue: rules.
      most: objects of a type.
    """
    rng = random.Random(f"alfworld {seed}")
    task = rng.choice(tasks)
    scene = rng.choice([s for s in scenes if any(wanted_in(s, task, catalogue))])
    wanted = draw_goal(rng, scene, task, catalogue)
    room = draw_room(rng, scene, wanted, catalogue, most)
    sentence = rng.choice(catalogue.goals[task].sentences).format(
        obj=wanted.thing.lower(), recep=wanted.place.lower(), toggle=wanted.lamp.lower()
    )
    return Game(
        sentence,
        catalogue.domain,
        catalogue.grammar.replace(UNKNOWN_GOAL, sentence),
        problem(room, goal_in_pddl(wanted, catalogue.goals[task]), catalogue),
    )


def wanted_in(scene: Scene, task: str, catalogue: Catalogue) -> Iterator[Wanted]:
    """All goals of a type that a scene allows."""
    if scene.kind not in catalogue.rooms[task]:
        return
    need, changer = _CHANGES.get(task, ("", ""))
    if changer and changer not in scene.receptacles:
        return
    lamps = [name for name in scene.objects if name in LAMPS]
    for thing in scene.objects:
        places = holders(thing, scene.receptacles, catalogue)
        if thing in LAMPS or not places or (need and thing not in catalogue.can[need]):
            continue
        if task == _LOOK:
            yield from (Wanted(task, thing, "", lamp) for lamp in lamps)
        elif len(places) > 1:
            yield from (Wanted(task, thing, place, "") for place in places)


def draw_goal(rng: random.Random, scene: Scene, task: str, catalogue: Catalogue) -> Wanted:
    """A goal of those that a scene allows; objects are as likely as each other."""
    goals = list(wanted_in(scene, task, catalogue))
    thing = rng.choice(sorted({goal.thing for goal in goals}))
    return rng.choice([goal for goal in goals if goal.thing == thing])


def draw_room(
    rng: random.Random, scene: Scene, wanted: Wanted, catalogue: Catalogue, most: int
) -> Room:
    """A room in which a goal is not reached but can be."""
    least = {wanted.thing: 2} if wanted.task == _TWO else {}
    banned = {wanted.thing: wanted.place} if wanted.place else {}
    return furnish(rng, scene, catalogue, least, banned, most)


def goal_in_pddl(wanted: Wanted, goal: Goal) -> str:
    """The goal as a block of PDDL; in the package `-` is `#`, and brackets do not match."""
    text = goal.pddl.format(obj=wanted.thing, recep=wanted.place, toggle=wanted.lamp)
    text = text.replace("#", "-").strip()
    depth = 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return text[: place + 1]
    return text + ")" * depth
