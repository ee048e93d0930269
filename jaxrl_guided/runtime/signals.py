"""A polite stop: Ctrl-C and preemption raise a flag that loops look at between chunks of work."""

import contextlib
import ctypes
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """Work ended early because it was asked to; what was done is saved. The message says where."""


@dataclasses.dataclass
class StopFlag:
    """`signum` is the signal that asked for the stop, 0 while none has."""

    signum: int = 0

    @property
    def requested(self) -> bool:
        """Whether the work should save and end."""
        return self.signum != 0


_PR_SET_PDEATHSIG = 1
_STDERR = 2
_ACKNOWLEDGEMENT = b"\nstopping at the next checkpoint; a second Ctrl-C stops at once\n"


def end_with_parent() -> None:
    """From now on this process gets SIGTERM when its parent dies, by kill -9 as well (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def catch_signals() -> Iterator[StopFlag]:
    """Turns SIGTERM and SIGINT into a flag within the block; the old handlers return after it.

    The first one is acknowledged on stderr. A second SIGINT raises KeyboardInterrupt at once.
    Outside the main thread, where Python allows no handlers, the flag stays down.
    """
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        if flag.requested and signum == signal.SIGINT:
            raise KeyboardInterrupt
        if not flag.requested:  # not by print, which may be what the signal has interrupted
            os.write(_STDERR, _ACKNOWLEDGEMENT)
        flag.signum = signum

    previous = {signum: signal.signal(signum, handle) for signum in SIGNALS}
    try:
        yield flag
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
