"""Steps of the dual loop with and without an extractor, in turn; prints seconds as JSON.

Nothing is learned and all episodes are free, so that the actor's work is the same in both.

    python -m benchmarks.ours_dual_loop stub 5          # an extractor that only takes its time
    python -m benchmarks.ours_dual_loop device-1 5      # a model of its own, on the second device
"""

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np

from jaxrl_guided.backbones.embedders import HashedEmbedder
from jaxrl_guided.backbones.turns import Weights
from jaxrl_guided.complementary.actor import ActorConfig
from jaxrl_guided.complementary.bank import Bank
from jaxrl_guided.complementary.credit import CreditBuffer
from jaxrl_guided.complementary.dual import Background, DualLoop, LoopConfig
from jaxrl_guided.complementary.extractor import Extractor, ExtractorConfig
from jaxrl_guided.complementary.preparation import ComplementaryJob, prepare
from jaxrl_guided.complementary.presets import NANO
from jaxrl_guided.complementary.requests import Requests
from jaxrl_guided.complementary.retrieval import RetrievalConfig, Retriever
from jaxrl_guided.complementary.run_config import ComplementaryConfig
from jaxrl_guided.complementary.training import ComplementaryRun, Course
from jaxrl_guided.learners.language.rollouts import Episode, Start
from jaxrl_guided.learners.language.run_config import WarmUpConfig
from jaxrl_guided.runtime import versions

SLOWER = 10
"""Times a step's rollouts that the stub takes for an answer."""

_WARM_UP = WarmUpConfig(updates=30, episodes=200, batch=8)
_STEPS = 8
"""Timed together: one is short, and what else runs on a machine would show."""


class Stub:
    """Answers each request after some seconds, all at a time; nothing is computed."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._due: list[tuple[float, Start]] = []

    @property
    def busy(self) -> bool:
        """Something was not answered yet."""
        return bool(self._due)

    def add(self, starts: Sequence[Start]) -> None:
        """Their answers are due from now on."""
        self._due += [(time.perf_counter() + self.seconds, start) for start in starts]

    def begin(self, weights: Weights, version: int = 0, steps: int = 32) -> None:
        """Somebody else works."""

    def finish(self) -> list[Episode]:
        """The answers that are due."""
        now = time.perf_counter()
        due = [start for at, start in self._due if at <= now]
        self._due = [pair for pair in self._due if pair[0] > now]
        return [_nothing_worth_keeping(start) for start in due]


def _nothing_worth_keeping(start: Start) -> Episode:
    said = '<answer>[{"operation": "return"}]</answer>'
    ids, spoken = np.array([1, 2], np.int32), np.array([False, True])
    none = np.zeros(2, np.float32)
    return Episode(
        start, "", [("assistant", said)], ids, spoken, none, {}, False, 1, 0, "terminated", 0
    )


def _config() -> ComplementaryConfig:
    """Small models of the preset `nano`, all episodes free."""
    return dataclasses.replace(
        NANO,
        actor=dataclasses.replace(NANO.actor, warm_up=_WARM_UP),
        extractor_model=dataclasses.replace(NANO.extractor_model, warm_up=_WARM_UP),
        acting=ActorConfig(instances=1, guided=0, questions=0, warm_up=0),
        extractor=dataclasses.replace(NANO.extractor, merge=None),
        loop=LoopConfig(train_actor=False, train_extractor=False),
    )


def _loop(
    job: ComplementaryJob, course: Course, background: Background | None, barrier: bool = False
) -> DualLoop:
    """Steps of the same actor, with an extractor's side or without."""
    return DualLoop(
        dataclasses.replace(job.config.loop, barrier=barrier),
        job.config.acting,
        job.config.improve,
        job.config.seed,
        job.seeds,
        course.playing,
        course.guide,
        course.models["actor"],
        background,
    )


def measure_device(number: int, repeats: int) -> list[list[float]]:
    """Seconds of a step's rollouts, alone and with an extractor's model at work."""
    job = prepare(_config())
    device = jax.devices()[number] if number else None
    with (
        contextlib.closing(ComplementaryRun(job, device)) as work,
        tempfile.TemporaryDirectory() as folder,
        Bank(Path(folder) / "bank", job.embed.dim, job.embed.name) as bank,
    ):
        course = work.open(bank, work.warm_up(), CreditBuffer(job.config.credit))
        alone, found = _loop(job, course, None), []
        cores = versions.cores()
        for repeat in _unmeasured_first((alone, course.loop), repeats):
            # A core for each device. With one at work, XLA would use the other's core too.
            _stay_on(cores[:1] if number else cores)
            first = _played(alone, repeat)
            _stay_on(cores)
            found.append([first, _played(course.loop, repeat)])
        return found


def _stay_on(cores: Sequence[int]) -> None:
    """Binds all threads of this process, where a system can."""
    if not hasattr(os, "sched_setaffinity"):
        return
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cores)


def _unmeasured_first(loops: Sequence[DualLoop], repeats: int) -> Iterator[int]:
    """Numbers of repeats, each after its steps ran once: by then their programs are compiled."""
    for repeat in range(repeats):
        for loop in loops:
            _played(loop, repeat)
        yield repeat


def measure_stub(repeats: int) -> list[list[float]]:
    """Seconds of a step without an extractor, beside a slow one, and waiting for a slow one."""
    job = prepare(dataclasses.replace(_config(), arm="baseline"))
    embed = HashedEmbedder(64)
    with (
        contextlib.closing(ComplementaryRun(job)) as work,
        tempfile.TemporaryDirectory() as folder,
        Bank(Path(folder) / "bank", embed.dim, embed.name) as bank,
    ):
        course = work.open(None, work.warm_up(), CreditBuffer(job.config.credit))
        stub, retrieve = Stub(), Retriever(RetrievalConfig(), embed, bank)
        settings = ExtractorConfig(merge=None, queue=_episodes(job))
        extractor = Extractor(settings, stub, _episodes(job), Requests(), bank, embed, retrieve)
        background = Background(extractor, course.models["actor"], None, 32)
        alone, beside = _loop(job, course, None), _loop(job, course, background)
        waiting = _loop(job, course, background, barrier=True)
        found = []
        for repeat in _unmeasured_first((alone, beside), repeats):
            first = _seconds(alone, repeat)
            stub.seconds = SLOWER * first
            found.append([first, _seconds(beside, repeat), _seconds(waiting, repeat, 1)])
        return found


def _episodes(job: ComplementaryJob) -> int:
    return job.config.acting.instances * job.config.acting.rollouts


def _seconds(loop: DualLoop, repeat: int, steps: int = _STEPS) -> float:
    """Of a step."""
    begun = time.perf_counter()
    _played(loop, repeat, steps)
    return (time.perf_counter() - begun) / steps


def _played(loop: DualLoop, repeat: int, steps: int = _STEPS) -> float:
    """Seconds of a step's rollouts; the same episodes for all loops."""
    first = _STEPS * repeat
    return sum(loop.step(first + i)["play_seconds"] for i in range(steps)) / steps


def main(case: str, repeats: int) -> None:
    """Measures a case and prints the seconds of each repeat."""
    kind, _, number = case.partition("-")
    found = measure_stub(repeats) if kind == "stub" else measure_device(int(number), repeats)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
