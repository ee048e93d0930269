"""Processes that work for this one: started anew, never forked, they end with it, however it ends.

The parent's side is `Child`, that of the new process `serve`.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

from jaxrl_guided.runtime.signals import SIGNALS

_ROOT = pathlib.Path(__file__).parents[2]
_GRACE_SECONDS = 5.0


class Child:
    """A process that runs a module, `python -m MODULE`, whose `main` calls `serve`.

    Args:
      module: of this package.
      descriptors: open files that it gets, too.

    Attributes:
      connection: to it, for messages.
    """

    def __init__(self, module: str, descriptors: Sequence[int] = ()) -> None:
        ours, theirs = socket.socketpair()
        end, self._lifeline = os.pipe()
        self._scratch = tempfile.TemporaryDirectory(prefix="jaxrl_guided-")
        given = (theirs.fileno(), end, *descriptors)
        paths = [str(_ROOT), *(path for path in sys.path if path)]
        # It inherits that signals wait, until it has handlers for them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, given)],
                stdin=subprocess.DEVNULL,
                pass_fds=given,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(paths),
                    "OMP_NUM_THREADS": "1",
                    # What a process that dies leaves there is removed by this one.
                    "TMPDIR": self._scratch.name,
                },
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        os.close(end)
        self.connection = Connection(ours.detach())

    def hang_up(self) -> None:
        """Lets it end."""
        self.connection.close()

    def close(self) -> None:
        """Waits for its end, or makes it end."""
        self.hang_up()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        os.close(self._lifeline)
        self._scratch.cleanup()

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self._process.wait()

    def ended(self) -> str:
        """How it has ended, in words, after its connection has; it may have lost that alone."""
        try:
            code = self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.returncode
        return f"by signal {-code}" if code < 0 else f"with exit code {code}"


def serve(work: Callable[..., None]) -> None:
    """The whole life of such a process: `work(connection, *descriptors)`."""
    connection, lifeline, *descriptors = map(int, sys.argv[1:])
    for signum in SIGNALS:  # to stop is the parent's business; children do not inherit a handler
        signal.signal(signum, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # as its parent has blocked them
    _end_with_parent(lifeline)
    work(Connection(connection), *descriptors)


def _end_with_parent(lifeline: int) -> None:
    """This process shall be killed when the other end of that pipe is closed, at its parent's end.

    On Linux the kernel does it, even while it hangs in a library that never returns to Python. (Its
    signal for a parent's death would come when the *thread* ends that started this.)
    """
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    threading.Thread(target=_end_when_closed, args=(lifeline,), daemon=True).start()


def _end_when_closed(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)
