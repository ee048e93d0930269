"""The gate's table from made-up cells."""

import dataclasses

from jaxrl_guided.lago.gate_report import gate_cells, gate_record, task_cells
from jaxrl_guided.lago.presets import FULL
from jaxrl_guided.runtime.config import to_dict


def cell(arm, success, control="none", reward="goal", level="real", chosen=None):
    settings = {"control": control, "reward": reward, "level": level}
    config = dataclasses.replace(FULL.settings(arm), **settings)
    record = {"config": to_dict(config), "seeds": list(range(len(success))), "git": "abcdef"}
    record["final"] = {level: {"success": success}}
    return record | ({"chosen": chosen} if chosen else {})


def test_cells_have_every_seed_and_fit_into_half_an_hour():
    cells = gate_cells()
    assert len(cells) == 3 * 2 * 2
    assert {c.control for c in cells.values()} == {"reversed", "random"}
    assert all(c.level == "real" and len(c.seeds) == 5 for c in cells.values())
    assert cells["distance-reversed-gated-5_6_7_8_9"].alone == FULL.alone


def test_meta_worlds_task_has_all_priors_on_equal_terms():
    cells = task_cells()
    assert len(cells) == 2 * (1 + 2 * 3)
    assert {(c.env, c.level, c.total_steps) for c in cells.values()} == {
        ("metaworld", "reach", 200_000)
    }
    for arm in ("lago", "gated"):
        same = [dataclasses.replace(c, control="none") for c in cells.values() if c.arm == arm]
        assert len(set(same)) == 2  # one for each half of the seeds


def test_table_and_verdicts():
    main = [
        cell("ppo", [0.4, 0.4]),
        cell("lago", [0.7, 0.8]),
        cell("gated", [0.65, 0.71], chosen=["lago", "lago"]),
        cell("ppo", [0.9, 0.9], level="easy"),
    ]
    own = [
        cell("lago", [0.1, 0.1], "reversed"),
        cell("gated", [0.39, 0.38], "reversed", chosen=["ppo", "ppo"]),
        cell("gated", [0.36, 0.36], "random", chosen=["ppo", "lago"]),
    ]
    record = gate_record([*own, *main], "real")
    rows = {(row[0], row[1]): row for row in record["rows"]}
    assert list(rows) == [
        ("", "PPO"),
        ("good", "LaGO"),
        ("good", "LaGO gated"),
        ("random", "LaGO gated"),
        ("reversed", "LaGO"),
        ("reversed", "LaGO gated"),
    ]
    assert rows["", "PPO"][3:] == ["40.0 [40.0, 40.0]", "", "", "2"]
    assert rows["reversed", "LaGO gated"][4:] == ["-1.5 [-2.0, -1.0]", "0 of 2", "2"]
    assert rows["random", "LaGO gated"][5] == "1 of 2"
    assert record["revisions"] == ["abcdef"]
    text = record["first_line"]
    assert "good prior: +28.0 [+25.0, +31.0] points (whole interval above -3: met)" in text
    assert "random prior: -4.0 [-4.0, -4.0] points (whole interval above -3: not met)" in text
    assert "reversed prior: -1.5" in text
    assert "keeps 0.80 of the gain" in text


def test_without_ppo_nothing_is_judged():
    record = gate_record([cell("gated", [0.3, 0.3], "reversed", chosen=["ppo", "ppo"])], "real")
    assert record["first_line"] == ""
    assert record["rows"][0][4] == ""
