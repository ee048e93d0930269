"""A process that owns some of a pool's environments: `python -m … SOCKET MEMORY`, two descriptors.

It is started anew, never forked, and never imports JAX. It answers one message at a time, ends
when the other side of the socket is closed, and dies with its parent.
"""

import fcntl
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import gymnasium

from jaxrl_guided.envs.bridge.block import map_arrays
from jaxrl_guided.envs.bridge.slot import Factory, Interface, Slot, interface_of
from jaxrl_guided.runtime.signals import SIGNALS

HOT = {"step": b"s", "reset": b"r"}
"""Requests of the hot path, which are sent as one byte."""

_REQUESTS = {message: name for name, message in HOT.items()}

DONE = b"d"
"""The answer None."""


class Worker:
    """Some environments of a pool; `memory` is the descriptor of its arrays."""

    def __init__(self, memory: int):
        """Has none yet."""
        self._memory, self._slots = memory, list[Slot]()
        self._factory: Factory
        self._indices: Sequence[int]
        self._options: tuple[bool, bool]

    def start(self, factory: Factory, indices: Sequence[int], restarts: bool, spares: bool) -> None:
        """Keeps what is needed to make the environments `indices`."""
        self._factory, self._indices, self._options = factory, indices, (restarts, spares)

    def describe(self, info: tuple[str, ...], max_steps: int | None) -> Interface:
        """What the environments have in common, from one that is made for this only."""
        env: gymnasium.Env[Any, Any] = self._factory()
        try:
            return interface_of(env, info, max_steps)
        finally:
            env.close()

    def build(self, interface: Interface, rows: int) -> None:
        """Makes the environments."""
        arrays = map_arrays(self._memory, interface.fields(), rows)
        self._slots = [
            Slot(self._factory, i, interface, arrays, *self._options) for i in self._indices
        ]

    def step(self) -> None:
        """A step of all environments."""
        each(self._slots, Slot.step, "step")

    def reset(self) -> None:
        """Starts the episodes that the arrays name."""
        each(self._slots, Slot.reset, "reset")

    def prepare(self) -> bool:
        """Begins one next episode ahead of its time; whether there was one to begin."""
        return any(slot.prepare() for slot in self._slots)

    def lose(self) -> None:
        """Gives the open episodes up: see `Slot.lose`."""
        each(self._slots, Slot.lose, "lose")

    def replay(self, actions: dict[int, Any]) -> dict[int, str]:
        """Plays open episodes again; why some were given up, by the environment's number."""
        slots = {slot.index: slot for slot in self._slots}
        reasons = {index: slots[index].replay(played) for index, played in actions.items()}
        return {index: reason for index, reason in reasons.items() if reason}

    def close(self) -> None:
        """Closes the environments."""
        each(self._slots, Slot.close, "close")


class Failure(Exception):
    """An environment raised: what tells which and how, and the traceback."""


def each(slots: Sequence[Slot], do: Callable[[Slot], None], what: str) -> None:
    """Does it for each.

    Raises:
      Failure: one of them raised.
    """
    for slot in slots:
        try:
            do(slot)
        except Exception as error:
            told = f"environment {slot.index} failed in {what}: {type(error).__name__}: {error}"
            raise Failure(told, traceback.format_exc()) from error


def serve(connection: Connection, memory: int) -> None:
    """Answers until the other side closes."""
    worker = Worker(memory)
    try:
        while True:
            while not connection.poll(0) and worker.prepare():
                pass  # while nothing is asked for
            connection.send_bytes(_answer(worker, connection.recv_bytes()))
    except (EOFError, OSError):
        pass  # nobody listens any more; what environments raise is an answer
    finally:
        worker.close()


def _answer(worker: Worker, message: bytes) -> bytes:
    try:
        hot = _REQUESTS.get(message)
        name, *arguments = (hot,) if hot else cloudpickle.loads(message)
        answer = getattr(worker, name)(*arguments)
    except Failure as error:
        return bytes(cloudpickle.dumps(("failure", error.args)))
    except Exception as error:
        told = f"{type(error).__name__}: {error}", traceback.format_exc()
        return bytes(cloudpickle.dumps(("failure", told)))
    return DONE if answer is None else bytes(cloudpickle.dumps(("answer", answer)))


def _end_with_parent(lifeline: int) -> None:
    """This process shall be killed when the other end of that pipe is closed, at its parent's end.

    On Linux the kernel does it, even while an environment hangs in a library that never returns to
    Python. (Its signal for a parent's death would come when the *thread* ends that started this.)
    """
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    threading.Thread(target=_end_when_closed, args=(lifeline,), daemon=True).start()


def _end_when_closed(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


def main() -> None:
    """Entry point."""
    socket, memory, lifeline = map(int, sys.argv[1:])
    for signum in SIGNALS:  # to stop is the parent's business; children do not inherit a handler
        signal.signal(signum, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # as its parent has blocked them
    _end_with_parent(lifeline)
    serve(Connection(socket), memory)


if __name__ == "__main__":
    main()
