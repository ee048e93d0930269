"""One host environment in a row of shared arrays: episodes that restart by themselves.

What it gives is checked here, where the environment's number is known. JAX-free.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np

from jaxrl_guided.envs.bridge.block import Field
from jaxrl_guided.envs.bridge.spaces import Leaf, leaves_of, value_at

Factory = Callable[[], gymnasium.Env[Any, Any]]
"""Makes an environment, its own time limit included; `reset(seed=…)` decides the episode."""

_MOST_RESTARTS = 3
"""Of one environment in a row; one that then still fails is broken."""

_LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class Interface:
    """What all environments of a pool have in common.

    Attributes:
      observation: leaves, `[N, *shape]` each.
      action: the only leaf of an action.
      action_dtype: that the environments receive.
      info: names of numbers in `info` that are passed on; absent ones are zero.
      max_steps: longest episode.
    """

    observation: tuple[Leaf, ...]
    action: Leaf
    action_dtype: str
    info: tuple[str, ...]
    max_steps: int

    def fields(self) -> list[Field]:
        """The shared arrays."""
        obs = [
            Field(f"{part}:{leaf.name}", leaf.shape, leaf.dtype)
            for part in ("obs", "final")
            for leaf in self.observation
        ]
        info = [Field(f"info:{name}", (), "float32") for name in self.info]
        flags = [Field(name, (), "bool") for name in ("terminated", "truncated", "restarted")]
        return [
            *obs,
            *info,
            *flags,
            Field("reward", (), "float32"),
            Field("action", self.action.shape, self.action.dtype),
            Field("seed", (), "uint32"),
            Field("episode", (), "int32"),
        ]


def interface_of(
    env: gymnasium.Env[Any, Any], info: tuple[str, ...], max_steps: int | None
) -> Interface:
    """What an environment says of itself.

    Raises:
      ValueError: a space that no learner reads, or no time limit.
    """
    observation = tuple(leaves_of(env.observation_space))
    actions = leaves_of(env.action_space)
    if not observation:
        raise ValueError(f"observations must hold an array, not {env.observation_space}")
    if len(actions) != 1 or actions[0].path:
        raise ValueError(f"actions must be one array, not {env.action_space}")
    limit = max_steps or (env.spec.max_episode_steps if env.spec is not None else None)
    if limit is None:
        raise ValueError("the environment has no time limit; give max_steps")
    dtype = np.dtype(env.action_space.dtype or np.int64).name
    return Interface(observation, actions[0], dtype, info, limit)


def episode_seed(seed: int, episode: int) -> int:
    """Seed of an environment's episode, below 2³¹."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0]) >> 1


class Slot:
    """Environment `index`; `reset` and `step` read and write its row of the arrays.

    Attributes:
      index: its number in the pool.
    """

    def __init__(
        self,
        factory: Factory,
        index: int,
        interface: Interface,
        arrays: Mapping[str, np.ndarray],
        restarts: bool,
        spare: bool = False,
    ):
        """Makes the environment.

        Args:
          restarts: whether one that fails is made anew, its episode marked as truncated.
          spare: whether there is a second one, in which `prepare` begins the next episode.
        """
        self.index = index
        self._factory, self._interface, self._restarts = factory, interface, restarts
        self._row = {name: array[index : index + 1] for name, array in arrays.items()}
        self._env: gymnasium.Env[Any, Any] = factory()
        self._spare: gymnasium.Env[Any, Any] | None = factory() if spare else None
        self._prepared: int | None = None
        self._first: Any = None
        self._time = 0
        self._begun = self._lost = False

    def reset(self) -> None:
        """Starts the episode that the arrays name."""
        self._lost = False
        self._start()

    def step(self) -> None:
        """One step with the action in the arrays, and the next episode where it is the last."""
        if self._lost:
            self._cut()
            return
        action = self._action()  # a bad one is not the environment's fault
        try:
            self._advance(action)
        except Exception:
            if not self._restarts:
                raise
            self._rebuild()
            self._cut()
            return
        if self._done:
            self._row["episode"] += 1
            self._start()
        else:
            self._go_on()

    def prepare(self) -> bool:
        """Begins the next episode in the spare environment; whether there was anything to do."""
        if self._spare is None or not self._begun or self._prepared is not None:
            return False  # asked at every idle moment: no seed is computed for this
        self._prepared = seed = self._seed(1)
        # What fails here is begun in its turn once more, and fails where that is seen.
        with contextlib.suppress(Exception):
            self._first, _ = self._spare.reset(seed=seed)
        return True

    def lose(self) -> None:
        """Gives the open episode up: the next step marks it as truncated, without a reward."""
        self._lost = True

    def replay(self, actions: np.ndarray) -> str:
        """Plays the open episode again and compares where it leads with the observation there.

        Args:
          actions: `[t, …]`, all since its start.

        Returns:
          Empty, or why it was given up.
        """
        known = [self._row[f"obs:{leaf.name}"].copy() for leaf in self._interface.observation]
        reason = self._play(actions)
        for leaf, row in zip(self._interface.observation, known, strict=True):
            if not reason and not np.array_equal(row, self._row[f"obs:{leaf.name}"]):
                reason = f"observation '{leaf.name}' differs after {len(actions)} steps"
            self._row[f"obs:{leaf.name}"][...] = row
        self._lost = bool(reason)
        return reason

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()
        if self._spare is not None:
            self._spare.close()

    def _play(self, actions: np.ndarray) -> str:
        try:
            self._start()
            for number, action in enumerate(actions):
                self._row["action"][0] = action
                self._advance(self._action())
                self._go_on()
                if self._done:
                    return f"its episode ended after {number + 1} of {len(actions)} steps"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _action(self) -> Any:
        """The action in the arrays, as the environment's space has it."""
        interface = self._interface
        return interface.action.action(self._row["action"][0], interface.action_dtype)

    def _advance(self, action: Any) -> None:
        """A step without what follows an episode's end."""
        row = self._row
        obs, reward, terminated, truncated, info = self._env.step(action)
        reward = float(reward)
        if not abs(reward) <= _LARGEST:
            raise ValueError(f"reward is not finite in float32: {reward}")
        self._time += 1
        self._observe("final", obs)
        row["reward"][0] = reward
        row["terminated"][0] = terminated
        truncated = truncated or self._time >= self._interface.max_steps
        row["truncated"][0] = truncated and not terminated
        row["restarted"][0] = False
        for name in self._interface.info:
            try:
                row[f"info:{name}"][0] = float(info.get(name, 0.0))
            except (TypeError, ValueError) as error:
                raise ValueError(f"info '{name}' is not a number: {info[name]!r}") from error

    @property
    def _done(self) -> bool:
        return bool(self._row["terminated"][0] or self._row["truncated"][0])

    def _go_on(self) -> None:
        """What the step led to is what is acted on next."""
        for leaf in self._interface.observation:
            self._row[f"obs:{leaf.name}"][...] = self._row[f"final:{leaf.name}"]

    def _start(self) -> None:
        """Begins the episode `episode`, the next one where that fails and may be made anew."""
        for _ in range(_MOST_RESTARTS):
            try:
                self._begin()
                return
            except Exception:
                if not self._restarts:
                    raise
                self._rebuild()
                self._row["episode"] += 1  # the same one would fail again
        self._begin()

    def _begin(self) -> None:
        seed = self._seed()
        ready, obs = self._prepared == seed, self._first
        self._prepared = self._first = None
        if self._spare is not None and ready and obs is not None:
            self._env, self._spare = self._spare, self._env
        else:
            obs, _ = self._env.reset(seed=seed)
        self._time, self._begun = 0, True
        self._observe("obs", obs)

    def _seed(self, ahead: int = 0) -> int:
        """Of the open episode, or one so many later."""
        return episode_seed(int(self._row["seed"][0]), int(self._row["episode"][0]) + ahead)

    def _cut(self) -> None:
        """The step of an episode that was lost: it stays where it was, and a new one begins."""
        row = self._row
        for leaf in self._interface.observation:
            row[f"final:{leaf.name}"][...] = row[f"obs:{leaf.name}"]
        row["reward"][0], row["terminated"][0], row["truncated"][0] = 0.0, False, True
        row["restarted"][0] = True
        for name in self._interface.info:
            row[f"info:{name}"][0] = 0.0
        self._lost = False
        row["episode"] += 1
        self._start()

    def _rebuild(self) -> None:
        """A new environment in place of one that failed."""
        with contextlib.suppress(Exception):  # it is broken; what matters is the new one
            self._env.close()
        self._env = self._factory()

    def _observe(self, part: str, observation: Any) -> None:
        for leaf in self._interface.observation:
            row = self._row[f"{part}:{leaf.name}"]
            leaf.fill(row.reshape(leaf.shape), value_at(observation, leaf.path))
