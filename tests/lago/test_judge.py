"""Judging: the same fixed episodes for every arm, and numbers that are known beforehand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.backbones.text_features import text_features, whiten
from jaxrl_guided.envs import make
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.lago import judge
from jaxrl_guided.lago.guidance import FrozenPrior
from jaxrl_guided.lago.presets import FULL
from jaxrl_guided.lago.prior import Steps, action_outputs, encode_texts, select_texts
from jaxrl_guided.lago.tuning import TUNING_SEEDS
from jaxrl_guided.learners.evaluate import evaluate
from jaxrl_guided.learners.ppo import Policy
from tests.lago.tiny import online_config
from tests.lago.toy_env import NUM_ACTIONS, STATE, make_toy, right_action
from tests.lago.toys import TEXTS, saying_prior, small_prior, toy_texts

pytestmark = pytest.mark.usefixtures("toy_family")
EPISODES = 32
LEVEL = "hard-sort"


def first_instructions(level=LEVEL, curve=False, episodes=EPISODES):
    """Instructions of the judged episodes: `evaluate` resets with the first half of its key."""
    reset_key, _ = jax.random.split(judge.eval_key(level, curve))
    return np.asarray(make_toy(level, episodes).reset(reset_key)[1]["instruction"])


def constant_policy(config, actions):
    """Policies, one a seed, that are almost certain of an action whatever they see."""
    params = judge.make_network(config, LEVEL).init(jax.random.key(0))
    params = jax.tree.map(jnp.zeros_like, params)

    def fill(action):
        def put(leaf):
            one_hot = 50.0 * jax.nn.one_hot(action, NUM_ACTIONS)
            return one_hot if leaf.shape == (NUM_ACTIONS,) else leaf

        return jax.tree.map(put, params)

    filled = [fill(action) for action in actions]
    return Policy(jax.tree.map(lambda *leaves: jnp.stack(leaves), *filled), None)


def test_keys_are_fixed_and_belong_to_no_training_run():
    levels = ("real", "rephrase", "easy", "hard-two", "hard-three", "hard-order", "hard-sort")
    keys = {
        tuple(jax.random.key_data(judge.eval_key(level, curve)).tolist())
        for level in levels
        for curve in (False, True)
    }
    assert len(keys) == 2 * len(levels)
    training = {
        tuple(jax.random.key_data(jax.random.key(seed)).tolist())
        for seed in (*FULL.seeds, *TUNING_SEEDS)
    }
    assert not keys & training
    # Written down, so that another release judges on the same episodes.
    assert jax.random.key_data(judge.eval_key("real")).tolist() == [3397740134, 3475805741]


def test_a_policy_is_judged_as_its_actions_deserve():
    config = online_config()
    instructions = first_instructions()
    found = judge.judge_policy(config, constant_policy(config, [3, 39]), LEVEL)
    rates = [np.mean(right_action(instructions) == action) for action in (3, 39)]
    assert 0 < rates[0] < 1
    assert rates[1] == 0
    np.testing.assert_allclose(found["success"], rates)
    np.testing.assert_allclose(found["sampled_success"], rates)
    np.testing.assert_allclose(found["return"], rates)
    np.testing.assert_allclose(found["length"], [1 * r + 4 * (1 - r) for r in rates])
    assert found["success_at_end"] == [0, 0]  # the last of four steps is odd
    odd = dataclasses.replace(config, horizon=3)
    assert judge.judge_policy(odd, constant_policy(odd, [3, 39]), LEVEL)["success_at_end"] == rates


def test_curves_have_episodes_of_their_own():
    config = online_config()
    with judge.open_judge(config, LEVEL, curve=True) as found:
        success = found(constant_policy(config, [3, 39]))["success"]
    instructions = first_instructions(curve=True, episodes=config.eval.curve_episodes)
    assert success == [np.mean(right_action(instructions) == action) for action in (3, 39)]


def test_arms_and_seeds_share_one_program():
    config = online_config()
    judge.judge_policy(config, constant_policy(config, [3, 39]), LEVEL)
    before = judge._policy_player.cache_info().misses
    other = online_config(arm="ppo_bc", seeds=(5, 6))
    judge.judge_policy(other, constant_policy(config, [1, 2]), LEVEL)
    assert judge._policy_player.cache_info().misses == before


def test_random_actions_find_what_chance_finds():
    episodes = 4000
    config = online_config(arm="random", seeds=(0, 1))
    config = dataclasses.replace(config, eval=dataclasses.replace(config.eval, episodes=episodes))
    found = judge.judge_random(config, LEVEL)
    chance = 1 - (1 - 1 / NUM_ACTIONS) ** 2  # two even steps
    error = np.sqrt(chance * (1 - chance) / episodes)
    assert np.abs(np.array(found["success"]) - chance).max() < 4 * error
    assert found["success"][0] != found["success"][1]
    assert found["sampled_success"] == found["success"]
    swapped = judge.judge_random(dataclasses.replace(config, seeds=(1, 0)), LEVEL)
    assert swapped["success"] == found["success"][::-1]


def test_a_prior_that_says_right_actions_acts_on_them():
    """It knows the even instructions and says action 39, which solves none, to the others."""
    says = [i if i % 2 == 0 else 39 for i in range(len(instruction_set(LEVEL).texts))]
    spec, frozen = saying_prior(says, NUM_ACTIONS, STATE)
    found = judge.judge_prior(online_config(arm="prior"), spec, frozen, LEVEL)
    rate = np.mean(first_instructions() % 2 == 0)
    assert found["success"] == [rate, rate]
    assert found["length"] == [1 * rate + 4 * (1 - rate)] * 2


@pytest.mark.parametrize("history", ["episode", "none"])
def test_the_prior_acts_on_its_teacher_forced_logits(history):
    spec, prior = small_prior(history, state_size=STATE, num_actions=NUM_ACTIONS)
    level, horizon = "easy", 4
    rows = jnp.arange(len(instruction_set(level).texts), dtype=jnp.int32) % TEXTS
    texts = select_texts(encode_texts(spec, prior, *toy_texts()), rows)
    config = online_config(arm="prior", horizon=horizon)
    found = judge.judge_prior(config, spec, FrozenPrior(prior, texts), level)

    env = make_toy(level, EPISODES, horizon=horizon, terminate_on_success=False)
    state, obs = env.reset(jax.random.split(judge.eval_key(level))[0])
    instruction = obs["instruction"][:, None]
    states = np.zeros((EPISODES, horizon, STATE), np.float32)
    actions = np.zeros((EPISODES, horizon), np.int32)
    position = jnp.tile(jnp.arange(horizon, dtype=jnp.int32), (EPISODES, 1))
    forward = jax.jit(
        lambda states, actions: action_outputs(
            spec,
            prior,
            texts,
            Steps(states, actions, position, jnp.ones_like(position), instruction),
        )
    )
    success = np.zeros((horizon, EPISODES), bool)
    for t in range(horizon):
        states[:, t] = obs["state"]
        actions[:, t] = np.argmax(forward(states, actions)[:, t], axis=-1)
        state, step = env.step(state, actions[:, t])
        success[t], obs = step.info["success"], step.obs
    solved = success.any(axis=0)
    assert 0 < solved.mean() < 1
    np.testing.assert_allclose(found["success"], [solved.mean()] * 2)
    lengths = np.where(solved, success.argmax(axis=0) + 1, horizon)
    np.testing.assert_allclose(found["length"], [lengths.mean()] * 2)
    np.testing.assert_allclose(found["return"], [solved.mean()] * 2)


def judged_both_ways(make_env, num_actions, horizon):
    """Results with termination off and on, of the same random actions."""

    def act(memory, key, obs):
        return memory, jax.random.randint(key, obs["instruction"].shape, 0, num_actions)

    def results(ends):
        env = make_env(ends)
        run = jax.jit(lambda key: evaluate(env, act, key, horizon, until_success=not ends))
        return run(jax.random.key(11))

    off, on = results(False), results(True)
    assert 0 < np.mean(off.success) < 1
    for name in ("returns", "length", "success"):
        np.testing.assert_array_equal(getattr(off, name), getattr(on, name), err_msg=name)


def test_counting_until_success_is_terminating():
    judged_both_ways(
        lambda ends: make_toy("easy", 256, horizon=12, terminate_on_success=ends), NUM_ACTIONS, 12
    )


@pytest.mark.slow
def test_counting_until_success_is_terminating_on_clevr():
    judged_both_ways(
        lambda ends: make("clevr/real", 128, terminate_on_success=ends), NUM_ACTIONS, 50
    )


def test_features_have_the_configured_size_and_each_text_is_read_once(monkeypatch):
    read, tables = [], []

    def spy_features(texts, **options):
        read.append(list(texts))
        return text_features(texts, **options)

    def spy_network(observation_space, action_space, config, features):
        tables.append(np.asarray(features))

    monkeypatch.setattr(judge, "text_features", spy_features)
    monkeypatch.setattr(judge, "make_actor_critic", spy_network)
    judge._features.cache_clear()
    options = {"feature_size": 24, "feature_components": 5, "feature_scale": 3.0}
    config = online_config(level="hard", **options)
    plain = dataclasses.replace(config, feature_components=None)
    for settings in (config, plain):
        judge.make_network(settings, "hard")
    judge._features.cache_clear()
    texts = instruction_set("hard").texts
    real = instruction_set("real").texts
    assert [sorted(part) for part in read] == [sorted(set(texts)), sorted(set(real))]
    assert len(texts) > len(set(texts))
    vectors, reference = (text_features(t, kind="hashed", dim=24) for t in (texts, real))
    assert tables[0].shape == (len(texts), 5)
    np.testing.assert_allclose(tables[0], 3 * whiten(vectors, reference, 5), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(tables[1], 3 * vectors, rtol=1e-6)
