"""Text tasks by name: `make_text_task("route")`, `make_text_task("minihack/Room-5x5")`.

One's own task is `MODULE:NAME`: the module is imported, and has registered the name or has a class
or function of that name, which makes the task.
"""

import dataclasses
import difflib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxrl_guided.envs.alfworld.player import AlfworldPlayer
from jaxrl_guided.envs.alfworld.text_task import AlfworldText
from jaxrl_guided.envs.minihack.tasks import MAX_STEPS
from jaxrl_guided.envs.sokoban.text_task import SokobanPlayer, SokobanText
from jaxrl_guided.envs.swe.demonstrator import KnownFixes
from jaxrl_guided.envs.swe.text_task import SweText
from jaxrl_guided.envs.text.route import Route, RouteDemonstrator
from jaxrl_guided.envs.text.task import Demonstrator, TextTask
from jaxrl_guided.envs.webshop.shopper import Shopper
from jaxrl_guided.envs.webshop.text_task import WebShopText
from jaxrl_guided.runtime.modules import import_named
from jaxrl_guided.runtime.options import parse_options


@dataclasses.dataclass(frozen=True)
class _Task:
    make: Callable[..., TextTask]
    demonstrator: Callable[..., Demonstrator] | None


def _make_minihack(task: str) -> Callable[..., TextTask]:
    from jaxrl_guided.envs.minihack.text_task import MiniHackText

    return functools.partial(MiniHackText, task)


def _room_player() -> Demonstrator:
    from jaxrl_guided.envs.minihack.room_player import SEARCH, RoomPlayer

    return RoomPlayer(SEARCH)


def _explorer() -> Demonstrator:
    from jaxrl_guided.envs.minihack.explorer import Explorer

    return Explorer()


def _river_player() -> Demonstrator:
    from jaxrl_guided.envs.minihack.river_player import RiverPlayer

    return RiverPlayer()


_MINIHACK_PLAYERS = {
    "Room": _room_player,
    "MazeWalk": _explorer,
    "KeyRoom": _explorer,
    "River-Narrow": _river_player,
}
"""Who plays, by the beginning of a task's name."""

_TASKS: dict[str, _Task] = {
    "alfworld": _Task(AlfworldText, AlfworldPlayer),
    "route": _Task(Route, RouteDemonstrator),
    "sokoban": _Task(SokobanText, SokobanPlayer),
    "swe": _Task(SweText, KnownFixes),
    "webshop": _Task(WebShopText, Shopper),
}


def register_text_task(
    name: str,
    make: Callable[..., TextTask],
    demonstrator: Callable[..., Demonstrator] | None = None,
) -> None:
    """Adds a task.

    Args:
      name: by which it is found; behind `MODULE:` where the module that registers it was not
        imported yet.
      make: a class or function, `(**options) -> TextTask`.
      demonstrator: makes who plays it for others to imitate, given those of the task's options
        that are among its parameters; None: nobody does.

    Raises:
      ValueError: there is a task of that name, or it has a colon.
    """
    if name in text_task_names():
        raise ValueError(f"task: '{name}' is already registered")
    if ":" in name or not name:
        raise ValueError(f"task: a name must be a text without a colon, not '{name}'")
    _TASKS[name] = _Task(make, demonstrator)


def text_task_names() -> Sequence[str]:
    """All names that `make_text_task` knows."""
    return (*_TASKS, *(f"minihack/{name}" for name in MAX_STEPS))


def make_text_task(name: str, /, **options: Any) -> TextTask:
    """One task in text.

    Args:
      name: one of `text_task_names()`, or `MODULE:NAME`.
      **options: those of the task, as of `MiniHackText`; texts, numbers and booleans are checked
        against the annotations of what makes it.

    Raises:
      ValueError: unknown name, a module that cannot be imported, an option out of range, or what
        was made is no `TextTask`.
      TypeError: an option that the task does not have, or of another type.
    """
    task = _find(name)
    _check_options(name, task.make, options)
    made = task.make(**options)
    methods, counts = ("reset", "step", "close"), ("max_turns", "instances")
    lacking = [part for part in methods if not _has_method(made, part)]
    lacking += [part for part in counts if not _is_count(getattr(made, part, None))]
    if lacking:
        raise ValueError(
            f"task '{name}' must have the methods reset, step and close and the numbers max_turns "
            f"and instances, from 1 on; see TextTask. What lacks: {', '.join(lacking)}"
        )
    return made


def has_option(name: str, option: str) -> bool:
    """Whether a task has an option of that name.

    Raises:
      ValueError: there is no such task.
    """
    taken = _parameters(_find(name).make)
    return option in taken or _takes_all(taken)


def task_from_options(name: str, options: Sequence[str]) -> TextTask:
    """`make_text_task` with options as users write them, `NAME=VALUE` each.

    Raises:
      ValueError: as `make_text_task` and `parse_options`; also for an option that the task does
        not have, or of another type.
    """
    try:
        return make_text_task(name, **parse_options(options, {}))
    except TypeError as error:
        raise ValueError(f"options: {error}") from error


def make_demonstrator(name: str, /, **options: Any) -> Demonstrator:
    """Who plays a task for others to imitate.

    Of a class or function that is found as `MODULE:NAME`, its attribute `demonstrator` makes one.

    Args:
      name: as of `make_text_task`.
      **options: those that the task was made with; a player is given those that it has, too.

    Raises:
      ValueError: nobody plays it, what was made is no `Demonstrator`, or unknown name.
    """
    make = _find(name).demonstrator
    if make is None:
        raise ValueError(
            f"task: nobody demonstrates '{name}', only {', '.join(_demonstrated())}, "
            "minihack/Room-…, MazeWalk-…, KeyRoom-…, River-Narrow, and MODULE:NAME with an "
            "attribute demonstrator"
        )
    taken = inspect.signature(make).parameters
    made = make(**{option: value for option, value in options.items() if option in taken})
    if lacking := [part for part in ("reset", "answer") if not _has_method(made, part)]:
        raise ValueError(
            f"the demonstrator of task '{name}' must have the methods reset and answer; see "
            f"Demonstrator. What lacks: {', '.join(lacking)}"
        )
    return made


def _demonstrated() -> list[str]:
    return [name for name, task in _TASKS.items() if task.demonstrator is not None]


def _find(name: str) -> _Task:
    module, _, key = name.rpartition(":")
    own = vars(import_named(module, name, "task")) if module else {}
    if key in _TASKS:
        return _TASKS[key]
    family, _, level = key.partition("/")
    if family == "minihack" and level in MAX_STEPS:
        players = (make for name, make in _MINIHACK_PLAYERS.items() if level.startswith(name))
        return _Task(_make_minihack(level), next(players, None))
    if callable(make := own.get(key)):
        return _Task(make, getattr(make, "demonstrator", None))
    raise ValueError(f"task: unknown '{name}'; {_advice(module, key, own)}")


def _advice(module: str, key: str, own: Mapping[str, Any]) -> str:
    """What might have been meant."""
    makers = [own_name for own_name, value in own.items() if callable(value)]
    if close := difflib.get_close_matches(key, makers, 1):
        return f"did you mean {module}:{close[0]}?"
    if close := difflib.get_close_matches(key, text_task_names(), 1):
        return f"did you mean {close[0]}?"
    if module:
        return f"module '{module}' registers no such task and has no such class or function"
    return f"choose {', '.join(_TASKS)}, minihack/… or MODULE:NAME for one of your own"


def _has_method(made: Any, name: str) -> bool:
    return callable(getattr(made, name, None))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _parameters(make: Callable[..., TextTask]) -> Mapping[str, inspect.Parameter]:
    """Those that options are given for."""
    given = make.args if isinstance(make, functools.partial) else ()
    parameters = [*inspect.signature(getattr(make, "func", make)).parameters.values()]
    return {p.name: p for p in parameters[len(given) :]}


def _takes_all(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _check_options(name: str, make: Callable[..., TextTask], options: Mapping[str, Any]) -> None:
    """Raises TypeError for options that there are not, or of another type than they are said."""
    taken = _parameters(make)
    if _takes_all(taken):
        return
    if unknown := sorted(set(options) - set(taken)):
        has = f"it has {', '.join(taken)}" if taken else "it has none"
        raise TypeError(f"{name} has no option {', '.join(unknown)}; {has}")
    for option, value in options.items():
        kinds = _kinds(taken[option].annotation)
        if kinds and not any(_fits(kind, value) for kind in kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"{option} of {name} must be of type {wanted}, not {value!r}")


_PLAIN = {"bool": bool, "int": int, "float": float, "str": str, "None": types.NoneType}


def _kinds(annotation: Any) -> list[type]:
    """The plain types that an annotation allows; none where it says more than that."""
    parts: Sequence[Any] = (annotation,)
    if isinstance(annotation, str):  # under `from __future__ import annotations`
        parts = [_PLAIN.get(part.strip()) for part in annotation.split("|")]
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = typing.get_args(annotation)
    plain = [part for part in parts if part in _PLAIN.values()]
    return plain if len(plain) == len(parts) else []


def _fits(kind: type, value: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
