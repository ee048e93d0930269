"""Text tasks in a terminal: by hand, by script, and again from a record."""

import json

import pytest

from tests.experiments import scripts


def test_a_scripted_episode_is_recorded_and_replayed(tmp_path, capsys):
    record = tmp_path / "episodes.jsonl"
    arguments = ["--task=sokoban", "--options=compact=true", "--scripted", f"--record={record}"]
    for seed in (4, 5):
        assert scripts.call("play", *arguments, f"--seed={seed}") == 0
    played = capsys.readouterr().out
    assert played.count("Success after") == 2
    assert len(record.read_text().splitlines()) == 2
    assert scripts.call("play", f"--replay={record}") == 0
    again = capsys.readouterr().out
    assert [line for line in again.splitlines() if line.startswith("> ")] == [
        line for line in played.splitlines() if line.startswith("> ")
    ]
    assert again.count("Success after") == 2


def test_a_record_that_differs_is_named(tmp_path, capsys):
    record = tmp_path / "episodes.jsonl"
    scripts.call("play", "--task=route", "--scripted", f"--record={record}")
    changed = json.loads(record.read_text())
    changed["observations"][1] = "Crossing 9"
    record.write_text(json.dumps(changed))
    assert scripts.call("play", f"--replay={record}") != 0
    assert "turn 2 of route, seed 0, shows something else" in capsys.readouterr().err


@pytest.mark.parametrize(
    "typed, turns", [(["up", "hm", "<answer>left</answer>", ""], 3), (["up"], 1), ([], 0)]
)
def test_a_person_plays_and_leaves(monkeypatch, capsys, typed, turns):
    lines = iter(typed)

    def read(prompt):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    assert scripts.call("play", "--task=sokoban") == 0
    told = capsys.readouterr().out
    assert f"No success after {turns} of at most 20 turns" in told
    assert told.count("'hm' is none of") == typed.count("hm")
