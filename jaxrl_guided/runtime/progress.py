"""Shows how far a run is: a bar on a terminal, a plain line now and then elsewhere."""

import collections
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_WINDOW = 20


def format_duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s` or `2 h 07 min`."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """Progress of `total` units of work; a context manager.

    The rate is that of the last updates, so that compilation and earlier sessions of a resumed run
    do not count in what is left.
    """

    def __init__(
        self,
        name: str,
        total: int,
        done: int = 0,
        unit: str = "steps",
        every_seconds: float = 10.0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Starts at `done` of `total`; plain lines come at most `every_seconds`."""
        self._name, self._total, self._unit = name, total, unit
        self._every, self._clock = every_seconds, clock
        self._stream = stream or sys.stderr
        self._marks = collections.deque([(clock(), done)], maxlen=_WINDOW)
        self._first, self._last_line = True, -float("inf")
        self._bar: Progress | None = None
        if self._stream.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                console=Console(file=self._stream),
            )
            self._task = self._bar.add_task(name, total=total, completed=done, text="")

    def update(self, done: int, **numbers: float) -> None:
        """Reports that `done` units are finished, with a few numbers to show."""
        now = self._clock()
        if self._first and done < self._total:
            self._marks.clear()  # it has compiled: what is left will be faster
        self._first = False
        self._marks.append((now, done))
        text = self._describe(done, numbers)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, text=text)
        elif done >= self._total or now - self._last_line >= self._every:
            self._last_line = now
            print(f"{self._name} {text}", file=self._stream, flush=True)

    def __enter__(self) -> "ProgressBar":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _describe(self, done: int, numbers: dict[str, float]) -> str:
        parts = [f"{done:,}/{self._total:,} {self._unit}"]
        (start, first), (now, last) = self._marks[0], self._marks[-1]
        if now > start and last > first:
            rate = (last - first) / (now - start)
            parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s")
            if done < self._total:
                parts.append(f"{format_duration((self._total - done) / rate)} left")
        parts += [f"{name} {value:.3g}" for name, value in numbers.items()]
        return "  ".join(parts)
