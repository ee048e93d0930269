"""The benchmark of text tasks: the same episodes here, in processes, and in a mix."""

import pytest

from benchmarks import text_tasks

UP = "tests.envs.text.counting:Up"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(text_tasks, "TASKS", {"sokoban": 1.0, UP: 0.0})
    monkeypatch.setattr(text_tasks.versions, "cores", lambda: [0])


def test_episodes_are_recorded_and_played_again():
    episodes = text_tasks.recorded(UP, 5)
    assert episodes == [text_tasks.Played(seed, [f"say {seed}"]) for seed in range(5)]
    with text_tasks._tasks(UP, 0, 2) as (tasks, _):
        assert text_tasks.drive(tasks, episodes) > 0
        assert {task.seed for task in tasks} <= set(range(5))


def test_rates_here_and_in_processes():
    here, there = text_tasks.measure_task("sokoban", 3)
    assert here.met
    assert "a reset takes" in here.note
    assert here.ours > 0
    assert there.case == "sokoban, 1 processes"
    assert there.note.endswith("MB a process")


def test_a_mix_beside_its_tasks(monkeypatch):
    monkeypatch.setattr(text_tasks, "MIXES", {"mix3": [UP, "sokoban"]})
    monkeypatch.setattr(text_tasks, "MIX", "mix3")
    monkeypatch.setattr("jaxrl_guided.envs.text.source.MIXES", {"mix3": [UP, "sokoban"]})
    monkeypatch.setattr(text_tasks, "SLOTS", 2)
    row = text_tasks.measure_mix(2)
    assert row.ours > 0
    assert "steps/s one after the other" in row.note
