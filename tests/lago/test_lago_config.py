"""Presets, cells, trials, and what the configuration refuses."""

import collections
import dataclasses
import json
import re

import pytest
from absl import flags

from jaxrl_guided.envs import make
from jaxrl_guided.lago.config import (
    ARMS,
    PPO_ARMS,
    AloneConfig,
    DataConfig,
    LagoConfig,
    OnlineConfig,
    check_level,
)
from jaxrl_guided.lago.families import FAMILIES, LEVELS
from jaxrl_guided.lago.presets import DEMO, FULL, METAWORLD, PRESETS, SMOKE
from jaxrl_guided.lago.rivals import FEW_SEEDS
from jaxrl_guided.lago.tuning import TRIALS, TUNING_SEEDS
from jaxrl_guided.learners.evaluate import EvaluationConfig
from jaxrl_guided.learners.ppo import PPOConfig
from jaxrl_guided.learners.sac import SACConfig
from jaxrl_guided.runtime import config as config_lib
from jaxrl_guided.runtime.config import from_dict, to_dict


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_json_and_its_levels_exist(name):
    preset = PRESETS[name]
    assert from_dict(LagoConfig, json.loads(json.dumps(to_dict(preset)))) == preset
    for cell in preset.cells().values():
        assert from_dict(OnlineConfig, json.loads(json.dumps(to_dict(cell)))) == cell
        for level in cell.eval_levels:
            check_level(cell.env, level)
            if not cell.on_host:
                make(f"{cell.env}/{level}", reward=cell.reward, horizon=cell.horizon)


def test_the_cells_of_the_reported_experiment():
    cells = FULL.cells()
    learning = [name for name in PPO_ARMS if ARMS[name].learns]
    assert len(cells) == 6 * (2 * (len(learning) - 1) + 2 + len(PPO_ARMS) - len(learning))
    assert "real-goal-lago-0_1_2_3_4" in cells
    assert "hard-goal-ppo_10x-2_3" in cells
    assert "rephrase-distance-prior-0_1_2_3_4_5_6_7_8_9" in cells
    pairs = {(cell.level, cell.reward) for cell in cells.values()}
    assert pairs == {
        ("real", "goal"),
        ("real", "distance"),
        ("rephrase", "goal"),
        ("rephrase", "distance"),
        ("easy", "goal"),
        ("hard", "goal"),
    }
    seeds = collections.defaultdict(list)
    for cell in cells.values():
        seeds[cell.level, cell.reward, cell.arm] += cell.seeds
    for (*_, arm), found in seeds.items():
        assert sorted(found) == list(range(4 if arm == "ppo_10x" else 10))
    # Arms differ in nothing but their name, their level and their seeds, and in what is best alone.
    settings = {False: set(), True: set()}
    for cell in cells.values():
        same = {"arm": "lago", "level": "real", "reward": "goal", "seeds": (0,)}
        same |= {"alone": AloneConfig()}  # read by a gated arm only
        settings[ARMS[cell.arm].alone].add(dataclasses.replace(cell, **same))
    assert settings == {False: {FULL.online}, True: {FULL.alone.applied(FULL.online)}}


def test_only_ppo_learns_alone_and_its_budget_is_that_of_all():
    assert [name for name, arm in ARMS.items() if arm.alone] == ["ppo", "ppo_10x"]
    assert AloneConfig().applied(OnlineConfig()) == OnlineConfig()
    for preset in (DEMO, FULL):
        ours, theirs = preset.settings("ppo"), preset.settings("lago")
        budget = ("total_steps", "num_envs", "rollout_steps", "epochs", "minibatches")
        assert [getattr(ours.ppo, x) == getattr(theirs.ppo, x) for x in budget] == [True] * 5
        assert (ours.easy_steps, ours.eval) == (theirs.easy_steps, theirs.eval)


def test_seeds_are_shared_out_to_cells():
    config = dataclasses.replace(
        SMOKE, pairs=("easy:goal",), arms=("random", "ppo"), seeds=(3, 1, 2), seeds_per_cell=2
    )
    assert list(config.cells()) == [
        "easy-goal-random-3_1_2",
        "easy-goal-ppo-3_1",
        "easy-goal-ppo-2",
    ]
    assert config.cells()["easy-goal-ppo-2"].seeds == (2,)
    config = dataclasses.replace(config, arms=("ppo_10x",), seeds_per_long_cell=1)
    assert [cell.seeds for cell in config.cells().values()] == [(3,), (1,), (2,)]


def test_steps_and_evaluation_levels_of_an_arm():
    def cell(level, arm):
        return dataclasses.replace(FULL.online, level=level, arm=arm)

    assert cell("real", "ppo").total_steps == 500_000
    assert cell("real", "lago").total_steps == 500_000
    assert cell("real", "ppo_10x").total_steps == 5_000_000
    assert cell("easy", "kickstart").total_steps == 100_000
    assert cell("easy", "ppo_10x").total_steps == 1_000_000
    assert cell("real", "prior").total_steps == 0
    assert cell("hard", "ppo").eval_levels == FAMILIES["clevr"].parts["hard"]
    assert cell("rephrase", "ppo").eval_levels == ("rephrase",)
    theirs = {arm: dataclasses.replace(METAWORLD.online, arm=arm) for arm in ("ppo", "sac")}
    assert [cell.total_steps for cell in theirs.values()] == [500_000, 200_000]
    easy = dataclasses.replace(theirs["sac"], level="easy")
    assert easy.total_steps == 200_000
    assert dataclasses.replace(easy, easy_steps=1_000).total_steps == 1_000
    assert len(theirs["ppo"].eval_levels) == 10
    assert "easy-reach-wall" in easy.eval_levels


def test_demo_and_full_compare_with_at_least_three_seeds():
    assert len(DEMO.seeds) >= FEW_SEEDS >= 3
    assert FULL.seeds == tuple(range(10))
    assert set(FULL.arms) == set(SMOKE.arms) == set(PPO_ARMS)
    assert set(DEMO.arms) == set(PPO_ARMS) - {"ppo_10x", "ppo_same", "kickstart", "gated"}
    assert {pair.partition(":")[0] for pair in FULL.pairs} == set(LEVELS)
    assert set(DEMO.pairs) <= set(FULL.pairs)


def test_trials_see_real_alone_and_seeds_of_their_own():
    assert {(t.level, t.reward, t.seeds) for t in TRIALS.values()} == {
        ("real", "goal", TUNING_SEEDS)
    }
    assert not set(TUNING_SEEDS) & set(FULL.seeds)
    counts = collections.Counter(t.arm for t in TRIALS.values())
    assert counts["ppo"] >= counts["lago"] > 0
    assert set(counts) == {"ppo", "lago", "bc"}
    assert len(set(TRIALS.values())) == len(TRIALS)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"level": "medium"}, "unknown 'clevr/medium'; choose one of clevr/real"),
        ({"env": "mars"}, "unknown 'mars/real'"),
        ({"arm": "dqn"}, "arm must be one of random, bc, prior, .*, not 'dqn'"),
        ({"env": "gymnax"}, "unknown 'gymnax/real'"),
        ({"env": "metaworld", "reward": "distance"}, "reward must be one of goal, not 'distance'"),
        (
            {"sac": SACConfig(100_000, demo_share=0.5)},
            "sac.demo_share must be 0: no arm has demonstrations",
        ),
        ({"reward": "sparse"}, "reward must be one of goal, distance, not 'sparse'"),
        ({"seeds": ()}, "seeds must be different numbers from 0"),
        ({"seeds": (1, 1)}, "seeds must be different"),
        ({"seeds": (-1,)}, "seeds must be different numbers from 0"),
        ({"seeds": (1_000_000_000,)}, "seeds must be different numbers from 0 to 999999999"),
        ({"feature_size": -1}, "feature_size must be at least 1, not -1"),
        ({"feature_scale": 0.0}, "feature_scale must be positive"),
        ({"feature_components": 0}, "feature_components must be None or .* 1 and 192, .*, not 0"),
        ({"feature_components": 400}, "feature_components must be .* 192, .*, not 400"),
        (
            {"features": "hashed", "feature_size": 8, "feature_components": 5},
            "feature_components must be .* between 1 and 4, half of the vector, not 5",
        ),
        (
            {"arm": "gated", "ppo": PPOConfig(total_steps=1024, num_envs=32, rollout_steps=32)},
            "ppo.total_steps must be at least 2048 with arm gated, which tries first, not 1024",
        ),
        ({"horizon": 0}, "horizon must be at least 1, not 0"),
        ({"easy_steps": -5}, "easy_steps must be at least 1"),
    ],
)
def test_an_online_run_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        OnlineConfig(**changes)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"pairs": ("real",)}, "reward must be one of"),
        ({"pairs": ("real:sparse",)}, "reward must be one of"),
        ({"pairs": ("medium:goal",)}, "unknown 'clevr/medium'"),
        ({"pairs": ()}, "pairs must not be empty"),
        ({"arms": ()}, "arms must not be empty"),
        ({"arms": ("ppo", "dqn")}, "arms must be out of .*, not 'dqn'"),
        ({"seeds": (0, 0)}, "seeds must be different"),
        ({"seeds_per_cell": 0}, "seeds_per_cell must be at least 1"),
        ({"alone": AloneConfig(learning_rate=-1.0)}, "alone: ppo.learning_rate must be positive"),
        ({"alone": AloneConfig(feature_components=193)}, "alone: feature_components must be None"),
        ({"seeds_per_long_cell": 0}, "seeds_per_long_cell must be at least 1"),
        ({"data": DataConfig(level="medium")}, "unknown 'clevr/medium'"),
        ({"data": DataConfig(episodes=6_399)}, "online.bc.episodes 6400 must not be above"),
    ],
)
def test_an_experiment_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        LagoConfig(**changes)


def test_sizes_out_of_range_are_refused():
    with pytest.raises(ValueError, match="episodes must be at least 1, not 0"):
        DataConfig(episodes=0)
    with pytest.raises(ValueError, match="random_fraction must be in"):
        DataConfig(random_fraction=1.0)
    with pytest.raises(ValueError, match="curve_points must be at least 1, not -2"):
        EvaluationConfig(curve_points=-2)


def test_every_field_of_the_main_job_is_explained():
    values = flags.FlagValues()
    defined = config_lib.define(PRESETS, flag_values=values)
    fields = list(config_lib._leaves(LagoConfig, defined.presets["full"]))
    assert len(fields) > 60
    assert [leaf.path for leaf in fields if not leaf.meaning] == []


def test_every_arm_is_named_in_the_help():
    assert set(re.findall(r"`(\w+)`", config_lib.meanings_of(OnlineConfig)["arm"])) == set(ARMS)
