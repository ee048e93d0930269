"""Guidance: losses against closed forms, schedules, drawn labels, and its part in real PPO runs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from flax import struct

from jaxrl_guided.envs import make
from jaxrl_guided.envs.types import Box, Dict, Discrete, TimeStep, VectorEnv
from jaxrl_guided.lago.actions import DiscreteActions
from jaxrl_guided.lago.guidance import (
    FrozenPrior,
    GuidanceConfig,
    Targets,
    make_guidance,
    prior_loss,
)
from jaxrl_guided.lago.prior import encode_texts, select_texts
from jaxrl_guided.learners.guidance import GuidedRollout
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.learners.train import make_chunk
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from jaxrl_guided.networks.distributions import Categorical
from tests.lago.toys import ACTIONS, HORIZON, STATE, TEXTS, saying_prior, small_prior, toy_texts

ANSWERS = np.array([3, 0, 5, 1, 1])
SPEC, SAYING = saying_prior(ANSWERS, ACTIONS, STATE)


def softmax(x):
    e = np.exp(np.float64(x) - np.max(x, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    "field, value, right",
    [
        ("beta", -0.1, "at least 0 and finite in float32"),
        ("schedule", "step", "one of constant, linear, cosine"),
        ("schedule_end", 0.0, r"in \(0, 1\]"),
        ("loss", "kl", "one of nll, soft, reverse_kl"),
        ("label", "mode", "one of argmax, sample"),
        ("prior_fraction", 1.5, r"in \(0, 1\]"),
        ("chunk_tokens", 0, "at least 1"),
        ("prior_std_floor", 0.0, "positive and finite in float32"),
    ],
)
def test_settings_out_of_range_are_refused(field, value, right):
    with pytest.raises(ValueError, match=rf"guidance\.{field} must be {right}, not '?{value}"):
        GuidanceConfig(**{field: value})


def test_losses_by_literals():
    logits = jnp.log(jnp.float32([[1, 1], [3, 1], [1, 7]]))
    label, scored = jnp.int32([0, 1, 0]), jnp.array([True, True, False])
    policy, actions = Categorical(logits), DiscreteActions(2)
    found = prior_loss(actions, "nll", policy, Targets(None, label, scored))
    np.testing.assert_allclose(found, (np.log(2) + np.log(4)) / 2, rtol=1e-6)
    prior = Categorical(jnp.log(jnp.float32([[0.25, 0.75], [0.5, 0.5], [0.5, 0.5]])))
    found = prior_loss(actions, "soft", policy, Targets(prior, label, scored))
    want = (np.log(2) + (np.log(4 / 3) + np.log(4)) / 2) / 2
    np.testing.assert_allclose(found, want, rtol=1e-6)
    found = prior_loss(actions, "reverse_kl", policy, Targets(prior, label, scored))
    want = (np.log(4 / 3) / 2 + 3 * np.log(3 / 2) / 4 + np.log(1 / 2) / 4) / 2
    np.testing.assert_allclose(found, want, rtol=1e-6)
    nothing = jnp.zeros(3, bool)
    assert prior_loss(actions, "nll", policy, Targets(None, label, nothing)) == 0


@pytest.mark.parametrize("loss", ["nll", "soft", "reverse_kl"])
def test_gradient_is_policy_minus_target_where_scored(loss):
    """With beta, and nothing at all for states that were not scored; KL has one of its own."""
    rng = np.random.default_rng(0)
    logits, prior = rng.normal(size=(2, 5, ACTIONS)).astype(np.float32)
    label = rng.integers(0, ACTIONS, 5).astype(np.int32)
    scored = np.array([True, False, True, True, False])
    said = Categorical(prior) if loss != "nll" else None
    guidance = make_guidance(SPEC, GuidanceConfig(beta=0.3, loss=loss))
    state, targets = (
        guidance.init(2, jax.random.key(1)),
        Targets(said, jnp.asarray(label), jnp.asarray(scored)),
    )

    def total(logits):
        return guidance.loss(Categorical(logits), targets, state)

    grads, metrics = jax.jit(jax.grad(total, has_aux=True))(logits)
    aim = softmax(prior) if loss == "soft" else np.eye(ACTIONS)[label]
    each, want = -(aim * np.log(softmax(logits))).sum(-1), softmax(logits) - aim
    if loss == "reverse_kl":
        surplus = np.log(softmax(logits) / softmax(prior))
        each = scipy.stats.entropy(softmax(logits), softmax(prior), axis=-1)
        want = softmax(logits) * (surplus - each[:, None])
    want = 0.3 * want * scored[:, None] / 3
    np.testing.assert_allclose(grads, want, atol=1e-6)
    assert not grads[~scored].any()
    np.testing.assert_allclose(metrics["prior_loss"], each[scored].mean(), rtol=1e-5)
    assert ("prior_kl" in metrics) == (loss == "soft")
    if loss == "soft":
        divergence = scipy.stats.entropy(softmax(prior), softmax(logits), axis=-1)
        np.testing.assert_allclose(metrics["prior_kl"], divergence[scored].mean(), rtol=1e-4)
    agree = (logits.argmax(-1) == label)[scored].mean()
    np.testing.assert_allclose(metrics["prior_agreement"], agree, rtol=1e-6)
    np.testing.assert_allclose(metrics["beta"], 0.3, rtol=1e-6)


@pytest.mark.parametrize(
    "schedule, end, betas",
    [
        ("constant", 0.5, [0.2, 0.2, 0.2, 0.2]),
        ("linear", 1.0, [0.2, 0.15, 0.1, 0.0]),
        ("linear", 0.5, [0.2, 0.1, 0.0, 0.0]),
        ("cosine", 1.0, [0.2, 0.1 + 0.1 * np.sqrt(0.5), 0.1, 0.0]),
        ("cosine", 0.5, [0.2, 0.1, 0.0, 0.0]),
    ],
)
def test_beta_at_the_start_a_quarter_half_and_the_end(schedule, end, betas):
    guidance = make_guidance(SPEC, GuidanceConfig(beta=0.2, schedule=schedule, schedule_end=end))
    state = guidance.init(2, jax.random.key(1))
    np.testing.assert_allclose(state.beta, betas[0], atol=1e-7)
    for progress, beta in zip((0.0, 0.25, 0.5, 1.0), betas, strict=True):
        after = guidance.after_update(state, {}, jnp.float32(progress))
        np.testing.assert_allclose(after.beta, beta, atol=1e-7)
        assert jax.tree.map(jax.typeof, after) == jax.tree.map(jax.typeof, state)


def rollout_of(instruction):
    """A rollout of one-step episodes with these instructions `[T, N]`."""
    shape = instruction.shape
    obs = {"state": jnp.zeros((*shape, STATE)), "instruction": jnp.asarray(instruction)}
    return GuidedRollout(obs, jnp.zeros(shape, jnp.int32), jnp.ones(shape, bool))


def test_predicted_labels_and_the_subset_that_is_scored():
    instruction = np.arange(64).reshape(8, 8) % TEXTS
    config = GuidanceConfig(loss="soft", prior_fraction=0.25)
    guidance = make_guidance(SPEC, config)
    targets, _ = jax.jit(guidance.targets)(
        SAYING, guidance.init(8, jax.random.key(1)), rollout_of(instruction)
    )
    scored = np.asarray(targets.scored)
    assert scored.sum() == 16
    said = ANSWERS[instruction]
    np.testing.assert_array_equal(targets.label[scored], said[scored])
    log_probs = np.log(softmax(8 * np.eye(ACTIONS)[said]))
    np.testing.assert_allclose(targets.prior.log_probs()[scored], log_probs[scored], atol=0.02)


def test_drawn_labels_follow_the_prior():
    """Chi-square of 4,096 draws with five degrees of freedom; 20.5 is its 99.9 % quantile."""
    heads = SAYING.prior.heads
    softer = {**heads, "policy": jax.tree.map(lambda x: 0.2 * x, heads["policy"])}
    frozen = FrozenPrior(dataclasses.replace(SAYING.prior, heads=softer), SAYING.texts)
    guidance = make_guidance(SPEC, GuidanceConfig(label="sample"))
    targets, state, drawn = jax.jit(guidance.targets), guidance.init(64, jax.random.key(1)), []
    for _ in range(4):
        found, state = targets(frozen, state, rollout_of(np.full((16, 64), 2)))
        drawn.append(np.asarray(found.label))
    assert not np.array_equal(drawn[0], drawn[1])
    expected = 4096 * softmax(1.6 * np.eye(ACTIONS)[5])
    counts = np.bincount(np.ravel(drawn), minlength=ACTIONS)
    assert ((counts - expected) ** 2 / expected).sum() < 20.5


@struct.dataclass
class WalkState:
    key: jax.Array
    steps: jax.Array
    episode: jax.Array
    before: jax.Array
    instruction: jax.Array


def make_walk(num_envs):
    """Episodes of 1 to HORIZON steps; the reward is 1 for the answer to the instruction.

    The state is (step number, number of the episode, the action before, number of the environment).
    """
    number = jnp.arange(num_envs, dtype=jnp.int32)

    def observe(state):
        parts = [state.steps, state.episode, state.before, number]
        return {
            "state": jnp.stack(parts, axis=1).astype(jnp.float32),
            "instruction": state.instruction,
        }

    def reset(key):
        key, text_key = jax.random.split(key)
        text = jax.random.randint(text_key, (num_envs,), 0, TEXTS)
        state = WalkState(key, 0 * number, 0 * number, 0 * number, text)
        return state, observe(state)

    def step(state, action):
        key, text_key, end_key = jax.random.split(state.key, 3)
        right = action == jnp.asarray(ANSWERS)[state.instruction]
        after = dataclasses.replace(state, key=key, steps=state.steps + 1, before=action)
        done = jax.random.bernoulli(end_key, 0.2, (num_envs,)) | (after.steps >= HORIZON)
        text = jax.random.randint(text_key, (num_envs,), 0, TEXTS)
        restarted = dataclasses.replace(
            after,
            steps=jnp.where(done, 0, after.steps),
            episode=state.episode + done,
            instruction=jnp.where(done, text, state.instruction),
        )
        reward, info = right.astype(jnp.float32), {"success": right}
        return restarted, TimeStep(
            observe(restarted), reward, done, jnp.zeros_like(done), observe(after), info
        )

    space = Dict({"state": Box((STATE,)), "instruction": Discrete(TEXTS)})
    return VectorEnv("toy/walk", num_envs, space, Discrete(ACTIONS), reset, step)


def learner(env, config, guidance=None, **network):
    network = NetworkConfig(**{"hidden": (16,), **network})
    net = make_actor_critic(env.observation_space, env.action_space, network)
    return make_ppo(env, net, config, guidance)


WALK = PPOConfig(
    total_steps=40 * 24,
    num_envs=8,
    rollout_steps=5,
    epochs=4,
    minibatches=2,
    learning_rate=1e-2,
    schedule="constant",
)


def run_walk(guidance, frozen):
    """A run in three chunks: (open episodes, beta, walk) after each, and metrics by iteration."""
    ppo = learner(make_walk(8), WALK, guidance)
    chunk, state = make_chunk(ppo.iterate, 8), jax.jit(ppo.init)(jax.random.key(0))
    states, rows = [], []
    for _ in range(3):
        state, metrics = chunk.run(state, frozen, np.int32(8))
        if guidance is not None:
            walk = dataclasses.replace(state.env_state, key=None)
            states.append(jax.tree.map(np.array, (state.guidance.open, state.guidance.beta, walk)))
        rows.append(metrics)
    assert chunk.run._cache_size() == 1
    return states, {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def guided_walk():
    """Kickstarting: beta falls to zero over the first half."""
    spec, frozen = saying_prior(ANSWERS, ACTIONS, STATE, history="episode")
    config = GuidanceConfig(beta=3.0, schedule="linear", schedule_end=0.5)
    return run_walk(make_guidance(spec, config), frozen), frozen


def test_in_ppo():
    (states, guided), frozen = guided_walk()
    assert guided["reward"][-4:].mean() > 0.9  # what was learned stays
    assert guided["prior_agreement"][-1] > 0.9
    # Iteration k learns with the beta that its start has; the last one leaves the next beta.
    np.testing.assert_allclose(guided["beta"], np.maximum(3 - np.arange(24) / 4, 0), atol=1e-5)
    assert [beta for _, beta, _ in states] == pytest.approx([1, 0, 0], abs=1e-5)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(frozen))
    for open_, _, walk in states:
        check_open_episodes(open_, walk)


def check_open_episodes(open_, walk):
    """They are the steps since the last reset, by what the states say of themselves."""
    np.testing.assert_array_equal(open_.length, walk.steps)
    assert len(set(walk.steps)) > 2
    for n, length in enumerate(walk.steps):
        if length:
            steps, episode, before, env = open_.state[n, -length:].T
            np.testing.assert_array_equal(steps, np.arange(length))
            assert set(episode) == {walk.episode[n]}
            assert set(env) == {n}
            np.testing.assert_array_equal(open_.action[n, -length:][:-1], before[1:])
            assert open_.action[n, -1] == walk.before[n]
            assert open_.instruction[n] == walk.instruction[n]


@pytest.mark.slow
def test_ppo_learns_faster_with_a_prior_that_knows():
    (_, guided), _ = guided_walk()
    _, plain = run_walk(None, None)
    assert guided["reward"][4:16].mean() > plain["reward"][4:16].mean() + 0.3


def test_no_key_is_used_twice_and_types_stay():
    config = GuidanceConfig(label="sample", prior_fraction=0.5)
    ppo = learner(make_walk(8), WALK, make_guidance(SPEC, config))
    with jax.debug_key_reuse(True):
        state = jax.eval_shape(jax.jit(ppo.init), jax.random.key(0))
        twice = jax.jit(lambda state, frozen: ppo.iterate(ppo.iterate(state, frozen)[0], frozen))
        after = jax.eval_shape(twice, state, SAYING)
    assert jax.tree.leaves(after[0]) == jax.tree.leaves(state)
    assert not [leaf for leaf in jax.tree.leaves((state, after)) if leaf.weak_type]


@pytest.mark.slow
def test_open_episodes_on_clevr_robot():
    """What is carried is the tail of everything that was seen, in numpy."""
    env = make("clevr/real", num_envs=8, horizon=HORIZON)
    spec, prior = small_prior("episode", state_size=10, num_actions=40)
    texts = jax.jit(lambda prior, t: encode_texts(spec, prior, *t))(prior, toy_texts())
    rows = jnp.arange(env.observation_space.spaces["instruction"].n, dtype=jnp.int32) % TEXTS
    frozen = FrozenPrior(prior, select_texts(texts, rows))
    guidance = make_guidance(spec, GuidanceConfig(loss="soft"))
    config = PPOConfig(num_envs=8, rollout_steps=5, epochs=1, minibatches=2)
    ppo = learner(env, config, guidance)
    collect, update = jax.jit(ppo.collect), jax.jit(ppo.update)
    state, seen = jax.jit(ppo.init)(jax.random.key(0)), []
    lengths = set()
    for _ in range(4):
        state, rollout = collect(state)
        state, metrics = update(state, rollout, frozen)
        assert np.isfinite(metrics["prior_loss"])
        seen.append((rollout.obs["state"], rollout.raw_action, rollout.obs["instruction"]))
        history = [np.concatenate(parts) for parts in zip(*seen, strict=True)]
        open_ = state.guidance.open
        np.testing.assert_array_equal(open_.length, state.env_state.steps)
        lengths |= set(open_.length.tolist())
        for n, length in enumerate(open_.length.tolist()):
            if length:
                states, actions, instructions = (part[-length:, n] for part in history)
                np.testing.assert_array_equal(open_.state[n, -length:], states)
                np.testing.assert_array_equal(open_.action[n, -length:], actions)
                assert set(instructions.tolist()) == {int(open_.instruction[n])}
    assert len(lengths) > 2
    assert max(lengths) > 5  # longer than a rollout
