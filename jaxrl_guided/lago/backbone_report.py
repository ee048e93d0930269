"""The table of the backbone comparison and the answer above it (LaGO, section 5 of the reference).

The unit is the fine-tuning seed: means over seeds with bootstrap intervals, compared seed by seed
with Student's interval, as there are few seeds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxrl_guided.lago.backbone_grid import ROWS
from jaxrl_guided.lago.rivals import Scores, difference, estimate
from jaxrl_guided.runtime.cells import revisions_of, stamp
from jaxrl_guided.runtime.stats import paired_t

OURS, CONTROL = "smollm2-8-lora", "random-8-full"
"""The rows that the goal compares, by greedy success on Rephrase."""

GOAL_POINTS = 10.0

_LEVELS = {"rephrase": "Rephrase", "real-heldout": "Real, held out", "easy": "Easy"}
_MEASURES = ("success", "following", "sampled_success")
_MAIN = {f"{level}/success": f"{title}, %" for level, title in _LEVELS.items()} | {
    "rephrase/following": "following, Rephrase, %",
    "real-heldout/following": "following, Real, %",
}
_FURTHER = {f"{level}/sampled_success": f"{title}, %" for level, title in _LEVELS.items()} | {
    "accuracy": "held-out accuracy, %",
    "nll": "held-out nll",
}
_RANDOM = "random"
_TITLES = {name: row.title for name, row in ROWS.items()} | {_RANDOM: "uniform random actions"}


def gather(records: Iterable[Mapping[str, Any]]) -> Scores:
    """Row -> column -> seed -> share or nll; uniform random actions are a row of their own."""
    scores: Scores = {}

    def add(row: str, column: str, seed: int, value: float) -> None:
        scores.setdefault(row, {}).setdefault(column, {})[seed] = value

    for record in records:
        row, seed = record["config"]["row"], record["config"]["prior"]["sft"]["seed"]
        for name in ("nll", "accuracy"):
            add(row, name, seed, record["held_out"][name])
        for level, numbers in record["levels"].items():
            for measure in _MEASURES:
                if measure in numbers:
                    add(row, f"{level}/{measure}", seed, numbers[measure])
            add(_RANDOM, f"{level}/success", seed, numbers["random_success"])
    return scores


def answer(scores: Scores) -> str:
    """Is the pretrained prior above the fully trained random one by what was hoped for?"""
    ours, control = (scores.get(row, {}).get("rephrase/success", {}) for row in (OURS, CONTROL))
    compared = difference(ours, control, paired_t)
    if compared is None:
        return (
            "Pretrained LoRA against fully trained random weights: no comparison yet, "
            "at least two seeds of both must be finished."
        )
    gap, seeds = compared
    if gap.low <= 0 <= gap.high:
        verdict = "not met: a null result, the interval holds 0"
    elif gap.high < 0:
        verdict = "not met: pretrained weights do worse"
    elif gap.value < GOAL_POINTS:
        verdict = "not met, though pretraining helps"
    else:
        verdict = "met"
    return (
        f"Pretrained LoRA minus fully trained random weights on Rephrase: {gap.value:+.1f} points "
        f"[{gap.low:+.1f}, {gap.high:+.1f}], {seeds} seeds; the goal (at least {GOAL_POINTS:g} "
        f"points, interval without 0) is {verdict}."
    )


def comparison_record(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """JSON data for `benchmarks.report`, with the values by seed beside the tables."""
    scores = gather(records)
    columns, rows = _table(scores, _MAIN)
    further, beside = _table({k: v for k, v in scores.items() if k != _RANDOM}, _FURTHER)
    return {
        "title": "Backbones of the prior, each fine-tuned on the same steps of Real",
        **stamp(revisions_of(records)),
        "first_line": answer(scores),
        "columns": columns,
        "rows": rows,
        "tables": [
            {"title": "Sampled actions, and loss on Real", "columns": further, "rows": beside}
        ],
        "scores": {
            row: {name: {str(k): v for k, v in by.items()} for name, by in found.items()}
            for row, found in scores.items()
        },
    }


def _table(scores: Scores, columns: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Column titles, and one row a backbone of `mean [low, high]` with the number of seeds."""
    rows = []
    for name in (name for name in _TITLES if name in scores):
        found = scores[name]
        seeds = max(len(by_seed) for by_seed in found.values())
        shown = [_shown(column, found[column]) if column in found else "" for column in columns]
        rows.append([_TITLES[name], *shown, str(seeds)])
    return ["backbone", *columns.values(), "seeds"], rows


def _shown(column: str, by_seed: Mapping[int, float]) -> str:
    scale, digits = (1.0, ".3f") if column == "nll" else (100.0, ".1f")
    return format(estimate(by_seed, scale), digits)
