"""The repository as a whole: nothing of one machine in it, every preset can be built."""

import dataclasses
import importlib
import json
import pathlib
import re
import subprocess

import pytest
from absl import flags

from jaxrl_guided.runtime import config as config_lib

ROOT = pathlib.Path(__file__).parents[1]
# Absolute paths of somebody's machine, and addresses of private package indices.
MACHINE = re.compile(
    r"(?<![\w.~}])/(?:work|root|home/\w+|Users/\w+)/|(?:^|\W)(?:index|extra-index)-url"
)
LARGE_BYTES = 1_000_000


def tracked():
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    output = subprocess.run(command, capture_output=True, text=True)
    if output.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in output.stdout.split("\0") if name and (ROOT / name).is_file()]


def machine_lines(text):
    return [line for line in text.splitlines() if MACHINE.search(line)]


def test_no_machine_paths():
    found = {}
    for path in tracked():
        if path == pathlib.Path(__file__):
            continue
        try:
            lines = machine_lines(path.read_text())
        except UnicodeDecodeError:
            continue
        if lines:
            found[str(path.relative_to(ROOT))] = lines
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "cd /work/main",
        'open("/root/x")',
        "/home/me/data",
        "pip --index-url https://x",
        "index-url=x",
    ],
)
def test_machine_paths_are_recognised(line):
    assert machine_lines(line)


@pytest.mark.parametrize("line", ["benchmarks/work/x", "https://x.org/home/y/", "~/root/x"])
def test_other_paths_are_not(line):
    assert not machine_lines(line)


def test_no_large_files():
    large = [str(p.relative_to(ROOT)) for p in tracked() if p.stat().st_size > LARGE_BYTES]
    assert large == []


def scripts():
    return sorted(
        path.stem
        for folder in ("experiments",)
        for path in (ROOT / folder).glob("*.py")
        if "PRESETS" in path.read_text()
    )


@pytest.fixture
def own_flags():
    """Scripts define flags of the same names: take a script's away after its test."""
    before = set(flags.FLAGS)
    yield
    flags.FLAGS.remove_flag_values([name for name in flags.FLAGS if name not in before])


@pytest.mark.parametrize("script", scripts())
def test_every_preset_survives_json(script, own_flags):
    module = importlib.import_module(f"experiments.{script}")
    for name, preset in module.PRESETS.items():
        assert dataclasses.is_dataclass(preset), name
        stored = json.loads(json.dumps(config_lib.to_dict(preset)))
        assert config_lib.from_dict(type(preset), stored) == preset
