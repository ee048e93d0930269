"""A training run in segments: after each one the policy is judged and the whole state is saved.

A run that is stopped, or killed, goes on from its last checkpoint and ends with the same state.
"""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.learners.train import Chunk, HostMetrics, iteration_of, summarise, train
from jaxrl_guided.runtime.checkpoint import Checkpointer
from jaxrl_guided.runtime.mesh import agree, is_leader
from jaxrl_guided.runtime.metrics import MetricsWriter
from jaxrl_guided.runtime.progress import ProgressBar
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag, Stopped

_SHOWN = ("return", "success")
"""What the progress bar shows beside the rate, where it is there."""

_ROWS = 200
"""Of metrics, in a run that has so many iterations."""


@dataclasses.dataclass
class Clock:
    """Time of work, that of earlier processes included."""

    before: float = 0.0
    started: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return self.before + time.monotonic() - self.started


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long a run is and how often it is judged.

    Attributes:
      name: what the progress bar is called.
      iterations: of the learner, in all.
      steps_at: environment steps after so many iterations.
      points: evaluations on the way, equally spaced.
      measure: what they give, as `success`.
    """

    name: str
    iterations: int
    steps_at: Callable[[int], int]
    points: int
    measure: str

    @property
    def targets(self) -> list[int]:
        """Iterations after which the policy is judged; the last one is the end."""
        points = min(self.points, self.iterations)
        return sorted({round(self.iterations * (i + 1) / points) for i in range(points)})

    @property
    def row_ends(self) -> list[int]:
        """Iterations after which a row of metrics ends, all targets among them."""
        every = max(1, self.iterations // _ROWS)
        return sorted({*range(every, self.iterations, every), *self.targets})


class Rows:
    """Metrics of chunks, whose lengths the clock decides, cut into rows, which it does not."""

    def __init__(self, ends: Sequence[int]):
        self._ends = ends
        self._reached = 0
        self._pending: HostMetrics = {}

    def add(self, metrics: HostMetrics, iteration: int) -> list[tuple[int, HostMetrics]]:
        """Takes the iterations before `iteration`; gives what is complete, and where it ends."""
        complete, pending = [], metrics
        if self._pending:
            pending = {k: np.concatenate([self._pending[k], rows]) for k, rows in metrics.items()}
        self._reached = iteration
        first = iteration - len(next(iter(pending.values())))
        for end in self._ends:
            if first < end <= iteration:
                part = {name: rows[: end - first] for name, rows in pending.items()}
                complete.append((end, part))
                pending = {name: rows[end - first :] for name, rows in pending.items()}
                first = end
        self._pending = pending if first < iteration else {}
        return complete

    def rest(self) -> list[tuple[int, HostMetrics]]:
        """What is left of a run that ends before its time, as a row of its own."""
        left, self._pending = self._pending, {}
        return [(self._reached, left)] if left else []


def train_in_segments(
    plan: Plan,
    chunk: Chunk,
    state: Any,
    judge: Callable[[Any], list[float]],
    run: RunDir,
    checkpoints: Checkpointer,
    stop: StopFlag,
    clock: Clock,
    frozen: PyTree = None,
    on_restore: Callable[[Any], None] = lambda state: None,
) -> tuple[Any, dict[str, Any]]:
    """Train from the last checkpoint, or from `state` without one, to the end.

    Args:
      state: of the learner at the start, seeds first.
      judge: `state ->` one number a seed, a point of the curve.
      run: gets the metrics.
      clock: set back to the time that earlier processes have worked.
      frozen: the guidance's prior.
      on_restore: gets the state of a checkpoint, to bring what is not in it to where it says.

    Returns:
      The last state, and the curve: `steps`, and under `plan.measure` a list of seeds for each.

    Raises:
      FloatingPointError: see `train`; it names the last good checkpoint, too.
      Stopped: asked to stop; everything is saved.
    """
    steps_at = plan.steps_at
    curve: dict[str, Any] = {"steps": [], plan.measure: []}
    saved = checkpoints.latest_step()
    if saved:
        state, meta = checkpoints.restore(state)
        curve, clock.before = meta["curve"], meta["seconds"]
        on_restore(state)
        if is_leader():
            _tell_resumed(plan, saved)
    done = iteration_of(state)  # a start may lie behind the first points
    with contextlib.ExitStack() as stack:
        if is_leader():
            resume_step = steps_at(saved) if saved else -1
            metrics = stack.enter_context(MetricsWriter(run.path, resume_step))
            bar = ProgressBar(plan.name, steps_at(plan.iterations), steps_at(done))
            stack.enter_context(bar)
        rows = Rows(plan.row_ends)

        def write(complete: list[tuple[int, HostMetrics]]) -> None:
            for end, part in complete:
                metrics.write(steps_at(end), summarise(part))

        def on_chunk(state: Any, latest: HostMetrics, iteration: int) -> None:
            if not is_leader():
                return
            write(rows.add(latest, iteration))
            summary = summarise(latest)
            shown = {key: float(np.nanmean(summary[key])) for key in _SHOWN if key in summary}
            bar.update(steps_at(iteration), **shown)

        for target in plan.targets:
            if target <= done:
                continue
            try:
                state = train(
                    chunk,
                    state,
                    target,
                    frozen,
                    on_chunk=on_chunk,
                    should_stop=lambda: stop.requested,
                )
            except FloatingPointError as error:
                if is_leader():
                    write(rows.rest())
                last = checkpoints.latest_step()
                kept = "no checkpoint is" if last is None else f"the last good one, {last}, is"
                raise FloatingPointError(f"{error}; {kept} in {run.checkpoints}") from error
            reached = iteration_of(state)
            if reached == target:
                curve["steps"].append(steps_at(target))
                curve[plan.measure].append(judge(state))
            _, stopped = agree(0, stop.requested)
            # Before the checkpoint: rows that it has and the directory lacks would be lost.
            if is_leader():
                write(rows.rest())
                metrics.flush()
            run.sync()
            checkpoints.save(reached, state, {"curve": curve, "seconds": clock.seconds})
            if stopped:
                raise Stopped(f"the same command goes on with --run_dir={run.home}")
    return state, curve


def _tell_resumed(plan: Plan, saved: int) -> None:
    done, total = plan.steps_at(saved), plan.steps_at(plan.iterations)
    if saved == plan.iterations:
        text = f"all {total:,} steps are done already; the policy is judged again"
    else:
        text = f"goes on from step {done:,} of {total:,}"
    print(f"{plan.name}: {text}", file=sys.stderr)
