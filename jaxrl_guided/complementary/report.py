"""What a run leaves for people: models, summary, curves, the bank's best and worst entries."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from jaxrl_guided.complementary.arms import ARMS
from jaxrl_guided.complementary.bank import Bank
from jaxrl_guided.complementary.bank.report import ORDERS
from jaxrl_guided.complementary.model_programs import export
from jaxrl_guided.complementary.preparation import ComplementaryJob
from jaxrl_guided.complementary.run_config import ComplementaryConfig
from jaxrl_guided.complementary.training import Course
from jaxrl_guided.runtime.files import write_text
from jaxrl_guided.runtime.markdown import markdown_table
from jaxrl_guided.runtime.metrics import read_metrics
from jaxrl_guided.runtime.plots import learning_curves
from jaxrl_guided.runtime.rundir import RunDir

_ENTRIES = 10


def write(job: ComplementaryJob, run: RunDir, course: Course, result: dict[str, Any]) -> None:
    """Writes all of it into the run directory."""
    for name, state in course.states().items():
        prepared = job.actor if name == "actor" else job.extractor
        assert prepared is not None
        export(prepared, state, run.path / name)
    if course.bank is not None:
        write_text(run.path / "entries.md", entries_text(course.bank))
    run.write_summary(result, summary_text(job.config, result))
    _draw(job.config, result["curve"], run.path)


def summary_text(config: ComplementaryConfig, result: Mapping[str, Any]) -> str:
    """The result as Markdown."""
    curve = result["curve"]
    judged = [name for name in ("with", "without") if name in curve]
    rows = [
        [
            f"{int(step):,}",
            *(f"{int(curve[name][i]):,}" for name in ("actions", "episodes", "tokens")),
            *(f"{100 * curve[name][i]:.1f} %" for name in judged),
        ]
        for i, step in enumerate(curve["steps"])
    ]
    columns = ["steps", "steps of the task", "episodes", "tokens of the actor"]
    table = markdown_table([*columns, *(f"success {name} experience" for name in judged)], rows)
    table += _by_task(result["final"], judged)
    taught, parts = result["taught"], []
    if taught is not None:
        parts.append(f"Scripted play of the warm-up succeeds in {100 * taught:.1f} %.")
    if result["operations"]:
        mix = ", ".join(f"{name} {count:,}" for name, count in result["operations"].items())
        parts.append(f"The extractor: {mix}. Entries at the end: {result['bank_size']:,}.")
    return (
        f"# {ARMS[config.arm].title} on {config.task}\n\n{table}\n{config.judge.episodes:,} "
        f"episodes each that no training has seen, temperature {config.acting.temperature:g}. "
        f"{' '.join(parts)} {result['minutes']:g} minutes in all.\n"
    )


def _by_task(final: Mapping[str, float], judged: Sequence[str]) -> str:
    """Success of each task of a mix at the end, as Markdown; nothing for one task."""
    labels = [name.removeprefix("without_") for name in final if name.startswith("without_")]
    if not labels:
        return ""
    rows = [
        [label, *(f"{100 * final[f'{name}_{label}']:.1f} %" for name in judged)] for label in labels
    ]
    columns = ["task, at the end", *(f"success {name} experience" for name in judged)]
    return f"\n{markdown_table(columns, rows)}"


def entries_text(bank: Bank) -> str:
    """The entries with the best and the worst outcomes, as text."""
    used = [(entry, bank.usage(entry.id)) for entry in bank.entries()]
    credited = [(entry, usage) for entry, usage in used if usage.credits]
    parts = []
    for title, order in (("Best entries", "best"), ("Worst entries", "worst")):
        key = ORDERS[order]
        chosen = sorted(credited, key=lambda pair: key(*pair), reverse=True)[:_ENTRIES]
        lines = [
            f"- {usage.total / usage.credits:+.2f} of {usage.credits} episodes: **{entry.title}** "
            f"{' '.join(entry.content.split())}"
            for entry, usage in chosen
        ]
        parts.append("\n".join([f"## {title}", "", *(lines or ["None was shown yet."])]))
    return "\n\n".join(parts) + "\n"


def _draw(
    config: ComplementaryConfig, curve: Mapping[str, Sequence[float]], path: epath.Path
) -> None:
    """`curve.png`: judged success; `training.png`: that of both halves of the training episodes."""
    actions = np.asarray(curve["actions"])
    judged = {
        f"{name} experience": (actions, np.asarray([curve[name]]))
        for name in ("with", "without")
        if name in curve
    }
    xlabel = "steps of the task"
    learning_curves(judged, path / "curve.png", config.task, "success", xlabel)
    rows = [row for row in read_metrics(path) if "success" in row]
    halves = {
        name: (np.asarray([r["step"] for r in found]), np.asarray([[r[field] for r in found]]))
        for name, field in (("guided", "success_guided"), ("free", "success_free"))
        if (found := [row for row in rows if field in row])
    }
    learning_curves(halves, path / "training.png", config.task, "success in training", "steps")
