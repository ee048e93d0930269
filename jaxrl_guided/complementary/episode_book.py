"""Episodes of many environments, put together from rollouts: who was shown what, how they ended."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_guided.complementary.bank import Entry, Event
from jaxrl_guided.complementary.bank.records import NOBODY
from jaxrl_guided.complementary.credit import FREE, GUIDED, Outcome
from jaxrl_guided.complementary.extractor import Experience
from jaxrl_guided.envs.text.task import TASK
from jaxrl_guided.envs.text.telling import Teller, messages_of
from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.learners.language.rollouts import Episode, Start

Array = Any
"""On the device as it leaves a program, then on the host."""


class Told(NamedTuple):
    """Steps `[T, E, …]` of the E environments whose episodes are told."""

    obs: PyTree
    action: Array
    reward: Array


class Seen(NamedTuple):
    """What leaves with T steps of N environments; see `Extended` for `solved` and `found`."""

    terminated: Array
    truncated: Array
    solved: Array
    found: Array
    told: Told


class Entered(NamedTuple):
    """What a rollout says: retrievals, and of the episodes that ended outcomes.

    Attributes:
      retrieved: events.
      outcomes: of all episodes, in the order in which they ended.
      experiences: those that are told.
    """

    retrieved: Sequence[Event]
    outcomes: Sequence[Outcome]
    experiences: Sequence[Experience]


@dataclasses.dataclass
class _Open:
    """An episode that is not over; `parts` of it so far, None if it is not told."""

    number: int
    shown: Sequence[Entry]
    parts: list[Told] | None = None


class EpisodeBook:
    """Numbers episodes as they begin, and follows them to their ends.

    Args:
      guided: environments that are, the first ones.
      get: an entry by id, or None if it is not there.
      told: environments whose episodes are told. All episodes of them are: a share of the episodes
        that does not prefer short ones.
      teller: tells them.
      task: scope of what is learned.

    Attributes:
      number: of the next episode.
    """

    def __init__(
        self,
        guided: int,
        get: Callable[[int], Entry | None],
        told: Sequence[int] = (),
        teller: Teller | None = None,
        task: str = "",
    ) -> None:
        self.number = 0
        self._guided, self._get, self._teller, self._task = guided, get, teller, task
        self._place = {env: place for place, env in enumerate(told)}
        self._open: list[_Open] = []

    @property
    def numbers(self) -> Sequence[int]:
        """Of the N open episodes."""
        return [episode.number for episode in self._open]

    def open(
        self,
        shown: np.ndarray,
        lengths: np.ndarray,
        now: float,
        step: int,
        numbers: Sequence[int] = (),
    ) -> Sequence[Event]:
        """Begins with the open episodes of N environments; those in their midst are not told.

        Args:
          shown: `i32[N, top]`, ids of their entries.
          lengths: `i32[N]`, steps done in them.
          numbers: theirs, N of them; the next ones by default.

        Returns:
          The retrievals, which are new if all lengths are 0.
        """
        self._open = []
        events: list[Event] = []
        if not len(numbers):
            numbers = range(self.number, self.number + len(shown))
        for env, ids in enumerate(shown):
            self._open.append(self._begin(env, int(numbers[env]), ids, events, now, step))
            if lengths[env]:
                self._open[env].parts = None
        return events

    def enter(self, seen: Seen, now: float, step: int) -> Entered:
        """Goes on by a rollout.

        Args:
          now: seconds of the clock, of its retrievals.
          step: updates of the actor before it.
        """
        events: list[Event] = []
        outcomes: list[Outcome] = []
        experiences: list[Experience] = []
        since = np.zeros(len(self._open), int)
        for row, env in np.argwhere(seen.terminated | seen.truncated).tolist():
            ended = self._open[env]
            success = bool(seen.solved[row, env])
            half = env < self._guided
            outcomes.append(Outcome(ended.number, success, ended.shown, guided=half))
            if ended.parts is not None:
                self._keep(ended, env, seen.told, since[env], row + 1)
                truncated = bool(seen.truncated[row, env])
                experiences.append(self._experience(env, ended, success, truncated, step))
            since[env] = row + 1
            found = seen.found[row, env]
            self._open[env] = self._begin(env, self.number, found, events, now, step)
        for env in self._place:
            self._keep(self._open[env], env, seen.told, since[env], len(seen.solved))
        return Entered(events, outcomes, experiences)

    def _begin(
        self, env: int, number: int, ids: np.ndarray, events: list[Event], now: float, step: int
    ) -> _Open:
        self.number = max(self.number, number + 1)
        found = [entry for entry in ids.tolist() if entry != NOBODY]
        events += [Event("retrieved", entry, number, at=now, step=step) for entry in found]
        shown = [entry for entry in map(self._get, found) if entry is not None]
        return _Open(number, shown, [] if env in self._place else None)

    def _keep(self, episode: _Open, env: int, told: Told, start: int, stop: int) -> None:
        """Adds rows of a rollout to an episode that is told."""
        if episode.parts is not None and start < stop:
            place = self._place[env]
            episode.parts.append(jax.tree.map(lambda leaf: leaf[start:stop, place], told))

    def _experience(
        self, env: int, episode: _Open, success: bool, truncated: bool, step: int
    ) -> Experience:
        assert self._teller is not None
        assert episode.parts is not None
        obs, action, reward = jax.tree.map(lambda *leaves: np.concatenate(leaves), *episode.parts)
        observations = [jax.tree.map(lambda leaf: leaf[row], obs) for row in range(len(action))]
        part = GUIDED if env < self._guided else FREE
        played = Episode(
            start=Start(episode.number, draws=episode.number, part=part),
            description=self._teller.description(observations[0]),
            messages=messages_of(self._teller, observations, action),
            # A policy that does not speak: there are no tokens to learn from.
            tokens=np.zeros(0, np.int32),
            spoken=np.zeros(0, bool),
            log_probs=np.zeros(0, np.float32),
            rewards={TASK: float(reward.sum())},
            success=success,
            turns=len(action),
            unread=0,
            end="truncated" if truncated else "terminated",
            version=step,
        )
        return Experience(played, episode.number, self._task, episode.shown, credited=True)
