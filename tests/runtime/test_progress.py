"""Progress lines and bars, with a clock that the test sets."""

import io

import pytest

from jaxrl_guided.runtime.progress import ProgressBar, format_duration


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(updates, stream=None, **kwargs):
    """Lines that `(time, done)` updates print."""
    stream = stream or io.StringIO()
    now = [0.0]
    with ProgressBar("ppo", 1000, stream=stream, clock=lambda: now[0], **kwargs) as bar:
        for now[0], done in updates:
            bar.update(done, reward=done / 3)
    return stream.getvalue().splitlines()


def test_line_gives_rate_and_time_left():
    _, line = run([(5.0, 50), (7.0, 150)], every_seconds=0)
    assert line == "ppo 150/1,000 steps  50/s  17 s left  reward 50"


def test_the_first_update_has_compiled_and_does_not_count():
    first, second = run([(60.0, 1), (61.0, 11)], every_seconds=0)
    assert first == "ppo 1/1,000 steps  reward 0.333"
    assert "10/s" in second


def test_work_that_is_one_update_has_a_rate():
    (line,) = run([(2.0, 1000)])
    assert line == "ppo 1,000/1,000 steps  500/s  reward 333"


def test_lines_are_rare_but_the_last_comes():
    lines = run([(t, 100 * t) for t in range(1, 11)], every_seconds=4)
    assert [line.split()[1] for line in lines] == [
        "100/1,000",
        "500/1,000",
        "900/1,000",
        "1,000/1,000",
    ]
    assert "left" not in lines[-1]


def test_work_of_an_earlier_session_does_not_count_in_the_rate():
    _, line = run([(5.0, 510), (14.0, 600)], done=500, every_seconds=0)
    assert "10/s" in line
    assert "40 s left" in line


def test_rate_is_that_of_the_last_updates():
    slow_start = [(100.0, 1)]
    lines = run([*slow_start, *[(100.0 + t, 1 + 10 * t) for t in range(1, 41)]], every_seconds=0)
    assert "10/s" in lines[-1]


def test_no_rate_without_time_or_work():
    (line,) = run([(0.0, 0)])
    assert line == "ppo 0/1,000 steps  reward 0"


def test_terminal_gets_a_bar():
    text = "\n".join(run([(5.0, 50), (7.0, 150)], Terminal()))
    assert "ppo" in text
    assert "━" in text
    assert "17 s left" in text


@pytest.mark.parametrize(
    "seconds, text",
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s"), (7620, "2 h 07 min")],
)
def test_duration(seconds, text):
    assert format_duration(seconds) == text
