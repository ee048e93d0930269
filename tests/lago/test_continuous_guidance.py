"""A prior of continuous actions online: targets, PPO and SAC guided by it, and it as controller."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.lago import judge
from jaxrl_guided.lago.guidance import FrozenPrior, GuidanceConfig, make_guidance
from jaxrl_guided.lago.prior import (
    Steps,
    action_outputs,
    encode_texts,
    init_cache,
    merge_trainable,
    select_texts,
)
from jaxrl_guided.lago.sft import SFTConfig, make_sft, pack_rows
from jaxrl_guided.learners.guidance import GuidedRollout
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.learners.sac import SACConfig, make_sac
from jaxrl_guided.learners.train import make_chunk
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from jaxrl_guided.networks.distributions import TanhNormal
from jaxrl_guided.networks.soft import SoftNetworkConfig, make_soft_network
from tests.lago.tiny import expert_episodes, online_config
from tests.lago.toy_env import AIM_MAP, AIMS, STATE, make_aim, right_aim
from tests.lago.toys import TEXTS, aiming_prior, saying_prior, small_prior, toy_texts

LEVEL = "hard-sort"
COUNT = make_aim(LEVEL, 1).observation_space.spaces["instruction"].n
ANSWERS = np.arange(COUNT) % len(AIMS)
SPEC, AIMING = aiming_prior(ANSWERS, AIMS, STATE)
RAW_AIMS = np.arctanh(np.clip(AIMS, -0.98, 0.98))
ITERATIONS = 48


@functools.cache
def trained():
    """(spec, FrozenPrior) that has learned the four aims from the expert's episodes."""
    spec, prior = small_prior("none", state_size=STATE, num_actions=0, action_size=2)
    episodes = expert_episodes(200, "aim/real", 0, right_aim, AIM_MAP, num_texts=len(AIMS))
    sft = make_sft(spec, SFTConfig(max_updates=200, batch_rows=8, row_steps=12, lr=1e-2))
    state, fixed = sft.init(prior)
    state, _ = sft.update(state, fixed, pack_rows(episodes, 12, history="none"), toy_texts(), 200)
    prior = merge_trainable(state.trainable, fixed)
    texts = jax.jit(lambda prior: encode_texts(spec, prior, *toy_texts()))(prior)
    return spec, FrozenPrior(prior, select_texts(texts, jnp.asarray(ANSWERS, jnp.int32)))


def rollout_of(instruction):
    """A rollout of one-step episodes with these instructions `[T, N]`."""
    shape = instruction.shape
    obs = {"state": jnp.zeros((*shape, STATE)), "instruction": jnp.asarray(instruction)}
    return GuidedRollout(obs, jnp.zeros((*shape, 2)), jnp.ones(shape, bool))


@pytest.mark.parametrize("floor", [0.1, 0.3, 1.0])
def test_targets_have_the_means_and_floored_deviations(floor):
    guidance = make_guidance(SPEC, GuidanceConfig(loss="soft", prior_std_floor=floor))
    instruction = np.arange(64).reshape(8, 8) % COUNT
    targets, _ = jax.jit(guidance.targets)(
        AIMING, guidance.init(8, jax.random.key(1)), rollout_of(instruction)
    )
    want = RAW_AIMS[ANSWERS[instruction]]
    np.testing.assert_allclose(targets.prior.mean, want, atol=0.01)
    np.testing.assert_array_equal(targets.label, targets.prior.mean)
    np.testing.assert_allclose(np.exp(targets.prior.log_std), floor, rtol=0.01)
    assert GuidanceConfig().prior_std_floor == 0.3


def test_drawn_labels_follow_the_prior():
    """Means and deviations of 4,096 draws, within four standard errors."""
    guidance = make_guidance(SPEC, GuidanceConfig(label="sample"))
    state = guidance.init(64, jax.random.key(1))
    rollout = rollout_of(np.full((64, 64), 1))
    first, state = jax.jit(guidance.targets)(AIMING, state, rollout)
    second, _ = jax.jit(guidance.targets)(AIMING, state, rollout)
    assert first.prior is None
    assert not np.array_equal(first.label, second.label)
    draws = np.reshape(first.label, (-1, 2))
    np.testing.assert_allclose(draws.mean(0), RAW_AIMS[1], atol=0.01 + 4 * 0.3 / 64)
    np.testing.assert_allclose(draws.std(0), 0.3, atol=4 * 0.3 / np.sqrt(2 * 4096))


def make_learner(guidance, algorithm="ppo", **network):
    """(learner, its first state); the policy reads which of the four aims is asked for."""
    env, features = make_aim(LEVEL, 8), jnp.asarray(np.eye(len(AIMS), dtype=np.float32)[ANSWERS])
    spaces = (env.observation_space, env.action_space)
    steps = 40 * ITERATIONS
    if algorithm == "ppo":
        config = PPOConfig(
            total_steps=steps,
            num_envs=8,
            rollout_steps=5,
            epochs=4,
            minibatches=2,
            learning_rate=2e-2,
            schedule="constant",
        )
        net = make_actor_critic(*spaces, NetworkConfig(**{"hidden": (16,), **network}), features)
        return make_ppo(env, net, config, guidance)
    config = SACConfig(
        replay_capacity=steps,
        total_steps=steps,
        num_envs=8,
        chunk_steps=5,
        updates_per_step=0.25,
        learning_starts=40,
        batch=64,
        actor_rate=1e-2,
        critic_rate=1e-2,
        initial_alpha=0.1,
    )
    net = make_soft_network(*spaces, SoftNetworkConfig(hidden=(16,)), features)
    return make_sac(env, net, config, guidance)


@functools.cache
def rewards(algorithm, loss):
    """(mean reward of each iteration, metrics) of a run; unguided if `loss` is None."""
    guidance, frozen = None, None
    if loss is not None:
        spec, frozen = trained()
        guidance = make_guidance(spec, GuidanceConfig(beta=1.0, loss=loss))
    learner = make_learner(guidance, algorithm)
    start = () if algorithm == "ppo" else (frozen,)
    state = jax.jit(learner.init)(jax.random.key(0), *start)
    state, metrics = make_chunk(learner.iterate, ITERATIONS).run(
        state, frozen, np.int32(ITERATIONS)
    )
    metrics = {name: np.asarray(values) for name, values in metrics.items()}
    return metrics["reward"], metrics


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_a_guided_learner_does_what_the_prior_says(algorithm):
    """Uniform actions are right with a chance of .045, in every other step."""
    reward, metrics = rewards(algorithm, "soft")
    assert reward[:4].mean() < 0.15
    assert reward[-8:].mean() > 0.25
    assert metrics["prior_agreement"][-1] > metrics["prior_agreement"][1]
    kl = metrics["prior_kl"]
    assert 0 <= kl[-1] < 0.5 * kl[2]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["nll", "soft", "reverse_kl"])
@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_a_guided_learner_is_faster(algorithm, loss):
    guided, plain = (rewards(algorithm, kind)[0] for kind in (loss, None))
    assert guided[4:].mean() > plain[4:].mean() + 0.2


def test_the_open_episodes_hold_the_actions_that_the_environment_received():
    spec, frozen = aiming_prior(ANSWERS, AIMS, STATE, history="episode")
    ppo = make_learner(make_guidance(spec, GuidanceConfig()))
    state, rollout = jax.jit(ppo.collect)(jax.jit(ppo.init)(jax.random.key(0)))
    state, _ = jax.jit(ppo.update)(state, rollout, frozen)
    open_, raw = state.guidance.open, np.asarray(rollout.raw_action)
    lengths = open_.length.tolist()
    assert max(lengths) > 1
    for n, length in enumerate(lengths):
        if length:
            received = np.tanh(raw[-length:, n])
            np.testing.assert_allclose(open_.action[n, -length:], received, rtol=1e-6)
    assert np.abs(np.tanh(raw) - raw).max() > 0.1


def test_a_learner_whose_policy_is_not_squashed_is_refused():
    ppo = make_learner(make_guidance(SPEC, GuidanceConfig()), policy="clipped")
    state = jax.eval_shape(ppo.init, jax.random.key(0))
    with pytest.raises(ValueError, match=r"network\.policy must be 'tanh' .*not ClippedNormal"):
        jax.eval_shape(ppo.iterate, state, AIMING)


@pytest.mark.parametrize(
    "prior, theirs",
    [
        (dataclasses.replace(SPEC, action_size=3), "actions of 3 numbers in ±1"),
        (saying_prior(ANSWERS, len(AIMS), STATE)[0], "4 discrete actions"),
    ],
)
def test_a_learner_of_other_actions_is_refused(prior, theirs):
    guidance = make_guidance(prior, GuidanceConfig())
    policy = TanhNormal(jnp.zeros((5, 2)), jnp.zeros((5, 2)), (-1.0, -1.0), (1.0, 1.0))
    message = f"policy has actions of 2 numbers in ±1, but the prior was trained for {theirs}"
    with pytest.raises(ValueError, match=message):
        guidance.loss(policy, None, guidance.init(2, jax.random.key(0)))


@pytest.mark.usefixtures("toy_family")
def test_a_prior_that_says_right_actions_acts_on_them():
    """It says the right aim to the even instructions and the opposite one to the others."""
    says = [(i + 2 * (i % 2)) % len(AIMS) for i in range(COUNT)]
    spec, frozen = aiming_prior(says, AIMS, STATE)
    config = online_config(env="aim", arm="prior")
    found = judge.judge_prior(config, spec, frozen, LEVEL)
    reset_key, _ = jax.random.split(judge.eval_key(LEVEL))
    asked = make_aim(LEVEL, config.eval.episodes).reset(reset_key)[1]["instruction"]
    rate = np.mean(np.asarray(asked) % 2 == 0)
    assert 0 < rate < 1
    assert found["success"] == [rate, rate]
    assert found["length"] == [1 * rate + 4 * (1 - rate)] * 2
    assert 0.9 * rate <= found["sampled_success"][0] <= rate  # deviations are not floored


@pytest.mark.usefixtures("toy_family")
def test_the_trained_prior_as_controller():
    found = judge.judge_prior(online_config(env="aim", arm="prior"), *trained(), LEVEL)
    assert found["success"][0] > 0.9


@pytest.mark.parametrize("history", ["episode", "none"])
def test_a_host_loop_acts_as_one_teacher_forced_pass(history):
    spec, prior = small_prior(history, num_actions=0, action_size=2)
    texts = encode_texts(spec, prior, *toy_texts())
    frozen = FrozenPrior(prior, texts)
    count, rng = 6, np.random.default_rng(0)
    states = rng.normal(size=(count, spec.horizon, spec.state_size)).astype(np.float32)
    instruction = jnp.arange(count, dtype=jnp.int32) % TEXTS
    run = jax.jit(functools.partial(judge.act_by_prior, spec), static_argnames="greedy")
    cache, actions = init_cache(spec, count), []
    for t in range(spec.horizon):
        obs = {"state": jnp.asarray(states[:, t]), "instruction": instruction}
        before = cache
        cache, action = run(frozen, before, jax.random.key(t), obs, greedy=True)
        actions.append(action)
    _, drawn = run(frozen, before, jax.random.key(0), obs, greedy=False)
    position = jnp.tile(jnp.arange(spec.horizon, dtype=jnp.int32), (count, 1))
    steps = Steps(
        jnp.asarray(states),
        jnp.stack(actions, axis=1),
        position,
        jnp.ones_like(position),
        instruction[:, None],
    )
    outputs = jax.jit(action_outputs, static_argnums=0)(spec, prior, texts, steps)
    said = spec.actions.distribution(outputs)
    np.testing.assert_allclose(steps.action, np.tanh(said.mean), atol=1e-4)
    noise = jax.random.normal(jax.random.key(0), (count, 2))
    last = np.tanh(said.mean[:, -1] + np.exp(said.log_std[:, -1]) * noise)
    np.testing.assert_allclose(drawn, last, atol=1e-4)
    assert np.abs(last - steps.action[:, -1]).max() > 0.01
