"""Comparisons of arms, on MiniHack's Room and on a mix: cells of an arm and a seed each."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_guided.complementary.arms import ARMS
from jaxrl_guided.complementary.job import run_complementary
from jaxrl_guided.complementary.preparation import prepare
from jaxrl_guided.complementary.presets import NANO, NANO_MIX
from jaxrl_guided.complementary.run_config import ComplementaryConfig
from jaxrl_guided.complementary.training import ComplementaryRun
from jaxrl_guided.envs.text.source import parts_of
from jaxrl_guided.runtime import cells, files, rundir
from jaxrl_guided.runtime.config import to_dict
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.signals import catch_signals
from jaxrl_guided.runtime.stats import mean_text

_MAIN = ("baseline", "static_online", "complementary")
_MINUTES = 20.0


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Arms beside each other.

    Attributes:
      title: of the table.
      config: of all cells but for arm and seed.
      seeds: by arm, those on which the comparison turns first. Settings were tried on seed 0.
      paper: what arXiv 2603.17621 v2 has, by arm.
      note: below the table.
      labels: tasks of a mix; none for one task.
    """

    title: str
    config: ComplementaryConfig
    seeds: Mapping[str, Sequence[int]]
    paper: Mapping[str, str]
    note: str
    labels: Sequence[str] = ()

    def configs(self) -> dict[str, ComplementaryConfig]:
        """By id."""
        last = max(max(seeds) for seeds in self.seeds.values())
        return {
            f"{arm}-{seed}": dataclasses.replace(self.config, arm=arm, seed=seed)
            for seed in range(1, last + 1)
            for arm, seeds in self.seeds.items()
            if seed in seeds
        }

    @property
    def listed(self) -> list[cells.Cell]:
        """The same, with what identifies them."""
        return [cells.Cell(name, to_dict(config)) for name, config in self.configs().items()]


ROOM = Comparison(
    f"Complementary RL and its arms on {NANO.task}, small models",
    NANO,
    {
        arm: range(1, 6 if arm in _MAIN else 4)
        for arm in sorted(ARMS, key=lambda name: name not in _MAIN)
    },
    {
        "baseline": ".68",
        "static_online": ".76",
        "offline_bank": "≈ .75",
        "complementary": ".93",
        "no_merge": "≈ .12",
        "no_ask": ".80",
    },
    "Paper: success on Room alone of a model of 7 B parameters, one run each. Settings were tried "
    "on seed 0. The task's variant was chosen by the baseline alone, before another arm ran: over "
    "seeds 1 to 3 it ends at 55 %, between the 35 and 75 % that were asked for.",
)
MIX = Comparison(
    "Complementary RL and its arms on a mix of Room, WebShop and ALFWorld, small models",
    NANO_MIX,
    {arm: range(1, 4) for arm in ("baseline", "complementary", "static_online", "exp_only")},
    {
        "baseline": ".75: .68, .81, .72",
        "static_online": ".54 / .59: .39 / .41, .59 / .67, .64 / .69",
        "exp_only": ".33: .49, .37, .13",
        "complementary": ".78 / .82: .75 / .78, .84 / .87, .74 / .82",
    },
    "Paper: Table 1, the mean and then Room, WebShop and ALFWorld, without / with experience, one "
    "run each of a model of 7 B parameters; its units are not stated. Small models play small "
    f"tasks here: {', '.join(NANO_MIX.options)}. Settings were tried on seed 0 of the baseline.",
    [part.label for part in parts_of(NANO_MIX.task, ())],
)


def run_in_processes(
    comparison: Comparison,
    work: PathLike,
    results: PathLike,
    program: Sequence[str],
    **options: Any,
) -> cells.GridReport:
    """Runs the unfinished cells, each in a process on one core.

    Args:
      work: directory for the cells' run directories and for models after their warm-up.
      results: directory for their JSON files.
      program: command of `experiments.complementary`, without its flags.
      **options: `cores`, `only`, `max_minutes` of `cells.run_grid`.

    Raises:
      UserError: a bad option, or finished cells are of another configuration.
    """
    options["estimate_minutes"] = lambda cell: _MINUTES
    reads = {"warm_cache": Path(work) / "warm"}
    return cells.run_scripts(
        comparison.listed, comparison.configs(), reads, program, work, results, **options
    )


def run_cell(
    config: ComplementaryConfig,
    run_dir: PathLike | None,
    out: PathLike,
    warm_cache: PathLike | None = None,
) -> dict[str, Any]:
    """Runs a cell and writes its result.

    Args:
      warm_cache: see `ComplementaryRun`.

    Raises:
      UserError: bad input, found before anything is written.
      Stopped: by a signal; the same call goes on.
    """
    files.check_new(out, "result")
    with (
        contextlib.closing(ComplementaryRun(prepare(config), warm_cache=warm_cache)) as work,
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
_BY_TASK = "by task, without / with [%]"


def record(comparison: Comparison, results: PathLike) -> dict[str, Any]:
    """The table of the finished cells.

    Raises:
      UserError: a result is damaged or of another configuration.
    """
    finished = cells.load_grid(comparison.listed, results)
    columns = [*_COLUMNS[:6], _BY_TASK, *_COLUMNS[6:]] if comparison.labels else list(_COLUMNS)
    rows = []
    for arm in ARMS:
        found = [each for name, each in finished.items() if name.rpartition("-")[0] == arm]
        if found:
            row = dict(zip(_COLUMNS, _row(arm, found, comparison.paper), strict=True))
            row[_BY_TASK] = _by_task(comparison.labels, found)
            rows.append([row[column] for column in columns])
    judged = comparison.config.judge.episodes
    return {
        "title": comparison.title,
        "first_line": f"{len(finished)} of {len(comparison.listed)} cells are finished.",
        "columns": columns,
        "rows": rows,
        "note": f"Success on {judged} episodes that no training has seen, means over seeds [95 % "
        "bootstrap interval]. Two decoders of random weights, warmed up by scripted play and "
        "scripted notes from seeds of their own; all arms of a seed start from the same two. Equal "
        f"steps for all arms, those that fill a bank included. {comparison.note}",
        **cells.stamp(cells.revisions_of(finished.values())),
    }


def _row(arm: str, found: Sequence[Mapping[str, Any]], paper: Mapping[str, str]) -> tuple[str, ...]:
    curves = [each["curve"] for each in found]
    guided = all("with" in curve for curve in curves)

    def per_cent(name: str, point: int) -> str:
        return mean_text([100 * curve[name][point] for curve in curves])

    helped = [100 * (c["with"][-1] - c["without"][-1]) for c in curves] if guided else []
    ahead = [100 * each["ahead"] for each in found if each["ahead"] is not None]
    return (
        ARMS[arm].title,
        str(len(found)),
        per_cent("without", 0),
        per_cent("without", -1),
        per_cent("with", -1) if guided else "",
        mean_text(helped) if helped else "",
        mean_text([each["actions"] for each in found]),
        mean_text(ahead) if ahead else "",
        mean_text([float(each["bank_size"]) for each in found]) if guided else "",
        f"{max(each['minutes'] for each in found):.1f}",
        paper.get(arm, ""),
    )


def _by_task(labels: Sequence[str], found: Sequence[Mapping[str, Any]]) -> str:
    """Means at the end, in words."""
    told = []
    for label in labels:
        names = [name for name in ("without", "with") if f"{name}_{label}" in found[0]["curve"]]
        ends = [np.mean([each["curve"][f"{name}_{label}"][-1] for each in found]) for name in names]
        told.append(f"{label} {' / '.join(f'{100 * end:.0f}' for end in ends)}")
    return ", ".join(told)
