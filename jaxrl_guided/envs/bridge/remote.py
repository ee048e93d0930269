"""Workers of a pool as the pool sees them: in a process of their own, or in this one."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from typing import Any, Protocol

import cloudpickle

from jaxrl_guided.envs.bridge.worker import DONE, HOT, Failure, Worker
from jaxrl_guided.runtime.errors import ForeignError
from jaxrl_guided.runtime.signals import SIGNALS

_ROOT = pathlib.Path(__file__).parents[3]
_GRACE_SECONDS = 5.0
_START_SECONDS = 300.0
"""For all that is done once, as making the environments."""


class HostEnvError(ForeignError):
    """An environment raised, its process died or hung.

    Attributes:
      told: which and how; the message adds the environment's traceback, if there is one.
    """

    def __init__(self, told: str, trace: str = ""):
        super().__init__(f"{told}\n{trace}" if trace else told)
        self.told = told


class WorkerGone(HostEnvError):
    """A process died, or was killed because it hung."""


class Remote(Protocol):
    """A worker, in a process or not: `send` names a method of `Worker`, `answer` follows once."""

    def send(self, name: str, *arguments: Any) -> None: ...
    def answer(self, patience: float | None = None) -> Any: ...
    def hang_up(self) -> None: ...
    def close(self) -> None: ...


class Here:
    """A worker in this process: what is asked is done at once."""

    def __init__(self, memory: int):
        self._worker = Worker(memory)
        self._answer: Any = None

    def send(self, name: str, *arguments: Any) -> None:
        try:
            self._answer = getattr(self._worker, name)(*arguments)
        except Failure as error:
            raise HostEnvError(*error.args) from error.__cause__
        except (Exception, SystemExit) as error:
            raise HostEnvError(f"{name} failed: {type(error).__name__}: {error}") from error

    def answer(self, patience: float | None = None) -> Any:
        return self._answer

    def hang_up(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        self._worker.close()


class Process:
    """A worker in a process of its own."""

    def __init__(self, memory: int, name: str, timeout: float):
        self._name, self._timeout = name, timeout
        ours, theirs = socket.socketpair()
        end, self._lifeline = os.pipe()
        self._scratch = tempfile.TemporaryDirectory(prefix="jaxrl_guided-")
        descriptors = (theirs.fileno(), memory, end)
        paths = [str(_ROOT), *(path for path in sys.path if path)]
        # It inherits that signals wait, until it has handlers for them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jaxrl_guided.envs.bridge.worker", *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
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
        self._connection = Connection(ours.detach())
        self._doing = "start"

    def send(self, name: str, *arguments: Any) -> None:
        self._doing = name
        message = HOT.get(name) or cloudpickle.dumps((name, *arguments))
        # That a process has died is found when its answer is waited for.
        with contextlib.suppress(OSError):
            self._connection.send_bytes(message)

    def answer(self, patience: float | None = None) -> Any:
        """Waits so many seconds, by default those of a step, or what making environments takes."""
        if patience is None:
            patience = self._timeout if self._doing in HOT else _START_SECONDS
        try:
            if not self._connection.poll(patience):
                self._kill()
                raise WorkerGone(
                    f"{self._name} has not answered {self._doing} within {patience:g} s "
                    "(`timeout`, for all of them together)"
                )
            message = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._died() from error
        if message == DONE:
            return None
        kind, answer = cloudpickle.loads(message)
        if kind == "failure":
            raise HostEnvError(*answer)
        return answer

    def hang_up(self) -> None:
        """Lets it end."""
        self._connection.close()

    def close(self) -> None:
        self.hang_up()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
        os.close(self._lifeline)
        self._scratch.cleanup()

    def _died(self) -> WorkerGone:
        try:
            code = self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:  # alive, but it has lost its end of the connection
            self._kill()
            code = self._process.returncode
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return WorkerGone(f"{self._name} has died {how} in {self._doing}")

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
