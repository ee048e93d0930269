"""The gate: what it chooses, what it spends, and that it resumes exactly."""

import dataclasses

import numpy as np
import pytest

from jaxrl_guided.lago import gate, online
from jaxrl_guided.lago.config import AloneConfig
from jaxrl_guided.lago.gate import choose, trial_iterations
from jaxrl_guided.lago.presets import FULL
from jaxrl_guided.learners.train import Chunk
from jaxrl_guided.runtime.files import read_json
from jaxrl_guided.runtime.rundir import open_run
from jaxrl_guided.runtime.signals import StopFlag, Stopped
from tests.lago.tiny import online_config, trained_prior

pytestmark = pytest.mark.usefixtures("toy_family")


@pytest.fixture(scope="module")
def prior():
    return trained_prior()


def gated(**changes):
    alone = AloneConfig(hidden=(4,), feature_components=3)
    return online_config(arm="gated", alone=alone, **changes)


def run(path, prior, stop=None, **changes):
    config = gated(**changes)
    with open_run(path, "test", config) as directory:
        return online.run_arm(config, directory, stop or StopFlag(), prior)


def sums(*returns):
    """Of seeds, from the returns of their episodes."""
    values = np.array(returns)
    return np.stack([np.full(len(values), values.shape[1]), values.sum(1), (values**2).sum(1)], -1)


def test_guidance_goes_on_only_where_it_was_clearly_better():
    plain = sums([0.1, 0.2, 0.3, 0.2], [0.1, 0.2, 0.3, 0.2], [0.1, 0.2, 0.3, 0.2])
    guided = sums([0.5, 0.6, 0.7, 0.6], [0.2, 0.3, 0.2, 0.3], [0.0, 0.1, 0.0, 0.1])
    # Standard errors are .041 and .029: .05 ahead is less than 1.645 of them together.
    assert choose(guided, plain).tolist() == [True, False, False]
    barely = sums(*[[0.33, 0.35]] * 3)
    close = sums(*[[0.30, 0.32]] * 3)
    assert choose(barely, close).tolist() == [True] * 3  # .03 ahead, standard errors .01 each
    assert not choose(sums(*[[0.31, 0.33]] * 3), close).any()


def test_nothing_to_compare_is_no_reason_for_guidance():
    nothing, one = np.zeros((1, 3)), np.array([[1.0, 5.0, 25.0]])
    for guided, plain in ((nothing, nothing), (one, nothing), (one, 0 * one + [[1, 0, 0]])):
        assert not choose(guided, plain).any()


def test_trials_have_their_share_of_the_budget():
    config = dataclasses.replace(FULL.settings("gated"), level="real")
    assert trial_iterations(config) == round(0.1 * config.ppo.iterations)
    assert trial_iterations(gated()) == 1  # of four


@pytest.mark.slow
@pytest.mark.parametrize("guided", [(True, False), (False, False)])
def test_each_seed_goes_on_with_what_was_chosen(guided, prior, tmp_path, monkeypatch):
    seen = []

    def chosen(ours, theirs):
        seen.append((ours, theirs))
        return np.array(guided)

    monkeypatch.setattr(gate, "choose", chosen)
    result = run(tmp_path / "run", prior)
    assert result["chosen"] == ["lago" if won else "ppo" for won in guided]
    assert result["steps"] == 128
    assert result["curve"]["steps"] == [96, 128]  # after one iteration of each trial
    assert np.shape(result["curve"]["success"]) == (2, 2)
    numbers = result["final"]["hard-sort"]
    assert all(np.shape(values) == (2,) for values in numbers.values())
    ((ours, theirs),) = seen
    assert ours.shape == theirs.shape == (2, 3)
    assert (ours[:, 0] > 0).all()  # episodes have ended
    for name, won in (("rest_lago", any(guided)), ("rest_ppo", not all(guided))):
        assert (tmp_path / "run" / name).is_dir() == won
    settings = read_json(tmp_path / "run" / "trial_ppo" / "config.json")
    assert settings["network"]["hidden"] == [4]


def test_plain_ppo_does_not_see_the_prior(prior, tmp_path, monkeypatch):
    """Where guidance loses, another prior changes nothing."""
    monkeypatch.setattr(gate, "choose", lambda ours, theirs: np.zeros(2, bool))
    first = run(tmp_path / "first", prior)
    second = run(tmp_path / "second", prior, control="reversed")
    assert {**first, "minutes": 0} == {**second, "minutes": 0}


def test_sums_do_not_depend_on_the_cut():
    """Rows of awkward numbers, in one chunk and in three."""
    names = ("episodes", "return_sum", "squared_return_sum")
    rows = np.random.default_rng(0).uniform(0, 1e4, (12, 2, 3)).astype(np.float32)

    def run(learner, frozen, count):
        found = np.zeros((16, 2, 3), np.float32)
        found[:count] = rows[learner : learner + count]
        return learner + count, {name: found[..., i] for i, name in enumerate(names)}

    chunk, found = gate._with_sums(Chunk(run, 16)), []
    for cut in ((12,), (1, 4, 7)):
        state = gate.Tried(0, np.zeros((2, 3), np.float32))
        for count in cut:
            state, _ = chunk.run(state, None, np.int32(count))
        found.append(np.asarray(state.sums))
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], rows.sum(0), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("trial_share, points", [(0.2, 2), (0.5, 4)])
def test_a_stopped_run_goes_on_exactly(trial_share, points, prior, tmp_path):
    """With the second pair the first points of the curve would lie within the trials."""
    evaluation = dataclasses.replace(gated().eval, curve_points=points)
    ppo = dataclasses.replace(gated().ppo, total_steps=256)
    changes = {"trial_share": trial_share, "eval": evaluation, "ppo": ppo}
    whole = run(tmp_path / "whole", prior, **changes)
    assert whole["curve"]["steps"] == ([160, 256] if points == 2 else [160, 192, 256])
    for _ in range(20):
        try:
            found = run(tmp_path / "cut", prior, stop=StopFlag(15), **changes)
            break
        except Stopped:
            continue
    assert {**found, "minutes": 0} == {**whole, "minutes": 0}
    with pytest.raises(Stopped, match=f"--run_dir={tmp_path / 'other'}"):
        run(tmp_path / "other", prior, stop=StopFlag(15))
