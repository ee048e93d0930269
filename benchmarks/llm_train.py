"""One GRPO step of a language model with adapters, against torch, transformers and peft.

`python -m benchmarks.llm_train`: SmolLM2-135M's shape, 4 conversations of 512 tokens, adapters of
rank 16 on all linear layers, float32, one core; speed, and memory of the whole process.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks import common, contenders
from benchmarks.contenders import Measured
from jaxrl_guided.backbones.load import NANO
from jaxrl_guided.backbones.presets import PRESETS

NAME = "llm_train"
TORCH = "transformers and peft"
CASE = "SmolLM2-135M, 4 × 512 tokens, LoRA 16"
SPEED, MEMORY = 1.0, 0.8


def _task(quick: bool) -> dict[str, Any]:
    backbone = NANO if quick else PRESETS["smollm2_135m"]
    return {
        "work": "train",
        "config": backbone.to_hf(),
        "rows": 4,
        "length": 64 if quick else 512,
        "rank": 16,
        "micro_batch": 4,
        "steps": 1,
    }


def _rows(case: str, found: Mapping[str, Measured], notes: list[str]) -> list[common.Row]:
    ours = found["ours"]
    there = {name: one for name, one in found.items() if name == TORCH and not one.failed}
    notes = [*notes, *(one.failed for one in found.values() if one.failed)]
    notes += [one.note for one in there.values()]
    notes += [
        f"{n} {one.timing.note}" for n, one in found.items() if one.per_unit and one.timing.note
    ]
    met = common.all_of(common.faster(ours.timing, one.timing, SPEED) for one in there.values())
    return [
        common.Row(
            case,
            "trained tokens per second",
            "1/s",
            ours.rate,
            {name: one.rate for name, one in there.items()},
            f"≥ {SPEED:g}× {TORCH}" if there else "",
            met if there else None,
            "; ".join(notes),
        ),
        common.Row(
            case,
            "most memory",
            "MB",
            ours.rss_mb,
            {name: one.rss_mb for name, one in there.items()},
            f"≤ {MEMORY:g}× {TORCH}" if there else "",
            all(ours.rss_mb <= MEMORY * one.rss_mb for one in there.values()) if there else None,
        ),
    ]


def run() -> None:
    """Measures, prints and writes."""
    quick = common.QUICK.value
    task = _task(quick)
    command, reason = ([], "") if quick else contenders.peer("torch", "language_torch.py")
    common.pin_to_core()
    all_of_them: dict[str, Any] = {"ours": (contenders.ours("ours_language"), task)}
    if command:
        all_of_them[TORCH] = (command, task)
    found, _ = contenders.measure(all_of_them, 2 if quick else 5)
    rows = _rows("nano, 4 × 64 tokens" if quick else CASE, found, [reason] if reason else [])
    common.write_results(NAME, rows, common.results_path(NAME))


if __name__ == "__main__":
    common.main(run)
