"""Sweeps: the combinations, their order in the population, and the table."""

import dataclasses
import json

import numpy as np
import pytest

from jaxrl_guided.learners.build import prepare
from jaxrl_guided.learners.job import run_job
from jaxrl_guided.learners.presets import SMOKE
from jaxrl_guided.learners.sweep import (
    SweepConfig,
    prepare_sweep,
    returns_of,
    run_sweep,
    sweep_text,
)
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag

SAC = dataclasses.replace(SMOKE, algorithm="sac")
TWO = SweepConfig(SMOKE, ("learning_rate=5e-4,0.05", "clip=0.2,0.3"))


def test_points_are_all_combinations():
    assert TWO.points() == [
        {"learning_rate": 5e-4, "clip": 0.2},
        {"learning_rate": 5e-4, "clip": 0.3},
        {"learning_rate": 0.05, "clip": 0.2},
        {"learning_rate": 0.05, "clip": 0.3},
    ]


def test_members_of_a_point_are_its_seeds():
    values = np.arange(2 * 8).reshape(2, 8)  # two times, four points, two seeds
    split = returns_of(TWO, values)
    assert split.shape == (4, 2, 2)
    np.testing.assert_array_equal(split[1], [[2, 3], [10, 11]])
    np.testing.assert_array_equal(returns_of(TWO, values[0])[3], [6, 7])


@pytest.mark.slow
def test_a_point_with_the_presets_values_is_the_run_without_a_sweep(tmp_path):
    config = SweepConfig(SMOKE, ("learning_rate=0.05,5e-4",))
    with RunDir(tmp_path / "alone", SMOKE) as run:
        alone = run_job(prepare(SMOKE, 2), run, StopFlag())
    with RunDir(tmp_path / "sweep", config) as run:
        swept = run_sweep(config, prepare_sweep(config), run, StopFlag())
    for name in ("return", "sampled_return"):
        other, same = returns_of(config, swept["final"][name])
        np.testing.assert_allclose(same, alone["final"][name], rtol=1e-4)
        assert (other != same).any()
    same = returns_of(config, swept["curve"]["return"])[1]
    np.testing.assert_allclose(same, alone["curve"]["return"], rtol=1e-4)
    assert json.loads((tmp_path / "sweep" / "summary.json").read_text()) == swept
    assert (tmp_path / "sweep" / "curve.png").stat().st_size > 0


def test_the_table_has_the_best_point_first():
    greedy = [1.0, 3.0, 5.0, 7.0, 2.0, 2.0, 0.0, 0.0]
    result = {
        "final": {"return": greedy, "sampled_return": [0.5] * 8},
        "random": {"return": [0.25]},
        "steps": 512,
        "minutes": 0.5,
    }
    lines = sweep_text(TWO, result).splitlines()
    assert lines[0] == "# PPO on gymnax/CartPole-v1, 512 steps, seeds 0, 1"
    assert lines[4].startswith("| 0.0005 | 0.3 | 6 [-6.706, 18.71] | 0.5 [0.5, 0.5] |")
    assert [line.split(" | ")[0] for line in lines[5:8]] == ["| 0.0005", "| 0.05", "| 0.05"]
    assert lines[-1].endswith("Uniform random: 0.25.")


@pytest.mark.parametrize(
    "train, vary, message",
    [
        (SMOKE, (), "vary must name a hyper-parameter"),
        (SMOKE, ("tau=0.1",), "one of learning_rate, .*entropy_weight of ppo, not 'tau=0.1'"),
        (SAC, ("clip=0.1",), "one of actor_rate, .*tau of sac, not 'clip=0.1'"),
        (SMOKE, ("clip",), "vary must be NAME=VALUE,VALUE, not 'clip'"),
        (SMOKE, ("clip=a,b",), "vary must be NAME=VALUE,VALUE"),
        (SMOKE, ("clip=0.1,0.1",), "finite numbers, different in float32"),
        (SMOKE, ("clip=0.1,inf",), "finite numbers, different in float32"),
        (SMOKE, ("clip=0.1", "clip=0.2"), "a hyper-parameter once, not clip, clip"),
        (SMOKE, ("clip=0.1,-1",), "ppo.clip must be positive"),
        (SAC, ("tau=0.1,2",), r"sac.tau must be in \[0, 1\]"),
    ],
)
def test_bad_sweeps(train, vary, message):
    with pytest.raises(ValueError, match=message):
        SweepConfig(train, vary)
