"""What the extractor learns from: its generations, and the outcomes of episodes that used them.

A generation is one answer of the extractor, however many entries it wrote. It is credited with the
outcome, 1 or −1, of each episode that was shown one of them (arXiv 2603.17621 §3), or with how far
that is ahead of episodes that were shown nothing.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from jaxrl_guided.complementary.bank import Bank, Entry, Event
from jaxrl_guided.learners.language.advantages import batch_advantages, reuse_factor
from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.runtime.config import added
from jaxrl_guided.runtime.ranges import COUNT, NOT_NEGATIVE, check, check_choice

FREE, GUIDED = range(2)
"""Parts of a group (`Start.part`)."""

Reward = Literal["outcome", "relative"]


@dataclasses.dataclass(frozen=True)
class CreditConfig:
    """When the extractor learns, and from what.

    Attributes:
      reward: `outcome`, or `relative`: less the mean outcome of the group's free half.
      batch: generations of an update; it waits until so many have outcomes it has not learned from.
      capacity: generations that are kept; the oldest go.
      pause: δ, steps of the actor within which a generation is not learned from again.
    """

    batch: int = 64
    capacity: int = 4096
    pause: int = 1
    reward: Reward = added("outcome")

    def __post_init__(self) -> None:
        check_choice(self, "reward", ("outcome", "relative"), part="credit.")
        check(self, COUNT, "batch", "capacity", part="credit.")
        check(self, NOT_NEGATIVE, "pause", part="credit.")
        if self.capacity < self.batch:
            raise ValueError(
                f"credit.capacity must be at least credit.batch {self.batch}, not {self.capacity}"
            )


class Outcome(NamedTuple):
    """How an episode ended.

    Attributes:
      episode: its number.
      success: the task was solved.
      entries: that it was shown.
      generations: others that it used: numbers of answers to its questions.
      guided: it is of the half that is shown experience.
      group: rollouts of one step that are compared with each other.
    """

    episode: int
    success: bool
    entries: Sequence[Entry]
    generations: Sequence[int] = ()
    guided: bool = True
    group: int = 0

    @property
    def value(self) -> float:
        """1 or −1."""
        return 1.0 if self.success else -1.0


class Generation(NamedTuple):
    """An answer as it was drawn: as in `Sample`, log-probabilities of the policy that wrote it."""

    tokens: np.ndarray
    spoken: np.ndarray
    log_probs: np.ndarray
    temperature: float


@dataclasses.dataclass
class _Kept:
    generation: Generation
    outcomes: int = 0
    total: float = 0.0
    fresh: int = 0  # outcomes since it was last learned from
    times: int = 0
    last: int = 0  # step of the actor

    @property
    def reward(self) -> float:
        """r: mean over all episodes that used it."""
        return self.total / self.outcomes


class CreditBuffer:
    """Generations by number, and their credit. Between steps it is settled, as `state` needs it.

    Args:
      config: of the buffer.

    Attributes:
      reward: mean r of the last update's generations.
    """

    def __init__(self, config: CreditConfig) -> None:
        self.config = config
        self.next = 0
        self.reward = float("nan")
        self._kept: dict[int, _Kept] = {}
        self._unsettled: list[tuple[Outcome, Sequence[int]]] = []

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, generation: Generation) -> int:
        """Keeps a generation; returns its number, which entries bear."""
        number = self.next
        self.next += 1
        self._kept[number] = _Kept(generation)
        if len(self._kept) > self.config.capacity:
            del self._kept[next(iter(self._kept))]
        return number

    def credit(self, outcome: Outcome, generations: Sequence[int]) -> None:
        """An episode has ended that used these; what is not kept any more gets nothing.

        With `relative` reward they get it from `settle`.
        """
        if self.config.reward == "relative":
            self._unsettled.append((outcome, generations))
        else:
            self._add(outcome.value, generations)

    def settle(self) -> None:
        """All groups of a step have ended. Of one without a free half nothing is credited."""
        free = defaultdict[int, list[float]](list)
        for outcome, _ in self._unsettled:
            if not outcome.guided:
                free[outcome.group].append(outcome.value)
        for outcome, generations in self._unsettled:
            if outcome.group in free:
                self._add(outcome.value - float(np.mean(free[outcome.group])), generations)
        self._unsettled.clear()

    def _add(self, reward: float, generations: Sequence[int]) -> None:
        for number in generations:
            if kept := self._kept.get(number):
                kept.outcomes += 1
                kept.fresh += 1
                kept.total += reward

    def waiting(self, step: int) -> int:
        """Generations with outcomes that were not learned from yet, and may be."""
        return len(self._waiting(step))

    def _waiting(self, step: int) -> list[_Kept]:
        return [
            kept
            for kept in self._kept.values()
            if kept.fresh and not (kept.times and step - kept.last <= self.config.pause)
        ]

    def take(self, step: int) -> list[Sample]:
        """The samples of an update, the oldest that wait; none until there are enough.

        The advantage is r less the mean of the batch, times (1 + times trained)^−½. What is in its
        pause, and would count nothing, waits.

        Args:
          step: of the actor.
        """
        waiting = self._waiting(step)[: self.config.batch]
        if len(waiting) < self.config.batch:
            return []
        rewards = np.array([kept.reward for kept in waiting], np.float32)
        self.reward = float(rewards.mean())
        times = np.array([kept.times for kept in waiting])
        since = np.array([step - kept.last for kept in waiting])
        advantages = batch_advantages(rewards) * reuse_factor(times, since, self.config.pause)
        for kept in waiting:
            kept.times, kept.last, kept.fresh = kept.times + 1, step, 0
        return [
            Sample(*kept.generation[:3], float(advantage), kept.generation.temperature)
            for kept, advantage in zip(waiting, advantages, strict=True)
        ]

    def state(self) -> dict[str, np.ndarray]:
        """All of it, as arrays for a checkpoint."""
        kept = list(self._kept.values())
        generations = [each.generation for each in kept]

        def joined(arrays: Iterable[np.ndarray], dtype: type) -> np.ndarray:
            return np.concatenate([np.zeros(0, dtype), *(np.asarray(a, dtype) for a in arrays)])

        return {
            "next": np.array(self.next, np.int64),
            "numbers": np.array(list(self._kept), np.int64),
            "lengths": np.array([len(g.tokens) for g in generations], np.int64),
            "tokens": joined((g.tokens for g in generations), np.int32),
            "spoken": joined((g.spoken for g in generations), np.bool_),
            "log_probs": joined((g.log_probs for g in generations), np.float32),
            "temperatures": np.array([g.temperature for g in generations], np.float64),
            "sums": np.array(
                [[k.outcomes, k.total, k.fresh, k.times, k.last] for k in kept], np.float64
            ).reshape(-1, 5),
        }

    @classmethod
    def from_state(cls, config: CreditConfig, state: Mapping[str, np.ndarray]) -> "CreditBuffer":
        """The buffer that `state` was taken of."""
        buffer = cls(config)
        buffer.next = int(state["next"])
        ends = np.cumsum(state["lengths"])[:-1]
        parts = [np.split(state[name], ends) for name in ("tokens", "spoken", "log_probs")]
        for place, number in enumerate(state["numbers"]):
            tokens, spoken, log_probs = (part[place] for part in parts)
            outcomes, total, fresh, times, last = state["sums"][place]
            buffer._kept[int(number)] = _Kept(
                Generation(tokens, spoken, log_probs, float(state["temperatures"][place])),
                int(outcomes),
                float(total),
                int(fresh),
                int(times),
                int(last),
            )
        return buffer


def credit(bank: Bank, buffer: CreditBuffer | None, outcomes: Iterable[Outcome], step: int) -> None:
    """Each outcome goes once to each entry and generation that its episode used.

    Args:
      step: updates of the actor so far.

    Raises:
      StorageError: nothing was written down.
    """
    events: list[Event] = []
    used: list[tuple[Outcome, list[int]]] = []
    for outcome in outcomes:
        entries = {entry.id: entry for entry in outcome.entries}
        events += [
            Event("credited", entry, outcome.episode, outcome.value, step=step) for entry in entries
        ]
        generations = [entry.generation for entry in entries.values()]
        used.append((outcome, [*dict.fromkeys([*generations, *outcome.generations])]))
    bank.record(events)
    if buffer is not None:
        for outcome, generations in used:
            buffer.credit(outcome, generations)
