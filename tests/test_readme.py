"""README says what is true: its example runs, its functions and scripts exist."""

import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

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


@pytest.mark.slow
def test_the_example_learns_easy():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Uniform random succeeds in 7.4 % (LaGO reference, section 2).
    assert float(done.stdout.splitlines()[-1]) > 0.3
