"""Tables, answers and pictures from the results of the online grid (LaGO, section 2).

The unit is the seed: every number is a mean over seeds with its bootstrap interval, every
comparison is paired by seed.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_guided.lago.config import ARMS, HARD_FAMILIES
from jaxrl_guided.runtime.plots import learning_curves
from jaxrl_guided.runtime.stats import Estimate, bootstrap, paired_difference

MEAN = ("real", "rephrase", "easy", "hard")
"""Levels whose mean is the headline."""

RIVALS = ("ppo", "ppo_bc", "kickstart", "prior")
"""What LaGO is compared with: same steps, same data, same prior, the prior itself."""

Scores = dict[str, dict[str, dict[int, float]]]
"""Arm -> column -> seed -> success."""


@dataclasses.dataclass(frozen=True)
class Results:
    """What the finished cells of one reward say.

    Attributes:
      reward: of the online environment.
      scores: success by arm, column (level, Hard family or `mean`) and seed.
      curves: level -> arm -> (steps `i[T]`, success `f[S, T]`).
      steps: environment steps by arm and level.
      expert_steps: expert transitions that an arm has seen.
    """

    reward: str
    scores: Scores
    curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]
    steps: dict[str, dict[str, int]]
    expert_steps: dict[str, int]


def gather(records: Sequence[Mapping[str, Any]], reward: str, metric: str = "success") -> Results:
    """Sorts cell records of one reward; `metric` is a key of their final numbers.

    Easy and Hard are trained with `goal` only, so that they stand in the `goal` table alone.
    """
    scores: Scores = {}
    curves: dict[str, dict[str, list[Any]]] = {}
    steps: dict[str, dict[str, int]] = {}
    expert: dict[str, int] = {}
    for record in records:
        config = record["config"]
        if config["reward"] != reward:
            continue
        arm, level = config["arm"], config["level"]
        columns = scores.setdefault(arm, {})
        for name, numbers in record["final"].items():
            by_seed = dict(zip(record["seeds"], numbers[metric], strict=True))
            columns.setdefault(name, {}).update(by_seed)
        steps.setdefault(arm, {})[level] = record["steps"]
        expert[arm] = max(expert.get(arm, 0), record.get("expert_steps", 0))
        if record["curve"]["steps"]:
            curves.setdefault(level, {}).setdefault(arm, []).append(record["curve"])
    for columns in scores.values():
        _add_means(columns)
    joined = {
        level: {
            arm: (
                np.asarray(parts[0]["steps"]),
                np.concatenate([np.asarray(part["success"]).T for part in parts]),
            )
            for arm, parts in arms.items()
        }
        for level, arms in curves.items()
    }
    return Results(reward, scores, joined, steps, expert)


def _add_means(columns: dict[str, dict[int, float]]) -> None:
    """Adds `hard` from its families, and `mean` where all four levels are there."""
    for name, parts in (("hard", HARD_FAMILIES), ("mean", MEAN)):
        if all(part in columns for part in parts):
            seeds = set.intersection(*(set(columns[part]) for part in parts))
            columns[name] = {
                seed: float(np.mean([columns[part][seed] for part in parts]))
                for seed in sorted(seeds)
            }


def estimate(by_seed: Mapping[int, float]) -> Estimate:
    """Mean in per cent with its interval (no interval from a single seed)."""
    values = 100 * np.array([by_seed[seed] for seed in sorted(by_seed)])
    if len(values) < 2:
        return Estimate(float(values[0]), float("nan"), float("nan"))
    return bootstrap(values)


def difference(
    ours: Mapping[int, float], theirs: Mapping[int, float]
) -> tuple[Estimate, int] | None:
    """Paired difference in points and the number of seeds, None with fewer than two in common."""
    seeds = sorted(set(ours) & set(theirs))
    if len(seeds) < 2:
        return None
    points = [np.array([100 * side[seed] for seed in seeds]) for side in (ours, theirs)]
    return paired_difference(points[0], points[1]), len(seeds)


def columns_of(results: Results) -> list[str]:
    """Columns that any arm has, in the order of the paper, means and families last."""
    present = {name for columns in results.scores.values() for name in columns}
    return [name for name in (*MEAN, "mean", *HARD_FAMILIES) if name in present]


def table(results: Results) -> tuple[list[str], list[list[str]]]:
    """Column titles and one row an arm, per cent success as `mean [low, high]`."""
    columns = columns_of(results)
    rows = []
    for arm in (name for name in ARMS if name in results.scores):
        scores = results.scores[arm]
        cells = [_cell(scores[name]) if name in scores else "" for name in columns]
        seeds = max(len(by_seed) for by_seed in scores.values())
        steps = max(results.steps[arm].values(), default=0)
        expert = results.expert_steps.get(arm, 0)
        rows.append([ARMS[arm].title, *cells, f"{steps:,}", f"{expert:,}", str(seeds)])
    return ["success, %", *columns, "steps", "expert steps", "seeds"], rows


def _cell(by_seed: Mapping[int, float]) -> str:
    found = estimate(by_seed)
    interval = "" if np.isnan(found.low) else f" [{found.low:.1f}, {found.high:.1f}]"
    return f"{found.value:.1f}{interval}"


def answers(results: Results) -> list[str]:
    """Is LaGO above each rival? One sentence each, the negative ones first."""
    name = "mean" if "mean" in results.scores.get("lago", {}) else None
    found = []
    for rival in RIVALS:
        shared = [
            column
            for column in columns_of(results)
            if column in results.scores.get("lago", {}) and column in results.scores.get(rival, {})
        ]
        column = name if name in shared else next(iter(shared), None)
        if column is None:
            continue
        compared = difference(results.scores["lago"][column], results.scores[rival][column])
        if compared is None:
            continue
        margin, seeds = compared
        verdict = "above" if margin.low > 0 else "below" if margin.high < 0 else "not clearly above"
        text = (
            f"LaGO is {verdict} {ARMS[rival].title} on {column}: {margin.value:+.1f} points "
            f"[{margin.low:+.1f}, {margin.high:+.1f}], {seeds} seeds."
        )
        found.append((verdict == "above", text))
    return [text for _, text in sorted(found, key=lambda pair: pair[0])]


def experiment_record(results: Results, title: str) -> dict[str, Any]:
    """JSON data for `benchmarks.report`, with the scores by seed beside the table."""
    columns, rows = table(results)
    return {
        "title": title,
        "first_line": " ".join(answers(results)) or "No comparison with LaGO is finished yet.",
        "columns": columns,
        "rows": rows,
        "scores": {
            arm: {name: {str(k): v for k, v in by.items()} for name, by in scores.items()}
            for arm, scores in results.scores.items()
        },
    }


def as_text(record: Mapping[str, Any]) -> str:
    """The record as Markdown."""
    rows = [record["columns"], ["---"] * len(record["columns"]), *record["rows"]]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([f"## {record['title']}", "", record["first_line"], "", *lines, ""])


def draw_curves(results: Results, directory: str | os.PathLike[str]) -> list[Path]:
    """One picture a level: greedy success over environment steps."""
    paths = []
    for level, arms in results.curves.items():
        path = Path(directory) / f"curve_{level}_{results.reward}.png"
        longest = {ARMS[arm].title: curve for arm, curve in arms.items() if arm != "ppo_10x"}
        if longest:
            title = f"clevr/{level}, reward {results.reward}"
            learning_curves(longest, path, title, "success of greedy actions")
            paths.append(path)
    return paths


def trials_record(records: Mapping[str, Mapping[str, Any]], title: str) -> dict[str, Any]:
    """JSON data for `benchmarks.report` of tuning trials, the best first."""
    rows = []
    for name, record in records.items():
        (numbers,) = record["final"].values()
        by_seed = dict(zip(record["seeds"], numbers["success"], strict=True))
        rows.append((estimate(by_seed).value, [name, _cell(by_seed), str(len(by_seed))]))
    rows.sort(key=lambda pair: -pair[0])
    return {
        "title": title,
        "first_line": f"Best: {rows[0][1][0]}." if rows else "No trial is finished yet.",
        "columns": ["trial", "success on Real, %", "seeds"],
        "rows": [row for _, row in rows],
    }
