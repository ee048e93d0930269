"""How language models learn a task for memory: a table of cells, an arm and a seed each."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl_guided.learners.language.job import run_language
from jaxrl_guided.learners.language.preparation import prepare
from jaxrl_guided.learners.language.presets import NANO
from jaxrl_guided.learners.language.run_config import LanguageRunConfig
from jaxrl_guided.learners.language.training import LanguageRun
from jaxrl_guided.runtime import cells, files, rundir
from jaxrl_guided.runtime.config import from_dict, to_dict
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.signals import catch_signals
from jaxrl_guided.runtime.stats import mean_text

SEEDS = range(1, 6)
"""Settings were tried on seed 0."""

ARMS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("GRPO", {}),
    "reinforce": ("REINFORCE, no groups", {"compare": "batch"}),
    "shuffled": ("GRPO, returns shuffled", {"shuffle_rewards": True}),
}
"""Title, and what differs from the preset `nano`."""

_MINUTES = 12.0


def language_cells() -> dict[str, LanguageRunConfig]:
    """Cells by id."""
    return {
        f"{arm}-{seed}": dataclasses.replace(
            NANO, improve=dataclasses.replace(NANO.improve, **changes), seed=seed
        )
        for seed in SEEDS
        for arm, (_, changes) in ARMS.items()
    }


def _cells() -> list[cells.Cell]:
    return [cells.Cell(name, to_dict(config)) for name, config in language_cells().items()]


def run_in_processes(
    work: PathLike, results: PathLike, program: Sequence[str], **options: Any
) -> cells.GridReport:
    """Runs the unfinished cells, each in a process on one core.

    Args:
      work: directory for the cells' run directories.
      results: directory for their JSON files.
      program: command of `experiments.train_llm`, without its flags.
      **options: `cores`, `only`, `max_minutes` of `cells.run_grid`.

    Raises:
      UserError: a bad option, or finished cells are of another configuration.
    """
    options["estimate_minutes"] = lambda cell: _MINUTES
    return cells.run_scripts(_cells(), language_cells(), {}, program, work, results, **options)


def run_cell(config: LanguageRunConfig, run_dir: PathLike | None, out: PathLike) -> dict[str, Any]:
    """Runs a cell and writes its result.

    Raises:
      UserError: bad input, found before anything is written.
      Stopped: by a signal; the same call goes on.
    """
    files.check_new(out, "result")
    with (
        contextlib.closing(LanguageRun(prepare(config))) as work,
        rundir.open_run(run_dir, "cell", config) as run,
        catch_signals() as stop,
    ):
        result = run_language(work, run, stop)
    cells.write_result(out, to_dict(config), {"config": to_dict(config), **result})
    return result


def language_record(results: PathLike) -> dict[str, Any]:
    """The table of the finished cells.

    Raises:
      UserError: a result is damaged or of another configuration.
    """
    finished = cells.load_grid(_cells(), results)
    rows = []
    for arm, (title, _) in ARMS.items():
        found = [record for name, record in finished.items() if name.startswith(f"{arm}-")]
        if found:
            rows.append(_row(title, found))
    configs = [from_dict(LanguageRunConfig, record["config"]) for record in finished.values()]
    played = sum({config.judge.episodes for config in configs})
    shown = [record["demonstrator"] for record in finished.values()]
    return {
        "title": "A language model of random weights learns a task for memory (`route`)",
        "first_line": f"{len(finished)} of {len(_cells())} cells are finished.",
        "columns": _COLUMNS,
        "rows": rows,
        "note": f"Success on {played} instances that no training has seen, means over seeds [95 % "
        "bootstrap interval]. Two layers of random weights, own tokenizer; imitation of a player "
        f"that forgets the last direction ({100 * min(shown, default=0.0):.0f} % success), then "
        "policy gradients on the outcome alone. A policy that sees only the last message arrives "
        "in one of 4,096 episodes. Settings were tried on seed 0.",
        **cells.stamp(cells.revisions_of(finished.values())),
    }


_COLUMNS = (
    "arm",
    "seeds",
    "after imitation, sampled [%]",
    "greedy [%]",
    "at the end, sampled [%]",
    "greedy [%]",
    "change, sampled [points]",
    "seeds ≥ 80 %",
    "episodes",
    "minutes",
)


def _row(title: str, found: Sequence[Mapping[str, Any]]) -> list[str]:
    curves = [record["curve"] for record in found]

    def per_cent(name: str, point: int) -> str:
        return mean_text([100 * curve[name][point] for curve in curves])

    change = [100 * (curve["success"][-1] - curve["success"][0]) for curve in curves]
    good = sum(curve["success"][-1] >= 0.8 for curve in curves)
    return [
        title,
        str(len(found)),
        per_cent("success", 0),
        per_cent("success_greedy", 0),
        per_cent("success", -1),
        per_cent("success_greedy", -1),
        mean_text(change),
        f"{good} of {len(found)}",
        f"{max(record['episodes'] for record in found):,}",
        f"{max(record['minutes'] for record in found):.1f}",
    ]
