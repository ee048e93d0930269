"""A run from its start or last checkpoint to its end: metrics, checkpoints, model, summary."""

import dataclasses
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_guided.learners.language.export import save_model
from jaxrl_guided.learners.language.journal import DivergenceCheck, write_episodes
from jaxrl_guided.learners.language.learner import LanguageState
from jaxrl_guided.learners.language.preparation import LanguageJob
from jaxrl_guided.learners.language.rollouts import Watch, outcomes_of
from jaxrl_guided.learners.language.run_config import LanguageRunConfig
from jaxrl_guided.learners.language.training import LanguageRun
from jaxrl_guided.runtime.checkpoint import Checkpointer
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.markdown import markdown_table
from jaxrl_guided.runtime.metrics import MetricsWriter
from jaxrl_guided.runtime.plots import learning_curves
from jaxrl_guided.runtime.progress import ProgressBar
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag, Stopped

MODEL = "model"
"""Directory of the final model within a run."""

_SAVE_SECONDS = 60.0
_UNREAD = (
    "warning: no answer of this round did anything in the task, and while all returns are equal "
    "nothing is learned: the model needs a warm-up (warm_up.updates)"
)
_SHOWN = ("success", "reward", "unread", "entropy")
_JUDGED = ("success", "success_greedy")


def run_language(work: LanguageRun, run: RunDir, stop: StopFlag) -> dict[str, Any]:
    """Trains, judges, and writes all that a run directory holds.

    Args:
      work: prepared; the directory belongs to its configuration.

    Returns:
      JSON data: the `curve` (rounds of policy gradients and the success after them, sampled and
      greedy; the first point is after imitation alone), its last point as `final`, `demonstrator`
      (success of what was imitated, or None), `episodes` played for learning, `minutes`.

    Raises:
      UserError: the directory's run began with another backbone.
      FloatingPointError: the run has diverged.
      Stopped: asked to stop; the same call goes on from the last checkpoint.
    """
    with Checkpointer(run.checkpoints, run.config) as checkpoints:
        course = _resumed(work, run, checkpoints)
        _train(work, run, checkpoints, course, stop)
    job, curve = work.job, course.curve
    result = {
        "curve": curve,
        "final": {name: curve[name][-1] for name in _JUDGED},
        "demonstrator": job.demonstrated,
        "episodes": job.config.improve.steps * job.config.improve.episodes,
        "minutes": round(course.seconds / 60, 2),
    }
    lora = job.config.lora if job.config.finetune == "lora" else None
    save_model(
        job.backbone,
        course.state.trained,
        run.path / MODEL,
        lora,
        job.config.backbone,
        job.chat.stop_ids,
    )
    run.write_summary(result, summary_text(job.config, result))
    _draw(job, curve, run)
    return result


@dataclasses.dataclass
class _Course:
    """Where a run stands: its state after `done` rounds, its curve, the seconds that it took."""

    state: LanguageState
    done: int
    curve: dict[str, list[float]]
    seconds: float
    clock: float = dataclasses.field(default_factory=time.monotonic)  # when seconds were counted

    def save(self, checkpoints: Checkpointer, origin: Mapping[str, str]) -> None:
        now = time.monotonic()
        self.seconds, self.clock = self.seconds + now - self.clock, now
        meta = {"curve": self.curve, "seconds": self.seconds, "origin": dict(origin)}
        checkpoints.save(self.done, self.state, meta)


def _resumed(work: LanguageRun, run: RunDir, checkpoints: Checkpointer) -> _Course:
    """From the last checkpoint, or the start."""
    state = work.init()
    if not (saved := checkpoints.latest_step()):
        return _Course(state, 0, {"rounds": [], **{name: [] for name in _JUDGED}}, 0.0)
    theirs, ours = checkpoints.stamp()["meta"]["origin"], work.job.origin
    if changed := [part for part in ours if theirs[part] != ours[part]]:
        raise UserError(
            f"--run_dir={run.home} began with another backbone: {' and '.join(changed)} of "
            f"{work.job.config.backbone} have changed; bring back the old files or name another "
            "directory"
        )
    state, meta = checkpoints.restore(state)
    task = work.job.config.task
    print(f"{task}: goes on from round {saved:,} of {work.rounds:,}", file=sys.stderr)
    return _Course(state, saved, meta["curve"], meta["seconds"])


def _train(
    work: LanguageRun, run: RunDir, checkpoints: Checkpointer, course: _Course, stop: StopFlag
) -> None:
    """Goes on to the end, with checkpoints on the way."""
    first, origin, warned = course.done, work.job.origin, False
    check = DivergenceCheck("round")
    with (
        MetricsWriter(run.path, resume_step=first or -1) as metrics,
        ProgressBar(work.job.config.task, work.rounds, first, unit="rounds") as bar,
    ):

        def watch(ended: int, of: int) -> None:
            if stop.requested:
                raise Stopped
            if 0 < ended < of:
                bar.update(course.done, episodes=ended, of=of)

        try:
            while True:
                _judge(work, run, course, metrics, watch)
                if course.done >= work.rounds:
                    break
                if stop.requested:
                    raise Stopped
                if course.done and time.monotonic() - course.clock > _SAVE_SECONDS:
                    course.save(checkpoints, origin)
                course.state, numbers = work.round(course.done, course.state, watch)
                course.done += 1
                metrics.write(course.done, numbers)
                check(course.done, numbers["loss"], numbers["skipped"])
                if numbers.get("unread") == 1 and not warned:
                    warned = True
                    print(_UNREAD, file=sys.stderr)
                bar.update(course.done, **{n: numbers[n] for n in _SHOWN if n in numbers})
        except Stopped:
            if course.done:
                course.save(checkpoints, origin)
            raise Stopped(f"the same command goes on with --run_dir={run.home}") from None
        if course.done > first:
            course.save(checkpoints, origin)


def _judge(
    work: LanguageRun, run: RunDir, course: _Course, metrics: MetricsWriter, watch: Watch
) -> None:
    """A point of the curve, if it is time for one and it is not there yet."""
    config, curve = work.job.config, course.curve
    improved = course.done - config.warm_up.updates
    at_point = improved >= 0 and improved % config.judge.every == 0
    if not (at_point or course.done >= work.rounds) or improved in curve["rounds"]:
        return
    judged = work.judge(course.state, watch)
    curve["rounds"].append(improved)
    for name in _JUDGED:
        curve[name].append(outcomes_of(judged[name]).success)
    numbers: dict[str, float] = {}
    for name in _JUDGED:
        numbers |= work.job.seeds.successes(judged[name], f"judged_{name}")
    metrics.write(course.done, numbers)
    write_episodes(run.path, course.done, "judged", judged, config.task, config.options)


def _draw(job: LanguageJob, curve: dict[str, list[float]], run: RunDir) -> None:
    episodes = np.asarray(curve["rounds"]) * job.config.improve.episodes
    lines = {
        title: (episodes, np.asarray([curve[name]]))
        for title, name in zip(("sampled", "greedy"), _JUDGED, strict=True)
    }
    floor = {} if job.demonstrated is None else {"demonstrator": job.demonstrated}
    path, xlabel = run.path / "curve.png", "episodes learned from"
    learning_curves(lines, path, job.config.task, "success", xlabel, levels=floor)


def summary_text(config: LanguageRunConfig, result: dict[str, Any]) -> str:
    """The result as Markdown."""
    curve, each = result["curve"], config.improve.episodes
    rows = [
        [f"{rounds:,}", f"{rounds * each:,}", f"{100 * sampled:.1f} %", f"{100 * greedy:.1f} %"]
        for rounds, sampled, greedy in zip(
            curve["rounds"], curve["success"], curve["success_greedy"], strict=True
        )
    ]
    table = markdown_table(
        ["steps of policy gradients", "episodes", "success, sampled", "success, greedy"], rows
    )
    shown = result["demonstrator"]
    imitated = (
        "" if shown is None else f" Round 0 follows imitation of a player with {100 * shown:.1f} %."
    )
    return (
        f"# {config.backbone} on {config.task}\n\n{table}\n{config.judge.episodes:,} episodes each "
        f"that no training has seen.{imitated} {result['minutes']:g} minutes in all.\n"
    )
