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
    (line,) = run([(2.0, 100)])
    assert line == "ppo 100/1,000 steps  50/s  18 s left  reward 33.3"


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
    (line,) = run([(10.0, 600)], done=500)
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
    text = "\n".join(run([(2.0, 100)], Terminal()))
    assert "ppo" in text
    assert "━" in text
    assert "18 s left" in text


@pytest.mark.parametrize(
    "seconds, text",
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s"), (7620, "2 h 07 min")],
)
def test_duration(seconds, text):
    assert format_duration(seconds) == text
