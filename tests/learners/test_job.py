"""Training jobs: what they leave, exact resume, and what they refuse."""

import dataclasses
import functools
import json
import pathlib
import shutil
import tempfile
import unittest.mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.types import Box, Discrete, MultiDiscrete, TimeStep, VectorEnv
from jaxrl_guided.learners import job, members
from jaxrl_guided.learners.build import prepare
from jaxrl_guided.learners.evaluate import uniform_action
from jaxrl_guided.learners.job import run_job, summary_text
from jaxrl_guided.learners.job_config import CappedEvaluation, TrainConfig
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.learners.presets import PRESETS, SMOKE
from jaxrl_guided.learners.sac import SACConfig
from jaxrl_guided.learners.train import make_chunk, train
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from jaxrl_guided.runtime.checkpoint import Checkpointer
from jaxrl_guided.runtime.config import from_dict, to_dict
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.metrics import read_metrics
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag, Stopped


def learner_of(config):
    return prepare(config, len(config.seeds)).learner


def do(path, config=SMOKE, stop=None):
    with RunDir(path, config) as run:
        return run_job(prepare(config, len(config.seeds)), run, stop or StopFlag())


SAC_SMOKE = dataclasses.replace(SMOKE, algorithm="sac", seeds=(0,))
CONFIGS = {"ppo": SMOKE, "sac": SAC_SMOKE}


@functools.cache
def whole(algorithm):
    """A run without a stop, and its directory."""
    path = pathlib.Path(tempfile.mkdtemp()) / "whole"
    return do(path, CONFIGS[algorithm]), path


def test_the_result_has_a_number_a_seed_and_a_floor():
    result, path = whole("ppo")
    assert result["steps"] == 512
    assert result["curve"]["steps"] == [256, 512]
    assert np.shape(result["curve"]["return"]) == (2, 2)
    final = result["final"]
    assert set(final) == {"return", "length", "sampled_return"}  # CartPole reports no success
    assert final["return"] == final["length"]  # a reward of 1 a step
    # Published for uniform random actions on CartPole: about 22 steps.
    assert result["random"]["return"][0] == pytest.approx(22, abs=12)
    assert json.loads((path / "summary.json").read_text()) == result
    for name in ("summary.md", "curve.png", "metrics.jsonl", "config.json", "versions.json"):
        assert (path / name).stat().st_size > 0


@pytest.mark.parametrize("algorithm", ["ppo", pytest.param("sac", marks=pytest.mark.slow)])
def test_a_stopped_job_goes_on_exactly(algorithm, tmp_path):
    config, (expected, path) = CONFIGS[algorithm], whole(algorithm)
    asked = StopFlag(signum=15)
    with pytest.raises(Stopped, match=f"goes on with --run_dir={tmp_path / 'cut'}"):
        do(tmp_path / "cut", config, stop=asked)
    result = do(tmp_path / "cut", config)
    minutes = {"minutes": result["minutes"]}
    assert result == expected | minutes

    def policy(of):
        keys = jnp.stack([jax.random.key(seed) for seed in config.seeds])
        like = jax.vmap(learner_of(config).init)(keys).policy
        with Checkpointer(of / job.POLICY, config, read_only=True) as saved:
            return saved.restore(like)[0]

    ours, theirs = policy(tmp_path / "cut"), policy(path)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    steps = [line["step"] for line in read_metrics(tmp_path / "cut")]
    assert steps == sorted(set(steps))


def test_a_run_that_diverges_names_iteration_and_metric(tmp_path):
    ppo = dataclasses.replace(SMOKE.ppo, learning_rate=1e38, max_grad_norm=1e30)
    config = dataclasses.replace(SMOKE, ppo=ppo)
    with pytest.raises(FloatingPointError, match=r"iteration 0: not finite: .*nonfinite_params.*"):
        do(tmp_path, config)


@pytest.mark.slow
def test_a_run_that_diverges_after_its_half_names_the_last_good_checkpoint(tmp_path):
    good = do(tmp_path / "half", SMOKE)
    with Checkpointer(tmp_path / "half" / "checkpoints") as saved:
        shutil.rmtree(tmp_path / "half" / "checkpoints" / str(saved.latest_step()))
    state = "iteration 4: not finite: .*; the last good one, 4, is in .*half/checkpoints"
    with (
        unittest.mock.patch.object(members, "make_chunk", broken_after(4)),
        pytest.raises(FloatingPointError, match=state),
    ):
        do(tmp_path / "half", SMOKE)
    assert do(tmp_path / "half", SMOKE)["final"] == good["final"]


def broken_after(count):
    """`make_chunk` of a learner whose parameters break in that iteration."""

    def make(iterate, *arguments):
        def breaks(state, frozen):
            state, metrics = iterate(state, frozen)
            broken = jnp.where(state.iteration > count, jnp.nan, 0.0)
            return state, metrics | {"loss": metrics["loss"] + broken}

        return make_chunk(breaks, *arguments)

    return make


def test_the_summary_names_seeds_means_and_floor():
    result = {
        "final": {
            "return": [1.0, 2.0, 3.0, 7.0, 12.0],
            "success": [0.5] * 5,
            "sampled_return": [0.5] * 5,
        },
        "random": {"return": [0.25], "success": [0.125]},
        "steps": 1000,
        "minutes": 1.5,
    }
    lines = summary_text(dataclasses.replace(SMOKE, seeds=(3, 4, 5, 6, 7)), result).splitlines()
    assert lines[0] == "# PPO on gymnax/CartPole-v1, 1,000 steps"
    assert lines[2].endswith("| seeds 3, 4, 5, 6, 7 |")
    assert lines[4].startswith("| return | 5 [")
    assert "| 4 [" in lines[4]  # the interquartile mean
    assert lines[4].endswith("| 1, 2, 3, 7, 12 |")
    assert lines[5].startswith("| success [%] | 50 [50, 50] |")
    assert lines[7:9] == [
        "| return, uniform random | 0.25 |  |  |",
        "| success, uniform random [%] | 12.5 |  |  |",
    ]
    assert "greedy actions unless named sampled, 8 episodes each" in lines[10]
    assert "1,000 environment steps a seed, 1.5 minutes" in lines[10]


@pytest.mark.slow
def test_a_run_says_that_it_goes_on_or_is_done(tmp_path, capsys):
    with pytest.raises(Stopped):
        do(tmp_path, stop=StopFlag(signum=15))
    assert "goes on" not in capsys.readouterr().err
    do(tmp_path)
    assert "gymnax/CartPole-v1: goes on from step 64 of 512" in capsys.readouterr().err
    do(tmp_path)
    expected = "gymnax/CartPole-v1: all 512 steps are done already; the policy is judged again"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json_and_their_environments_exist(name):
    preset = PRESETS[name]
    assert from_dict(TrainConfig, json.loads(json.dumps(to_dict(preset)))) == preset
    here = ("workers=0",) if preset.on_host else preset.options
    assert dataclasses.replace(preset, options=here).make_env(2).num_envs == 2
    learner_of(preset)


def test_options_reach_the_environment():
    config = TrainConfig(env="clevr/real", options=("reward=distance", "horizon=7"))
    assert config.env_options() == {"reward": "distance", "horizon": 7}
    state, _ = config.make_env(3).reset(jax.random.key(0))
    assert state.positions.shape == (3, 5, 2)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"seeds": ()}, "seeds must be different numbers from 0"),
        ({"seeds": (1, 1)}, "seeds must be different numbers from 0"),
        ({"seeds": (-1,)}, "seeds must be different numbers from 0"),
        ({"seeds": (2_000_000_000,)}, "seeds must be below 2000000000"),
        ({"options": ("size",)}, "options must be NAME=VALUE, not 'size'"),
        ({"options": ("size=1", "size=2")}, "options must name 'size' once"),
        ({"options": ("gravity=1e999",)}, "options must be finite numbers, not 'gravity=1e999'"),
    ],
)
def test_bad_configurations(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**changes)


@pytest.mark.parametrize("name", ["episodes", "max_steps", "curve_points", "curve_episodes"])
def test_evaluation_needs_at_least_one_of_each(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        CappedEvaluation(**{name: 0})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"env": "gymnax/CartPole"}, "unknown 'gymnax/CartPole'"),
        (
            {"options": ("size=3",)},
            "with --config.options=size=3: gymnax/CartPole-v1 has no option size",
        ),
        (
            {"options": ("max_steps=0",)},
            "--config.options=max_steps=0: max_steps must be a whole number from 1",
        ),
        (
            {"env": "gymnax/DeepSea-bsuite", "options": ("size=0",)},
            "--config.options=size=0: .*zero",
        ),
    ],
)
def test_bad_environments(changes, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(SMOKE, **changes).make_env(1)


def test_a_final_policy_that_is_damaged_is_made_again(tmp_path):
    expected = do(tmp_path)
    policy = tmp_path / job.POLICY
    shutil.rmtree(policy / "0")
    (policy / "0").mkdir()
    (policy / "7").mkdir()
    do(tmp_path)
    assert (policy / "0" / "state").is_dir()
    assert not (policy / "7").exists()
    assert json.loads((tmp_path / "summary.json").read_text())["final"] == expected["final"]


@pytest.mark.parametrize(
    "part, changes, reason",
    [
        ("evaluation", {"episodes": 2 * 10**9}, "evaluation.episodes 2,000,000,000 needs"),
        ("ppo", {"num_envs": 10**9, "rollout_steps": 2}, "ppo.num_envs 1,000,000,000 needs"),
    ],
)
def test_what_no_memory_holds_is_refused(part, changes, reason):
    changed = dataclasses.replace(getattr(SMOKE, part), **changes)
    with pytest.raises(UserError, match=reason):
        learner_of(dataclasses.replace(SMOKE, **{part: changed}))


@pytest.mark.parametrize(
    "part, changes, reason",
    [
        ("ppo", {"num_envs": 10**10}, "num_envs must be below 2"),
        ("ppo", {"num_envs": 2**20, "rollout_steps": 2**20}, "steps of a rollout"),
        ("ppo", {"total_steps": 10**13}, "optimiser steps of the run must be below"),
        ("ppo", {"learning_rate": 1e-50}, "positive and finite in float32"),
        ("sac", {"updates_per_step": 1e10}, "updates of an iteration"),
        ("sac", {"total_steps": 10**11}, "iterations of the run must be below"),
        ("sac", {"alpha_rate": 1e300}, "finite in float32"),
        ("sac", {"demo_share": 1e-3}, "is no transition"),
        ("evaluation", {"max_steps": 10**10}, "below 2"),
    ],
)
def test_numbers_that_the_device_cannot_count_are_refused(part, changes, reason):
    with pytest.raises(ValueError, match=reason):
        dataclasses.replace(getattr(SMOKE, part), **changes)


def test_sac_refuses_what_it_cannot_do():
    config = TrainConfig(algorithm="sac", network=NetworkConfig())
    learner_of(config)
    huge = dataclasses.replace(config, sac=SACConfig(10**13))
    with pytest.raises(UserError, match=r"replay_capacity 10,000,000,000,000 needs .* GiB for 1"):
        learner_of(huge)
    with pytest.raises(UserError, match="replay_capacity"):
        from_dict(TrainConfig, {"sac": {"replay_capacity": 0}})


def chooser(space):
    """One step an episode; the reward is the share of choices that are the observed ones."""

    def observe(key):
        return jax.random.bernoulli(key, 0.5, (16, 2)).astype(jnp.float32)

    def reset(key):
        key, drawn = jax.random.split(key)
        obs = observe(drawn)
        return (key, obs), obs

    def step(state, action):
        reward = (action == 2 * state[1]).mean(axis=-1)
        after, obs = reset(state[0])
        over, never = jnp.ones(16, bool), jnp.zeros(16, bool)
        return after, TimeStep(obs, reward, over, never, state[1], {})

    return VectorEnv("chooser", 16, Box((2,)), space, reset, step)


def test_ppo_learns_several_choices_at_a_time():
    env = chooser(MultiDiscrete((3, 5)))
    config = PPOConfig(16 * 32 * 60, 16, 32, learning_rate=1e-2, minibatches=4)
    network = make_actor_critic(env.observation_space, env.action_space, NetworkConfig((32,)))
    ppo = make_ppo(env, network, config)
    rewards = []

    def note(state, metrics, iteration):
        rewards.extend(metrics["reward"].tolist())

    start = jax.jit(ppo.init)(jax.random.key(0))
    train(make_chunk(ppo.iterate), start, config.iterations, on_chunk=note)
    assert rewards[0] == pytest.approx((1 / 3 + 1 / 5) / 2, abs=0.1)
    assert np.mean(rewards[-5:]) > 0.95


@pytest.mark.parametrize(
    "space, low, high",
    [
        (Discrete(4), 0, 3),
        (MultiDiscrete((2, 7)), [0, 0], [1, 6]),
        (Box((2,), np.array([-1.0, 2.0]), 3.0), [-1, 2], [3, 3]),
    ],
)
def test_uniform_actions_fill_the_space(space, low, high):
    env = dataclasses.replace(chooser(space), num_envs=4000)
    actions = np.asarray(uniform_action(env, jax.random.key(0)))
    assert actions.shape == (4000, *space.shape)
    assert actions.dtype == np.dtype(space.dtype)
    np.testing.assert_allclose(actions.min(0), low, atol=0.01)
    np.testing.assert_allclose(actions.max(0), high, atol=0.01)
    np.testing.assert_allclose(actions.mean(0), (np.array(low) + high) / 2, atol=0.15)


def test_actions_without_bounds_are_normal():
    env = dataclasses.replace(chooser(Box((1,), -np.inf, 5.0)), num_envs=4000)
    actions = np.asarray(uniform_action(env, jax.random.key(0)))
    assert (actions.mean(), actions.std()) == pytest.approx((0, 1), abs=0.05)
