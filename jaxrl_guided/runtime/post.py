"""Letters between two programs that do not wait for each other, and how one knows of the other."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jaxrl_guided.runtime.errors import ForeignError

OPENER, CALLER = range(2)
"""Sides of a post: who opened it, and the other one."""


class PeerGone(ForeignError):
    """The other program has ended, or cannot be reached."""


class Line(Protocol):
    """One side's way to the other."""

    def __call__(self, letters: Sequence[Any]) -> list[Any]:
        """Sends letters; returns those that have come, in their order. Waits for nobody.

        Raises:
          PeerGone: the other program has ended, or cannot be reached.
        """


class Post:
    """Keeps the letters of both sides until the other one takes them.

    A plain class: with Ray it is an actor of its own process (`runtime.cluster`), which makes one
    call after the other.

    Args:
      clock: seconds, for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._boxes: tuple[list[Any], list[Any]] = ([], [])
        self._heard: dict[int, float] = {}

    def join(self, side: int) -> bool:
        """Takes a side; returns False if that was done before."""
        if side in self._heard:
            return False
        self._heard[side] = self._clock()
        return True

    def beat(self, side: int) -> float:
        """Says that a side is there; returns seconds since the other one said so.

        Before the other one has joined that is 0.
        """
        self._heard[side] = self._clock()
        return self._clock() - self._heard.get(1 - side, self._clock())

    def swap(self, side: int, letters: Sequence[Any]) -> list[Any]:
        """Takes letters of a side; returns those for it."""
        self._boxes[1 - side].extend(letters)
        found = self._boxes[side].copy()
        self._boxes[side].clear()
        return found
