"""Runs the cells of a reported experiment and writes its table.

    python -m experiments.grid lago_clevr --cores=2 --max_minutes=60

Finished cells are committed under `benchmarks/results/cells/NAME/` and skipped; the table
`benchmarks/results/NAME*.json` grows with them and refuses to mix configurations, priors and
datasets. `--table_only` makes it from the committed cells alone.
"""

import sys
from pathlib import Path

from absl import flags

from jaxrl_guided.lago.config import FULL
from jaxrl_guided.lago.trials import TRIALS
from jaxrl_guided.runtime import app, cells, files, versions
from jaxrl_guided.runtime.errors import UserError

RESULTS = Path("benchmarks/results")
GRIDS = {"lago_clevr": FULL.cells(), "lago_tune": TRIALS}
BACKBONES = "lago_backbones"

_CORES = flags.DEFINE_integer(
    "cores", 0, "Cells at a time, one core each; 0: all cores.", 0, len(versions.cores())
)
_ONLY = flags.DEFINE_string("only", "", "Run only cells whose id matches this expression.")
_MAX_MINUTES = flags.DEFINE_float("max_minutes", float("inf"), "Start no cell after this time.")
_PRIOR = flags.DEFINE_string("prior", str(RESULTS / "priors/smollm2_8_lora"), "Prior directory.")
_DATA = flags.DEFINE_string("data", "data/real", "Dataset from `collect --preset=full`.")
_WORK = flags.DEFINE_string("work", "runs/cells", "Directory for the cells' run directories.")
_TABLE_ONLY = flags.DEFINE_bool("table_only", False, "Run nothing; write the table.")


def run(name: str) -> None:
    """Runs what is not finished, then writes the table of what is."""
    from jaxrl_guided.lago import grid
    from jaxrl_guided.lago.stages import load_data, load_trained

    if name == BACKBONES:
        _compare_backbones(RESULTS / "cells" / name)
        return
    if name not in GRIDS:
        known = ", ".join((*GRIDS, BACKBONES))
        raise UserError(f"unknown grid '{name}'; choose one of {known}")
    wanted, results = GRIDS[name], RESULTS / "cells" / name
    if _TABLE_ONLY.value:
        for flag in (_CORES, _ONLY, _MAX_MINUTES, _PRIOR, _DATA, _WORK):
            if flag.present:
                raise UserError(
                    f"--table_only runs nothing and reads no --{flag.name}; leave it out"
                )
    else:
        cells.matching(list(wanted), _ONLY.value)
        load_trained(_PRIOR.value)
        load_data(_DATA.value)
        done = grid.run_in_processes(
            wanted,
            _PRIOR.value,
            _DATA.value,
            Path(_WORK.value) / name,
            results,
            (sys.executable, "-m", "experiments.train_online"),
            cores=_CORES.value or len(versions.cores()),
            only=_ONLY.value,
            max_minutes=_MAX_MINUTES.value,
        )
        print(f"{len(done.done)} done, {len(done.failed)} failed, {len(done.left)} left")
    if name == "lago_tune":
        record = grid.report_trials(wanted, results)
        files.write_json(RESULTS / f"{name}.json", record)
        print(grid.summary_text({name: record}))
        return
    records = grid.report(wanted, results, RESULTS)
    for reward, record in records.items():
        suffix = "" if reward == "goal" else f"_{reward}"
        files.write_json(RESULTS / f"{name}{suffix}.json", record)
    print(grid.summary_text(records))


def _compare_backbones(results: Path) -> None:
    """The comparison of backbones, whose cells train priors instead of reading one."""
    from jaxrl_guided.lago import comparison
    from jaxrl_guided.lago.comparison_report import comparison_record
    from jaxrl_guided.lago.report import as_text
    from jaxrl_guided.lago.stages import load_data
    from jaxrl_guided.runtime.cells import load_grid

    wanted = comparison.backbone_cells()
    if not _TABLE_ONLY.value:
        load_data(_DATA.value)
        done = comparison.run_in_processes(
            wanted,
            _DATA.value,
            Path(_WORK.value) / BACKBONES,
            results,
            (sys.executable, "-m", "experiments.compare_backbone"),
            cores=_CORES.value or len(versions.cores()),
            only=_ONLY.value,
            max_minutes=_MAX_MINUTES.value,
        )
        print(f"{len(done.done)} done, {len(done.failed)} failed, {len(done.left)} left")
    finished = load_grid(comparison.make_cells(wanted), results)
    record = comparison_record(list(finished.values()))
    files.write_json(RESULTS / f"{BACKBONES}.json", record)
    print(as_text(record))


if __name__ == "__main__":
    app.main(run, positional=("NAME",))
