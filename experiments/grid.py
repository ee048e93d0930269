"""Runs the cells of a reported experiment and writes its table.

    python -m experiments.grid lago_clevr --cores=2 --max_minutes=60

Finished cells are committed under `benchmarks/results/cells/NAME/` and skipped; the table
`benchmarks/results/NAME*.json` grows with them and refuses to mix configurations, priors and
datasets. `--table_only` makes it from the committed cells alone.
"""

import sys
from pathlib import Path
from typing import Any

from absl import flags

from jaxrl_guided.lago.config import FULL, FULL_30
from jaxrl_guided.lago.trials import TRIALS
from jaxrl_guided.runtime import app, cells, files, versions
from jaxrl_guided.runtime.errors import UserError

RESULTS = Path("benchmarks/results")
TUNING, BACKBONES = "lago_tune", "lago_backbones"
GRIDS = {"lago_clevr": FULL.cells(), "lago_clevr_30": FULL_30.cells(), TUNING: TRIALS}
_PRIOR_8 = str(RESULTS / "priors/smollm2_8_lora")
_PRIOR_30 = "runs/priors/smollm2_30_lora"  # too large to be committed
_SUFFIX = {"goal": "", "distance": "_distance"}

_CORES = flags.DEFINE_integer(
    "cores", 0, "Cells at a time, one core each; 0: all cores.", 0, len(versions.cores())
)
_ONLY = flags.DEFINE_string("only", "", "Run only cells whose id matches this expression.")
_MAX_MINUTES = flags.DEFINE_float("max_minutes", float("inf"), "Start no cell after this time.")
_PRIOR = flags.DEFINE_string(
    "prior", None, f"Prior directory; by default {_PRIOR_8}, for lago_clevr_30 {_PRIOR_30}."
)
_DATA = flags.DEFINE_string("data", "data/real", "Dataset from `collect --preset=full`.")
_WORK = flags.DEFINE_string("work", "runs/cells", "Directory for the cells' run directories.")
_TABLE_ONLY = flags.DEFINE_bool("table_only", False, "Run nothing; write the table.")


def run(name: str) -> None:
    """Runs what is not finished, then writes the table of what is."""
    known = (*GRIDS, BACKBONES)
    if name not in known:
        raise UserError(f"unknown grid '{name}'; choose one of {', '.join(known)}")
    if name == BACKBONES and _PRIOR.present:
        raise UserError(f"{name} trains its priors and reads no --prior; leave it out")
    if _TABLE_ONLY.value:
        for flag in (_CORES, _ONLY, _MAX_MINUTES, _PRIOR, _DATA, _WORK):
            if flag.present:
                raise UserError(
                    f"--table_only runs nothing and reads no --{flag.name}; leave it out"
                )
    results = RESULTS / "cells" / name
    if name == BACKBONES:
        _compare_backbones(results)
    else:
        _run_online(name, results)


def _options() -> dict[str, Any]:
    """Which cells run, and on how many cores."""
    cores = _CORES.value or len(versions.cores())
    return {"cores": cores, "only": _ONLY.value, "max_minutes": _MAX_MINUTES.value}


def _say(done: cells.GridReport) -> None:
    print(f"{len(done.done)} done, {len(done.failed)} failed, {len(done.left)} left")


def _run_online(name: str, results: Path) -> None:
    """The online grid of an experiment or of its tuning trials, whose cells read a prior."""
    from jaxrl_guided.lago import grid
    from jaxrl_guided.lago.stages import load_data, load_trained

    wanted = GRIDS[name]
    if not _TABLE_ONLY.value:
        cells.matching(list(wanted), _ONLY.value)
        prior = _PRIOR.value or (_PRIOR_30 if name == "lago_clevr_30" else _PRIOR_8)
        load_trained(prior)
        load_data(_DATA.value)
        program = (sys.executable, "-m", "experiments.train_online")
        places = (prior, _DATA.value, Path(_WORK.value) / name, results)
        _say(grid.run_in_processes(wanted, *places, program, **_options()))
    if name == TUNING:
        records = {TUNING: grid.report_trials(wanted, results)}
    else:
        found = grid.report(wanted, results, RESULTS, name)
        records = {name + _SUFFIX[reward]: record for reward, record in found.items()}
    for title, record in records.items():
        files.write_json(RESULTS / f"{title}.json", record)
    print(grid.summary_text(records))


def _compare_backbones(results: Path) -> None:
    """The comparison of backbones, whose cells train priors instead of reading one."""
    from jaxrl_guided.lago import comparison
    from jaxrl_guided.lago.comparison_report import comparison_record
    from jaxrl_guided.lago.report import as_text
    from jaxrl_guided.lago.stages import load_data

    wanted = comparison.backbone_cells()
    if not _TABLE_ONLY.value:
        cells.matching(list(wanted), _ONLY.value)
        load_data(_DATA.value)
        program = (sys.executable, "-m", "experiments.compare_backbone")
        places = (_DATA.value, Path(_WORK.value) / BACKBONES, results)
        _say(comparison.run_in_processes(wanted, *places, program, **_options()))
    finished = cells.load_grid(comparison.make_cells(wanted), results)
    record = comparison_record(list(finished.values()))
    files.write_json(RESULTS / f"{BACKBONES}.json", record)
    print(as_text(record))


if __name__ == "__main__":
    app.main(run, positional=("NAME",))
