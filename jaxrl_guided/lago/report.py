"""Tables, answers and pictures from the results of the online grid (LaGO, section 2).

The unit is the seed: every number is a mean over training seeds with its bootstrap interval at
fixed evaluation episodes, every comparison is paired by seed.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_guided.lago.config import ARMS, PPO_ARMS, OnlineConfig
from jaxrl_guided.lago.families import LEVELS, Family, family_of
from jaxrl_guided.lago.rivals import (
    ONE_RUN,
    Scores,
    compare,
    estimate,
    goal,
    goal_text,
    headline,
)
from jaxrl_guided.runtime.cells import revisions_of, stamp
from jaxrl_guided.runtime.markdown import results_text
from jaxrl_guided.runtime.plots import learning_curves

BESIDE = {
    "return": "return",
    "sampled_success": "success of sampled actions, %",
    "success_at_end": "success at the last step, %",
    "area": "area under the success curve, %",
}
"""What is reported beside success, and what the table calls it."""

_SAC_ARMS = tuple(name for name in ARMS if name not in PPO_ARMS)
ARM_TITLES = tuple(ARMS[name].title for name in (*reversed(PPO_ARMS), *reversed(_SAC_ARMS)))
"""LaGO first: pictures give colours in this order."""

_TRIAL = ("success", "sampled_success")
"""Numbers of a tuning trial; the first one decides."""

_FINAL = ("success", "return", "sampled_success", "success_at_end")
"""Numbers of the final evaluation; the area is that of the curve."""


@dataclasses.dataclass(frozen=True)
class Results:
    """What the finished cells of one reward say.

    Attributes:
      env: environment family.
      reward: of the online environment.
      measures: `success` and the keys of `BESIDE`, each by arm, column (level, part of one, or
        `mean`) and seed.
      curves: level -> arm -> (steps `i[T]`, per cent success `f[S, T]`).
      steps: environment steps by arm and level.
      expert_steps: expert transitions that an arm has seen.
      finished: number of runs by arm and level.
      planned: the same of the whole grid; empty where it is not known.
      revisions: git revisions at which the cells ran.
    """

    env: str
    reward: str
    measures: dict[str, Scores]
    curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]
    steps: dict[str, dict[str, int]]
    expert_steps: dict[str, int]
    finished: dict[str, dict[str, int]]
    planned: dict[str, dict[str, int]]
    revisions: tuple[str, ...]

    @property
    def family(self) -> Family:
        """Of the environments."""
        return family_of(self.env)

    @property
    def parts(self) -> tuple[str, ...]:
        """What the levels that any arm has are judged on."""
        present = {name for columns in self.scores.values() for name in columns}
        by_level = self.family.parts.items()
        return tuple(part for level, parts in by_level if level in present for part in parts)

    @property
    def scores(self) -> Scores:
        """Success, the headline."""
        return self.measures["success"]


def gather(
    records: Sequence[Mapping[str, Any]], reward: str, planned: Iterable[OnlineConfig] = ()
) -> Results:
    """Sorts cell records of one reward.

    CLEVR-Robot's Easy and Hard are trained with `goal` only, so that they stand in the `goal` table
    alone.

    Args:
      records: of the finished cells, all of one family.
      reward: which of them to take.
      planned: all cells of the grid, of any reward.
    """
    measures: dict[str, Scores] = {name: {} for name in ("success", *BESIDE)}
    curves: dict[str, dict[str, list[Any]]] = {}
    steps: dict[str, dict[str, int]] = {}
    expert: dict[str, int] = {}
    finished: dict[str, dict[str, int]] = {}
    chosen = [record for record in records if record["config"]["reward"] == reward]
    (env,) = {record["config"]["env"] for record in records}
    for record in chosen:
        config = record["config"]
        arm, level = config["arm"], config["level"]
        for name, columns in _numbers(record).items():
            for column, by_seed in columns.items():
                measures[name].setdefault(arm, {}).setdefault(column, {}).update(by_seed)
        steps.setdefault(arm, {})[level] = record["steps"]
        expert[arm] = max(expert.get(arm, 0), record.get("expert_steps", 0))
        _count(finished, arm, level, record["seeds"])
        if record["curve"]["steps"]:
            curves.setdefault(level, {}).setdefault(arm, []).append(record["curve"])
    for scores in measures.values():
        for columns in scores.values():
            _add_means(columns, family_of(env))
    joined = {
        level: {
            arm: (
                np.asarray(parts[0]["steps"]),
                100 * np.concatenate([np.asarray(part["success"]).T for part in parts]),
            )
            for arm, parts in arms.items()
        }
        for level, arms in curves.items()
    }
    whole: dict[str, dict[str, int]] = {}
    for cell in planned:
        if cell.reward == reward:
            _count(whole, cell.arm, cell.level, cell.seeds)
    revisions = revisions_of(chosen)
    return Results(env, reward, measures, joined, steps, expert, finished, whole, revisions)


def _count(runs: dict[str, dict[str, int]], arm: str, level: str, seeds: Sequence[int]) -> None:
    """Adds a cell's runs."""
    levels = runs.setdefault(arm, {})
    levels[level] = 1 if arm in ONE_RUN else levels.get(level, 0) + len(seeds)


def _numbers(record: Mapping[str, Any]) -> Scores:
    """A cell's numbers by measure, column and seed; an arm of one run has the first seed alone.

    A level that the arm did not train on gets a column of its own.
    """
    config, curve = record["config"], record["curve"]
    seeds = record["seeds"][:1] if config["arm"] in ONE_RUN else record["seeds"]
    own = family_of(config["env"]).parts_of(config["level"])
    found: Scores = {}
    for level, numbers in record["final"].items():
        column = level if level in own else f"{config['level']} to {level}"
        for name in _FINAL:
            values = numbers[name][: len(seeds)]
            found.setdefault(name, {})[column] = dict(zip(seeds, values, strict=True))
    if len(curve["steps"]) > 1:
        areas = curve_area(np.asarray(curve["steps"]), np.asarray(curve["success"]))
        found["area"] = {config["level"]: dict(zip(seeds, areas.tolist(), strict=True))}
    return found


def curve_area(steps: np.ndarray, success: np.ndarray) -> np.ndarray:
    """Mean height `f[S]` of curves `f[T, S]` from the first to the last of `steps` `i[T]`."""
    return np.trapezoid(success, steps, axis=0) / (steps[-1] - steps[0])


def _add_means(columns: dict[str, dict[int, float]], family: Family) -> None:
    """Adds levels from their parts, and `mean`, each where all its parts are there."""
    for name, parts in (*family.parts.items(), ("mean", LEVELS)):
        if all(part in columns for part in parts):
            columns[name] = _mean(columns, parts)


def _mean(columns: Mapping[str, Mapping[int, float]], parts: Sequence[str]) -> dict[int, float]:
    """The mean over columns of each seed that all of them have."""
    seeds = set.intersection(*(set(columns.get(part, ())) for part in parts))
    return {seed: float(np.mean([columns[part][seed] for part in parts])) for seed in sorted(seeds)}


def columns_of(results: Results) -> list[str]:
    """Columns that any arm has, in the order of the paper, without the parts of levels."""
    present = {name for columns in results.scores.values() for name in columns}
    ordered = (*LEVELS, "mean")
    others = present - {*ordered, *results.parts}
    return [name for name in ordered if name in present] + sorted(others)


def table(results: Results) -> tuple[list[str], list[list[str]]]:
    """Column titles and one row an arm, per cent success as `mean [low, high]`."""
    columns = columns_of(results)
    rows = []
    for arm in (name for name in ARMS if name in results.scores):
        scores = results.scores[arm]
        cells = [f"{estimate(scores[name]):.1f}" if scores.get(name) else "" for name in columns]
        expert = results.expert_steps.get(arm, 0)
        rows.append(
            [ARMS[arm].title, *cells, _steps(results, arm), f"{expert:,}", _runs(results, arm)]
        )
    return ["success, %", *columns, "steps", "expert steps", "seeds"], rows


def _steps(results: Results, arm: str) -> str:
    """Environment steps of a run, as `507,904 (easy 106,496)`: the most, and what differs."""
    by_level = results.steps[arm]
    most = max(by_level.values(), default=0)
    others = [f"{level} {steps:,}" for level, steps in by_level.items() if steps != most]
    return f"{most:,} ({', '.join(others)})" if others else f"{most:,}"


def _runs(results: Results, arm: str) -> str:
    """Finished seeds over levels, as `10`, `3–10`, `0–3 of 10` or `1 run`."""
    finished, planned = results.finished[arm], results.planned.get(arm, {})
    counts = [finished.get(level, 0) for level in planned or finished]
    low, high, whole = min(counts), max(counts), max(planned.values(), default=0)
    text = f"{low}" if low == high else f"{low}–{high}"
    text += f" of {whole}" if low < whole else ""
    return f"{text} run" if arm in ONE_RUN else text


def levels_of(results: Results) -> list[str]:
    """The headline's levels that any arm has; without one, all columns."""
    columns = columns_of(results)
    return [name for name in columns if name in LEVELS] or columns


def beside_table(results: Results) -> dict[str, Any]:
    """What is reported beside success: one row an arm, each number a mean over levels."""
    levels = levels_of(results)
    rows = []
    for arm in (name for name in ARMS if name in results.scores):
        row = [ARMS[arm].title]
        for name in BESIDE:
            by_seed = _mean(results.measures[name].get(arm, {}), levels)
            scale = 1.0 if name == "return" else 100.0
            row.append(f"{estimate(by_seed, scale):.1f}" if by_seed else "")
        rows.append(row)
    title = f"Beside success, mean over {', '.join(levels)}"
    return {"title": title, "columns": ["arm", *BESIDE.values()], "rows": rows}


def parts_table(results: Results) -> dict[str, Any]:
    """Success by part of a level: one row a part, one column an arm."""
    arms = [name for name in ARMS if name in results.scores]
    rows = []
    for part in results.parts:
        found = [results.scores[arm].get(part) for arm in arms]
        if any(found):
            rows.append([part, *(f"{estimate(by):.1f}" if by else "" for by in found)])
    titles = [ARMS[arm].title for arm in arms]
    return {"title": "Success by part of a level, %", "columns": ["part", *titles], "rows": rows}


def _unfinished(results: Results) -> str:
    """How much of the grid is missing, empty where nothing is."""
    planned, finished = (
        sum(sum(levels.values()) for levels in runs.values())
        for runs in (results.planned, results.finished)
    )
    if finished >= planned:
        return ""
    return f"Unfinished: {finished} of {planned} planned runs (arm, level, seed) are there."


def answers(results: Results) -> list[str]:
    """Is LaGO above each rival? One sentence each, the negative ones first."""
    found = compare(results.scores, levels_of(results))
    return [str(item) for item in sorted(found, key=lambda item: item.above)]


def _note(results: Results) -> str:
    """What the numbers in the tables are."""
    note = (
        "Mean [95 % bootstrap interval] over training seeds, at evaluation episodes that are the "
        "same for all; comparisons are paired by seed."
    )
    for arm in (name for name in ONE_RUN if name in results.scores):
        title = ARMS[arm].title.capitalize()
        note += f" {title}: one run, without interval; LaGO is compared with it as a constant."
    return note


def experiment_record(results: Results, title: str) -> dict[str, Any]:
    """JSON data for `benchmarks.report`, with success by seed beside the tables.

    The goal is on the mean under reward `goal`; other records have none.
    """
    columns, rows = table(results)
    tables = [part for part in (beside_table(results), parts_table(results)) if part["rows"]]
    planned = {level for levels in results.planned.values() for level in levels}
    has_goal = results.reward == "goal" and (not planned or planned.issuperset(LEVELS))
    wanted = goal(results.scores, results.family) if has_goal else {}
    first = [goal_text(wanted, results.family)] if wanted else []
    first += [headline(compare(results.scores, levels_of(results))), _unfinished(results)]
    return {
        "title": title,
        **stamp(results.revisions),
        "first_line": " ".join(filter(None, first)),
        **wanted,
        "answers": answers(results),
        "columns": columns,
        "rows": rows,
        "note": _note(results),
        "tables": tables,
        "scores": {
            arm: {name: {str(k): v for k, v in by.items()} for name, by in scores.items()}
            for arm, scores in results.scores.items()
        },
    }


def as_text(record: Mapping[str, Any]) -> str:
    """The record as Markdown."""
    return f"## {record['title']}\n\n{results_text(record)}"


def draw_curves(results: Results, directory: str | os.PathLike[str], name: str) -> list[Path]:
    """One picture a level, `NAME_LEVEL_REWARD.png`: greedy success over environment steps.

    Arms that learn nothing online are dashed lines.
    """
    paths = []
    for level, arms in results.curves.items():
        path = Path(directory) / f"{name}_{level}_{results.reward}.png"
        still = {
            ARMS[arm].title: 100 * float(np.mean(list(columns[level].values())))
            for arm, columns in results.scores.items()
            if not ARMS[arm].learns and columns.get(level)
        }
        longest = {ARMS[arm].title: curve for arm, curve in arms.items() if arm != "ppo_10x"}
        if longest:
            title = f"{results.env}/{level}, reward {results.reward}"
            learning_curves(
                longest, path, title, "success of greedy actions, %", names=ARM_TITLES, levels=still
            )
            paths.append(path)
    return paths


def trials_record(records: Mapping[str, Mapping[str, Any]], title: str) -> dict[str, Any]:
    """JSON data for `benchmarks.report` of tuning trials, the best first.

    `best` is the id of each arm's best trial: the highest mean success over seeds.
    """
    found = []
    for name, record in records.items():
        (numbers,) = record["final"].values()
        by_measure = [dict(zip(record["seeds"], numbers[key], strict=True)) for key in _TRIAL]
        found.append((name, [estimate(by_seed) for by_seed in by_measure], len(record["seeds"])))
    found.sort(key=lambda trial: -trial[1][0].value)
    best: dict[str, str] = {}
    for name, _, _ in found:
        best.setdefault(records[name]["config"]["arm"], name)
    chosen = ", ".join(f"{ARMS[arm].title}: {name}" for arm, name in best.items())
    return {
        "title": title,
        **stamp(revisions_of(records.values())),
        "first_line": f"Best of each arm: {chosen}." if best else "No trial is finished yet.",
        "best": best,
        "columns": ["trial", "success, %", "success of sampled actions, %", "seeds"],
        "rows": [
            [name, *(f"{value:.1f}" for value in values), str(seeds)]
            for name, values, seeds in found
        ],
    }
