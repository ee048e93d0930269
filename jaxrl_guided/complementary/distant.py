"""The extractor's model in a program of its own, as the actor's program sees it."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from jaxrl_guided.backbones.turns import Weights
from jaxrl_guided.complementary import letters
from jaxrl_guided.complementary.requests import Requests
from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.learners.language.hand_over import Versioned
from jaxrl_guided.learners.language.rollouts import Episode, Start
from jaxrl_guided.runtime.post import Line, PeerGone

_PAUSE = 0.001
"""Seconds to wait where nothing has come."""

Check = Callable[[], None]
"""Called before letters are read; may raise to stop."""


class DistantExtractor:
    """Its slots (`Playing`) and its weights (`Model`), which are another program's.

    Bank, queues and credit stay here: only requests and samples go there, and answers come back. It
    works at its own pace; the actor waits for it at checkpoints alone, or as `LoopConfig.barrier`
    and `ExtractorConfig.full` say.

    Args:
      line: to the other program.
      requests: whose texts are sent.
    """

    def __init__(self, line: Line, requests: Requests) -> None:
        self._line, self._requests = line, requests
        self._unsent: list[Any] = []
        self._open = 0
        self._episodes: list[Episode] = []
        self._done: Any = None
        self._check: Check = lambda: None

    @property
    def busy(self) -> bool:
        """Some request is not answered."""
        return self._open > 0

    def add(self, starts: Sequence[Start]) -> None:
        """More requests."""
        texts = [self._requests.texts[start.seed] for start in starts]
        self._unsent.append(letters.Asked(tuple(starts), texts))
        self._open += len(starts)

    def begin(self, weights: Weights, version: int = 0, steps: int = 32) -> None:
        """Nothing: the other program draws with its own weights, as many tokens as it likes."""

    def finish(self) -> list[Episode]:
        """Sends what was added; returns what has been answered by now.

        Raises:
          PeerGone: the other program has ended.
        """
        self._exchange()
        found, self._episodes = self._episodes, []
        return found

    def weights(self) -> Versioned:
        """None, see `begin`."""
        return Versioned(Weights({}), 0)

    def learn(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Sends samples of an update; its metrics are written there."""
        self._unsent.append(letters.Lessons(tuple(samples)))
        return {}

    def begin_at(self, pair: str, step: int, check: Check) -> None:
        """Tells it from which checkpoint to go on; 0: from none.

        Args:
          pair: of the run, see `pairs`.
          check: called from now on whenever something may come.
        """
        self._check = check
        self._unsent.append(letters.Begin(pair, step))
        self._exchange()

    def await_begun(self) -> None:
        """Waits until it has begun."""
        if not isinstance(self._done, letters.Begun):
            print("waits for the extractor's program, of the same settings", file=sys.stderr)
        self._wait(letters.Begun())

    def save(self, step: int) -> None:
        """It saves its model and optimiser under this step; waits until that is done."""
        self._unsent.append(letters.Save(step))
        self._wait(letters.Saved(step))

    def end(self) -> None:
        """It ends, too."""
        self._unsent.append(letters.End())
        self._wait(letters.Ended())

    def _wait(self, done: Any) -> None:
        while self._done != done:
            self._exchange()

    def _exchange(self) -> None:
        self._check()
        unsent, self._unsent = self._unsent, []
        come = self._line(unsent)
        if not come:
            time.sleep(_PAUSE)
        for letter in come:
            if isinstance(letter, letters.Answered):
                self._open -= len(letter.episodes)
                self._episodes += letter.episodes
            elif isinstance(letter, letters.Failed):
                raise PeerGone(f"the extractor's program has ended: {letter.reason}")
            else:
                self._done = letter
