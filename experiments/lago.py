"""The main job: LaGO on CLEVR-Robot or Meta-World from data to table.

    python -m experiments.lago --preset=demo --run_dir=runs/demo
    python -m experiments.lago --env=metaworld --run_dir=runs/metaworld

Collects expert data, fine-tunes the prior, trains every arm on every level with equal budgets and
seeds, evaluates, and writes summary, curves, metrics and checkpoints. Whatever is finished is kept:
the same command, with the same --run_dir, goes on where an earlier one stopped.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
from absl import flags

from jaxrl_guided.lago.config import LagoConfig
from jaxrl_guided.lago.presets import FIRST_PRESETS, PRESETS
from jaxrl_guided.runtime import app, config, versions
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import Stopped

_ENV = flags.DEFINE_enum(
    "env", None, list(FIRST_PRESETS), f"Environment family, whose presets are {FIRST_PRESETS}."
)
_DATA = flags.DEFINE_string("data", None, "Use this dataset instead of collecting one.")
_PRIOR = flags.DEFINE_string("prior", None, "Use this prior instead of training one.")
_CORES = flags.DEFINE_integer(
    "cores", 0, "Processes for online cells; 0: all cores.", 0, len(versions.cores())
)
_ONLY = flags.DEFINE_string("only", "", "Run only cells whose id matches this expression.")
_MAX_MINUTES = flags.DEFINE_float("max_minutes", float("inf"), "Start no cell after this time.")
_CONFIG = config.define(PRESETS)
_PER_CELL = {
    "arm": "--config.arms",
    "seeds": "--config.seeds",
    "level": "--config.pairs",
    "reward": "--config.pairs",
}


def run() -> None:
    """Runs the stages in order."""
    from jaxrl_guided.runtime import compile_cache, rundir

    if _ENV.value:
        _CONFIG.prefer(FIRST_PRESETS[_ENV.value])
    settings = _CONFIG.build()
    _check(settings)
    with rundir.open_run(app.RUN_DIR.value, "lago", settings) as run_dir:
        if settings.quick_compile:
            jax.config.update("jax_disable_most_optimizations", True)
        compile_cache.enable(Path(run_dir.path) / "compiled")
        try:
            data, prior = _offline(settings, run_dir)
            _online(settings, run_dir, data, prior)
        except Stopped:  # named by the whole run, not by the part that was at work
            raise Stopped(f"the same command goes on with --run_dir={run_dir.path}") from None
        _report(settings, run_dir)


def _check(settings: LagoConfig) -> None:
    """Raises UserError for whatever can be known before anything is written."""
    from jaxrl_guided.envs import make
    from jaxrl_guided.lago.offline import check_learned_level, load_data, load_trained
    from jaxrl_guided.lago.online import check_horizon, check_inputs
    from jaxrl_guided.runtime.cells import check_minutes, matching
    from jaxrl_guided.runtime.errors import UserError, validation

    if (family := PRESETS[_CONFIG.preset].online.env) != settings.online.env:
        raise UserError(f"--config.online.env: --preset={_CONFIG.preset} is of {family}")
    if _ENV.value not in (None, family):
        raise UserError(
            f"--env={_ENV.value} differs from --preset={_CONFIG.preset}, which is of {family}; "
            "leave one of them out"
        )
    for field, instead in _PER_CELL.items():
        if f"--config.online.{field}" in _CONFIG.given():
            raise UserError(f"--config.online.{field} differs from cell to cell; give {instead}")
    if _CORES.value and not settings.processes:
        raise UserError("--cores needs --config.processes=true; else all cells run in this process")
    with validation():  # its package may be missing
        make(f"{settings.online.env}/{settings.data.level}").close()
    matching(list(settings.cells()), _ONLY.value)
    check_minutes(_MAX_MINUTES.value)
    check_learned_level(settings.data.level, "--config.data")
    env = settings.online.env
    episodes = load_data(_DATA.value, env) if _DATA.value else None
    prior = load_trained(_PRIOR.value, env) if _PRIOR.value else None
    if prior is None:
        settings.prior.check_backbone()
    if prior is None and episodes is not None:
        longest = episodes.metadata["horizon"]
        check_horizon(settings.online, longest, "the dataset, and so the prior, has")
    # What arms lack is made later: an arm that needs nothing stands for all.
    check_inputs(dataclasses.replace(settings.online, arm="random"), prior, episodes)


def _offline(settings: LagoConfig, run_dir: RunDir) -> tuple[Path, Path]:
    """Paths of dataset and prior, made where they are not given or there already."""
    from jaxrl_guided.lago.offline import collect_data, load_data, train_prior
    from jaxrl_guided.runtime import rundir, signals

    root = Path(run_dir.path)
    data = Path(_DATA.value or root / "data")
    prior = Path(_PRIOR.value or root / "prior")
    if data.exists():
        episodes = load_data(data, settings.online.env)
    else:
        online = settings.online
        episodes = collect_data(settings.data, online.horizon, data, online.env)
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

    root = Path(run_dir.path)
    places = (settings.cells(), prior, data, root / "cells", root / "results")
    choice: dict[str, Any] = {"only": _ONLY.value, "max_minutes": _MAX_MINUTES.value}
    if settings.processes:
        program = (sys.executable, "-m", "experiments.train_online")
        cores = _CORES.value or len(versions.cores())
        done = run_in_processes(*places, program, cores=cores, **choice)
    else:
        done = run_here(*places, **choice)
    if done.failed:
        raise SystemExit(1)
    if done.left:
        raise Stopped


def _report(settings: LagoConfig, run_dir: RunDir) -> None:
    """Writes and prints the tables."""
    from jaxrl_guided.lago.grid import report
    from jaxrl_guided.lago.report import as_text

    root = Path(run_dir.path)
    records: dict[str, Any] = report(settings.cells(), root / "results", root)
    text = "\n".join(as_text(record) for record in records.values())
    run_dir.write_summary(records, text)
    print(text)
    print(f"results in {root}: summary.md, summary.json, curve_*.png, cells/*/metrics.jsonl")


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)
