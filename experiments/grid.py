"""Runs the cells of a reported experiment and writes its table.

    python -m experiments.grid lago_clevr --cores=2 --max_minutes=60

Finished cells are committed under `benchmarks/results/cells/NAME/` and skipped; the table
`benchmarks/results/NAME*.json` grows with them and refuses to mix configurations, priors and
datasets. `--table_only` makes it from the committed cells alone. NAME is one of lago_clevr,
lago_clevr_30, lago_metaworld, lago_metaworld_tune, lago_metaworld_gate, lago_tune, lago_backbones,
lago_gate and learners.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from jaxrl_guided.lago import comparison, grid
from jaxrl_guided.lago.comparison_report import comparison_record
from jaxrl_guided.lago.gate_report import LEVEL, TASK, gate_cells, gate_record, task_cells
from jaxrl_guided.lago.online import check_inputs
from jaxrl_guided.lago.presets import FULL, FULL_30, METAWORLD
from jaxrl_guided.lago.report import as_text
from jaxrl_guided.lago.sources import load_finished
from jaxrl_guided.lago.stages import load_data, load_trained
from jaxrl_guided.lago.trials import METAWORLD_TRIALS, TRIALS
from jaxrl_guided.learners import standard
from jaxrl_guided.runtime import app, cells, files, versions
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.signals import Stopped

MAIN, FULL_30_LAYERS = "lago_clevr", "lago_clevr_30"
TUNING, BACKBONES = "lago_tune", "lago_backbones"
LEARNERS, GATE = "learners", "lago_gate"
META, META_TUNING, META_GATE = "lago_metaworld", "lago_metaworld_tune", "lago_metaworld_gate"
GRIDS: dict[str, Callable[[], Any]] = {
    MAIN: FULL.cells,
    FULL_30_LAYERS: FULL_30.cells,
    META: METAWORLD.cells,
    META_TUNING: lambda: METAWORLD_TRIALS,
    META_GATE: task_cells,
    TUNING: lambda: TRIALS,
    BACKBONES: comparison.backbone_cells,
    GATE: gate_cells,
    LEARNERS: lambda: standard.TASKS,
}
RESULTS = Path("benchmarks/results")
_SUFFIX = {"goal": "", "distance": "_distance"}
_PRIOR_8 = str(RESULTS / "priors/smollm2_8_lora")
_PRIOR_META = str(RESULTS / "priors/metaworld_smollm2_8_lora")
_PRIORS = {
    FULL_30_LAYERS: "runs/priors/smollm2_30_lora",  # too large to be committed
    **dict.fromkeys((META, META_TUNING, META_GATE), _PRIOR_META),
}
_REAL = "data/real"
_DATASETS = dict.fromkeys((META, META_TUNING, META_GATE), "data/metaworld")

_CORES = flags.DEFINE_integer(
    "cores", 0, "Cells at a time, one core each; 0: all cores.", 0, len(versions.cores())
)
_ONLY = flags.DEFINE_string("only", "", "Run only cells whose id matches this expression.")
_MAX_MINUTES = flags.DEFINE_float("max_minutes", float("inf"), "Start no cell after this time.")
_PRIOR = flags.DEFINE_string(
    "prior", None, f"Prior directory; by default {_PRIOR_8}, or that of {_PRIORS}."
)
_DATA = flags.DEFINE_string(
    "data", None, f"Dataset from `collect`; by default {_REAL}, or that of {_DATASETS}."
)
_WORK = flags.DEFINE_string("work", "runs/cells", "Directory for the cells' run directories.")
_TABLE_ONLY = flags.DEFINE_bool("table_only", False, "Run nothing; write the table.")


def run(name: str) -> None:
    """Runs what is not finished, then writes the tables of what is."""
    if name not in GRIDS:
        raise UserError(f"unknown grid '{name}'; choose one of {', '.join(GRIDS)}")
    unread = {BACKBONES: (_PRIOR,), LEARNERS: (_PRIOR, _DATA)}
    _refuse(name, "reads", unread.get(name, ()))
    if _TABLE_ONLY.value:
        ran = (_CORES, _ONLY, _MAX_MINUTES, _PRIOR, _DATA, _WORK)
        _refuse("--table_only", "runs nothing and reads", ran)
    results = RESULTS / "cells" / name
    done = None if _TABLE_ONLY.value else _run_cells(name, results)
    if done is None or any((results / f"{cell}.json").exists() for cell in GRIDS[name]()):
        for title, record in _tables(name, results).items():
            files.write_json(RESULTS / f"{title}.json", record)
            print(as_text(record))
    if done is not None and done.failed:
        raise SystemExit(1)
    if done is not None and done.stopped:
        raise Stopped("the same command goes on")


def _refuse(what: str, reads: str, given: Sequence[flags.FlagHolder[Any]]) -> None:
    """Raises UserError for flags that mean nothing here."""
    for flag in given:
        if flag.present:
            raise UserError(f"{what} {reads} no --{flag.name}; leave it out")


def _run_cells(name: str, results: Path) -> cells.GridReport:
    """Runs the unfinished cells that --only names, after a look at what they read."""
    wanted, work = GRIDS[name](), Path(_WORK.value) / name
    data = _DATA.value or _DATASETS.get(name, _REAL)
    options = {
        "cores": _CORES.value or len(versions.cores()),
        "only": _ONLY.value,
        "max_minutes": _MAX_MINUTES.value,
    }
    cells.matching(list(wanted), _ONLY.value)
    cells.check_minutes(_MAX_MINUTES.value)
    if name == LEARNERS:
        program = (sys.executable, "-m", "experiments.train")
        done = standard.run_in_processes(work, results, program, **options)
    elif name == BACKBONES:
        load_data(data, "clevr")
        program = (sys.executable, "-m", "experiments.compare_backbone")
        done = comparison.run_in_processes(wanted, data, work, results, program, **options)
    else:
        (env,) = {cell.env for cell in wanted.values()}
        prior = _PRIOR.value or _PRIORS.get(name, _PRIOR_8)
        trained, expert = load_trained(prior, env), load_data(data, env)
        for cell in wanted.values():
            check_inputs(cell, trained, expert)
        program = (sys.executable, "-m", "experiments.train_online")
        done = grid.run_in_processes(wanted, prior, data, work, results, program, **options)
    print(f"{len(done.done)} done, {len(done.failed)} failed, {len(done.left)} left")
    return done


def _tables(name: str, results: Path) -> dict[str, Any]:
    """Records of the finished cells, by the name of their file."""
    wanted = GRIDS[name]()
    if name == LEARNERS:
        return {name: standard.standard_record(results, RESULTS / f"{name}.png")}
    if name == BACKBONES:
        finished = load_finished(functools.partial(comparison.make_cells, wanted), results)
        return {name: comparison_record(list(finished.values()))}
    if name in (GATE, META_GATE):
        found = load_finished(functools.partial(grid.make_cells, wanted), results)
        if name == META_GATE:
            return {name: gate_record(list(found.values()), TASK)}
        main = functools.partial(grid.make_cells, GRIDS[MAIN]())
        others = load_finished(main, RESULTS / "cells" / MAIN)
        return {name: gate_record([*found.values(), *others.values()], LEVEL)}
    if name in (TUNING, META_TUNING):
        return {name: grid.report_trials(wanted, results)}
    title = "LaGO on CLEVR-Robot, prior of all 30 layers" if name == FULL_30_LAYERS else ""
    records = grid.report(wanted, results, RESULTS, title, name)
    return {name + _SUFFIX[reward]: record for reward, record in records.items()}


if __name__ == "__main__":
    app.main(run, positional={"NAME": f"one of {', '.join(GRIDS)}"})
