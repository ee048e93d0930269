"""Text tasks by name: `make_text_task("route")`, `make_text_task("minihack/Room-5x5")`."""

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from jaxrl_guided.envs.text.route import Route, RouteDemonstrator
from jaxrl_guided.envs.text.task import Demonstrator, TextTask


def text_task_names() -> Sequence[str]:
    """All names that `make_text_task` knows."""
    from jaxrl_guided.envs.minihack.tasks import MAX_STEPS

    return ("route", *(f"minihack/{name}" for name in MAX_STEPS))


def make_text_task(name: str, **options: Any) -> TextTask:
    """One task in text.

    Args:
      name: one of `text_task_names()`.
      **options: those of `Route` or `MiniHackText`.

    Raises:
      ValueError: unknown name, or an option out of range.
      TypeError: an option that the task does not have.
    """
    if name not in text_task_names():
        close = difflib.get_close_matches(name, text_task_names(), 1)
        hint = f"did you mean {close[0]}?" if close else "choose route or minihack/…"
        raise ValueError(f"task: unknown '{name}'; {hint}")
    family, _, task = name.partition("/")
    if family == "route":
        return _made(name, Route, options)
    from jaxrl_guided.envs.minihack.text_task import MiniHackText

    return _made(name, functools.partial(MiniHackText, task), options)


def _made(name: str, factory: Callable[..., TextTask], options: dict[str, Any]) -> TextTask:
    there = [option for option in inspect.signature(factory).parameters if option != "task"]
    if unknown := sorted(set(options) - set(there)):
        has = f"it has {', '.join(there)}" if there else "it has none"
        raise TypeError(f"{name} has no option {', '.join(unknown)}; {has}")
    return factory(**options)


def make_demonstrator(name: str) -> Demonstrator:
    """Who plays a task for others to imitate.

    Raises:
      ValueError: nobody plays it.
    """
    if name not in _DEMONSTRATORS:
        raise ValueError(f"task: nobody demonstrates '{name}'; only {', '.join(_DEMONSTRATORS)}")
    return _DEMONSTRATORS[name]()


_DEMONSTRATORS: dict[str, Callable[[], Demonstrator]] = {"route": RouteDemonstrator}
