"""Which of the entries that are near a question are shown: diversified retrieval.

`diversified` is one pure function for the host (numpy) and the device (jax.numpy).
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from jaxrl_guided.backbones.embedders import Embedder
from jaxrl_guided.complementary.bank import Bank, Entry, Event
from jaxrl_guided.complementary.bank.bank import Snapshot
from jaxrl_guided.complementary.bank.index import View, search
from jaxrl_guided.runtime.ranges import COUNT, NOT_NEGATIVE, check, check_choice

Recency = Literal["seconds", "steps"]
Scope = Literal["shared", "task"]


@dataclasses.dataclass(frozen=True)
class RetrievalConfig:
    """Diversification (arXiv 2603.17621; numbers of the released configuration).

    Attributes:
      top: entries that an episode is shown.
      oversampling: so many times `top` are looked at; 1 and weights of 0 give plain search.
      usage_weight: of log(1 + retrievals).
      recent_weight: of having been shown a short while ago.
      recency: what a short while is measured in, `seconds` or actor `steps`.
      recent: length of a short while.
      scope: whether a question finds the entries of all tasks, or of its own alone.
    """

    top: int = 1
    oversampling: int = 16
    usage_weight: float = 0.4
    recent_weight: float = 1.0
    recency: Recency = "seconds"
    recent: float = 300.0
    scope: Scope = "shared"

    def __post_init__(self) -> None:
        check(self, COUNT, "top", "oversampling", part="retrieval.")
        check(self, NOT_NEGATIVE, "usage_weight", "recent_weight", "recent", part="retrieval.")
        check_choice(self, "recency", ("seconds", "steps"), part="retrieval.")
        check_choice(self, "scope", ("shared", "task"), part="retrieval.")

    @property
    def candidates(self) -> int:
        """Entries that are looked at."""
        return self.top * self.oversampling


def diversified(
    config: RetrievalConfig, retrievals: Any, ages: Any, there: Any, numpy: Any = np
) -> Any:
    """Places of the `top` entries to show, out of candidates in order of nearness.

    score = −rank − usage_weight · log(1 + retrievals) − recent_weight · [age < recent]

    Args:
      retrievals: `i32[..., C]`, times that each was shown.
      ages: `f[..., C]`, how long ago it was shown last; inf for never.
      there: `bool[..., C]`, False where there are fewer candidates; at the end.
      numpy: the module that computes, `numpy` or `jax.numpy`.

    Returns:
      `i[..., top]`; C stands for none.
    """
    count = retrievals.shape[-1]
    ranks = numpy.arange(count)
    recent = (ages < config.recent).astype(np.float32)
    # Whole numbers first: what ties, ties in any precision, and then the nearer one is taken.
    score = -(ranks + config.recent_weight * recent) - config.usage_weight * numpy.log1p(retrievals)
    score = numpy.where(there, score, -np.inf)
    best = numpy.argsort(-score, axis=-1, stable=True)[..., : config.top]
    return numpy.where(numpy.take_along_axis(there, best, axis=-1), best, count)


def ages_of(
    config: RetrievalConfig, view: View, rows: np.ndarray, now: float, step: int
) -> np.ndarray:
    """How long ago rows of a view were shown, in seconds or steps of the actor; inf for never."""
    if config.recency == "seconds":
        return now - view.last_at[rows]
    last = view.last_step[rows]
    return np.where(last < 0, np.inf, step - last)


@dataclasses.dataclass(frozen=True)
class Question:
    """What an episode asks the bank.

    Attributes:
      text: by which it is looked up; the task's description.
      episode: that asks, and is credited with its outcome.
      task: its scope.
    """

    text: str
    episode: int
    task: str = ""


class Retriever:
    """Finds entries for episodes and writes down that they were shown. Any thread may ask.

    Args:
      config: of the search.
      embed: of the bank's vectors.
      source: a bank, or a snapshot, of which nothing is written down: the same question has always
        the same answer.
      clock: seconds; of the machine's clock, so that `recent` holds across restarts.
    """

    def __init__(
        self,
        config: RetrievalConfig,
        embed: Embedder,
        source: Bank | Snapshot,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config, self._embed, self._source, self._clock = config, embed, source, clock

    def __call__(self, questions: Sequence[Question], step: int = 0) -> list[list[Entry]]:
        """Up to `top` entries for each question, best first; later ones see the earlier as shown.

        Args:
          step: updates of the actor so far.

        Raises:
          StorageError: nothing was written down.
        """
        view, now = self._source.view, self._clock()
        candidates = self._candidates(questions, view)
        shown: dict[int, int] = {}  # by row, in this call
        found: list[list[Entry]] = []
        events: list[Event] = []
        for question, rows in zip(questions, candidates, strict=True):
            rows = rows[rows >= 0]
            more = np.array([shown.get(int(row), 0) for row in rows], np.int64)
            retrievals = view.retrievals[rows] + more
            ages = np.where(more > 0, 0.0, ages_of(self.config, view, rows, now, step))
            places = diversified(self.config, retrievals, ages, np.ones(len(rows), bool))
            chosen = [int(rows[place]) for place in places if place < len(rows)]
            entries = [self._source.get(int(view.ids[row])) for row in chosen]
            # One that has died since the view was taken is not shown.
            found.append([entry for entry in entries if entry is not None])
            if isinstance(self._source, Bank):
                shown.update({row: shown.get(row, 0) + 1 for row in chosen})
                events += [
                    Event("retrieved", entry.id, question.episode, at=now, step=step)
                    for entry in found[-1]
                ]
        if isinstance(self._source, Bank):
            self._source.record(events)
        return found

    def entries(self) -> list[Entry]:
        """All that could be found, oldest first."""
        return self._source.entries()

    def _candidates(self, questions: Sequence[Question], view: View) -> Sequence[np.ndarray]:
        """Rows for each question, nearest first; −1 where there are no more."""
        vectors = self._embed([question.text for question in questions])
        if self.config.scope == "shared":
            return list(search(view, vectors, self.config.candidates).rows)
        numbers = [self._source.task_number(question.task) for question in questions]
        return [
            search(view, vector[None], self.config.candidates, [] if n is None else [n]).rows[0]
            for vector, n in zip(vectors, numbers, strict=True)
        ]
