"""Tables of arms: which cells there are, and what a row says of a task or a mix."""

import dataclasses

from jaxrl_guided.complementary import table
from jaxrl_guided.runtime import cells
from jaxrl_guided.runtime.config import to_dict


def curve(start, end, *labels):
    points = {"without": [start, end], "with": [start, end + 0.1]}
    for label in labels:
        points |= {f"without_{label}": [start, end], f"with_{label}": [start, 1.0]}
    return points


def finish(comparison, results, name, found):
    config = comparison.configs()[name]
    shared = {"actions": 5.0, "ahead": 0.25, "bank_size": 12, "minutes": 3.0}
    result = {"config": to_dict(config), "curve": found, **shared}
    cells.write_result(results / f"{name}.json", to_dict(config), result)


def test_cells_of_the_comparisons():
    room, mix = table.ROOM.configs(), table.MIX.configs()
    assert (len(room), len(mix)) == (42, 12)
    assert [*room][:3] == ["baseline-1", "static_online-1", "complementary-1"]
    assert room["baseline-5"].seed == 5
    assert "no_ask-4" not in room
    assert set(mix) == {
        f"{arm}-{seed}"
        for arm in ("baseline", "static_online", "exp_only", "complementary")
        for seed in (1, 2, 3)
    }
    assert {config.task for config in mix.values()} == {"mix3"}


def test_a_row_of_one_task(tmp_path):
    for seed in (1, 2):
        finish(table.ROOM, tmp_path, f"complementary-{seed}", curve(0.25, 0.5))
    made = table.record(table.ROOM, tmp_path)
    assert made["first_line"] == "2 of 42 cells are finished."
    (row,) = (dict(zip(made["columns"], row, strict=True)) for row in made["rows"])
    assert row["arm"] == "Complementary RL"
    assert row["seeds"] == "2"
    assert row["at the end, without experience [%]"].startswith("50")
    assert row["with [%]"].startswith("60")
    assert row["guided − free in training, last quarter [points]"].startswith("25")
    assert row["paper"] == ".93"


def test_a_row_of_a_mix_has_its_tasks(tmp_path):
    labels = ["Room-Ultimate-5x5", "webshop", "alfworld"]
    assert list(table.MIX.labels) == labels
    finish(table.MIX, tmp_path, "complementary-1", curve(0.25, 0.5, *labels))
    made = table.record(table.MIX, tmp_path)
    (row,) = (dict(zip(made["columns"], row, strict=True)) for row in made["rows"])
    told = row["by task, without / with [%]"]
    assert told == "Room-Ultimate-5x5 50 / 100, webshop 50 / 100, alfworld 50 / 100"


def test_a_comparison_with_other_settings_has_other_cells():
    other = dataclasses.replace(
        table.ROOM, config=dataclasses.replace(table.ROOM.config, capacity=7)
    )
    assert other.listed != table.ROOM.listed
