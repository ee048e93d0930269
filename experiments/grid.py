"""Runs the cells of a reported experiment and writes its table.

    python -m experiments.grid lago_clevr --cores=2 --max_minutes=60

Finished cells are committed under `benchmarks/results/cells/NAME/` and skipped; the table
`benchmarks/results/NAME*.json` grows with them and refuses to mix configurations, priors and
datasets. `--table_only` makes it from the committed cells alone. NAME is one of lago_clevr,
lago_clevr_30, lago_metaworld, lago_metaworld_tune, lago_metaworld_gate, lago_tune, lago_backbones,
lago_gate, learners, language, complementary_room and complementary_mix.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from jaxrl_guided.complementary import table as arms
from jaxrl_guided.lago import backbone_grid, grid
from jaxrl_guided.lago.backbone_report import comparison_record
from jaxrl_guided.lago.gate_report import LEVEL, TASK, gate_cells, gate_record, task_cells
from jaxrl_guided.lago.offline import load_data, load_trained
from jaxrl_guided.lago.online import check_inputs
from jaxrl_guided.lago.presets import FULL, FULL_30, METAWORLD
from jaxrl_guided.lago.report import as_text
from jaxrl_guided.lago.sources import load_finished
from jaxrl_guided.lago.tuning import METAWORLD_TRIALS, TRIALS
from jaxrl_guided.learners import standard
from jaxrl_guided.learners.language import table as language
from jaxrl_guided.runtime import app, cells, files, versions
from jaxrl_guided.runtime.cells import GridReport
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.signals import Stopped

RESULTS = Path("benchmarks/results")
Wanted = Mapping[str, Any]
"""Configurations of cells by id."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """What a name stands for.

    Attributes:
      cells: their configurations by id.
      prior, data: directories that they read by default; None where none is read.
      run: `(cells, work, results, prior, data, **options)`, where prior and data are left out if
        none is read: runs what is not finished, after a look at what it reads.
      tables: `(name, cells, results) -> ` records by the name of their file.
    """

    cells: Callable[[], Wanted]
    prior: str | None
    data: str | None
    run: Callable[..., GridReport]
    tables: Callable[[str, Wanted, Path], dict[str, Any]]


def _script(name: str) -> tuple[str, ...]:
    return sys.executable, "-m", f"experiments.{name}"


def _run_online(
    wanted: Wanted, work: Path, results: Path, prior: str, data: str, **options: Any
) -> GridReport:
    (env,) = {cell.env for cell in wanted.values()}
    trained, expert = load_trained(prior, env), load_data(data, env)
    for cell in wanted.values():
        check_inputs(cell, trained, expert)
    program = _script("train_online")
    return grid.run_in_processes(wanted, prior, data, work, results, program, **options)


def _run_backbones(
    wanted: Wanted, work: Path, results: Path, data: str, **options: Any
) -> GridReport:
    load_data(data, "clevr")
    program = _script("compare_backbone")
    return backbone_grid.run_in_processes(wanted, data, work, results, program, **options)


def _run_learners(wanted: Wanted, work: Path, results: Path, **options: Any) -> GridReport:
    del wanted
    return standard.run_in_processes(work, results, _script("train"), **options)


def _run_language(wanted: Wanted, work: Path, results: Path, **options: Any) -> GridReport:
    del wanted
    return language.run_in_processes(work, results, _script("train_llm"), **options)


def _compared(comparison: arms.Comparison) -> Grid:
    """A comparison of arms of Complementary RL."""

    def run(wanted: Wanted, work: Path, results: Path, **options: Any) -> GridReport:
        del wanted
        program = _script("complementary")
        return arms.run_in_processes(comparison, work, results, program, **options)

    def tables(name: str, wanted: Wanted, results: Path) -> dict[str, Any]:
        del wanted
        return {name: arms.record(comparison, results)}

    return Grid(comparison.configs, None, None, run, tables)


def _online_tables(name: str, wanted: Wanted, results: Path, title: str = "") -> dict[str, Any]:
    records = grid.report(wanted, results, RESULTS, title, name)
    suffix = {"goal": "", "distance": "_distance"}
    return {name + suffix[reward]: record for reward, record in records.items()}


def _trial_tables(name: str, wanted: Wanted, results: Path) -> dict[str, Any]:
    return {name: grid.report_trials(wanted, results)}


def _gate_tables(name: str, wanted: Wanted, results: Path) -> dict[str, Any]:
    """Its plain and guided arms are cells of the main grid."""
    found = list(load_finished(functools.partial(grid.make_cells, wanted), results).values())
    main = functools.partial(grid.make_cells, FULL.cells())
    found += load_finished(main, RESULTS / "cells" / "lago_clevr").values()
    return {name: gate_record(found, LEVEL)}


def _task_gate_tables(name: str, wanted: Wanted, results: Path) -> dict[str, Any]:
    found = load_finished(functools.partial(grid.make_cells, wanted), results)
    return {name: gate_record(list(found.values()), TASK)}


def _backbone_tables(name: str, wanted: Wanted, results: Path) -> dict[str, Any]:
    found = load_finished(functools.partial(backbone_grid.make_cells, wanted), results)
    return {name: comparison_record(list(found.values()))}


def _learner_tables(name: str, wanted: Wanted, results: Path) -> dict[str, Any]:
    del wanted
    return {name: standard.standard_record(results, RESULTS / f"{name}.png")}


def _language_tables(name: str, wanted: Wanted, results: Path) -> dict[str, Any]:
    del wanted
    return {name: language.language_record(results)}


_CLEVR = str(RESULTS / "priors/smollm2_8_lora"), "data/real"
_CLEVR_30 = "runs/priors/smollm2_30_lora", "data/real"  # a prior too large to be committed
_METAWORLD = str(RESULTS / "priors/metaworld_smollm2_8_lora"), "data/metaworld"
_tables_30 = functools.partial(_online_tables, title="LaGO on CLEVR-Robot, prior of all 30 layers")
GRIDS = {
    "lago_clevr": Grid(FULL.cells, *_CLEVR, _run_online, _online_tables),
    "lago_clevr_30": Grid(FULL_30.cells, *_CLEVR_30, _run_online, _tables_30),
    "lago_metaworld": Grid(METAWORLD.cells, *_METAWORLD, _run_online, _online_tables),
    "lago_metaworld_tune": Grid(lambda: METAWORLD_TRIALS, *_METAWORLD, _run_online, _trial_tables),
    "lago_metaworld_gate": Grid(task_cells, *_METAWORLD, _run_online, _task_gate_tables),
    "lago_tune": Grid(lambda: TRIALS, *_CLEVR, _run_online, _trial_tables),
    "lago_backbones": Grid(
        backbone_grid.backbone_cells, None, "data/real", _run_backbones, _backbone_tables
    ),
    "lago_gate": Grid(gate_cells, *_CLEVR, _run_online, _gate_tables),
    "learners": Grid(lambda: standard.TASKS, None, None, _run_learners, _learner_tables),
    "language": Grid(language.language_cells, None, None, _run_language, _language_tables),
    "complementary_room": _compared(arms.ROOM),
    "complementary_mix": _compared(arms.MIX),
}

_CORES = flags.DEFINE_integer(
    "cores", 0, "Cells at a time, one core each; 0: all cores.", 0, len(versions.cores())
)
_ONLY = flags.DEFINE_string("only", "", "Run only cells whose id matches this expression.")
_MAX_MINUTES = flags.DEFINE_float("max_minutes", float("inf"), "Start no cell after this time.")
_PRIOR = flags.DEFINE_string(
    "prior",
    None,
    f"Prior directory; by default {_CLEVR[0]}, {_METAWORLD[0]} or {_CLEVR_30[0]}.",
)
_DATA = flags.DEFINE_string(
    "data", None, f"Dataset from `collect`; by default {_CLEVR[1]} or {_METAWORLD[1]}."
)
_WORK = flags.DEFINE_string("work", "runs/cells", "Directory for the cells' run directories.")
_TABLE_ONLY = flags.DEFINE_bool("table_only", False, "Run nothing; write the table.")


def run(name: str) -> None:
    """Runs what is not finished, then writes the tables of what is."""
    if name not in GRIDS:
        raise UserError(f"unknown grid '{name}'; choose one of {', '.join(GRIDS)}")
    chosen, results = GRIDS[name], RESULTS / "cells" / name
    wanted = chosen.cells()
    reads = (_PRIOR, chosen.prior), (_DATA, chosen.data)
    _refuse(name, "reads", [flag for flag, default in reads if default is None])
    if _TABLE_ONLY.value:
        ran = (_CORES, _ONLY, _MAX_MINUTES, _PRIOR, _DATA, _WORK)
        _refuse("--table_only", "runs nothing and reads", ran)
    done = (
        None if _TABLE_ONLY.value else _run_cells(chosen, wanted, Path(_WORK.value) / name, results)
    )
    if done is None or any((results / f"{cell}.json").exists() for cell in wanted):
        for title, record in chosen.tables(name, wanted, results).items():
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


def _run_cells(chosen: Grid, wanted: Wanted, work: Path, results: Path) -> GridReport:
    """Runs the unfinished cells that --only names."""
    cells.matching(list(wanted), _ONLY.value)
    cells.check_minutes(_MAX_MINUTES.value)
    reads = {"prior": _PRIOR.value or chosen.prior, "data": _DATA.value or chosen.data}
    done = chosen.run(
        wanted,
        work,
        results,
        **{what: path for what, path in reads.items() if path is not None},
        cores=_CORES.value or len(versions.cores()),
        only=_ONLY.value,
        max_minutes=_MAX_MINUTES.value,
    )
    print(f"{len(done.done)} done, {len(done.failed)} failed, {len(done.left)} left")
    return done


if __name__ == "__main__":
    app.main(run, positional={"NAME": f"one of {', '.join(GRIDS)}"})
