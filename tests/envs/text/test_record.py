"""Episodes on record: played by whoever answers, written, read again."""

import json

import pytest

from jaxrl_guided.envs.text.record import Record, play, read_records
from jaxrl_guided.envs.text.registry import make_demonstrator, make_text_task
from jaxrl_guided.envs.text.task import Reply, awaited

RECORD = Record("route", [], 3, ["go north"], ["Crossing 2"])


def test_an_episode_is_played_to_its_end():
    task, player = make_text_task("sokoban"), make_demonstrator("sokoban")
    observation = task.reset(4).observation
    turns = [*play(task, player.answer, observation)]
    assert len(turns) == task._level.moves
    assert [turn.reply.terminated for turn in turns] == [False] * (len(turns) - 1) + [True]


def test_it_ends_after_the_last_turn_or_when_nobody_answers():
    task = make_text_task("sokoban")
    observation = task.reset(4).observation
    assert len([*play(task, lambda shown: "hm", observation)]) == task.max_turns
    answers = iter(["<answer>up</answer>", None, "<answer>up</answer>"])
    assert len([*play(task, lambda shown: next(answers), observation)]) == 1


def test_a_reply_that_comes_later_is_waited_for():
    replies = iter([None, None, Reply("there")])
    assert awaited(Reply("", later=lambda: next(replies))).observation == "there"


def test_what_was_written_is_read(tmp_path):
    (tmp_path / "episodes").write_text(f"{RECORD.line()}\n{RECORD.line()}\n")
    assert read_records(str(tmp_path / "episodes")) == [RECORD, RECORD]


def test_episodes_of_runs_are_read(tmp_path):
    """They have more fields, and nothing after the last answer."""
    line = json.dumps({"step": 3, **vars(RECORD), "observations": [], "messages": []})
    (tmp_path / "episodes").write_text(line)
    (record,) = read_records(str(tmp_path / "episodes"))
    assert record.answers == RECORD.answers
    assert record.observations == []


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "is empty; experiments.play --record=FILE writes one"),
        (f"{RECORD.line()}\n{{", "line 2, is no episode"),
        ("7", "line 1, is no episode"),
        ('{"task": "route"}', "line 1, is no episode: .*options"),
        (json.dumps({**vars(RECORD), "seed": "3"}), "line 1, is no episode: seed must be a number"),
        (json.dumps({**vars(RECORD), "answers": "go"}), "line 1, is no episode: .* lists of texts"),
        (json.dumps({**vars(RECORD), "answers": []}), "line 1, .* as many observations as answers"),
    ],
)
def test_what_is_no_record_is_said(tmp_path, content, message):
    (tmp_path / "episodes").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_records(str(tmp_path / "episodes"))
