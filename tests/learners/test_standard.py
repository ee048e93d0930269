"""The table of well-known tasks: its cells, how one is run, and how the table is made."""

import dataclasses
import json

import numpy as np
import pytest

from jaxrl_guided.learners import standard
from jaxrl_guided.learners.build import prepare
from jaxrl_guided.learners.job_config import TrainConfig
from jaxrl_guided.learners.presets import SMOKE
from jaxrl_guided.runtime import cells
from jaxrl_guided.runtime.config import from_dict, to_dict
from jaxrl_guided.runtime.errors import UserError


@pytest.mark.parametrize("name", standard.TASKS)
def test_cells_survive_json_and_fit_their_environments(name):
    task = standard.TASKS[name]
    assert from_dict(TrainConfig, json.loads(json.dumps(to_dict(task)))) == task
    assert len(task.seeds) == 5
    few = dataclasses.replace(task.evaluation, episodes=2, curve_episodes=2)
    here = ("workers=0",) if task.on_host else ()
    small = dataclasses.replace(task, seeds=(0,), evaluation=few, options=here)
    prepare(small, 1).close()


def test_the_estimate_is_within_eight_hours_and_half_an_hour_a_cell():
    minutes = [standard.estimate_minutes(cell) for cell in standard.make_cells()]
    assert max(minutes) <= 30
    assert sum(minutes) / 2 <= 8 * 60


@pytest.fixture
def two_tasks(monkeypatch):
    recurrent = dataclasses.replace(SMOKE.network, gru=4)
    tasks = {"a": SMOKE, "b": dataclasses.replace(SMOKE, network=recurrent)}
    monkeypatch.setattr(standard, "TASKS", tasks)
    return tasks


def write(tmp_path, name, task, returns):
    curve = {"steps": [256, 512], "return": [[1.0, 2.0], [3.0, 4.0]]}
    final = {"return": returns, "sampled_return": [0.5, 0.5]}
    random = {"return": [0.25]}
    result = {"final": final, "random": random, "curve": curve, "steps": 512, "minutes": 1.0}
    record = {"config": to_dict(task), **result}
    cells.write_result(tmp_path / f"{name}.json", to_dict(task), record)


def test_the_table_grows_with_finished_cells(tmp_path, two_tasks):
    results = tmp_path / "cells"
    results.mkdir()
    write(results, "a", two_tasks["a"], [1.0, 3.0])
    record = standard.standard_record(results, tmp_path / "curves.png")
    assert record["first_line"].startswith("1 of 2 cells are finished")
    write(results, "b", two_tasks["b"], [5.0, 5.0])
    record = standard.standard_record(results, tmp_path / "curves.png")
    assert [row[:3] for row in record["rows"]] == [
        ["CartPole-v1", "PPO", "512"],
        ["CartPole-v1", "PPO with a GRU", "512"],
    ]
    assert record["rows"][0][3].startswith("2 [-10.71, 14.71")
    assert record["rows"][0][6] == "0.25"
    assert len(record["columns"]) == len(record["rows"][0])
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    other = dataclasses.replace(two_tasks["a"], seeds=(7,))
    write(results, "a", other, [1.0])
    with pytest.raises(UserError, match="results are not mixed"):
        standard.standard_record(results, tmp_path / "curves.png")


def test_a_cell_writes_its_result_once(tmp_path):
    result = standard.run_cell(SMOKE, tmp_path / "run", tmp_path / "a.json")
    record = json.loads((tmp_path / "a.json").read_text())
    assert record["config_hash"] == cells.Cell("a", to_dict(SMOKE)).hash
    assert record["final"] == result["final"]
    assert np.shape(record["curve"]["return"]) == (2, 2)
    with pytest.raises(UserError, match="exists"):
        standard.run_cell(SMOKE, tmp_path / "run", tmp_path / "a.json")
