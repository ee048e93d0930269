"""Worker processes that step host environments, and the arrays through which they are spoken to.

The same answers come from environments in this process (`workers=0`), for debugging.
"""

import contextlib
import dataclasses
import functools
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from jaxrl_guided.envs.bridge import block
from jaxrl_guided.envs.bridge.remote import Here, HostEnvError, Process, Remote, WorkerGone
from jaxrl_guided.envs.bridge.slot import Factory, Interface
from jaxrl_guided.runtime import versions

_MOST_STARTS = 4
_LONGEST = 1_000_000

OnError = Literal["raise", "restart"]


@dataclasses.dataclass(frozen=True)
class Step:
    """What a step gave, a copy: named arrays `[N, …]`.

    Attributes:
      obs: by leaf's name, the observation to act on next.
      final_obs: the observation that the step led to.
      reward: `f32[N]`.
      terminated, truncated: `bool[N]`.
      restarted: `bool[N]`: the environment was made anew; the episode before it is truncated.
      episode: `i32[N]`, number of the open episode.
      info: `f32[N]` by name.
    """

    obs: dict[str, np.ndarray]
    final_obs: dict[str, np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    restarted: np.ndarray
    episode: np.ndarray
    info: dict[str, np.ndarray]


class Pool:
    """N host environments with automatic restart; after an error nothing but `close` is left.

    Attributes:
      name: of the environment, for errors.
      interface: what the environments say of themselves.
      clock: steps since the last reset.
    """

    def __init__(
        self,
        name: str,
        factory: Factory,
        num_envs: int,
        *,
        workers: int | None = None,
        info: Sequence[str] = (),
        max_steps: int | None = None,
        timeout: float = 60.0,
        on_error: OnError = "raise",
        spares: bool = False,
    ):
        """Starts the processes and makes the environments.

        Args:
          name: of the environment, for errors.
          factory: makes one; sent to the processes by cloudpickle.
          workers: processes; 0 for none, all in this one; by default as many as there are cores.
          info: names of numbers in `info` to pass on.
          max_steps: limit of an episode, in place of the environment's own.
          timeout: seconds that a process may take for a step or a reset of all its environments.
          on_error: whether a failing environment ends the work, or is made anew and counted.
          spares: makes a second environment for each, in which a process begins the next episode
            while nothing is asked of it: for those whose reset takes long. No numbers change.

        Raises:
          HostEnvError: the environments cannot be made.
          ValueError: a bad number.
        """
        if workers is None:
            workers = len(versions.cores())
        _check_whole("num_envs", num_envs, 1)
        _check_whole("workers", workers, 0)
        if max_steps is not None:
            _check_whole("max_steps", max_steps, 1)
        if not isinstance(timeout, int | float) or not 0 < timeout <= _LONGEST:
            raise ValueError(f"timeout must be above 0 and at most {_LONGEST:,} s, not {timeout!r}")
        if isinstance(info, str):
            raise ValueError(f'info must be a list of names, as ["{info}"], not {info!r}')
        if on_error not in get_args(OnError):
            raise ValueError(f"on_error must be 'raise' or 'restart', not {on_error!r}")
        count = min(workers, num_envs)
        self.name, self._timeout, self._restarts = name, timeout, on_error == "restart"
        self._memory = block.create_file()
        shares = np.array_split(np.arange(num_envs), max(count, 1))
        spares = spares and count > 0  # this process would have to wait for them
        self._starts = [(factory, share.tolist(), self._restarts, spares) for share in shares]
        self._workers: list[Remote] = []
        self._known: dict[str, np.ndarray] = {}
        self.clock = 0
        self._close = weakref.finalize(self, _close, self._workers, self._memory)
        with self._closed_on_error():
            for number in range(len(self._starts)):
                self._workers.append(self._start(number, in_process=count == 0))
            self._workers[0].send("describe", tuple(info), max_steps)
            self.interface: Interface = self._workers[0].answer()
            self._allocate(num_envs)
            self._arrays = block.map_arrays(self._memory, self.interface.fields(), num_envs)
            self._views = {
                part: {
                    name.removeprefix(f"{part}:"): array
                    for name, array in self._arrays.items()
                    if name.startswith(f"{part}:")
                }
                for part in ("obs", "final", "info")
            }
            for worker in self._workers:
                worker.send("build", self.interface, num_envs)
            for worker in self._workers:
                worker.answer()

    @property
    def num_envs(self) -> int:
        """N."""
        return len(self._arrays["seed"])

    def close(self) -> None:
        """Ends the processes; a second call does nothing."""
        self._close()

    def reset(self, seeds: np.ndarray) -> dict[str, np.ndarray]:
        """Starts the first episode of all environments.

        Args:
          seeds: `u32[N]`.

        Returns:
          The observations by leaf's name.

        Raises:
          HostEnvError: an environment raised, hung or died, or the pool was closed.
        """
        self._check()
        self._arrays["seed"][:], self._arrays["episode"][:] = seeds, 0
        self._all("reset")
        self.clock = 0
        return self._copy("obs")

    def step(self, actions: np.ndarray) -> Step:
        """A step of all environments with actions `[N, …]`.

        Raises:
          HostEnvError: as in `reset`, or an action was out of range.
        """
        self._check()
        self._arrays["action"][:] = actions
        self._all("step")
        self.clock += 1
        names = ("reward", "terminated", "truncated", "restarted", "episode")
        return Step(
            obs=self._copy("obs"),
            final_obs=self._copy("final"),
            info=self._copy("info"),
            **{name: self._arrays[name].copy() for name in names},
        )

    def restore(
        self,
        seeds: np.ndarray,
        episodes: np.ndarray,
        times: np.ndarray,
        actions: np.ndarray,
        obs: Mapping[str, np.ndarray],
        clock: int,
    ) -> dict[int, str]:
        """Plays all open episodes again, up to where they were.

        An episode that does not lead to the same observation, bit for bit, is given up: its next
        step is truncated, without a reward.

        Args:
          seeds: `u32[N]`.
          episodes: `i32[N]`, numbers of the open ones.
          times: `i32[N]`, steps since the start.
          actions: `[N, at least max(times), …]`.
          obs: the observations there, by leaf's name.
          clock: steps since the reset.

        Returns:
          Why episodes were given up, by environment.

        Raises:
          HostEnvError: as in `reset`.
        """
        self._check()
        self._arrays["seed"][:], self._arrays["episode"][:] = seeds, episodes
        for name, view in self._views["obs"].items():
            view[:] = obs[name]
        self._keep()
        patience = self._timeout * (1 + int(times.max()))
        reasons: dict[int, str] = {}
        with self._closed_on_error():
            for (_, share, *_), worker in zip(self._starts, self._workers, strict=True):
                worker.send("replay", {i: np.asarray(actions[i, : times[i]]) for i in share})
            for number, worker in enumerate(self._workers):
                try:
                    reasons |= worker.answer(patience)
                except WorkerGone as error:
                    self._replace(number, error)
                    reasons |= dict.fromkeys(self._starts[number][1], str(error))
        self.clock = clock
        return reasons

    def _allocate(self, num_envs: int) -> None:
        """Takes the memory of the arrays: writing to what there is not would end this process."""
        size = block.size_of(self.interface.fields(), num_envs)
        try:
            block.allocate(self._memory, size)
        except OSError as error:
            raise HostEnvError(
                f"{self.name}: no {size:,} bytes of shared memory for {num_envs} environments: "
                f"{error.strerror}"
            ) from error

    def _start(self, number: int, in_process: bool = False) -> Remote:
        share = self._starts[number][1]
        name = f"{self.name}: the process of environments {share[0]} to {share[-1]}"
        process = functools.partial(Process, self._memory, name, self._timeout)
        worker: Remote = Here(self._memory) if in_process else process()
        try:
            worker.send("start", *self._starts[number])
            worker.answer()
        except BaseException:
            worker.close()
            raise
        return worker

    def _all(self, request: str) -> None:
        with self._closed_on_error():
            for worker in self._workers:
                worker.send(request)
            for number in range(len(self._workers)):
                self._await(number, request)
        self._keep()

    def _await(self, number: int, request: str) -> None:
        """Waits for an answer; a process that is gone is started again, its episodes are lost."""
        for _ in range(_MOST_STARTS):
            try:
                self._workers[number].answer()
                return
            except WorkerGone as error:
                self._replace(number, error)
                self._workers[number].send(request)
        raise HostEnvError(f"{self.name}: a process was started {_MOST_STARTS} times and died")

    def _replace(self, number: int, error: WorkerGone) -> None:
        """A new process in place of one that is gone, unless that ends the work."""
        if not self._restarts:
            raise error
        rows = self._starts[number][1]
        for _ in range(_MOST_STARTS):
            for name, known in self._known.items():
                self._views["obs"][name][rows] = known[rows]
            try:
                new = self._start(number)
                self._workers[number].close()
                self._workers[number] = new
                for message in (("build", self.interface, self.num_envs), ("lose",)):
                    new.send(*message)
                    new.answer()
                return
            except WorkerGone as again:
                error = again
        raise HostEnvError(f"a process was started {_MOST_STARTS} times: {error}") from error

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _keep(self) -> None:
        """Remembers the observations: a process that dies may leave half of the next ones."""
        if self._restarts:
            self._known = self._copy("obs")

    def _copy(self, part: str) -> dict[str, np.ndarray]:
        return {name: array.copy() for name, array in self._views[part].items()}

    def _check(self) -> None:
        if not self._close.alive:
            raise HostEnvError(f"{self.name} was closed, or has failed before; make a new one")


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
        raise ValueError(f"{name} must be a whole number from {least}, below 2**31, not {value!r}")


def _close(workers: list[Remote], memory: int) -> None:
    """Ends all, whatever one of them raises."""
    for worker in workers:  # before one of them is waited for
        worker.hang_up()
    for worker in workers:
        with contextlib.suppress(Exception):
            worker.close()
    workers.clear()
    os.close(memory)
