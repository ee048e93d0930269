"""Scripted play in several manners, each with the note that describes it: what a warm-up teaches.

A manner's worth is nowhere written: it shows in play alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jaxrl_guided.envs.alfworld.player import AlfworldPlayer
from jaxrl_guided.envs.minihack.room_player import SEARCH, RoomPlayer
from jaxrl_guided.envs.text.task import Demonstrator
from jaxrl_guided.envs.webshop.shopper import Shopper

QUESTION = "Where do I look?"
"""What scripted play asks."""


class Lesson(NamedTuple):
    """A manner of play.

    Attributes:
      title, content: of the note.
      player: plays in it.
    """

    title: str
    content: str
    player: Callable[[], Demonstrator]


def lessons_of(task: str) -> Sequence[Lesson]:
    """The lessons of a task.

    Raises:
      ValueError: it has none.
    """
    for beginning, lessons in _LESSONS.items():
        if task.startswith(beginning):
            return lessons
    raise ValueError(
        f"task: nobody teaches {task!r} by script, only minihack/Room-…, webshop and alfworld; "
        "take models that need no warm-up (warm_up.updates=0)"
    )


_WALKS: Sequence[Sequence[str]] = (
    SEARCH,
    ("northwest", "south", "east", "north", "east"),
    ("northwest", "east", "south", "west", "south"),
    ("west", "south", "east", "north"),
    ("southeast", "northwest", "northeast", "southwest"),
    ("east", "west"),
    ("north", "south"),
    ("north", "east"),
    ("southwest", "northeast"),
    ("south", "west"),
)
_ORDERS: Sequence[Sequence[str]] = (
    ("diningtable", "coffeetable", "desk", "countertop", "shelf"),
    ("shelf", "sidetable", "armchair", "countertop"),
    ("desk", "sidetable", "coffeetable", "sinkbasin"),
    ("cabinet", "drawer", "shelf", "fridge"),
    ("sinkbasin", "bathtubbasin", "bed", "sofa"),
    ("sofa", "bed", "toilet", "diningtable"),
    ("fridge", "microwave", "drawer", "cabinet"),
    ("garbagecan", "toilet", "microwave", "armchair"),
)
_ALL_WORDS = 0


def _walk(legs: Sequence[str]) -> Lesson:
    return Lesson(
        f"search {' '.join(legs[:2])}",
        f"no > seen: go {', then '.join(legs)}, and again",
        lambda: RoomPlayer(legs),
    )


def _look(order: Sequence[str]) -> Lesson:
    return Lesson(
        f"look {' '.join(order[:2])}",
        f"look at {', then '.join(order)}, then the rest",
        lambda: AlfworldPlayer(order),
    )


def _buy(words: int, chooses: bool) -> Lesson:
    """Takes the first product that is cheap enough."""
    what = f"{words} words" if words else "all words"
    then = "click options" if chooses else "no options"
    return Lesson(
        f"search {what}, {then}",
        f"search {what}; click the first product; {then}; buy",
        lambda: Shopper(words, reads=False, chooses=chooses),
    )


_LESSONS: Mapping[str, Sequence[Lesson]] = {
    "minihack/Room-": [_walk(legs) for legs in _WALKS],
    "alfworld": [_look(order) for order in _ORDERS],
    "webshop": [
        _buy(words, chooses) for words in (_ALL_WORDS, 3, 2, 1) for chooses in (True, False)
    ],
}
"""By the beginning of a task's name."""
