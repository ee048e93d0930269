"""README says what is true: its example runs, its functions and scripts exist."""

import importlib
import inspect
import os
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


def example(part):
    """The one that has that part."""
    (found,) = [text for text in examples() if part in text]
    return found


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
    answered, *played = run(example("def ask(") + example("rollouts.play("))
    assert "STOP_ID" in answered
    assert sum(line.startswith("assistant: ") for line in played) == 6


@pytest.mark.slow
def test_the_example_of_host_environments_trains():
    hosted = example("env.host.close()")
    assert run(f"{hosted}print(state.iteration.tolist())") == ["[20]"]


def test_the_example_of_an_own_environment_is_a_good_one():
    program = (
        example("make_mine")
        + "from tests.envs import conformance\nconformance.check(env)\nprint(env.name)"
    )
    assert run(program) == ["mine/walk"]


def test_the_example_of_a_finished_run_plays_its_policy(tmp_path):
    with RunDir(tmp_path / "run", SMOKE) as run_dir:
        run_job(prepare(SMOKE, 2), run_dir, StopFlag())
    _, _, again, *_ = examples()
    # Its greedy policy falls at once (9.75 steps); those of other seeds do not (76.5).
    (mean,) = run(again.replace("runs/cartpole", str(tmp_path / "run")))
    assert 8 <= float(mean) <= 15


def examples_of_the_bank(path):
    found = [text for text in examples() if "complementary" in text]
    return [text.replace("runs/bank.sqlite", str(path)) for text in found]


def test_the_example_of_the_bank_finds_its_note(tmp_path):
    bank, _ = examples_of_the_bank(tmp_path / "bank.sqlite")
    assert run(bank) == ["If it is dark, walk along the walls until the stairs show."]


@pytest.mark.slow
def test_the_example_of_a_policy_that_reads_the_bank_trains(tmp_path):
    bank, actor = examples_of_the_bank(tmp_path / "bank.sqlite")
    _, *shown, usage = run(bank + actor)
    assert len(shown) == 7
    assert all(0 <= float(rate) <= 1 for line in shown for rate in line.split())
    # Easy ends after one step; 32 episodes are open, and the note was shown once before.
    assert f"retrievals={7 * 128 * 32 + 32 + 1}" in usage
    assert f"credits={7 * 128 * 32}" in usage


def test_the_example_of_an_own_text_task_is_a_good_one():
    played = """
from jaxrl_guided.learners.language.demonstrations import demonstrate
shown = demonstrate(HigherLower(), HigherLower.demonstrator(), range(200))
print(sum(episode.success for episode in shown) / 200)
"""
    # Chance alone finds it in 7 of 100; who halves what is left always does.
    assert 0.3 < float(run(example("class HigherLower") + played)[-1]) < 0.7


@pytest.mark.slow
def test_the_example_of_an_own_text_task_is_trained_on(tmp_path):
    (tmp_path / "higher_lower.py").write_text(example("class HigherLower"))
    (line,) = re.findall(r"python -m (experiments\.train_llm .*higher_lower.*)", README)
    command = line.replace("--preset=nano", "--preset=smoke").split()
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "scratch on higher_lower:HigherLower" in done.stdout
    assert (tmp_path / "runs/numbers/model/config.json").exists()
