"""The main job: LaGO on CLEVR-Robot from data to table.

    python -m experiments.lago --preset=demo --run_dir=runs/demo

Collects expert data, fine-tunes the prior, trains every arm on every level with equal budgets and
seeds, evaluates, and writes summary, curves, metrics and checkpoints. Whatever is finished is kept:
the same command goes on where an earlier one stopped.
"""

from pathlib import Path
from typing import Any

from absl import flags

from jaxrl_guided.lago.config import PRESETS, LagoConfig
from jaxrl_guided.runtime import app, config
from jaxrl_guided.runtime.rundir import RunDir

_ENV = flags.DEFINE_enum("env", "clevr", ["clevr"], "Environment family.")
_DATA = flags.DEFINE_string("data", None, "Use this dataset instead of collecting one.")
_PRIOR = flags.DEFINE_string("prior", None, "Use this prior instead of training one.")
_CORES = flags.DEFINE_integer("cores", 0, "Processes for online cells; 0: all cores.")
_ONLY = flags.DEFINE_string("only", "", "Run only cells whose id matches this expression.")
_MAX_MINUTES = flags.DEFINE_float("max_minutes", float("inf"), "Start no cell after this time.")
_CONFIG = config.define(PRESETS)


def run() -> None:
    """Runs the stages in order."""
    from jaxrl_guided.lago.online import Stopped
    from jaxrl_guided.runtime import compile_cache, rundir

    settings = _CONFIG.build()
    with rundir.open_run(app.RUN_DIR.value, "lago", settings) as run_dir:
        compile_cache.enable(Path(run_dir.path) / "compiled")
        try:
            data, prior = _offline(settings, run_dir)
            _online(settings, run_dir, data, prior)
        except Stopped:
            print(f"stopped; the same command goes on from {run_dir.path}")
            return
        _report(settings, run_dir, prior)


def _offline(settings: LagoConfig, run_dir: RunDir) -> tuple[Path, Path]:
    """Paths of dataset and prior, made where they are not given or there already."""
    from jaxrl_guided.lago.artifact import load_prior
    from jaxrl_guided.lago.stages import collect_data, load_data, train_prior
    from jaxrl_guided.runtime import rundir, signals
    from jaxrl_guided.runtime.errors import validation

    root = Path(run_dir.path)
    data = Path(_DATA.value or root / "data")
    prior = Path(_PRIOR.value or root / "prior")
    with validation():
        if _PRIOR.value or prior.exists():
            load_prior(prior)
        else:
            settings.prior.backbone.load()
    if _DATA.value or data.exists():
        episodes = load_data(data)
    else:
        episodes = collect_data(settings.data, settings.online.horizon, data)
    meta = episodes.metadata
    print(f"expert on {meta['env']}: success {100 * meta['success_rate']:.1f} %")
    if not prior.exists():
        with (
            rundir.open_run(root / "prior_run", "prior", settings.prior) as prior_run,
            signals.catch_signals() as stop,
        ):
            card = train_prior(settings.prior, episodes, prior_run, prior, stop)
        print(f"prior: held-out nll {card.training['held_out_nll']:.3f}")
    return data, prior


def _online(settings: LagoConfig, run_dir: RunDir, data: Path, prior: Path) -> None:
    """Trains and evaluates all cells."""
    from jaxrl_guided.lago.grid import run_here, run_in_processes
    from jaxrl_guided.lago.online import Stopped
    from jaxrl_guided.runtime import versions

    root = Path(run_dir.path)
    places = (settings.cells(), prior, data, root / "cells", root / "results")
    if not settings.processes:
        run_here(*places)
        return
    done = run_in_processes(
        *places,
        cores=_CORES.value or len(versions.cores()),
        only=_ONLY.value,
        max_minutes=_MAX_MINUTES.value,
    )
    if done.failed:
        raise SystemExit(1)
    if done.left:
        raise Stopped


def _report(settings: LagoConfig, run_dir: RunDir, prior: Path) -> None:
    """Writes and prints the tables."""
    from jaxrl_guided.lago.grid import report, summary_text

    root = Path(run_dir.path)
    records: dict[str, Any] = report(settings.cells(), prior, root / "results", root)
    text = summary_text(records)
    run_dir.write_summary(records, text)
    print(text)
    print(f"results in {root}: summary.md, summary.json, curve_*.png, cells/*/metrics.jsonl")


if __name__ == "__main__":
    app.main(run)
