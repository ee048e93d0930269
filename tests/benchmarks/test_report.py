"""README's generated tables."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from benchmarks.report import update
from jaxrl_guided.runtime.errors import UserError

REPOSITORY = pathlib.Path(__file__).parents[2]
BENCHMARK = {
    "name": "clevr_env",
    "date": "2025-01-02",
    "cpu": "Fast CPU",
    "cores": 2,
    "devices": ["cpu: cpu"],
    "packages": {"jax": "0.10.2"},
    "rows": [
        {
            "case": "a|b",
            "metric": "speed",
            "unit": "steps/s",
            "ours": 81000.0,
            "peers": {"mujoco": 1900},
            "goal": "≥ 30×",
            "met": True,
            "note": "",
        },
        {
            "case": "c",
            "metric": "speed",
            "unit": "steps/s",
            "ours": 50.0,
            "peers": {},
            "goal": "≥ 1",
            "met": None,
            "note": "void: repeats spread by 9 %",
        },
    ],
}
EXPERIMENT = {
    "title": "CLEVR",
    "first_line": "LaGO is not above PPO.",
    "columns": ["arm", "mean", "met"],
    "rows": [["PPO", 15.1, None], ["LaGO", 27.25, False]],
}
TABLE = """\
| case | metric | ours | peers | goal | met | note |
| --- | --- | --- | --- | --- | --- | --- |
| a\\|b | speed [steps/s] | 81,000 | mujoco 1,900 | ≥ 30× | yes |  |
| c | speed [steps/s] | 50 |  | ≥ 1 | void | void: repeats spread by 9 % |

2025-01-02, Fast CPU, 2 cores, cpu: cpu, jax 0.10.2.
"""


def block(name, body=""):
    return f"<!-- begin:{name} -->\n{body}<!-- end:{name} -->\n"


@pytest.fixture
def results(tmp_path):
    (tmp_path / "clevr_env.json").write_text(json.dumps(BENCHMARK))
    (tmp_path / "lago_clevr.json").write_text(json.dumps(EXPERIMENT))
    return tmp_path


def test_benchmark_table_replaces_what_stood_there(results):
    text = "before\n" + block("clevr_env", "old\n") + "after\n"
    assert update(text, results) == "before\n" + block("clevr_env", TABLE) + "after\n"


def test_experiment_table(results):
    table = """\
**CLEVR**

LaGO is not above PPO.

| arm | mean | met |
| --- | --- | --- |
| PPO | 15.1 | – |
| LaGO | 27.2 | no |
"""
    assert update(block("lago_clevr"), results) == block("lago_clevr", table)


def test_update_is_idempotent_and_leaves_other_text_alone(results):
    text = "# Title\n" + block("clevr_env") + "text <!-- a comment -->\n" + block("lago_clevr")
    once = update(text, results)
    assert update(once, results) == once
    assert update("no tables\n", results) == "no tables\n"


def test_absent_results_are_said(results):
    assert update(block("absent", "old\n"), results) == block("absent", "*No results yet.*\n")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- begin:clevr_env -->\n",
        "<!-- end:clevr_env -->\n",
        "<!-- begin:a -->\n<!-- end:b -->\n",
        "<!-- begin:a -->\n<!-- begin:b -->\n<!-- end:a -->\n",
    ],
)
def test_markers_that_do_not_pair_up_are_refused(results, text):
    with pytest.raises(UserError, match="markers"):
        update(text, results)


@pytest.mark.parametrize(
    "record", ["{", "{}", "[]", json.dumps({**EXPERIMENT, "rows": [["PPO", 1]]})]
)
def test_damaged_results_are_named(results, record):
    (results / "lago_clevr.json").write_text(record)
    with pytest.raises(UserError, match=r"lago_clevr\.json"):
        update(block("lago_clevr"), results)


def test_command_line(results):
    readme = results / "README.md"
    readme.write_text(block("clevr_env"))

    def report(*arguments):
        command = [sys.executable, "-m", "benchmarks.report", f"--results={results}"]
        return subprocess.run(
            [*command, f"--readme={readme}", *arguments],
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env=os.environ,
        )

    stale = report("--check")
    assert stale.returncode == 2
    assert stale.stderr == f"error: {readme} is out of date: run python -m benchmarks.report\n"
    assert readme.read_text() == block("clevr_env")
    assert report().returncode == 0
    assert readme.read_text() == block("clevr_env", TABLE)
    assert report("--check").returncode == 0
