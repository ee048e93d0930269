"""The repository as a whole: nothing of one machine in it, every preset can be built."""

import dataclasses
import json
import pathlib
import re
import subprocess

import pytest

from jaxrl_guided.lago.presets import DEMO, FULL, METAWORLD, PRESETS
from jaxrl_guided.lago.tuning import METAWORLD_TRIALS, TRIALS
from jaxrl_guided.runtime import config as config_lib

ROOT = pathlib.Path(__file__).parents[1]
# Absolute paths of somebody's machine, and addresses of private package indices.
MACHINE = re.compile(
    r"(?<![\w.~}])/(?:work|root|home/\w+|Users/\w+)/|(?:^|\W)(?:index|extra-index)-url"
)
LARGE_BYTES = 1_000_000
PRIOR_BYTES = 10_000_000
PRIORS = ROOT / "benchmarks/results/priors"  # a reported grid's prior is part of its result


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
    def most(path):
        return PRIOR_BYTES if PRIORS in path.parents else LARGE_BYTES

    large = [str(p.relative_to(ROOT)) for p in tracked() if p.stat().st_size > most(p)]
    assert large == []


def configurations():
    """Every preset of the scripts, whole and by stage, and every tuning trial."""
    found = dict(TRIALS)
    for name, preset in PRESETS.items():
        parts = {"lago": preset, "data": preset.data, "prior": preset.prior}
        found |= {f"{name}-{part}": value for part, value in parts.items()}
        found |= {f"{name}-{cell}": value for cell, value in preset.cells().items()}
    return found


@pytest.mark.parametrize(
    "grid, trials, preset, arms",
    [
        ("lago_tune", TRIALS, FULL, {"ppo", "lago", "bc"}),
        ("lago_metaworld_tune", METAWORLD_TRIALS, METAWORLD, {"ppo", "lago"}),
    ],
)
def test_the_presets_hold_what_the_trials_have_chosen(grid, trials, preset, arms):
    """PPO has the best of its trials; the others one that is as good, within the interval."""
    record = json.loads((ROOT / f"benchmarks/results/{grid}.json").read_text())
    shown = {name: re.findall(r"[\d.]+", success) for name, success, *_ in record["rows"]}
    assert set(shown) == set(trials)
    for arm, best in record["best"].items():
        settings = preset.settings(arm)
        place = {name: getattr(settings, name) for name in ("seeds", "judge_levels", "eval")}
        (ours,) = (
            name
            for name, trial in trials.items()
            if dataclasses.replace(trial, **place).used() == settings.used()
        )
        if arm == "ppo":
            assert ours == best
        else:
            low, mean = float(shown[best][1]), float(shown[ours][0])
            assert mean >= low, (ours, best)
    assert set(record["best"]) == arms


def test_the_demo_has_the_settings_of_the_reported_experiment():
    assert DEMO.alone == FULL.alone
    for part in ("network", "guidance", "feature_components", "feature_scale"):
        assert getattr(DEMO.online, part) == getattr(FULL.online, part)


def test_every_preset_survives_json():
    for name, preset in configurations().items():
        stored = json.loads(json.dumps(config_lib.to_dict(preset)))
        assert config_lib.from_dict(type(preset), stored) == preset, name
