"""Workers of a pool as the pool sees them: in a process of their own, or in this one."""

import contextlib
from typing import Any, Protocol

import cloudpickle

from jaxrl_guided.envs.bridge.worker import DONE, HOT, Failure, Worker
from jaxrl_guided.runtime.child import Child
from jaxrl_guided.runtime.errors import ForeignError

_WORKER = "jaxrl_guided.envs.bridge.worker"
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
        self._child = Child(_WORKER, [memory])
        self._doing = "start"

    def send(self, name: str, *arguments: Any) -> None:
        self._doing = name
        message = HOT.get(name) or cloudpickle.dumps((name, *arguments))
        # That a process has died is found when its answer is waited for.
        with contextlib.suppress(OSError):
            self._child.connection.send_bytes(message)

    def answer(self, patience: float | None = None) -> Any:
        """Waits so many seconds, by default those of a step, or what making environments takes."""
        if patience is None:
            patience = self._timeout if self._doing in HOT else _START_SECONDS
        try:
            if not self._child.connection.poll(patience):
                self._child.kill()
                raise WorkerGone(
                    f"{self._name} has not answered {self._doing} within {patience:g} s "
                    "(`timeout`, for all of them together)"
                )
            message = self._child.connection.recv_bytes()
        except (EOFError, OSError) as error:
            how = self._child.ended()
            raise WorkerGone(f"{self._name} has died {how} in {self._doing}") from error
        if message == DONE:
            return None
        kind, answer = cloudpickle.loads(message)
        if kind == "failure":
            raise HostEnvError(*answer)
        return answer

    def hang_up(self) -> None:
        """Lets it end."""
        self._child.hang_up()

    def close(self) -> None:
        self._child.close()
