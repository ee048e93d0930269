"""Scripted play in several manners, each with the note that describes it: what a warm-up teaches.

A manner's worth is nowhere written: it shows in play alone.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxrl_guided.envs.minihack.room_player import SEARCH, RoomPlayer
from jaxrl_guided.envs.text.task import Demonstrator

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
    if not task.startswith("minihack/Room-"):
        raise ValueError(
            f"task: nobody teaches {task!r} by script, only minihack/Room-…; take models that need "
            "no warm-up (warm_up.updates=0)"
        )
    return [_walk(legs) for legs in _WALKS]


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


def _walk(legs: Sequence[str]) -> Lesson:
    return Lesson(
        f"search {' '.join(legs[:2])}",
        f"no > seen: go {', then '.join(legs)}, and again",
        lambda: RoomPlayer(legs),
    )
