"""The table of the backbone comparison from made-up cells, and the answer above it."""

import pytest

from benchmarks.report import render
from jaxrl_guided.lago.backbone_report import answer, comparison_record, gather


def record(row, seed, rephrase, random=0.25):
    """A cell's result; all that is not Rephrase is a constant of the row."""
    level = {"success": 0.5, "sampled_success": 0.375, "random_success": random}
    followed = level | {"following": 0.75}
    return {
        "config": {"row": row, "prior": {"sft": {"seed": seed}}},
        "data": "same",
        "held_out": {"step": 10, "nll": 1.5, "accuracy": 0.625},
        "levels": {
            "real-heldout": followed,
            "rephrase": followed | {"success": rephrase},
            "easy": level,
        },
    }


def compared(ours, control):
    records = [record("smollm2-8-lora", seed, x) for seed, x in enumerate(ours)]
    return records + [record("random-8-full", seed, x) for seed, x in enumerate(control)]


def test_the_table_has_means_with_intervals_over_seeds():
    found = comparison_record([*compared([0.5, 0.7], [0.25]), record("nano-full", 2, 0.1)])
    assert found["columns"] == [
        "backbone",
        "Rephrase, %",
        "Real, held out, %",
        "Easy, %",
        "following, Rephrase, %",
        "following, Real, %",
        "seeds",
    ]
    one = ["50.0", "50.0", "75.0", "75.0", "1"]
    assert found["rows"][0] == ["nano (random), full", "10.0", *one]
    # Of two seeds a quarter of the resamples is twice the lower one, and a quarter the upper.
    shown = ["60.0 [50.0, 70.0]", "50.0 [50.0, 50.0]"]
    assert found["rows"][1][:3] == ["SmolLM2-135M, 8 layers, LoRA", *shown]
    assert found["rows"][2][:2] == ["random weights, 8 layers, full", "25.0"]
    floor = ["25.0 [25.0, 25.0]"] * 3
    assert found["rows"][3] == ["uniform random actions", *floor, "", "", "3"]
    (further,) = found["tables"]
    assert further["columns"][1:] == [
        "Rephrase, %",
        "Real, held out, %",
        "Easy, %",
        "held-out accuracy, %",
        "held-out nll",
        "seeds",
    ]
    sampled = ["37.5", "37.5", "37.5"]
    assert further["rows"][0] == ["nano (random), full", *sampled, "62.5", "1.500", "1"]
    assert further["rows"][1][-2:] == ["1.500 [1.500, 1.500]", "2"]
    assert len(further["rows"]) == 3
    assert found["scores"]["smollm2-8-lora"]["rephrase/success"] == {"0": 0.5, "1": 0.7}
    rendered = render(found)
    assert found["first_line"] in rendered
    assert rendered.count("\n| ") == (2 + 4) + (2 + 3)


@pytest.mark.parametrize(
    "ours, text",
    [
        # Half an interval is t(0.975; 2 degrees) / sqrt(3) = 2.484 deviations of the seeds.
        ([0.60, 0.60, 0.60], "+10.0 points [+10.0, +10.0], 3 seeds; {} is met."),
        ([0.69, 0.70, 0.71], "+20.0 points [+17.5, +22.5], 3 seeds; {} is met."),
        (
            [0.54, 0.55, 0.56],
            "+5.0 points [+2.5, +7.5], 3 seeds; {} is not met, though pretraining helps.",
        ),
        (
            [0.60, 0.80, 0.70],
            "+20.0 points [-4.8, +44.8], 3 seeds; {} is not met: a null result, the interval "
            "holds 0.",
        ),
        (
            [0.39, 0.40, 0.41],
            "-10.0 points [-12.5, -7.5], 3 seeds; {} is not met: pretrained weights do worse.",
        ),
    ],
)
def test_the_first_line_says_whether_the_goal_is_met(ours, text):
    expected = text.format("the goal (at least 10 points, interval without 0)")
    start = "Pretrained LoRA minus fully trained random weights on Rephrase: "
    assert answer(gather(compared(ours, [0.5] * 3))) == start + expected


def test_seeds_are_paired_and_one_pair_is_no_comparison():
    records = [*compared([0.6, 0.8], [0.5]), record("random-8-full", 7, 0.9)]
    assert "no comparison yet" in answer(gather(records))
    assert "no comparison yet" in comparison_record(records)["first_line"]
    records += [record("random-8-full", 1, 0.7)]
    assert "+10.0 points [+10.0, +10.0], 2 seeds" in answer(gather(records))
