"""A process that plays text tasks for another one, as many as it is asked to; it never imports JAX.

Each message has a number, by which it is answered; an answer that the task gives later comes later.
"""

import contextlib
import functools
import queue
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from jaxrl_guided.envs.text.registry import task_from_options
from jaxrl_guided.envs.text.task import Opening, Reply, TextTask
from jaxrl_guided.runtime import child

_PAUSE = 0.0005
"""Seconds between two looks for what comes later."""


class Worker:
    """Tasks by number."""

    def __init__(self) -> None:
        self._tasks: dict[int, TextTask] = {}

    def make(self, task: int, name: str, options: Sequence[str]) -> Mapping[str, int]:
        """One more task, under a number."""
        made = self._tasks[task] = task_from_options(name, options)
        return {"max_turns": made.max_turns, "instances": made.instances}

    def reset(self, task: int, seed: int) -> Opening:
        """Begins an episode."""
        return self._tasks[task].reset(seed)

    def step(self, task: int, answer: str) -> Reply:
        """Goes on with it."""
        return self._tasks[task].step(answer)

    def close(self, task: int) -> bool:
        """Closes a task."""
        self._tasks.pop(task).close()
        return True

    def close_all(self) -> None:
        """Closes all tasks."""
        while self._tasks:
            self._tasks.popitem()[1].close()


def serve(connection: Connection) -> None:
    """Answers until the other side hangs up."""
    worker, asked = Worker(), dict[int, Callable[[], Any]]()
    answers = queue.SimpleQueue[bytes]()
    threading.Thread(target=_send, args=(connection, answers), daemon=True).start()
    try:
        while True:
            if connection.poll(_PAUSE if asked else None):
                number, name, *arguments = cloudpickle.loads(connection.recv_bytes())
                asked[number] = functools.partial(getattr(worker, name), *arguments)
            for number, ask in [*asked.items()]:
                kind, said = _told(ask)
                if (later := getattr(said, "later", None)) is not None:
                    asked[number] = later
                elif said is not None:  # else: not yet
                    del asked[number]
                    answers.put(cloudpickle.dumps((number, kind, said)))
    except (EOFError, OSError):
        pass  # nobody listens any more
    finally:
        worker.close_all()


def _send(connection: Connection, answers: "queue.SimpleQueue[bytes]") -> None:
    """Sends in a thread of its own: were both sides to wait until the other reads, none would."""
    with contextlib.suppress(OSError):  # nobody listens any more
        while True:
            connection.send_bytes(answers.get())


def _told(ask: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "answer", ask()
    except Exception as error:
        return "failure", (f"{type(error).__name__}: {error}", traceback.format_exc())


if __name__ == "__main__":
    child.serve(serve)
