"""Tables and answers from made-up cells whose numbers are known."""

import numpy as np
import pytest

from jaxrl_guided.lago.config import ARMS
from jaxrl_guided.lago.report import (
    answers,
    as_text,
    difference,
    draw_curves,
    estimate,
    experiment_record,
    gather,
    table,
    trials_record,
)

FAMILIES = ("hard-two", "hard-three", "hard-order", "hard-sort")


def cell(arm, level, success, seeds=(0, 1), reward="goal", curve=None, steps=100, expert=0):
    """A cell's record; `success` is a list over seeds, or one by evaluation level."""
    final = success if isinstance(success, dict) else {level: success}
    return {
        "config": {"arm": arm, "level": level, "reward": reward},
        "final": {name: {"success": v, "return": [10 * x for x in v]} for name, v in final.items()},
        "seeds": list(seeds),
        "curve": curve or {"steps": [], "success": []},
        "steps": steps,
        "expert_steps": expert,
    }


def all_levels(arm, real, rephrase, easy, hard, **options):
    """Cells of all four levels; `hard` is one list a family."""
    return [
        cell(arm, "real", real, **options),
        cell(arm, "rephrase", rephrase, **options),
        cell(arm, "easy", easy, **options),
        cell(arm, "hard", dict(zip(FAMILIES, hard, strict=True)), **options),
    ]


def test_means_are_taken_over_families_and_levels_for_each_seed():
    hard = [[0.4, 0.0], [0.2, 0.0], [0.0, 0.0], [0.2, 0.4]]
    results = gather(all_levels("ppo", [0.8, 0.6], [0.6, 0.4], [0.4, 0.3], hard), "goal")
    scores = results.scores["ppo"]
    assert set(scores) == {"real", "rephrase", "easy", "hard", "mean", *FAMILIES}
    assert scores["hard-sort"] == {0: 0.2, 1: 0.4}
    assert scores["hard"] == pytest.approx({0: 0.2, 1: 0.1})
    assert scores["mean"] == pytest.approx({0: 0.5, 1: 0.35})


def test_cells_of_several_seeds_join_and_rewards_stay_apart():
    records = [
        cell(
            "ppo", "real", [0.5], seeds=(3,), curve={"steps": [10, 20], "success": [[0.1], [0.2]]}
        ),
        cell(
            "ppo",
            "real",
            [0.7, 0.9],
            seeds=(1, 2),
            curve={"steps": [10, 20], "success": [[0.3, 0.5], [0.4, 0.6]]},
        ),
        cell("ppo", "real", [0.0], seeds=(1,), reward="distance"),
    ]
    results = gather(records, "goal")
    assert results.scores == {"ppo": {"real": {3: 0.5, 1: 0.7, 2: 0.9}}}
    steps, success = results.curves["real"]["ppo"]
    np.testing.assert_array_equal(steps, [10, 20])
    np.testing.assert_array_equal(success, [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    assert gather(records, "distance").scores == {"ppo": {"real": {1: 0.0}}}
    assert gather(records, "goal", metric="return").scores["ppo"]["real"][3] == 5.0


def test_means_need_every_part_and_use_common_seeds():
    records = all_levels("ppo", [0.8], [0.6], [0.4], [[0.2]] * 4, seeds=(0,))
    records.append(cell("ppo", "real", [0.9], seeds=(1,)))
    assert gather(records, "goal").scores["ppo"]["mean"] == pytest.approx({0: 0.5})
    assert "mean" not in gather(records[1:3], "goal").scores["ppo"]
    assert (
        "hard" not in gather([cell("ppo", "hard", {"hard-two": [0.1]}, (0,))], "goal").scores["ppo"]
    )


def test_differences_are_paired_by_seed():
    ours = {0: 0.2, 1: 0.9, 2: 0.5, 7: 0.0}
    theirs = {2: 0.4, 0: 0.1, 1: 0.8}
    found, seeds = difference(ours, theirs)
    assert seeds == 3
    # Each seed gains exactly ten points, however far apart the seeds are.
    np.testing.assert_allclose([found.value, found.low, found.high], 10, atol=1e-9)
    assert difference({0: 0.5, 1: 0.5}, {1: 0.4, 2: 0.4}) is None


def test_one_seed_has_no_interval():
    found = estimate({5: 0.25})
    assert found.value == 25
    assert np.isnan([found.low, found.high]).all()
    _, rows = table(gather([cell("ppo", "real", [0.25], seeds=(5,))], "goal"))
    assert rows == [["PPO", "25.0", "100", "0", "1"]]


def test_the_table_has_arms_in_order_columns_of_the_paper_first_and_gaps():
    records = [
        cell("lago", "easy", [0.5, 0.5], expert=70, steps=50),
        cell("random", "real", [0.1, 0.1], steps=0),
        cell("ppo_10x", "real", [0.4, 0.4], steps=12_345),
        cell("lago", "real", [0.3, 0.3], expert=70),
    ]
    columns, rows = table(gather(records, "goal"))
    assert columns == ["success, %", "real", "easy", "steps", "expert steps", "seeds"]
    assert rows == [
        ["uniform random", "10.0 [10.0, 10.0]", "", "0", "0", "2"],
        ["PPO, 10x steps", "40.0 [40.0, 40.0]", "", "12,345", "0", "2"],
        [ARMS["lago"].title, "30.0 [30.0, 30.0]", "50.0 [50.0, 50.0]", "100", "70", "2"],
    ]


def compare(lago, ppo):
    seeds = range(len(lago))
    return answers(
        gather([cell("lago", "real", lago, seeds), cell("ppo", "real", ppo, seeds)], "goal")
    )


@pytest.mark.parametrize(
    "lago, ppo, words",
    [
        (
            [0.5, 0.6, 0.7],
            [0.3, 0.4, 0.5],
            "LaGO is above PPO on real: +20.0 points [+20.0, +20.0], 3",
        ),
        (
            [0.3, 0.4, 0.5],
            [0.5, 0.6, 0.7],
            "LaGO is below PPO on real: -20.0 points [-20.0, -20.0], 3",
        ),
        ([0.6, 0.4, 0.5], [0.5, 0.5, 0.5], "LaGO is not clearly above PPO on real: +0.0 points ["),
        (
            [0.5, 0.5],
            [0.5, 0.5],
            "LaGO is not clearly above PPO on real: +0.0 points [+0.0, +0.0], 2",
        ),
    ],
)
def test_answers_say_above_below_or_neither(lago, ppo, words):
    (answer,) = compare(lago, ppo)
    assert answer.startswith(words)
    assert answer.endswith("seeds.")


def test_answers_prefer_the_mean_and_say_the_bad_news_first():
    hard = [[0.1, 0.1]] * 4
    records = all_levels("lago", [0.5, 0.5], [0.5, 0.5], [0.5, 0.5], hard)
    records += all_levels("ppo", [0.9, 0.9], [0.1, 0.1], [0.1, 0.1], hard)
    records += [cell("kickstart", "rephrase", [0.6, 0.6])]
    found = answers(gather(records, "goal"))
    assert found == [
        "LaGO is below kickstarting (beta to 0) on rephrase: -10.0 points [-10.0, -10.0], 2 seeds.",
        "LaGO is above PPO on mean: +10.0 points [+10.0, +10.0], 2 seeds.",
    ]


def test_no_answer_without_two_common_seeds_or_a_rival():
    assert compare([0.5], [0.4]) == []
    assert answers(gather([cell("lago", "real", [0.5, 0.5])], "goal")) == []
    assert answers(gather([cell("ppo", "real", [0.5, 0.5])], "goal")) == []
    record = experiment_record(gather([cell("ppo", "real", [0.5, 0.5])], "goal"), "A title")
    assert record["first_line"] == "No comparison with LaGO is finished yet."


def test_the_record_holds_scores_by_seed_and_reads_as_markdown():
    record = experiment_record(gather([cell("ppo", "real", [0.5, 0.25])], "goal"), "A title")
    assert record["scores"] == {"ppo": {"real": {"0": 0.5, "1": 0.25}}}
    lines = as_text(record).splitlines()
    assert lines[:3] == ["## A title", "", record["first_line"]]
    assert lines[4] == "| success, % | real | steps | expert steps | seeds |"
    assert lines[5] == "| --- | --- | --- | --- | --- |"
    assert lines[6].startswith("| PPO | 37.5 [")


def test_trials_stand_best_first():
    records = {
        "ppo-a": cell("ppo", "real", [0.1, 0.3]),
        "lago-b": cell("lago", "real", [0.5, 0.5]),
        "ppo-c": cell("ppo", "real", [0.4, 0.2]),
    }
    record = trials_record(records, "Trials")
    assert [row[0] for row in record["rows"]] == ["lago-b", "ppo-c", "ppo-a"]
    assert record["first_line"] == "Best: lago-b."
    assert record["rows"][0] == ["lago-b", "50.0 [50.0, 50.0]", "2"]
    assert trials_record({}, "Trials")["first_line"] == "No trial is finished yet."


def test_curves_are_drawn_for_each_level_without_the_longer_run(tmp_path):
    curve = {"steps": [10, 20], "success": [[0.1, 0.2], [0.3, 0.4]]}
    records = [
        cell("ppo", "real", [0.5, 0.5], curve=curve),
        cell("ppo_10x", "real", [0.5, 0.5], curve={**curve, "steps": [100, 200]}),
        cell("ppo_10x", "easy", [0.5, 0.5], curve={**curve, "steps": [100, 200]}),
        cell("random", "real", [0.5, 0.5]),
    ]
    paths = draw_curves(gather(records, "goal"), tmp_path)
    assert [path.name for path in paths] == ["curve_real_goal.png"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
