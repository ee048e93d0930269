"""A process that owns some of a pool's environments; its memory is a descriptor (`runtime.child`).

It never imports JAX, answers one message at a time, and ends when the other side hangs up.
"""

import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import gymnasium

from jaxrl_guided.envs.bridge.block import map_arrays
from jaxrl_guided.envs.bridge.slot import Factory, Interface, Slot, interface_of
from jaxrl_guided.runtime import child

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


if __name__ == "__main__":
    child.serve(serve)
