"""An arm from start to table: every kind once, exact resume, its policy on disk, and bad input."""

import contextlib
import dataclasses
import json

import jax
import numpy as np
import pytest

from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.lago import online, training
from jaxrl_guided.lago.judge import open_judge
from jaxrl_guided.lago.online import check_inputs, load_policy, run_arm
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.files import read_json
from jaxrl_guided.runtime.rundir import open_run
from jaxrl_guided.runtime.signals import StopFlag, Stopped
from tests.lago.tiny import expert_episodes, online_config, trained_prior

pytestmark = pytest.mark.usefixtures("toy_family")
NUMBERS = {"success", "return", "length", "sampled_success", "success_at_end"}


@pytest.fixture(scope="module")
def prior():
    return trained_prior()


@pytest.fixture(scope="module")
def expert():
    return expert_episodes()


def inputs(config, prior, expert):
    arm = online.ARMS[config.arm]
    return prior if arm.guided else None, expert if arm.from_bc else None


def run(config, path, *given, stop=None):
    with open_run(path, "test", config) as directory:
        return run_arm(config, directory, stop or StopFlag(), *given)


def same(ours, theirs):
    """Bit for bit."""
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(left, right)


def stop_at_first_point(flag):
    """Stands for `open_judge` and asks for a stop when the first point of a curve is judged."""

    @contextlib.contextmanager
    def opened(config, level, curve=False):
        def judge(policies):
            flag.signum = 15
            return now(policies)

        with open_judge(config, level, curve) as now:
            yield judge if curve else now

    return opened


@pytest.mark.parametrize("arm", ["lago", pytest.param("ppo_bc", marks=pytest.mark.slow)])
def test_a_stopped_run_goes_on_exactly(arm, prior, expert, tmp_path, monkeypatch):
    config = online_config(arm=arm)
    given = inputs(config, prior, expert)
    whole = run(config, tmp_path / "whole", *given)
    assert whole["curve"]["steps"] == [64, 128]
    assert np.shape(whole["curve"]["success"]) == (2, 2)
    policies = load_policy(config, tmp_path / "whole")
    seeds = [jax.tree.map(lambda x, s=s: x[s], policies.params) for s in (0, 1)]
    assert any(
        np.any(a != b) for a, b in zip(*map(jax.tree.leaves, seeds), strict=True)
    )  # something was learned that depends on the seed

    flag = StopFlag()
    with monkeypatch.context() as patched:
        patched.setattr(training, "open_judge", stop_at_first_point(flag))
        with pytest.raises(
            Stopped, match=f"the same command goes on with --run_dir={tmp_path / 'cut'}"
        ):
            run(config, tmp_path / "cut", *given, stop=flag)
    with pytest.raises(UserError, match="does not exist"):
        load_policy(config, tmp_path / "cut")
    # Now stopped at once: one more chunk, between two points of the curve or at the last.
    with pytest.raises(Stopped):
        run(config, tmp_path / "cut", *given, stop=StopFlag(15))
    again = run(config, tmp_path / "cut", *given)
    same(load_policy(config, tmp_path / "cut"), policies)
    assert {**again, "minutes": 0} == {**whole, "minutes": 0}
    rows = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "cut")
    ]
    assert [row["step"] for row in rows[1]] == sorted({row["step"] for row in rows[1]})
    assert rows[1][-1]["step"] == rows[0][-1]["step"] == 128


def test_the_policy_on_disk_is_the_one_that_was_judged(tmp_path, monkeypatch):
    judged, judge = [], online.judge_policy

    def spy(config, policy, level):
        judged.append(jax.tree.map(np.asarray, policy))
        return judge(config, policy, level)

    monkeypatch.setattr(online, "judge_policy", spy)
    config = online_config(arm="ppo", seeds=(4, 2))
    result = run(config, tmp_path / "run")
    loaded = load_policy(config, tmp_path / "run")
    assert jax.tree.structure(loaded) == jax.tree.structure(judged[-1])
    same(loaded, judged[-1])
    assert judge(config, loaded, "hard-sort") == result["final"]["hard-sort"]
    other = dataclasses.replace(config, feature_scale=2.0)
    with pytest.raises(UserError, match=r"another configuration .*feature_scale: 1.0, not 2.0"):
        load_policy(other, tmp_path / "run")


@pytest.mark.parametrize(
    "arm, steps, expert_steps",
    [("random", 0, 0), ("prior", 0, 7), ("bc", 0, None), ("ppo", 128, 0)],
)
def test_every_arm_reports_its_cost_and_every_number(
    arm, steps, expert_steps, prior, expert, tmp_path
):
    config = online_config(arm=arm)
    result = run(config, tmp_path / "run", *inputs(config, prior, expert))
    if expert_steps is None:
        expert_steps = int(expert.lengths[: config.bc.episodes].sum())
    assert (result["steps"], result["expert_steps"]) == (steps, expert_steps)
    assert result["seeds"] == [0, 1]
    assert set(result["final"]) == {"hard-sort"}
    assert set(result["final"]["hard-sort"]) == NUMBERS
    assert all(np.shape(values) == (2,) for values in result["final"]["hard-sort"].values())
    assert bool(result["curve"]["steps"]) == (arm == "ppo")
    assert read_json(tmp_path / "run" / "config.json")["arm"] == arm


def test_beta_stays_for_lago_and_ends_halfway_for_kickstarting(prior, tmp_path):
    first, last = {}, {}
    for arm in ("lago", "kickstart"):
        run(online_config(arm=arm), tmp_path / arm, prior)
        lines = (tmp_path / arm / "metrics.jsonl").read_text().splitlines()
        first[arm], last[arm] = (json.loads(lines[i])["beta"] for i in (0, -1))
    assert first == {"lago": [1, 1], "kickstart": [1, 1]}
    assert last == {"lago": [1, 1], "kickstart": [0, 0]}


def test_ten_times_the_steps(tmp_path):
    ppo = dataclasses.replace(online_config().ppo, total_steps=32)
    assert run(online_config(arm="ppo_10x", ppo=ppo), tmp_path / "run")["steps"] == 320


@pytest.mark.parametrize(
    "changes, given, message",
    [
        ({"arm": "lago"}, (None, None), "arm 'lago' needs a prior, --prior"),
        ({"arm": "ppo_bc"}, (None, None), "arm 'ppo_bc' needs expert data, --data"),
        (
            {"arm": "lago", "horizon": 5},
            ("prior", None),
            "horizon is 5, but the prior .* of 4 steps",
        ),
        (
            {"arm": "bc", "bc": online.OnlineConfig().bc},
            (None, "expert"),
            "bc.episodes is 6400, but the dataset has 60",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused_untouched(changes, given, message, request, tmp_path):
    config = online_config(**changes)
    given = [name and request.getfixturevalue(name) for name in given]
    with pytest.raises(UserError, match=message):
        run(config, tmp_path / "run", *given)
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left == {".lock", "config.json", "versions.json"}


def test_missing_sentence_vectors_are_found_before_work_starts(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXRL_GUIDED_WEIGHTS", str(tmp_path))
    with pytest.raises(
        BackboneError, match=r"fetch them with: python -m experiments.fetch_weights"
    ):
        check_inputs(online_config(arm="ppo", features="minilm"), None, None)


def test_a_run_of_another_script_has_no_policy_of_an_arm(tmp_path):
    (tmp_path / "policy").mkdir()
    (tmp_path / "summary.json").write_text('{"final": {}}')
    with pytest.raises(UserError, match=f"--run={tmp_path} is a run of another script than"):
        online.load_settings(tmp_path)
