"""A process that owns some of a pool's environments: `python -m … SOCKET MEMORY`, two descriptors.

It is started anew, never forked, and never imports JAX. It answers one message at a time, ends
when the other side of the socket is closed, and dies with its parent.
"""

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
from jaxrl_guided.runtime.signals import end_with_parent

STEP, RESET, DONE = b"s", b"r", b"d"
"""Messages of the hot path: two requests and their answer."""


class Worker:
    """The environments `indices` of a pool."""

    def __init__(self, factory: Factory, indices: Sequence[int], restarts: bool, spares: bool):
        """Keeps what is needed to make them."""
        self._factory, self._indices, self._options = factory, indices, (restarts, spares)
        self._slots: list[Slot] = []

    def describe(self, info: tuple[str, ...], max_steps: int | None) -> Interface:
        """What the environments have in common, from one that is made for this only."""
        env: gymnasium.Env[Any, Any] = self._factory()
        try:
            return interface_of(env, info, max_steps)
        finally:
            env.close()

    def build(self, memory: int, interface: Interface, rows: int) -> None:
        """Makes the environments."""
        arrays = map_arrays(memory, interface.fields(), rows)
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
    """An environment raised; the message names it and holds the traceback."""


def each(slots: Sequence[Slot], do: Callable[[Slot], None], what: str) -> None:
    """Does it for each.

    Raises:
      Failure: one of them raised.
    """
    for slot in slots:
        try:
            do(slot)
        except Exception as error:
            raise Failure(
                f"environment {slot.index} failed in {what}: {type(error).__name__}: {error}\n"
                f"{traceback.format_exc()}"
            ) from error


def serve(connection: Connection, memory: int) -> None:
    """Answers until the other side closes."""
    worker: Worker | None = None
    while True:
        try:
            while worker is not None and not connection.poll(0) and worker.prepare():
                pass  # while nothing is asked for
            message = connection.recv_bytes()
        except EOFError:
            if worker is not None:
                worker.close()
            return
        try:
            if message == STEP:
                assert worker is not None
                worker.step()
                connection.send_bytes(DONE)
                continue
            if message == RESET:
                assert worker is not None
                worker.reset()
                connection.send_bytes(DONE)
                continue
            name, *arguments = cloudpickle.loads(message)
            answer = None
            if name == "start":
                worker = Worker(*arguments)
            else:
                more = [memory] if name == "build" else []
                answer = getattr(worker, name)(*more, *arguments)
            connection.send_bytes(cloudpickle.dumps(("answer", answer)))
        except Exception as error:
            told = str(error) if isinstance(error, Failure) else traceback.format_exc()
            connection.send_bytes(cloudpickle.dumps(("failure", told)))


def _end_when_closed(lifeline: int) -> None:
    """Ends this process when its parent is gone, even within an environment that hangs."""
    os.read(lifeline, 1)
    os._exit(1)


def main() -> None:
    """Entry point."""
    socket, memory, lifeline = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    end_with_parent()
    threading.Thread(target=_end_when_closed, args=(lifeline,), daemon=True).start()
    serve(Connection(socket), memory)


if __name__ == "__main__":
    main()
