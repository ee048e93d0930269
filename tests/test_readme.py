"""README says what is true: its example runs, its functions and scripts exist."""

import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

from jaxrl_guided.learners.build import prepare
from jaxrl_guided.learners.job import run_job
from jaxrl_guided.learners.presets import SMOKE
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_functions_of_the_equations_exist():
    table = README.split("### From equation to function")[1].split("\n## ")[0]
    names = re.findall(r"`([a-z_.]+)`", table)
    assert len(names) > 12
    for name in names:
        module, _, function = name.rpartition(".")
        found = getattr(importlib.import_module(f"jaxrl_guided.{module}"), function)
        assert inspect.isfunction(found), name


def test_scripts_and_packages_exist():
    scripts = set(re.findall(r"python -m ([\w.]+)", README))
    assert len(scripts) > 5
    for script in scripts:
        assert (ROOT / (script.replace(".", "/") + ".py")).is_file(), script
    house = README.split("## Map of the house")[1].split("###")[0]
    for name in re.findall(r"\b([a-z_]+)/(?=\s)", house):
        places = (ROOT / name, ROOT / "jaxrl_guided" / name)
        assert any(place.is_dir() for place in places), name


def examples():
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def run(example):
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_example_learns_easy():
    learns, *_ = examples()
    # Uniform random succeeds in 7.4 % (LaGO reference, section 2).
    assert float(run(learns)[-1]) > 0.9


@pytest.mark.slow
def test_the_guided_example_comes_near_to_the_prior():
    _, guided, *_ = examples()
    kl = [float(line.split()[1]) for line in run(guided)]
    assert kl[-1] < 0.8 * kl[0]


@pytest.mark.slow
def test_the_example_of_a_language_model_answers():
    _, _, _, chat, episodes, *_ = examples()
    answered, *played = run(chat + episodes)
    assert "STOP_ID" in answered
    assert sum(line.startswith("assistant: ") for line in played) == 6


@pytest.mark.slow
def test_the_example_of_host_environments_trains():
    *_, hosted, _ = examples()
    assert run(f"{hosted}print(state.iteration.tolist())") == ["[20]"]


def test_the_example_of_an_own_environment_is_a_good_one():
    *_, own = examples()
    program = own + "from tests.envs import conformance\nconformance.check(env)\nprint(env.name)"
    assert run(program) == ["mine/walk"]


def test_the_example_of_a_finished_run_plays_its_policy(tmp_path):
    with RunDir(tmp_path / "run", SMOKE) as run_dir:
        run_job(prepare(SMOKE, 2), run_dir, StopFlag())
    _, _, again, *_ = examples()
    # Its greedy policy falls at once (9.75 steps); those of other seeds do not (76.5).
    (mean,) = run(again.replace("runs/cartpole", str(tmp_path / "run")))
    assert 8 <= float(mean) <= 15


def test_the_example_of_the_bank_finds_its_note(tmp_path):
    (example,) = [text for text in examples() if "complementary" in text]
    found = run(example.replace("runs/bank.sqlite", str(tmp_path / "bank.sqlite")))
    assert found == ["If it is dark, walk along the walls until the stairs show."]
