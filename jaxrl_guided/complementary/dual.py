"""The dual loop: an actor that plays and learns, and beside it an extractor that never holds it up.

One thread launches all work of the devices. In each turn it starts a few tokens of the actor, then
a few of the extractor, and only then waits for the first and the second: on two devices they run at
once, on one they take turns (arXiv 2603.17621 §5).
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from jaxrl_guided.complementary.actor import ActorConfig, Guide, fresh, starts_of
from jaxrl_guided.complementary.advised import actions_of
from jaxrl_guided.complementary.credit import FREE, GUIDED, CreditBuffer
from jaxrl_guided.complementary.extractor import Experience, Extractor, Playing
from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.learners.language.hand_over import HandOver, Versioned
from jaxrl_guided.learners.language.learner import LanguageLearner, LanguageState
from jaxrl_guided.learners.language.rollouts import Episode, Watch, outcomes_of
from jaxrl_guided.learners.language.run_config import ImproveConfig
from jaxrl_guided.learners.language.seeds import Seeds
from jaxrl_guided.learners.language.training import samples_of
from jaxrl_guided.runtime.ranges import COUNT, check


@dataclasses.dataclass(frozen=True)
class LoopConfig:
    """How the two go together.

    Attributes:
      chunk: tokens that each draws in a turn.
      barrier: a step waits until the extractor has nothing left to do.
      train_actor, train_extractor: whether they learn.
      fixed: nothing is written to the bank after the warm-up (`ActorConfig.warm_up`).
      split: whether advantages are normalised inside each half of a group.
    """

    chunk: int = 32
    barrier: bool = False
    train_actor: bool = True
    train_extractor: bool = True
    fixed: bool = False
    split: bool = True

    def __post_init__(self) -> None:
        check(self, COUNT, "chunk", part="loop.")


class Model(Protocol):
    """Weights that learn: `LanguageModel`."""

    def weights(self) -> Versioned: ...

    def learn(self, samples: Sequence[Sample]) -> dict[str, float]: ...


class LanguageModel:
    """A learner, its state, and the weights of it that are sampled with.

    Args:
      learner: of the model.
      hand_over: to its slots.
      state: at the start.
      minibatches: optimiser steps of an update.

    Attributes:
      state: now; for checkpoints.
    """

    def __init__(
        self,
        learner: LanguageLearner,
        hand_over: HandOver,
        state: LanguageState,
        minibatches: int = 1,
    ) -> None:
        self._learner, self._hand_over, self._minibatches = learner, hand_over, minibatches
        self.state = state
        self._weights: Versioned | None = None

    def weights(self) -> Versioned:
        """Laid out for sampling, once for each version."""
        if self._weights is None:
            self._weights = self._hand_over(self.state)
        return self._weights

    def learn(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Updates the state; returns metrics."""
        self.state, metrics = self._learner.update(self.state, samples, self._minibatches)
        self._weights = None
        return metrics


class Background:
    """The extractor with the model that speaks for it, and what that learns from.

    Args:
      extractor: at work.
      model: its weights.
      buffer: its credited generations; None: it does not learn.
      chunk: tokens that it draws in a turn.
    """

    def __init__(
        self, extractor: Extractor, model: Model, buffer: CreditBuffer | None, chunk: int
    ) -> None:
        self.extractor = extractor
        self._model, self._buffer, self._chunk = model, buffer, chunk
        self._begun = False

    def begin(self) -> None:
        """Starts a turn, if there is something to do."""
        if self.extractor.busy and not self._begun:
            weights, version = self._model.weights()
            self.extractor.begin(weights, version, self._chunk)
            self._begun = True

    def finish(self) -> dict[str, float]:
        """Ends the turn that was begun, and learns when enough was credited; returns metrics."""
        if self._begun:
            self.extractor.finish()
            self._begun = False
        samples = [] if self._buffer is None else self._buffer.take(self.extractor.step)
        if not samples:
            return {}
        found = self._model.learn(samples)
        assert self._buffer is not None
        found["reward"] = self._buffer.reward
        return {f"extractor_{name}": value for name, value in found.items()}

    def drain(self) -> dict[str, float]:
        """Finishes all that it has, as before a checkpoint; returns metrics."""
        metrics: dict[str, float] = {}
        while self.extractor.busy:
            self.begin()
            metrics |= self.finish()
        return metrics

    def add(self, experience: Experience) -> dict[str, float]:
        """Gives it an episode, when there is room; returns metrics."""
        metrics: dict[str, float] = {}
        while self.extractor.full:
            self.begin()
            metrics |= self.finish()
        self.extractor.add(experience)
        return metrics

    def end_step(self) -> None:
        """All episodes of a step have ended and were added."""
        if self._buffer is not None:
            self._buffer.settle()

    def next_step(self, number: int) -> None:
        """A step of the actor begins; every so many of them a merge does, too."""
        self.extractor.step = number
        merge = self.extractor.config.merge
        if merge is not None and number and number % merge.every == 0:
            self.extractor.begin_merge()


class DualLoop:
    """Steps of the actor with the extractor beside them.

    Args:
      config: how the two go together.
      acting: of the actor's episodes.
      improve: how the actor learns (its `instances` and `rollouts` do not matter here).
      seed: of the run.
      seeds: of the task.
      playing: the actor's slots, with `guide.begin`.
      guide: shows experience.
      actor: the actor's model.
      background: the extractor's side; None without experience, or with a bank that stays.
    """

    def __init__(
        self,
        config: LoopConfig,
        acting: ActorConfig,
        improve: ImproveConfig,
        seed: int,
        seeds: Seeds,
        playing: Playing,
        guide: Guide,
        actor: Model,
        background: Background | None = None,
    ) -> None:
        self.config, self._acting, self._improve = config, acting, improve
        self._seed, self._seeds = seed, seeds
        self._playing, self._guide, self._actor = playing, guide, actor
        self._background = background

    def step(self, number: int, watch: Watch | None = None) -> dict[str, float]:
        """Plays the episodes of a step, learns from them; what the extractor has left goes on.

        Args:
          watch: told from time to time how many episodes have ended, and of how many. What it
            raises ends the step in its middle: the loop is of no further use.

        Returns:
          Metrics: those of `outcomes_of` for all episodes and of `halves`, `stale`, `play_seconds`,
          those of the actor's update, and `extractor_…` of the extractor's if there was one.
        """
        warming = number < self._acting.warm_up
        self._guide.next_step(number)
        background = self._at_work(number)
        if background is not None:
            background.next_step(number)
        starts = starts_of(self._acting, self._seed, number, self._seeds, guide=not warming)
        self._playing.add(starts)
        begun, ended, metrics = time.perf_counter(), list[Experience](), dict[str, float]()
        while self._playing.busy:
            metrics |= self._turn(ended, background)
            if watch is not None:
                watch(len(ended), len(starts))
        metrics["play_seconds"] = time.perf_counter() - begun
        if background is not None:
            background.end_step()
        if self.config.barrier and background is not None:
            metrics |= background.drain()
        episodes = [experience.episode for experience in ended]
        metrics |= outcomes_of(episodes)._asdict() | halves(ended)
        metrics |= self._seeds.successes(episodes, "success")
        if self.config.train_actor and not warming:
            metrics |= self._learn(number, episodes)
        return metrics

    def _at_work(self, number: int) -> Background | None:
        """The extractor's side, unless the bank is fixed by now."""
        if self._background is None or not self.config.fixed or number < self._acting.warm_up:
            return self._background
        self._background.drain()  # of what the last steps of the warm-up have left
        return None

    def _turn(self, ended: list[Experience], background: Background | None) -> dict[str, float]:
        """A few tokens of both; returns metrics of the extractor's updates."""
        weights, version = self._actor.weights()
        self._playing.begin(weights, version, self.config.chunk)
        if background is not None:
            background.begin()
        metrics: dict[str, float] = {}
        for episode in self._playing.finish():
            ended.append(self._guide.ended(episode))
            if background is not None:
                metrics |= background.add(ended[-1])
        if background is not None:
            metrics |= background.finish()
        return metrics

    def _learn(self, number: int, episodes: Sequence[Episode]) -> dict[str, float]:
        version = self._actor.weights().version
        kept, stale = fresh(episodes, version, self._acting.max_staleness)
        metrics = {"stale": float(stale)}
        if any(episode.spoken.any() for episode in kept):
            random = np.random.default_rng([self._seed, number])
            samples, flat = samples_of(self._improve, kept, random, self.config.split)
            metrics |= self._actor.learn(samples) | {"flat_groups": flat}
        return metrics


def halves(ended: Sequence[Experience]) -> dict[str, float]:
    """What guided and free episodes have come to, and how old the entries were.

    Returns:
      `actions` of an episode, `success_guided` and `success_free` where there are such episodes,
      `entry_age`: episodes between the one that a shown entry was learned from and its own.
    """
    found = {"actions": float(np.mean([actions_of(each.episode) for each in ended]))}
    for name, part in (("guided", GUIDED), ("free", FREE)):
        half = [each.episode.success for each in ended if each.episode.start.part == part]
        if half:
            found[f"success_{name}"] = float(np.mean(half))
    ages = [each.number - entry.episode for each in ended for entry in each.shown]
    return found | ({"entry_age": float(np.mean(ages))} if ages else {})
