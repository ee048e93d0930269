"""Runs the cells of a reported experiment and writes its table.

    python -m experiments.grid lago_clevr --cores=2 --max_minutes=60

Finished cells are committed under `benchmarks/results/cells/NAME/` and skipped; the table
`benchmarks/results/NAME*.json` grows with them and refuses to mix configurations.
"""

from pathlib import Path

from absl import flags

from jaxrl_guided.lago.config import FULL
from jaxrl_guided.lago.trials import TRIALS
from jaxrl_guided.runtime import app, files, versions
from jaxrl_guided.runtime.errors import UserError

RESULTS = Path("benchmarks/results")
GRIDS = {"lago_clevr": FULL.cells(), "lago_tune": TRIALS}

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

    if name not in GRIDS:
        raise UserError(f"unknown grid '{name}'; choose one of {', '.join(GRIDS)}")
    wanted, results = GRIDS[name], RESULTS / "cells" / name
    if not _TABLE_ONLY.value:
        load_trained(_PRIOR.value)
        load_data(_DATA.value)
        done = grid.run_in_processes(
            wanted,
            _PRIOR.value,
            _DATA.value,
            Path(_WORK.value) / name,
            results,
            cores=_CORES.value or len(versions.cores()),
            only=_ONLY.value,
            max_minutes=_MAX_MINUTES.value,
        )
        print(f"{len(done.done)} done, {len(done.failed)} failed, {len(done.left)} left")
    if name == "lago_tune":
        record = grid.report_trials(wanted, _PRIOR.value, results)
        files.write_json(RESULTS / f"{name}.json", record)
        print(grid.summary_text({name: record}))
        return
    records = grid.report(wanted, _PRIOR.value, results, RESULTS)
    for reward, record in records.items():
        suffix = "" if reward == "goal" else f"_{reward}"
        files.write_json(RESULTS / f"{name}{suffix}.json", record)
    print(grid.summary_text(records))


if __name__ == "__main__":
    app.main(run, positional=("NAME",))
