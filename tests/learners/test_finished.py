"""Finished runs of training and sweeps: their policies come back as they were judged."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxrl_guided.learners import finished
from jaxrl_guided.learners.build import prepare
from jaxrl_guided.learners.evaluate import evaluate
from jaxrl_guided.learners.job import POLICY, run_job
from jaxrl_guided.learners.judge import make_judge
from jaxrl_guided.learners.presets import SMOKE
from jaxrl_guided.learners.sweep import SweepConfig, prepare_sweep, run_sweep
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_policies_of_a_run_are_those_that_it_judged(algorithm, tmp_path):
    config = dataclasses.replace(SMOKE, algorithm=algorithm)
    with RunDir(tmp_path, config) as run:
        result = run_job(prepare(config, 2), run, StopFlag())
    assert finished.kind_of(tmp_path) == "train"
    found = finished.load_run(tmp_path)
    assert found.members == ("seed 0", "seed 1")
    assert found.alike
    assert make_judge(found.job, config.evaluation.episodes)(found.policies) == result["final"]


def test_one_policy_plays_in_environments_of_any_number(tmp_path):
    with RunDir(tmp_path, SMOKE) as run:
        run_job(prepare(SMOKE, 2), run, StopFlag())
    found = finished.load_run(tmp_path)
    env, memory = SMOKE.make_env(3), found.job.learner.memory(3)
    lengths = [
        np.asarray(evaluate(env, found.act(member), jax.random.key(0), 500, memory).length)
        for member in (0, 1)
    ]
    assert lengths[0].shape == (3,)
    assert (lengths[0] != lengths[1]).any()


def test_policies_of_a_sweep_are_named_by_point_and_seed(tmp_path):
    config = SweepConfig(SMOKE, ("learning_rate=0.001,0.01",))
    with RunDir(tmp_path, config) as run:
        result = run_sweep(config, prepare_sweep(config), run, StopFlag())
    assert finished.kind_of(tmp_path) == "sweep"
    found = finished.load_run(tmp_path)
    assert found.members == (
        "learning_rate 0.001, seed 0",
        "learning_rate 0.001, seed 1",
        "learning_rate 0.01, seed 0",
        "learning_rate 0.01, seed 1",
    )
    assert not found.alike
    assert make_judge(found.job, 8)(found.policies) == result["final"]


def test_what_is_no_finished_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="is no run of train or sweep"):
        finished.load_run(tmp_path / "nothing")
    (tmp_path / "config.json").write_text('{"arm": "ppo"}')
    assert finished.kind_of(tmp_path) is None
    with pytest.raises(UserError, match="is no run of train or sweep"):
        finished.load_run(tmp_path)
    with RunDir(tmp_path / "begun", SMOKE):
        pass
    with pytest.raises(UserError, match="begun holds no policy: the run is not finished"):
        finished.load_run(tmp_path / "begun")
    (tmp_path / "begun" / POLICY).mkdir()
    with pytest.raises(UserError, match="holds no checkpoint"):
        finished.load_run(tmp_path / "begun")
