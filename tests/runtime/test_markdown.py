"""Markdown of tables and results, against literal text."""

import pytest

from jaxrl_guided.runtime.markdown import markdown_table, number, results_text

RECORD = {"first_line": "A is above B.", "columns": ["arm", "value"], "rows": [["A", 1.0]]}
TABLE = "| arm | value |\n| --- | --- |\n| A | 1 |\n"


def test_cells_are_escaped_and_numbers_are_for_people():
    rows = [["a|b\nc", 81_000.0, 27.26, 0, None, True, False]]
    assert markdown_table(list("tuvwxyz"), rows).splitlines() == [
        "| t | u | v | w | x | y | z |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| a\\|b c | 81,000 | 27.3 | 0 | – | yes | no |",
    ]


@pytest.mark.parametrize(
    "value, text",
    [(None, "–"), (0.0, "0"), (1234567.8, "1,234,568"), (99.96, "100"), (0.01234, "0.0123")],
)
def test_numbers_for_people(value, text):
    assert number(value) == text


def test_rows_and_columns_must_agree():
    with pytest.raises(ValueError, match="has 1 values for 2 columns"):
        markdown_table(["a", "b"], [["1", "2"], ["3"]])


def test_the_least_record():
    assert results_text(RECORD) == f"A is above B.\n\n{TABLE}"
    with pytest.raises(KeyError, match="columns"):
        results_text({"first_line": "A is above B.", "rows": []})


def test_all_parts_stand_in_order():
    record = RECORD | {
        "answers": ["First.", "Second."],
        "note": "One run each.",
        "tables": [{"title": "Beside it", "columns": ["x"], "rows": [["2"]]}],
        "date": "2025-01-02",
        "cpu": "Fast CPU",
        "cores": 2,
        "devices": ["cpu: cpu"],
        "packages": {"jax": "0.10.2"},
    }
    assert results_text(record) == (
        f"A is above B.\n\n- First.\n- Second.\n\n{TABLE}\nOne run each.\n\nBeside it:\n\n"
        "| x |\n| --- |\n| 2 |\n\n2025-01-02, Fast CPU, 2 cores, cpu: cpu, jax 0.10.2.\n"
    )
