"""Tasks as users name them, one or a mix of several, in this process or in others.

A mix is one of `MIXES` or names with `+` between them. Its options are those of its tasks: `NAME=…`
for all of them that have it, `TASK.NAME=…` for one, by what follows the last `/` of its name.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jaxrl_guided.envs.text.mix import Mix, Shelf
from jaxrl_guided.envs.text.registry import has_option, make_demonstrator, task_from_options
from jaxrl_guided.envs.text.task import Demonstrator, TextTask
from jaxrl_guided.envs.text.workers import Workers
from jaxrl_guided.runtime.options import parse_options

_THREE = ("minihack/Room-Ultimate-5x5", "webshop", "alfworld")
_SIX = (*_THREE, "minihack/MazeWalk-9x9", "minihack/KeyRoom-Dark-S5", "sokoban")
MIXES: Mapping[str, Sequence[str]] = {
    "mix3": _THREE,
    "mix6": _SIX,
    "mix8": (*_SIX, "minihack/River-Narrow", "minihack/Room-Random-15x15"),
}
"""Those of three and six tasks are of arXiv 2603.17621."""

_TURNS = {"MazeWalk-9x9": 60, "KeyRoom-Dark-S5": 60, "River-Narrow": 200}
"""Answers in an episode of a mix, where a task's own default leaves too few."""


class Part(NamedTuple):
    """A task of a mix, or the only one.

    Attributes:
      name: as of `make_text_task`.
      options: `NAME=VALUE` each.
    """

    name: str
    options: Sequence[str]

    @property
    def label(self) -> str:
        """The name without what is before it."""
        return label_of(self.name)

    @property
    def family(self) -> str:
        """The name's beginning, as `minihack`."""
        return self.name.partition("/")[0]


def label_of(name: str) -> str:
    """What follows the last `/` or `:` of a task's name."""
    return name.replace(":", "/").rpartition("/")[2]


def parts_of(name: str, options: Sequence[str]) -> Sequence[Part]:
    """The tasks that are meant, with the options of each.

    Raises:
      ValueError: two tasks of the same label, or an option that none of them has.
    """
    names = MIXES.get(name, name.split("+"))
    if len(names) == 1:
        return [Part(name, options)]
    labels = [label_of(each) for each in names]
    if twice := next((each for each in labels if labels.count(each) > 1), None):
        raise ValueError(f"task: a mix must have tasks of different names, not '{twice}' twice")
    given: dict[str, list[str]] = {label: [] for label in labels}
    for option in options:
        for label in _meant(option, names):
            given[label].append(option.removeprefix(f"{label}."))
    for label, turns in _TURNS.items():
        if label in given and not any(o.startswith("max_turns=") for o in given[label]):
            given[label].append(f"max_turns={turns}")
    return [Part(each, given[label_of(each)]) for each in names]


def _meant(option: str, names: Sequence[str]) -> list[str]:
    """Labels of the tasks that an option is for."""
    labels = [label_of(each) for each in names]
    label, dot, name = option.partition("=")[0].rpartition(".")
    if dot and label not in labels:
        raise ValueError(
            f"options: '{option}' is for none of the mix, {', '.join(labels)}: it must be "
            "TASK.NAME=VALUE, or NAME=VALUE for all tasks that have it"
        )
    if dot:
        return [label]
    found = [label_of(each) for each in names if has_option(each, name)]
    if not found:
        raise ValueError(f"options: none of {', '.join(labels)} has an option '{name}'")
    return found


class TaskSource:
    """Makes any number of a task, or of a mix, for who plays them side by side.

    Args:
      name: of a task or mix.
      options: `NAME=VALUE` each.
      workers: processes for each task, which then says all it says later; 0: tasks are in this
        process.

    Attributes:
      parts: the tasks.

    Raises:
      ValueError: an unknown task, or an option that there is not.
    """

    def __init__(self, name: str, options: Sequence[str], workers: int = 0) -> None:
        self.parts = parts_of(name, options)
        self._workers = [Workers(*part, workers) for part in self.parts] if workers else []
        makers: list[Callable[[], TextTask]] = [pool.make for pool in self._workers]
        makers = makers or [functools.partial(task_from_options, *part) for part in self.parts]
        self._shelves = list(map(Shelf, makers))

    @property
    def labels(self) -> Sequence[str]:
        """Of the tasks of a mix; of one task, its name."""
        if len(self.parts) == 1:
            return [self.parts[0].name]
        return [part.label for part in self.parts]

    def make(self) -> TextTask:
        """One more.

        Raises:
          ValueError: an option out of range, or a task of a mix has too few episodes.
        """
        if len(self.parts) == 1:
            return self._shelves[0].take()
        return Mix([part.name for part in self.parts], self._shelves)

    def player(self, seed: int) -> Demonstrator:
        """Who plays the episode of that seed by script.

        Raises:
          ValueError: nobody does.
        """
        part = self.parts[seed % len(self.parts)]
        return make_demonstrator(part.name, **parse_options(part.options, {}))

    def close(self) -> None:
        """Closes what nobody plays, and ends the processes; who plays closes what is played."""
        for shelf in self._shelves:
            shelf.close()
        for pool in self._workers:
            pool.close()
