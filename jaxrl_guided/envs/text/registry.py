"""Text tasks by name: `make_text_task("route")`, `make_text_task("minihack/Room-5x5")`."""

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
    family, _, task = name.partition("/")
    if name == "route":
        return Route(**options)
    if family == "minihack":
        from jaxrl_guided.envs.minihack.text_task import MiniHackText

        return MiniHackText(task, **options)
    raise ValueError(f"task: unknown '{name}'; choose route or minihack/…")


def make_demonstrator(name: str) -> Demonstrator:
    """Who plays a task for others to imitate.

    Raises:
      ValueError: nobody plays it.
    """
    if name not in _DEMONSTRATORS:
        raise ValueError(f"task: nobody demonstrates '{name}'; only {', '.join(_DEMONSTRATORS)}")
    return _DEMONSTRATORS[name]()


_DEMONSTRATORS: dict[str, Callable[[], Demonstrator]] = {"route": RouteDemonstrator}
