"""Tables and answers from made-up cells whose numbers are known."""

import dataclasses
import datetime

import numpy as np
import pytest

from jaxrl_guided.lago.config import ARMS, OnlineConfig
from jaxrl_guided.lago.report import (
    answers,
    as_text,
    beside_table,
    curve_area,
    draw_curves,
    experiment_record,
    gather,
    parts_table,
    table,
    trials_record,
)
from jaxrl_guided.lago.rivals import estimate
from jaxrl_guided.runtime import versions

FAMILIES = ("hard-two", "hard-three", "hard-order", "hard-sort")


def cell(arm, level, success, seeds=(0, 1), reward="goal", curve=None, steps=100, expert=0):
    """A cell's record; `success` is a list over seeds, or one by evaluation level.

    The return is 10 times success, sampled success a half of it, and a quarter lasts.
    """
    final = success if isinstance(success, dict) else {level: success}
    factors = {"success": 1, "return": 10, "sampled_success": 0.5, "success_at_end": 0.25}
    return {
        "config": {"env": "clevr", "arm": arm, "level": level, "reward": reward},
        "final": {
            column: {name: [factor * x for x in v] for name, factor in factors.items()}
            for column, v in final.items()
        },
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
    np.testing.assert_allclose(success, [[10, 20], [30, 40], [50, 60]])
    assert gather(records, "distance").scores == {"ppo": {"real": {1: 0.0}}}
    assert results.measures["return"]["ppo"]["real"] == {3: 5.0, 1: 7.0, 2: 9.0}
    assert results.measures["success_at_end"]["ppo"]["real"] == {3: 0.125, 1: 0.175, 2: 0.225}


def test_means_need_every_part_and_use_common_seeds():
    records = all_levels("ppo", [0.8], [0.6], [0.4], [[0.2]] * 4, seeds=(0,))
    records.append(cell("ppo", "real", [0.9], seeds=(1,)))
    assert gather(records, "goal").scores["ppo"]["mean"] == pytest.approx({0: 0.5})
    assert "mean" not in gather(records[1:3], "goal").scores["ppo"]
    assert (
        "hard" not in gather([cell("ppo", "hard", {"hard-two": [0.1]}, (0,))], "goal").scores["ppo"]
    )


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
        [ARMS["lago"].title, "30.0 [30.0, 30.0]", "50.0 [50.0, 50.0]", "100 (easy 50)", "70", "2"],
    ]


def test_an_arm_that_is_one_run_has_no_interval_and_is_no_pair():
    hard = [[0.2] * 3] * 4
    levels = ([0.3] * 3, [0.2] * 3, [0.3] * 3, hard)
    ours = ([0.4, 0.5, 0.9], [0.4, 0.5, 0.9], [0.4, 0.5, 0.9], [[0.4, 0.5, 0.9]] * 4)
    options = {"seeds": (4, 5, 6)}
    records = all_levels("prior", *levels, **options) + all_levels("lago", *ours, **options)
    results = gather(records, "goal")
    assert results.scores["prior"]["mean"] == pytest.approx({4: 0.25})
    _, rows = table(results)
    values = ["30.0", "20.0", "30.0", "20.0", "25.0"]
    assert rows[0] == ["prior as controller", *values, "100", "0", "1 run"]
    found = parts_table(results)
    assert found["columns"] == ["part", "prior as controller", "LaGO"]
    own = f"{estimate({0: 0.4, 1: 0.5, 2: 0.9}):.1f}"
    assert found["rows"] == [[name, "20.0", own] for name in FAMILIES]
    # LaGO has 40, 50 and 90 on every level, so the ends are those of its own resamples.
    (answer,) = answers(results)
    own = estimate({0: 0.4, 1: 0.5, 2: 0.9})
    assert answer == (
        f"LaGO is not judged against prior as controller on mean: +35.0 [+{own.low - 25:.1f}, "
        f"+{own.high - 25:.1f}] points, 3 seeds against 1 run, fewer than 5."
    )
    note = experiment_record(results, "A title")["note"]
    assert "over training seeds" in note
    assert "Prior as controller: one run, without interval" in note
    others = experiment_record(gather(all_levels("lago", *ours, **options), "goal"), "A title")
    assert "one run" not in others["note"]


def test_answers_prefer_the_mean_and_say_the_bad_news_first():
    hard, options = [[0.1] * 5] * 4, {"seeds": range(5)}
    records = all_levels("lago", [0.5] * 5, [0.5] * 5, [0.5] * 5, hard, **options)
    records += all_levels("ppo", [0.9] * 5, [0.1] * 5, [0.1] * 5, hard, **options)
    records += [cell("kickstart", "rephrase", [0.6] * 5, **options)]
    found = answers(gather(records, "goal"))
    assert found == [
        "LaGO is below PPO on real: -40.0 [-40.0, -40.0] points, 5 seeds.",
        "LaGO is not clearly above PPO on hard: +0.0 [+0.0, +0.0] points, 5 seeds.",
        "LaGO is below kickstarting (beta to 0) on rephrase: -10.0 [-10.0, -10.0] points, 5 seeds.",
        "LaGO is above PPO on mean: +10.0 [+10.0, +10.0] points, 5 seeds.",
        "LaGO is above PPO on rephrase: +40.0 [+40.0, +40.0] points, 5 seeds.",
        "LaGO is above PPO on easy: +40.0 [+40.0, +40.0] points, 5 seeds.",
    ]


def test_without_a_mean_every_level_is_compared():
    records = [
        cell(arm, level, [success] * 5, range(5))
        for arm, level, success in (
            ("lago", "real", 0.5),
            ("ppo", "real", 0.25),
            ("lago", "rephrase", 0.25),
            ("ppo", "rephrase", 0.5),
            ("ppo", "easy", 0.5),
        )
    ]
    results = gather(records, "goal")
    assert answers(results) == [
        "LaGO is below PPO on rephrase: -25.0 [-25.0, -25.0] points, 5 seeds.",
        "LaGO is above PPO on real: +25.0 [+25.0, +25.0] points, 5 seeds.",
    ]
    first = experiment_record(results, "A title")["first_line"]
    assert "LaGO is below: PPO (rephrase)." in first


def test_no_answer_without_two_common_seeds_or_a_rival():
    lonely = [cell("lago", "real", [0.5], seeds=(0,)), cell("ppo", "real", [0.4], seeds=(0,))]
    assert answers(gather(lonely, "goal")) == []
    assert answers(gather([cell("lago", "real", [0.5, 0.5])], "goal")) == []
    assert answers(gather([cell("ppo", "real", [0.5, 0.5])], "goal")) == []
    record = experiment_record(gather([cell("ppo", "real", [0.5, 0.5])], "goal"), "A title")
    assert record["first_line"].endswith("No comparison with LaGO is finished yet.")


def test_the_area_is_the_mean_height_of_the_curve_from_its_first_point():
    # Trapezoids over steps 10..20..50: (.2·10 + .5·30) / 40, and a constant.
    area = curve_area(np.array([10, 20, 50]), np.array([[0.0, 0.3], [0.4, 0.3], [0.6, 0.3]]))
    np.testing.assert_allclose(area, [(0.2 * 10 + 0.5 * 30) / 40, 0.3])


def test_beside_success_stand_means_over_levels():
    def curve(height):
        return {"steps": [10, 30], "success": [[0.0, 0.0], [2 * height, 2 * height]]}

    records = [
        cell("ppo", "real", [0.4, 0.4], curve=curve(0.1)),
        cell("ppo", "rephrase", [0.2, 0.2], curve=curve(0.3)),
        cell("random", "real", [0.1, 0.3]),
        cell("random", "rephrase", [0.1, 0.3]),
        cell("lago", "real", [0.5, 0.5], curve={"steps": [10], "success": [[0.5, 0.5]]}),
    ]
    found = beside_table(gather(records, "goal"))
    assert found["title"] == "Beside success, mean over real, rephrase"
    assert found["columns"] == [
        "arm",
        "return",
        "success of sampled actions, %",
        "success at the last step, %",
        "area under the success curve, %",
    ]
    assert found["rows"] == [
        ["uniform random", "2.0 [1.0, 3.0]", "10.0 [5.0, 15.0]", "5.0 [2.5, 7.5]", ""],
        ["PPO", "3.0 [3.0, 3.0]", "15.0 [15.0, 15.0]", "7.5 [7.5, 7.5]", "20.0 [20.0, 20.0]"],
        [ARMS["lago"].title, "", "", "", ""],
    ]


def test_levels_that_an_arm_did_not_train_on_have_columns_of_their_own():
    transfer = cell("ppo", "real", {"real": [0.5, 0.5], "easy": [0.25, 0.25]})
    results = gather([transfer, cell("ppo", "easy", [0.75, 0.75])], "goal")
    columns, ((_, *values, _, _, _),) = table(results)
    assert columns[1:-3] == ["real", "easy", "real to easy"]
    assert values == ["50.0 [50.0, 50.0]", "75.0 [75.0, 75.0]", "25.0 [25.0, 25.0]"]


def test_an_unfinished_grid_says_how_much_is_there():
    ppo = OnlineConfig(arm="ppo", level="real", seeds=(0, 1, 2))
    planned = [
        ppo,
        dataclasses.replace(ppo, seeds=(3,)),
        dataclasses.replace(ppo, level="easy"),
        dataclasses.replace(ppo, reward="distance"),
        dataclasses.replace(ppo, arm="prior"),
        dataclasses.replace(ppo, arm="prior", level="easy"),
    ]
    records = [
        cell("ppo", "real", [0.5] * 3, (0, 1, 2)),
        cell("ppo", "real", [0.5], (3,)),
        cell("prior", "real", [0.5] * 3, (0, 1, 2)),
    ]
    results = gather(records, "goal", planned)
    assert [row[-1] for row in table(results)[1]] == ["0–1 of 1 run", "0–4 of 4"]
    first = experiment_record(results, "A title")["first_line"]
    assert first.endswith("Unfinished: 5 of 9 planned runs (arm, level, seed) are there.")
    whole = [
        *records,
        cell("ppo", "easy", [0.5] * 3, (0, 1, 2)),
        cell("prior", "easy", [0.5] * 3, (0, 1, 2)),
    ]
    results = gather(whole, "goal", planned)
    assert "Unfinished" not in experiment_record(results, "A title")["first_line"]
    assert [row[-1] for row in table(results)[1]] == ["1 run", "3–4 of 4"]
    assert [row[-1] for row in table(gather(whole, "goal"))[1]] == ["1 run", "3–4"]


def test_the_record_holds_scores_by_seed_and_reads_as_markdown():
    record = experiment_record(gather([cell("ppo", "real", [0.5, 0.25])], "goal"), "A title")
    assert record["scores"] == {"ppo": {"real": {"0": 0.5, "1": 0.25}}}
    lines = as_text(record).splitlines()
    assert lines[:3] == ["## A title", "", record["first_line"]]
    assert lines[4] == "| success, % | real | steps | expert steps | seeds |"
    assert lines[5] == "| --- | --- | --- | --- | --- |"
    assert lines[6].startswith("| PPO | 37.5 [")
    assert lines[8] == record["note"]
    assert lines[10] == "Beside success, mean over real:"


def test_the_record_says_when_and_on_what_it_was_made():
    record = experiment_record(gather([cell("ppo", "real", [0.5, 0.25])], "goal"), "A title")
    today = datetime.datetime.now(datetime.UTC).date()
    assert abs((today - datetime.date.fromisoformat(record["date"])).days) <= 1
    assert {name: record[name] for name in versions.snapshot()} == versions.snapshot()
    assert as_text(record).splitlines()[-1].startswith(f"{record['date']}, {record['cpu']}, ")
    cells = [{**cell("ppo", "real", [0.5], (n,)), "git": f"{n}" * 40} for n in (2, 1)]
    last = as_text(experiment_record(gather(cells, "goal"), "A title")).splitlines()[-1]
    assert last.startswith(f"Table made on {record['date']}, ")
    assert last.endswith("its cells ran at revisions 1111111, 2222222.")


@pytest.mark.parametrize(
    "gain, seeds, met, words",
    [
        (0.125, 10, True, "interval above 0. Met: +12.5 [+12.5, +12.5] points. LaGO is above: PPO"),
        (0.12, 10, False, "interval above 0. Not met: +12.0 [+12.0, +12.0] points. LaGO is above"),
        (0.2, 9, None, "Not judged yet: +20.0 [+20.0, +20.0] points with 9 of 10 seeds. LaGO is"),
    ],
)
def test_the_goal_stands_in_the_first_line(gain, seeds, met, words):
    options = {"seeds": tuple(range(seeds))}
    base, ours = [0.25] * seeds, [0.25 + gain] * seeds
    records = all_levels("ppo", base, base, base, [base] * 4, **options)
    records += all_levels("lago", ours, ours, ours, [ours] * 4, **options)
    record = experiment_record(gather(records, "goal"), "A title")
    assert record["goal"].startswith("Mean success of LaGO at least 12.1 points above PPO")
    assert record["value"] == pytest.approx(100 * gain)
    assert record["met"] is met
    assert words in record["first_line"]
    assert as_text(record).splitlines()[2].startswith("Goal: Mean success of LaGO")


def test_without_a_mean_or_with_the_other_reward_there_is_no_goal_to_judge():
    records = [cell(arm, "real", [0.5] * 10, range(10)) for arm in ("lago", "ppo")]
    record = experiment_record(gather(records, "goal"), "A title")
    assert (record["met"], record["value"]) == (None, None)
    assert "Not judged yet, the mean is incomplete." in record["first_line"]
    other = [cell("ppo", "real", [0.5] * 10, range(10), reward="distance")]
    record = experiment_record(gather(other, "distance"), "A title")
    assert "goal" not in record
    assert "Goal" not in record["first_line"]


def test_trials_stand_best_first():
    records = {
        "ppo-a": cell("ppo", "real", [0.1, 0.3]),
        "lago-b": cell("lago", "real", [0.5, 0.5]),
        "ppo-c": cell("ppo", "real", [0.4, 0.2]),
    }
    record = trials_record(records, "Trials")
    assert [row[0] for row in record["rows"]] == ["lago-b", "ppo-c", "ppo-a"]
    assert record["first_line"] == "Best of each arm: LaGO: lago-b, PPO: ppo-c."
    assert record["best"] == {"lago": "lago-b", "ppo": "ppo-c"}
    assert record["rows"][0] == ["lago-b", "50.0 [50.0, 50.0]", "25.0 [25.0, 25.0]", "2"]
    assert record["date"]
    assert record["packages"]
    assert trials_record({}, "Trials")["first_line"] == "No trial is finished yet."


def test_curves_are_drawn_for_each_level_without_the_longer_run(tmp_path):
    curve = {"steps": [10, 20], "success": [[0.1, 0.2], [0.3, 0.4]]}
    records = [
        cell("ppo", "real", [0.5, 0.5], curve=curve),
        cell("ppo_10x", "real", [0.5, 0.5], curve={**curve, "steps": [100, 200]}),
        cell("ppo_10x", "easy", [0.5, 0.5], curve={**curve, "steps": [100, 200]}),
        cell("random", "real", [0.5, 0.5]),
    ]
    paths = draw_curves(gather(records, "goal"), tmp_path, "curve")
    assert [path.name for path in paths] == ["curve_real_goal.png"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
