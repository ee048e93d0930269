"""A `Post` in a Ray cluster, by which programs on several hosts reach each other.

The program that opens it decides how long it lives; its letters travel as bytes, so that the post's
process loads nothing of what they are about. Needs the extra `ray`.
"""

import contextlib
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from jaxrl_guided.runtime.errors import UserError, validation
from jaxrl_guided.runtime.extras import check_installed
from jaxrl_guided.runtime.post import CALLER, OPENER, Line, PeerGone, Post
from jaxrl_guided.runtime.signals import SIGNALS, StopFlag, Stopped

_NAMESPACE = "jaxrl_guided"
_BEAT, _LOOK, _REACHED = 2.0, 0.5, 10.0
"""Seconds between two signs of life, between two looks for a post, and to reach a cluster."""


@contextlib.contextmanager
def open_post(address: str, name: str, patience: float) -> Iterator[Line]:
    """The line of who opens the post, on this host; the post ends with the block.

    Args:
      address: of the cluster, `HOST:PORT`.
      name: of the post in the cluster.
      patience: seconds without a sign of life after which the other one counts as gone.

    Raises:
      UserError: Ray is not installed, there is no cluster, it has a post of that name, or none can
        be started in it.
    """
    with _connected(address) as ray:
        here = ray.get_runtime_context().get_node_id()
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        options = {"num_cpus": 0, "scheduling_strategy": strategy, "namespace": _NAMESPACE}
        try:
            post = ray.remote(Post).options(name=name, **options).remote()
        except ValueError as error:
            raise UserError(
                f"--cluster={address} has a run of this configuration already; wait for it, or "
                "change --config.seed"
            ) from error
        try:
            ray.get(post.__ray_ready__.remote())
        except ray.exceptions.RayError as error:
            cause = str(error).strip().splitlines()[-1]
            raise UserError(
                f"--cluster={address}: no program of this package can be started there ({cause}); "
                "start the cluster from the same environment"
            ) from error
        with _line(ray, post, OPENER, patience) as line:
            yield line


@contextlib.contextmanager
def reach_post(address: str, name: str, patience: float, stop: StopFlag) -> Iterator[Line]:
    """The line of the other side; waits until the post is open.

    Raises:
      UserError: Ray is not installed, there is no cluster, or somebody has this side already.
      Stopped: asked to stop while it waited.
    """
    with (
        _connected(address) as ray,
        _line(ray, _found(ray, name, stop), CALLER, patience) as line,
    ):
        yield line


def _found(ray: Any, name: str, stop: StopFlag) -> Any:
    said = False
    while True:
        with contextlib.suppress(ValueError):
            return ray.get_actor(name, namespace=_NAMESPACE)
        if not said:
            print("waits for the other program, of the same configuration", file=sys.stderr)
            said = True
        if stop.requested:
            raise Stopped("the other program had not begun yet")
        time.sleep(_LOOK)


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    with validation():
        check_installed("--cluster", ["ray"], "ray")
    _check_address(address)
    handlers = {signum: signal.getsignal(signum) for signum in SIGNALS}
    import ray

    try:
        try:
            ray.init(address, namespace=_NAMESPACE, log_to_driver=False)
        finally:
            for signum, handler in handlers.items():  # which Ray has taken
                signal.signal(signum, handler)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _unreached(address, error) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raises UserError where nobody answers, which Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"--cluster={address} must be HOST:PORT, as `ray start` shows it")
    try:
        socket.create_connection((host, int(port)), _REACHED).close()
    except (OSError, OverflowError) as error:
        raise _unreached(address, error) from error


def _unreached(address: str, error: Exception) -> UserError:
    return UserError(
        f"--cluster={address}: no Ray cluster is reached ({error}); start one with `ray start "
        "--head` on one host and `ray start --address=HOST:PORT` on the others"
    )


@contextlib.contextmanager
def _line(ray: Any, post: Any, side: int, patience: float) -> Iterator[Line]:
    line = _RayLine(ray, post, side, patience)
    try:
        yield line
    finally:
        line.close()


class _RayLine:
    """A line whose signs of life come from a thread, since a compilation may take minutes."""

    def __init__(self, ray: Any, post: Any, side: int, patience: float) -> None:
        self._ray, self._post, self._side, self._patience = ray, post, side, patience
        self._gone = ""
        self._closed = threading.Event()
        if not self._asked("join", side):
            raise UserError("this run has two programs already; wait for them, or stop both")
        self._thread = threading.Thread(target=self._show_life, name="signs of life", daemon=True)
        self._thread.start()

    def __call__(self, letters: Sequence[Any]) -> list[Any]:
        found = self._asked("swap", self._side, [pickle.dumps(letter) for letter in letters])
        if not found and self._gone:
            raise PeerGone(self._gone)
        return [pickle.loads(letter) for letter in found]

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._thread.join()

    def _asked(self, method: str, *arguments: Any) -> Any:
        try:
            call = getattr(self._post, method).remote(*arguments)
            return self._ray.get(call, timeout=self._patience)
        except self._ray.exceptions.RayError as error:
            raise PeerGone("the other program has ended, and its post with it") from error

    def _show_life(self) -> None:
        while not self._closed.wait(_BEAT):
            try:
                silent = self._asked("beat", self._side)
            except PeerGone as error:
                self._gone = str(error)
                return
            if silent > self._patience:
                self._gone = f"the other program has shown no sign of life for {silent:.0f} s"
                return
