"""Text tasks that processes of their own play, so that nobody waits for a step or a reset."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from jaxrl_guided.envs.text.task import Opening, Reply
from jaxrl_guided.runtime.child import Child
from jaxrl_guided.runtime.errors import ForeignError

_PAUSE = 0.0002
"""Seconds between two looks for answers of a process."""

_LIMIT = 900.0
"""Seconds; far more than the longest that a task of ours waits for, a test run in its sandbox."""

_WORKER = "jaxrl_guided.envs.text.worker"


class TextTaskError(ForeignError):
    """A task raised, or its process has died or hangs; the message has the task's traceback."""


class Workers:
    """Processes, each of which plays any number of tasks of one kind.

    Args:
      name: of the task, as of `registry.task_from_options`.
      options: of it.
      count: processes.
      limit: seconds that an answer may take, others before it included.
    """

    def __init__(
        self, name: str, options: Sequence[str], count: int, limit: float = _LIMIT
    ) -> None:
        self._name, self._options = name, list(options)
        self._processes = [_Process(name, limit) for _ in range(count)]
        self._made = 0

    def make(self) -> "RemoteTask":
        """One more task; processes take turns.

        Raises:
          TextTaskError: it cannot be made there.
        """
        process = self._processes[self._made % len(self._processes)]
        self._made += 1
        return RemoteTask(process, self._made, self._name, self._options)

    def close(self) -> None:
        """Ends the processes, and with them what they play."""
        for process in self._processes:
            process.hang_up()
        while self._processes:
            self._processes.pop().close()


class RemoteTask:
    """A task in another process: whatever it says comes later (`TextTask`)."""

    def __init__(self, process: "_Process", number: int, name: str, options: Sequence[str]) -> None:
        self._process, self._number = process, number
        counts = process.wait(process.ask("make", number, name, options))
        self.max_turns, self.instances = counts["max_turns"], counts["instances"]
        self._asked: int | None = None

    def reset(self, seed: int) -> Opening:
        """Begins an episode, whatever the one before it was about."""
        return Opening("", "", "", later=self._ask("reset", seed))

    def step(self, answer: str) -> Reply:
        """Goes on with it."""
        return Reply("", later=self._ask("step", answer))

    def close(self) -> None:
        """Closes the task there, unless its process has ended."""
        with contextlib.suppress(TextTaskError):
            self._process.wait(self._process.ask("close", self._number))

    def _ask(self, name: str, argument: int | str) -> Callable[[], Any]:
        if self._asked is not None:  # an episode was left while its task was at work
            self._process.forget(self._asked)
        number = self._asked = self._process.ask(name, self._number, argument)

        def later() -> Any:
            found = self._process.look(number)
            if found is not None:
                self._asked = None
            return found

        return later


class _Process:
    """One process, its requests by number and the answers that nobody has fetched yet."""

    def __init__(self, name: str, limit: float) -> None:
        self._name, self._limit, self._child = name, limit, Child(_WORKER)
        self._asked: dict[int, float] = {}  # when, by number
        self._answers: dict[int, tuple[str, Any]] = {}
        self._forgotten: set[int] = set()
        self._next, self._looked = 0, 0.0

    def ask(self, name: str, *arguments: Any) -> int:
        """Sends a request; returns its number."""
        number = self._next
        self._next += 1
        self._asked[number] = time.monotonic()
        with contextlib.suppress(OSError):  # that it has died is found when one looks
            self._child.connection.send_bytes(cloudpickle.dumps((number, name, *arguments)))
        return number

    def look(self, number: int, patience: float = 0.0) -> Any:
        """The answer to a request, or None where there is none yet.

        Args:
          patience: seconds to wait.

        Raises:
          TextTaskError: the task raised, or the process has died or has taken too long.
        """
        while number not in self._answers:
            # Many tasks ask in turn, and to look costs more than to know that one has just looked.
            if patience == 0 and time.monotonic() < self._looked + _PAUSE:
                return None
            try:
                if not self._child.connection.poll(patience):
                    self._looked = time.monotonic()
                    self._check_time(number)
                    return None
                answered, *answer = cloudpickle.loads(self._child.connection.recv_bytes())
            except (EOFError, OSError) as error:
                how = self._child.ended()
                raise TextTaskError(f"a process of task '{self._name}' has died {how}") from error
            if answered in self._forgotten:
                self._forgotten.remove(answered)
            else:
                self._answers[answered] = tuple(answer)
        kind, said = self._answers.pop(number)
        del self._asked[number]
        if kind == "failure":
            told, trace = said
            raise TextTaskError(f"task '{self._name}': {told}\n{trace}")
        return said

    def wait(self, number: int) -> Any:
        """The answer to a request."""
        found = self.look(number, self._limit)
        assert found is not None  # else it has raised
        return found

    def _check_time(self, number: int) -> None:
        """Ends the process if this request has waited for too long."""
        if time.monotonic() - self._asked[number] >= self._limit:
            self._child.kill()
            raise TextTaskError(
                f"a process of task '{self._name}' has not answered for {self._limit:g} s"
            )

    def forget(self, number: int) -> None:
        """Nobody waits for that answer any more."""
        asked = self._asked.pop(number, None)
        if asked is not None and self._answers.pop(number, None) is None:  # else it has failed
            self._forgotten.add(number)

    def hang_up(self) -> None:
        """Lets it end."""
        self._child.hang_up()

    def close(self) -> None:
        """Waits for its end, or makes it end."""
        self._child.close()
