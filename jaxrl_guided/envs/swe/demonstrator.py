"""Repairs by the known solutions of a file of tasks, for others to imitate."""

from jaxrl_guided.envs.swe.dataset import read_tasks
from jaxrl_guided.envs.swe.instance import touched_by
from jaxrl_guided.envs.swe.text_task import observation_of

_END = "END_OF_PATCH"


class KnownFixes:
    """Looks at the files that a solution changes, applies it, and submits.

    A task without a known solution is submitted as it is.

    Args:
      tasks: as of `SweText`.
      repos: as of `SweText`.

    Raises:
      ValueError: as of `read_tasks`.
    """

    def __init__(self, tasks: str, repos: str = "") -> None:
        self._fixes = {observation_of(task): task.fix for task in read_tasks(tasks, repos)}
        self._left: list[str] = []

    def reset(self, seed: int) -> None:
        """A new episode begins."""
        self._left = []

    def answer(self, observation: str) -> str:
        """The next call of a tool."""
        if fix := self._fixes.get(observation):
            files = " ".join(sorted(touched_by(fix)))
            patch = fix.strip("\n")
            apply = f"git apply <<'{_END}'\n{patch}\n{_END}"
            self._left = [f"<bash>cat {files}</bash>", f"<bash>{apply}</bash>"]
        return self._left.pop(0) if self._left else "<submit/>"
