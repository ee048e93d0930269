"""A run from its start or last checkpoint to its end: metrics, checkpoints, model, summary."""

import sys
import time
from typing import Any

import numpy as np
from jax.sharding import Mesh

from jaxrl_guided.backbones.chat import write_template
from jaxrl_guided.backbones.hf import export_hf
from jaxrl_guided.backbones.lora import export_peft
from jaxrl_guided.learners.language.learner import LanguageState
from jaxrl_guided.learners.language.preparation import LanguageJob
from jaxrl_guided.learners.language.run_config import LanguageRunConfig
from jaxrl_guided.learners.language.training import LanguageRun
from jaxrl_guided.runtime.checkpoint import Checkpointer
from jaxrl_guided.runtime.errors import validation
from jaxrl_guided.runtime.markdown import markdown_table
from jaxrl_guided.runtime.metrics import MetricsWriter
from jaxrl_guided.runtime.plots import learning_curves
from jaxrl_guided.runtime.progress import ProgressBar
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag, Stopped

MODEL = "model"
"""Directory of the final model within a run."""

_SAVE_SECONDS = 60.0
_SHOWN = ("success", "loss")
_JUDGED = ("success", "success_greedy")


def run_language(
    job: LanguageJob, run: RunDir, stop: StopFlag, mesh: Mesh | None = None
) -> dict[str, Any]:
    """Trains, judges, and writes all that a run directory holds.

    Args:
      mesh: see `LanguageRun`.

    Returns:
      JSON data: the `curve` (rounds of policy gradients and the success after them, sampled and
      greedy; the first point is after imitation alone), its last point as `final`, `demonstrator`
      (success of what was imitated, or None), `episodes` played for learning, `minutes`.

    Raises:
      UserError: micro-batches or slots do not divide among the devices.
      Stopped: asked to stop; the same call goes on from the last checkpoint.
    """
    with validation():
        work = LanguageRun(job, mesh)
    try:
        with Checkpointer(run.checkpoints, run.config) as checkpoints:
            state, curve, seconds = _train(work, run, checkpoints, stop)
    finally:
        work.close()
    result = {
        "curve": curve,
        "final": {name: curve[name][-1] for name in _JUDGED},
        "demonstrator": job.demonstrated,
        "episodes": job.config.improve.steps * job.config.improve.episodes,
        "minutes": round(seconds / 60, 2),
    }
    _save_model(job, state, run)
    run.write_summary(result, summary_text(job.config, result))
    _draw(job, curve, run)
    return result


def _train(
    work: LanguageRun, run: RunDir, checkpoints: Checkpointer, stop: StopFlag
) -> tuple[LanguageState, dict[str, list[float]], float]:
    config = work.job.config
    state, done, before = work.init(), 0, 0.0
    curve: dict[str, list[float]] = {"rounds": [], **{name: [] for name in _JUDGED}}
    if saved := checkpoints.latest_step():
        state, meta = checkpoints.restore(state)
        done, curve, before = saved, meta["curve"], meta["seconds"]
        print(f"{config.task}: goes on from round {done:,} of {work.rounds:,}", file=sys.stderr)
    begun = last = time.monotonic()
    with (
        MetricsWriter(run.path, resume_step=done if done else -1) as metrics,
        ProgressBar(config.task, work.rounds, done, unit="rounds") as bar,
    ):
        while True:
            improved = done - config.warm_up.updates
            at_point = improved >= 0 and improved % config.judge.every == 0
            if (at_point or done == work.rounds) and improved not in curve["rounds"]:
                judged = work.judge(state)
                curve["rounds"].append(improved)
                for name in _JUDGED:
                    curve[name].append(judged[name])
                metrics.write(done, {f"judged_{name}": value for name, value in judged.items()})
            over = stop.requested or done == work.rounds
            if done and (over or time.monotonic() - last > _SAVE_SECONDS):
                metrics.flush()
                meta = {"curve": curve, "seconds": before + time.monotonic() - begun}
                checkpoints.save(done, state, meta)
                last = time.monotonic()
            if over:
                break
            state, numbers = work.round(done, state)
            done += 1
            metrics.write(done, numbers)
            bar.update(done, **{name: numbers[name] for name in _SHOWN if name in numbers})
    if done < work.rounds:
        raise Stopped(f"the same command goes on with --run_dir={run.home}")
    return state, curve, before + time.monotonic() - begun


def _draw(job: LanguageJob, curve: dict[str, list[float]], run: RunDir) -> None:
    episodes = np.asarray(curve["rounds"]) * job.config.improve.episodes
    lines = {
        title: (episodes, np.asarray([curve[name]]))
        for title, name in zip(("sampled", "greedy"), _JUDGED, strict=True)
    }
    floor = {} if job.demonstrated is None else {"demonstrator": job.demonstrated}
    path, xlabel = run.path / "curve.png", "episodes learned from"
    learning_curves(lines, path, job.config.task, "success", xlabel, levels=floor)


def _save_model(job: LanguageJob, state: LanguageState, run: RunDir) -> None:
    """A Hugging Face directory that `load_backbone` reads, or PEFT's files of the adapters."""
    root = run.path / MODEL
    if root.exists():
        root.rmtree()
    if job.config.finetune == "lora":
        export_peft(job.config.lora, state.trained, root)
        return
    export_hf(job.backbone.config, state.trained, root)
    job.backbone.tokenizer.backend.save(str(root / "tokenizer.json"))
    assert job.backbone.template is not None  # else there were no chat
    write_template(root, job.backbone.template)


def summary_text(config: LanguageRunConfig, result: dict[str, Any]) -> str:
    """The result as Markdown."""
    curve, each = result["curve"], config.improve.episodes
    rows = [
        [f"{rounds:,}", f"{rounds * each:,}", f"{100 * sampled:.1f} %", f"{100 * greedy:.1f} %"]
        for rounds, sampled, greedy in zip(
            curve["rounds"], curve["success"], curve["success_greedy"], strict=True
        )
    ]
    table = markdown_table(["rounds", "episodes", "success, sampled", "success, greedy"], rows)
    shown = result["demonstrator"]
    imitated = (
        "" if shown is None else f" Round 0 follows imitation of a player with {100 * shown:.1f} %."
    )
    return (
        f"# {config.backbone} on {config.task}\n\n{table}\n{config.judge.episodes:,} episodes each "
        f"that no training has seen.{imitated} {result['minutes']:g} minutes in all.\n"
    )
