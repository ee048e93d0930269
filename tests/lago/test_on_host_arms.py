"""Arms on environments that the host steps: their judge, every learner, the gate, exact resume."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.lago import gate, judge, online
from jaxrl_guided.lago.config import AloneConfig
from jaxrl_guided.lago.online import load_policy, run_arm
from jaxrl_guided.learners.sac import SACConfig
from jaxrl_guided.networks.soft import SoftNetworkConfig
from jaxrl_guided.runtime.rundir import open_run
from jaxrl_guided.runtime.signals import StopFlag, Stopped
from tests.lago.tiny import expert_episodes, online_config, trained_prior
from tests.lago.toy_env import AIM_MAP, AIMS, STATE, right_aim
from tests.lago.toys import aiming_prior

pytestmark = pytest.mark.usefixtures("toy_family")
LEVEL = "hard-sort"
SAC = SACConfig(
    replay_capacity=64, total_steps=64, num_envs=4, chunk_steps=4, learning_starts=16, batch=8
)


def held_config(**changes):
    """As that of the toy environment, and a small SAC."""
    sac = {"soft": SoftNetworkConfig(hidden=(8,)), "sac": SAC}
    return online_config(env="held", **{**sac, **changes})


@pytest.fixture(scope="module")
def prior():
    return trained_prior(action_map=AIM_MAP)


def run(config, path, *given, stop=None):
    with open_run(path, "test", config) as directory:
        return run_arm(config, directory, stop or StopFlag(), *given)


def aiming_policies(config, aims):
    """Policies that are almost certain of an action whatever they see."""
    params = jax.tree.map(jnp.zeros_like, judge.make_network(config, LEVEL).init(jax.random.key(0)))

    def fill(aim):
        def put(path, leaf):
            if "log_std" in jax.tree_util.keystr(path):
                return jnp.full_like(leaf, -6.0)
            raw = jnp.arctanh(jnp.clip(aim, -0.98, 0.98))
            return raw if leaf.shape == (2,) else leaf

        return jax.tree_util.tree_map_with_path(put, params)

    filled = [fill(aim) for aim in aims]
    return judge.ppo.Policy(jax.tree.map(lambda *x: jnp.stack(x), *filled), None)


def judged_instructions(config, level=LEVEL):
    """Instructions of the judged episodes, twenty at a time."""
    key, found = judge.eval_key(level), []
    with contextlib.closing(judge.level_env(config, level, 20)) as env:
        for again in (key, jax.random.fold_in(key, 1)):
            reset_key, _ = jax.random.split(again)
            found.append(np.asarray(env.reset(reset_key)[1]["instruction"]))
    return np.concatenate(found)[: config.eval.episodes]


def test_policies_are_judged_as_their_actions_deserve():
    config = held_config()
    instructions = judged_instructions(config)
    assert len(instructions) == 32
    found = judge.judge_policy(config, aiming_policies(config, AIMS[:2]), LEVEL)
    rates = [np.mean(instructions % len(AIMS) == aim) for aim in (0, 1)]
    assert 0 < min(rates) < max(rates) < 1
    for name in ("success", "sampled_success", "return"):
        np.testing.assert_allclose(found[name], rates)
    np.testing.assert_allclose(found["length"], [1 * r + 4 * (1 - r) for r in rates])
    assert found["success_at_end"] == [0, 0]  # the last of four steps is odd
    odd = held_config(horizon=3)
    found = judge.judge_policy(odd, aiming_policies(odd, AIMS[:2]), LEVEL)
    assert found["success_at_end"] == found["success"]


def test_a_prior_that_says_right_actions_acts_on_them():
    config = held_config(arm="prior", seeds=(0, 1, 2))
    instructions = judged_instructions(config)
    says = np.arange(len(instruction_set(LEVEL))) // 2 % len(AIMS)  # right for some
    spec, frozen = aiming_prior(says, AIMS, STATE)
    found = judge.judge_prior(config, spec, frozen, LEVEL)
    rate = np.mean(says[instructions] == instructions % len(AIMS))
    assert 0 < rate < 1
    np.testing.assert_allclose(found["success"], [rate] * 3)


def test_random_actions_differ_by_seed_alone():
    config = held_config(arm="random", seeds=(3, 4))
    config = dataclasses.replace(config, eval=dataclasses.replace(config.eval, episodes=400))
    found = judge.judge_random(config, LEVEL)
    assert found["success"][0] != found["success"][1]
    assert found["sampled_success"] == found["success"]
    swapped = judge.judge_random(dataclasses.replace(config, seeds=(4, 3)), LEVEL)
    assert swapped["success"] == found["success"][::-1]


@pytest.mark.parametrize(
    "arm, steps",
    [
        ("lago", 128),
        *(
            pytest.param(arm, steps, marks=pytest.mark.slow)
            for arm, steps in (("ppo_bc", 128), ("sac", 64), ("lago_sac", 64), ("gated", 128))
        ),
    ],
)
def test_a_stopped_run_goes_on_exactly(arm, steps, prior, tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "choose", lambda ours, theirs: np.array([True, False]))
    alone = AloneConfig(hidden=(4,), feature_components=3)
    config = held_config(arm=arm, alone=alone)
    expert = expert_episodes(env="held/real", right=right_aim, action_map=AIM_MAP)
    given = prior if online.ARMS[arm].guided else None, expert if arm == "ppo_bc" else None
    whole = run(config, tmp_path / "whole", *given)
    assert whole["steps"] == steps
    assert np.shape(whole["curve"]["success"]) == (2, 2)
    for _ in range(20):
        try:
            cut = run(config, tmp_path / "cut", *given, stop=StopFlag(15))
            break
        except Stopped:
            continue
    assert {**cut, "minutes": 0} == {**whole, "minutes": 0}
    if arm == "gated":
        return
    ours, theirs = (load_policy(config, tmp_path / name) for name in ("whole", "cut"))
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert len(left) == 2
        np.testing.assert_array_equal(left, right)


@pytest.mark.slow
def test_guidance_of_sac_counts(prior, tmp_path):
    """The guided actor ends elsewhere than the plain one, from the same start."""
    policies = {}
    for arm in ("sac", "lago_sac"):
        config = held_config(arm=arm)
        run(config, tmp_path / arm, prior if arm == "lago_sac" else None)
        policies[arm] = jax.tree.leaves(load_policy(config, tmp_path / arm))
    pairs = zip(policies["sac"], policies["lago_sac"], strict=True)
    assert any(np.any(left != right) for left, right in pairs)
