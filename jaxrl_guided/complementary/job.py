"""A run from its start or last checkpoint to its end: metrics, checkpoints, models, summary."""

import contextlib
import dataclasses
import functools
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxrl_guided.complementary import report
from jaxrl_guided.complementary.bank import BANK_FILE, Bank
from jaxrl_guided.complementary.bank.report import gini
from jaxrl_guided.complementary.credit import CreditBuffer
from jaxrl_guided.complementary.pairs import check_role, pair_of
from jaxrl_guided.complementary.training import ComplementaryRun, Course
from jaxrl_guided.learners.language.journal import DivergenceCheck, write_episodes
from jaxrl_guided.learners.language.learner import LanguageState
from jaxrl_guided.runtime.checkpoint import Checkpointer
from jaxrl_guided.runtime.metrics import MetricsWriter, read_metrics
from jaxrl_guided.runtime.progress import ProgressBar
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag, Stopped

_SHOWN = ("success", "success_guided", "success_free", "bank_size")


@dataclasses.dataclass
class _Record:
    """What a run has come to.

    Attributes:
      done: steps.
      curve: points: `steps`, the totals then, and successes of `Course.judge`.
      totals: `actions` (steps of the task), `episodes` and `tokens` that the actor has drawn.
      seconds: of work.
    """

    done: int
    curve: dict[str, list[float]]
    totals: dict[str, float]
    seconds: float

    @classmethod
    def new(cls) -> "_Record":
        return cls(0, {}, dict.fromkeys(("actions", "episodes", "tokens"), 0.0), 0.0)

    def data(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def run_complementary(work: ComplementaryRun, run: RunDir, stop: StopFlag) -> dict[str, Any]:
    """Warms up, plays and learns, judges, and writes all that a run directory holds.

    Args:
      work: prepared; the directory belongs to its configuration.

    Returns:
      JSON data: `curve` (steps, actions, episodes and tokens of the actor, success with and without
      experience), its last point as `final`; in training, over the last quarter: `actions` of an
      episode, and how far guided episodes were `ahead` of free ones (or None); `taught` (success
      of the scripted play, or None), `operations` (answers and operations of the extractor by
      kind), `extractor_tokens`, `bank_size`, `minutes`.

    Raises:
      BankError: the bank cannot be opened.
      FloatingPointError: the run has diverged.
      Stopped: asked to stop; the same call goes on from the last checkpoint.
    """
    config = work.job.config
    check_role(run, "both" if work.distant is None else "actor")
    with (
        Checkpointer(run.checkpoints, run.config) as checkpoints,
        contextlib.ExitStack() as stack,
    ):
        saved = checkpoints.latest_step()
        if work.distant is not None:  # told now, so that it warms up meanwhile
            check = functools.partial(_check_stop, run, checkpoints, stop)
            work.distant.begin_at(pair_of(run), saved or 0, check)
        states, buffer, meta = _restored(work, checkpoints) if saved else _warmed(work, stop)
        bank = None
        if config.experience:
            bank = stack.enter_context(
                Bank(
                    run.path / BANK_FILE,
                    work.job.embed.dim,
                    work.job.embed.name,
                    run=config.arm,
                    version=meta["bank"],
                    capacity=config.capacity,
                )
            )
        course = work.open(bank, states, buffer)
        record = _Record(**meta["record"]) if saved else _Record.new()
        if saved:
            course.go_on(meta["counters"])
            print(f"goes on from step {saved:,} of {config.steps:,}", file=sys.stderr)
        if work.distant is not None:
            work.distant.await_begun()
        _train(work, run, checkpoints, course, record, stop)
        result = _result(work, run, course, record)
        report.write(work.job, run, course, result)
        if work.distant is not None:
            work.distant.end()
    return result


def _warmed(
    work: ComplementaryRun, stop: StopFlag
) -> tuple[dict[str, LanguageState], CreditBuffer, dict[str, Any]]:
    """The start: models after their warm-up, nothing to learn from, the empty bank."""
    with ProgressBar("warm-up", work.warm_up_updates, unit="updates") as bar:

        def progress(done: int, of: int) -> None:
            if stop.requested:
                raise Stopped("nothing was saved yet: the same command begins anew")
            bar.update(done)

        states = work.warm_up(progress)
    return states, CreditBuffer(work.job.config.credit), {"bank": 0}


def _restored(
    work: ComplementaryRun, checkpoints: Checkpointer
) -> tuple[dict[str, LanguageState], CreditBuffer, dict[str, Any]]:
    shapes = checkpoints.stamp()["meta"]["buffer"]
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in shapes.items()}
    template: Any = {"models": work.templates(), "buffer": _filled(arrays)}
    state, meta = checkpoints.restore(template)
    buffer = CreditBuffer.from_state(work.job.config.credit, arrays | state["buffer"])
    return state["models"], buffer, meta


def _filled(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Orbax saves no array without elements."""
    return {name: array for name, array in arrays.items() if array.size}


def _save(checkpoints: Checkpointer, course: Course, record: _Record) -> None:
    """The extractor has nothing left to do (`Course.drain`)."""
    arrays = course.buffer.state()
    bank = course.bank
    meta = {
        "record": record.data(),
        "counters": course.counters(),
        "bank": 0 if bank is None else bank.checkpoint(f"step {record.done}"),
        "buffer": {name: [str(a.dtype), list(a.shape)] for name, a in arrays.items()},
    }
    checkpoints.save(record.done, {"models": course.states(), "buffer": _filled(arrays)}, meta)


def _train(
    work: ComplementaryRun,
    run: RunDir,
    checkpoints: Checkpointer,
    course: Course,
    record: _Record,
    stop: StopFlag,
) -> None:
    """Goes on to the end, with checkpoints on the way.

    A stop is at once: what was done since the last checkpoint will be done again.
    """
    config, first, clock = work.job.config, record.done, time.monotonic()
    check = DivergenceCheck("step")
    with (
        MetricsWriter(run.path, resume_step=first or -1) as metrics,
        ProgressBar(config.arm, config.steps, first) as bar,
    ):

        def watch(ended: int, of: int) -> None:
            _check_stop(run, checkpoints, stop)
            if 0 < ended < of:
                bar.update(record.done, episodes=ended, of=of)

        def judge() -> None:
            _judge(work, course, run, record, metrics, watch)

        judge()
        while record.done < config.steps:
            numbers = course.step(record.done, watch)
            record.done += 1
            due = record.done % config.save_every == 0 or record.done == config.steps
            if due:
                numbers |= course.drain()
            skipped = max(numbers.get(f"{who}skipped", 0.0) for who in ("", "extractor_"))
            check(record.done, numbers.get("loss", 0.0), skipped)
            _count(record, numbers, config.acting.instances * config.acting.rollouts)
            numbers |= _bank_numbers(course) | _operations(course)
            metrics.write(record.done, numbers)
            bar.update(record.done, **{n: numbers[n] for n in _SHOWN if n in numbers})
            judge()  # before it is saved, so that the point is in the checkpoint
            if due:
                now = time.monotonic()
                record.seconds, clock = record.seconds + now - clock, now
                metrics.flush()
                if work.distant is not None:
                    work.distant.save(record.done)
                _save(checkpoints, course, record)


def _check_stop(run: RunDir, checkpoints: Checkpointer, stop: StopFlag) -> None:
    if not stop.requested:
        return
    last = checkpoints.latest_step()
    since = f"from step {last:,}" if last else "from its start, since no checkpoint was due yet"
    raise Stopped(f"the same command goes on {since} with --run_dir={run.home}")


def _judge(
    work: ComplementaryRun,
    course: Course,
    run: RunDir,
    record: _Record,
    metrics: MetricsWriter,
    watch: Callable[[int, int], None],
) -> None:
    """A point of the curve, if it is time for one and it is not there yet."""
    config, curve, done = work.job.config, record.curve, record.done
    if (done % config.judge.every and done != config.steps) or done in curve.get("steps", []):
        return
    judged = course.judge(done, watch)
    found: dict[str, float] = {}
    for name, episodes in judged.items():
        found |= work.job.seeds.successes(episodes, name)
    point = {"steps": float(done), **record.totals, **found}
    for name, value in point.items():
        curve.setdefault(name, []).append(value)
    metrics.write(done, {f"judged_{name}": value for name, value in found.items()})
    write_episodes(run.path, done, "experience", judged, config.task, config.options)


def _count(record: _Record, numbers: dict[str, float], episodes: int) -> None:
    record.totals["episodes"] += episodes
    record.totals["actions"] += round(numbers["actions"] * episodes)
    record.totals["tokens"] += round(numbers["answer_tokens"] * numbers["turns"] * episodes)


def _bank_numbers(course: Course) -> dict[str, float]:
    if course.bank is None:
        return {}
    counts = [course.bank.usage(entry.id).retrievals for entry in course.bank.entries()]
    return {"bank_size": float(len(counts)), "retrieval_gini": gini(counts)}


def _operations(course: Course) -> dict[str, float]:
    """All answers and operations of the extractor so far, by kind."""
    counts = Counter[str]() if course.extractor is None else course.extractor.counts
    return {f"total_{name.replace(' ', '_')}": float(count) for name, count in counts.items()}


def _result(work: ComplementaryRun, run: RunDir, course: Course, record: _Record) -> dict[str, Any]:
    rows = [row for row in read_metrics(run.path) if row["step"] > 0.75 * record.done]
    ahead = [
        row["success_guided"] - row["success_free"]
        for row in rows
        if "success_guided" in row and "success_free" in row
    ]
    extractor = course.extractor
    return {
        "curve": record.curve,
        "final": {n: v[-1] for n, v in record.curve.items() if n.startswith("with")},
        "actions": float(np.mean([row["actions"] for row in rows if "actions" in row])),
        "ahead": float(np.mean(ahead)) if ahead else None,
        "taught": work.job.taught,
        "operations": {} if extractor is None else dict(sorted(extractor.counts.items())),
        "extractor_tokens": 0 if extractor is None else extractor.tokens,
        "bank_size": 0 if course.bank is None else len(course.bank),
        "minutes": round(record.seconds / 60, 2),
    }
