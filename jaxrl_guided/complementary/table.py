"""The comparison of arms on MiniHack's Room: a table of cells, an arm and a seed each."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl_guided.complementary.arms import ARMS
from jaxrl_guided.complementary.job import run_complementary
from jaxrl_guided.complementary.preparation import prepare
from jaxrl_guided.complementary.presets import NANO
from jaxrl_guided.complementary.run_config import ComplementaryConfig
from jaxrl_guided.complementary.training import ComplementaryRun
from jaxrl_guided.runtime import cells, files, rundir
from jaxrl_guided.runtime.config import to_dict
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.signals import catch_signals
from jaxrl_guided.runtime.stats import mean_text

SEEDS, MORE_SEEDS = range(1, 4), range(1, 6)
"""Settings were tried on seed 0. The arms that the comparison turns on have more."""

_MAIN = ("baseline", "static_online", "complementary")
_PAPER: Mapping[str, str] = {
    "baseline": ".68",
    "static_online": ".76",
    "offline_bank": "≈ .75",
    "complementary": ".93",
    "no_merge": "≈ .12",
    "no_ask": ".80",
}
"""Success on Room alone (arXiv 2603.17621 v2), one run each, a model of 7 B parameters."""

_MINUTES = 20.0


def room_cells() -> dict[str, ComplementaryConfig]:
    """Cells by id; those of the main arms first."""
    return {
        f"{arm}-{seed}": dataclasses.replace(NANO, arm=arm, seed=seed)
        for seed in MORE_SEEDS
        for arm in sorted(ARMS, key=lambda name: name not in _MAIN)
        if seed in (MORE_SEEDS if arm in _MAIN else SEEDS)
    }


def _cells() -> list[cells.Cell]:
    return [cells.Cell(name, to_dict(config)) for name, config in room_cells().items()]


def run_in_processes(
    work: PathLike, results: PathLike, program: Sequence[str], **options: Any
) -> cells.GridReport:
    """Runs the unfinished cells, each in a process on one core.

    Args:
      work: directory for the cells' run directories.
      results: directory for their JSON files.
      program: command of `experiments.complementary`, without its flags.
      **options: `cores`, `only`, `max_minutes` of `cells.run_grid`.

    Raises:
      UserError: a bad option, or finished cells are of another configuration.
    """
    options["estimate_minutes"] = lambda cell: _MINUTES
    return cells.run_scripts(_cells(), room_cells(), {}, program, work, results, **options)


def run_cell(
    config: ComplementaryConfig, run_dir: PathLike | None, out: PathLike
) -> dict[str, Any]:
    """Runs a cell and writes its result.

    Raises:
      UserError: bad input, found before anything is written.
      Stopped: by a signal; the same call goes on.
    """
    files.check_new(out, "result")
    with (
        contextlib.closing(ComplementaryRun(prepare(config))) as work,
        rundir.open_run(run_dir, "cell", config) as run,
        catch_signals() as stop,
    ):
        result = run_complementary(work, run, stop)
    cells.write_result(out, to_dict(config), {"config": to_dict(config), **result})
    return result


_COLUMNS = (
    "arm",
    "seeds",
    "at the start [%]",
    "at the end, without experience [%]",
    "with [%]",
    "with − without [points]",
    "actions at the end",
    "guided − free in training, last quarter [points]",
    "entries",
    "minutes",
    "paper",
)


def room_record(results: PathLike) -> dict[str, Any]:
    """The table of the finished cells.

    Raises:
      UserError: a result is damaged or of another configuration.
    """
    finished = cells.load_grid(_cells(), results)
    rows = []
    for arm in ARMS:
        found = [record for name, record in finished.items() if name.rpartition("-")[0] == arm]
        if found:
            rows.append(_row(arm, found))
    return {
        "title": f"Complementary RL and its arms on {NANO.task}, small models",
        "first_line": f"{len(finished)} of {len(_cells())} cells are finished.",
        "columns": _COLUMNS,
        "rows": rows,
        "note": f"Success on {NANO.judge.episodes} episodes that no training has seen, means over "
        "seeds [95 % bootstrap interval]. Two decoders of random weights, warmed up by scripted "
        "play and scripted notes from seeds of their own; all arms of a seed start from the same "
        "two. Equal steps for all arms, those that fill a bank included. Paper: success on Room "
        "alone of a model of 7 B parameters, one run each. Settings were tried on seed 0. The "
        "task's variant was chosen by the baseline alone, before another arm ran: over seeds 1 to "
        "3 it ends at 55 %, between the 35 and 75 % that were asked for.",
        **cells.stamp(cells.revisions_of(finished.values())),
    }


def _row(arm: str, found: Sequence[Mapping[str, Any]]) -> list[str]:
    curves = [record["curve"] for record in found]
    guided = all("with" in curve for curve in curves)

    def per_cent(name: str, point: int) -> str:
        return mean_text([100 * curve[name][point] for curve in curves])

    helped = [100 * (c["with"][-1] - c["without"][-1]) for c in curves] if guided else []
    ahead = [100 * record["ahead"] for record in found if record["ahead"] is not None]
    return [
        ARMS[arm].title,
        str(len(found)),
        per_cent("without", 0),
        per_cent("without", -1),
        per_cent("with", -1) if guided else "",
        mean_text(helped) if helped else "",
        mean_text([record["actions"] for record in found]),
        mean_text(ahead) if ahead else "",
        mean_text([float(record["bank_size"]) for record in found]) if guided else "",
        f"{max(record['minutes'] for record in found):.1f}",
        _PAPER.get(arm, ""),
    ]
