"""Tokens per second of the sampler, against transformers' `generate` and what the machine allows.

`python -m benchmarks.sampler`: single turns and conversations of eight turns, in which we read only
what is new; the peer, and a form of ours, read the whole conversation again in each turn.
"""

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks import common, contenders
from benchmarks.contenders import Measured
from jaxrl_guided.backbones.load import NANO
from jaxrl_guided.backbones.presets import PRESETS

NAME = "sampler"
SHAPES = {"SmolLM2-135M": PRESETS["smollm2_135m"], "nano": NANO}
NEW_TOKENS = 96
TORCH = "transformers"
AGAIN = "ours, reading all again"
OF_FLOOR, OF_TURNS = 0.6, 3.0


@dataclasses.dataclass(frozen=True)
class Case:
    """Conversations side by side.

    Attributes:
      model: name in `SHAPES`.
      rows: conversations.
      turns: of each, with `NEW_TOKENS` new tokens.
      answer_tokens: of each turn.
      repeats: measured runs.
    """

    model: str
    rows: int
    turns: int
    answer_tokens: int
    repeats: int = 5

    @property
    def name(self) -> str:
        """What `--only` is matched with."""
        turns = "1 turn" if self.turns == 1 else f"{self.turns} turns"
        return f"{self.model}, batch {self.rows}, {turns}"

    def task(self, form: str = "slots") -> dict[str, Any]:
        """Of a contender."""
        return {
            "work": "sample",
            "form": form,
            "config": SHAPES[self.model].to_hf(),
            "rows": self.rows,
            "turns": self.turns,
            "new_tokens": NEW_TOKENS,
            "answer_tokens": self.answer_tokens,
        }


CASES = tuple(
    Case(model, rows, turns, 64 if turns == 1 else 16, 3 if rows == 64 else 5)
    for model in SHAPES
    for turns in (1, 8)
    for rows in (1, 8, 64)
)


def speed_row(case: Case, found: Mapping[str, Measured]) -> common.Row:
    """Tokens per second beside the peers'."""
    goals = {TORCH: OF_TURNS if case.turns > 1 else 1.0, AGAIN: OF_TURNS}
    return contenders.speed_row(case.name, "drawn tokens per second", found, goals)


def floor_row(
    case: Case, long: Measured, short: Measured, floor: Mapping[str, float]
) -> common.Row:
    """A step of one token in each row: the difference of answers of different lengths."""
    tokens = case.answer_tokens - SHORT
    steps = [
        (case.answer_tokens * case.rows * a - SHORT * case.rows * b) / tokens
        for a, b in zip(long.per_unit, short.per_unit, strict=True)
    ]
    step = common.Timing(statistics.median(steps), min(steps), max(steps))
    products, reading = floor["products_seconds"], floor["weights_bytes"] / floor["bandwidth"]
    least, what = (reading, "memory bandwidth") if case.rows == 1 else (products, "products alone")
    met = common.faster(step, common.Timing(least, least, least), OF_FLOOR)
    wanted = case.rows in (1, 64)
    return common.Row(
        case.name,
        "a step of one token",
        "s",
        step.median,
        {"products alone": products},
        f"≥ {OF_FLOOR:g} of {what}" if wanted else "",
        met if wanted else None,
        "; ".join(
            filter(
                None,
                (
                    f"{products / step.median:.2f} of the products alone",
                    f"{reading / step.median:.2f} of the bandwidth of "
                    f"{floor['bandwidth'] / 1e9:.1f} GB/s",
                    step.note,
                ),
            )
        ),
    )


SHORT = 8
"""Tokens of the shorter answers with which a step is measured."""


def measure(case: Case, command: list[str]) -> list[common.Row]:
    """Runs a case."""
    print(f"{case.name} …", flush=True)
    all_of_them: dict[str, Any] = {"ours": (contenders.ours("ours_language"), case.task())}
    if case.turns > 1:
        all_of_them[AGAIN] = (contenders.ours("ours_language"), case.task("again"))
    elif case.model != "nano":  # whose weights a core's cache holds, and calls cost more
        short = dataclasses.replace(case, answer_tokens=SHORT)
        all_of_them["ours, short"] = (contenders.ours("ours_language"), short.task())
    if command:
        all_of_them[TORCH] = (command, case.task())
    found, floor = contenders.measure(all_of_them, case.repeats)
    short_ones = found.pop("ours, short", None)
    rows = [speed_row(case, found)]
    if short_ones is not None:
        rows.append(floor_row(case, found["ours"], short_ones, floor))
    return rows


def run() -> None:
    """Measures, prints and writes."""
    common.check_only([case.name for case in CASES])
    cases = [case for case in CASES if common.fits(case.name)]
    command: list[str] = []
    if common.QUICK.value:
        cases = [
            dataclasses.replace(c, repeats=2) for c in cases if c.model == "nano" and c.rows == 1
        ]
    else:
        command, _ = contenders.peer("torch", "language_torch.py")
    common.pin_to_core()
    rows = [row for case in cases for row in measure(case, command)]
    common.write_results(NAME, rows, common.results_path(NAME))


if __name__ == "__main__":
    common.main(run)
