"""The table of the cells of language models, from results written by hand."""

import pytest

from jaxrl_guided.learners.language.table import language_cells, language_record
from jaxrl_guided.runtime import cells
from jaxrl_guided.runtime.config import to_dict


def result(path, name, start, end):
    config = to_dict(language_cells()[name])
    curve = {"rounds": [0, 200], "success": [start, end], "success_greedy": [start, 1.0]}
    data = {"config": config, "curve": curve, "demonstrator": 0.26, "episodes": 25_600}
    cells.write_result(path / f"{name}.json", config, data | {"minutes": 4.0})


def test_rows_are_means_over_seeds(tmp_path):
    result(tmp_path, "grpo-1", 0.2, 0.9)
    result(tmp_path, "grpo-2", 0.3, 0.7)
    result(tmp_path, "shuffled-1", 0.2, 0.05)
    record = language_record(tmp_path)
    assert record["first_line"] == "3 of 15 cells are finished."
    rows = [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]
    assert [row["arm"] for row in rows] == ["GRPO", "GRPO, returns shuffled"]
    first, shuffled = rows
    assert first["seeds"] == "2"
    assert first["after imitation, sampled [%]"].startswith("25 ")
    assert first["at the end, sampled [%]"].startswith("80 ")
    assert first["change, sampled [points]"].startswith("55 ")
    assert first["seeds ≥ 80 %"] == "1 of 2"
    assert shuffled["change, sampled [points]"].startswith("-15")
    assert "(26 % success)" in record["note"]


def test_results_of_other_settings_are_not_mixed_in(tmp_path):
    result(tmp_path, "grpo-1", 0.2, 0.9)
    (tmp_path / "grpo-1.json").rename(tmp_path / "grpo-2.json")
    with pytest.raises(ValueError, match="grpo-2"):
        language_record(tmp_path)
