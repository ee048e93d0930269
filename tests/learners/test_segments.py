"""Rows of metrics: their ends are those of the plan, however the clock cuts the run."""

import numpy as np
import pytest

from jaxrl_guided.learners.segments import Plan, Rows


def plan(iterations, points):
    return Plan("x", iterations, lambda n: 10 * n, points, "return")


def test_rows_end_at_every_evaluation_and_about_two_hundred_times():
    assert plan(8, 2).row_ends == [1, 2, 3, 4, 5, 6, 7, 8]
    ends = plan(1003, 3).row_ends
    assert set(plan(1003, 3).targets) <= set(ends)
    assert ends[:3] == [5, 10, 15]
    assert ends[-1] == 1003
    assert len(ends) == 200 + 3  # 334, 669 and 1003


def cut(ends, lengths, width=2):
    rows, found, done = Rows(ends), [], 0
    for length in lengths:
        loss = np.arange(done, done + length, dtype=np.float64)
        done += length
        metrics = {"loss": loss, "seeds": np.tile(loss[:, None], (1, width))}
        found += list(rows.add(metrics, done))
    return found, rows.rest()


@pytest.mark.parametrize("lengths", [[12], [1] * 12, [1, 2, 4, 5], [7, 5]])
def test_rows_do_not_depend_on_the_lengths_of_chunks(lengths):
    found, rest = cut([3, 6, 7, 12], lengths)
    assert rest == []
    assert [end for end, _ in found] == [3, 6, 7, 12]
    for (_, row), expected in zip(found, ([0, 1, 2], [3, 4, 5], [6], range(7, 12)), strict=True):
        np.testing.assert_array_equal(row["loss"], expected)
        np.testing.assert_array_equal(row["seeds"][:, 1], expected)


def test_what_a_stopped_run_has_begun_is_a_row():
    found, rest = cut([4, 8], [3, 3])
    assert [end for end, _ in found] == [4]
    ((end, row),) = rest
    assert end == 6
    np.testing.assert_array_equal(row["loss"], [4, 5])


def test_a_run_that_goes_on_begins_in_the_middle_of_a_row():
    rows = Rows([4, 8])
    ((end, row),) = rows.add({"loss": np.array([6.0, 7.0])}, 8)
    assert end == 8
    np.testing.assert_array_equal(row["loss"], [6, 7])
