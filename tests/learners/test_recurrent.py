"""PPO with memory: sequences against steps, and a task that needs to remember."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.probes import make_probe
from jaxrl_guided.learners.evaluate import evaluate
from jaxrl_guided.learners.normaliser import normalise
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.learners.train import make_chunk, train
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from tests.learners.counting_env import make_counting_env
from tests.learners.states import equal

CONFIG = PPOConfig(total_steps=240, num_envs=4, rollout_steps=6, epochs=2, minibatches=2)


def build(env, config, **network):
    options = NetworkConfig(**{"hidden": (8,), "gru": 5} | network)
    net = make_actor_critic(env.observation_space, env.action_space, options)
    return net, make_ppo(env, net, config)


@functools.cache
def counting(shared):
    """Episodes of 2, 3, 5 and 100 steps; the third rollout starts within three of them."""
    net, ppo = build(make_counting_env([2, 3, 5, 100]), CONFIG, shared=shared)
    return net, ppo, jax.jit(ppo.init), jax.jit(ppo.collect), make_chunk(ppo.iterate)


@functools.cache
def rollout(shared):
    """The state before the third rollout, and that rollout."""
    _, _, init, collect, chunk = counting(shared)
    state, _ = chunk.run(init(jax.random.key(0)), None, np.int32(2))
    kept = jax.tree.map(jnp.copy, state)
    return kept, collect(state)[1]


@pytest.mark.parametrize("shared", [False, True])
def test_a_sequence_gives_what_its_steps_gave_across_resets(shared):
    net = counting(shared)[0]
    state, seen = rollout(shared)
    assert all(np.abs(memory[2:]).max() > 0.01 for memory in state.memory.values())
    assert np.asarray(seen.done).sum() == 6
    obs = normalise(state.policy.normaliser, seen.obs).swapaxes(0, 1)
    policy, value = jax.jit(net.unroll)(state.policy.params, seen.memory, obs, seen.done.T)
    log_prob = policy.log_prob(seen.raw_action.T)
    np.testing.assert_allclose(np.exp(log_prob - seen.log_prob.T), 1, atol=1e-5)
    np.testing.assert_allclose(value, seen.value.T, atol=1e-5)
    # It matters: from an empty memory, or remembering across episodes, values differ.
    for memory, done in (
        (net.memory(4), seen.done.T),
        (seen.memory, jnp.zeros_like(seen.done.T)),
    ):
        other = jax.jit(net.unroll)(state.policy.params, memory, obs, done)[1]
        assert np.abs(other - value).max() > 1e-3


@pytest.mark.parametrize("shared", [False, True])
def test_final_values_remember_the_episode_that_was_cut(shared):
    net = counting(shared)[0]
    state, seen = rollout(shared)
    step, value = jax.jit(net.step), jax.jit(net.value)
    memory = jax.tree.map(lambda x: x[:1], state.memory)
    params, scale = state.policy.params, functools.partial(normalise, state.policy.normaliser)
    for t in range(6):
        memory, _, now = step(params, memory, scale(seen.obs[t, :1]))
        np.testing.assert_allclose(now, seen.value[t, :1], atol=1e-5)
        if seen.truncated[t, 0]:
            final = scale(seen.obs[t, :1] + jnp.float32([1, 0]))
            np.testing.assert_allclose(
                value(params, memory, final), seen.final_value[t, :1], atol=1e-5
            )
            memory = net.memory(1)
    assert np.asarray(seen.truncated[:, 0]).sum() == 3


def test_learning_starts_from_the_policy_that_acted():
    state, seen = rollout(False)
    config = dataclasses.replace(CONFIG, epochs=1, minibatches=1)
    _, ppo = build(make_counting_env([2, 3, 5, 100]), config)
    _, metrics = jax.jit(ppo.update)(state, seen)
    assert metrics["kl"] < 1e-10
    assert metrics["clip_fraction"] == 0


def test_a_run_compiles_once_resumes_bit_equal_and_reuses_no_key():
    _, ppo, init, _, chunk = counting(False)
    whole = train(chunk, init(jax.random.key(1)), 10)
    half = train(chunk, init(jax.random.key(1)), 5)
    again = train(chunk, jax.tree.map(jnp.copy, half), 10)
    assert chunk.run._cache_size() == 1
    assert equal(whole, again)
    before = jax.eval_shape(ppo.init, jax.random.key(0))
    with jax.debug_key_reuse(True):
        after, _ = jax.eval_shape(jax.jit(ppo.iterate), before)
    assert jax.tree.leaves(after) == jax.tree.leaves(before)


def test_sequences_that_do_not_divide_are_refused():
    config = dataclasses.replace(CONFIG, minibatches=3)
    with pytest.raises(ValueError, match=r"num_envs 4 does not divide into ppo.minibatches 3"):
        build(make_counting_env([2] * 4), config)


RECALL = PPOConfig(
    total_steps=32 * 16 * 80,
    num_envs=32,
    rollout_steps=16,
    minibatches=4,
    learning_rate=5e-3,
    gamma=0.9,
    entropy_weight=0.0,
    normalise_obs=False,
)


@pytest.mark.parametrize("continuous", [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_was_seen_is_recalled_with_memory_and_not_without(continuous):
    env = make_probe("recall", 32, continuous)
    for gru in (8, 0):
        net, ppo = build(env, RECALL, hidden=(16,), gru=gru, initial_std=0.5)
        state = train(make_chunk(ppo.iterate), jax.jit(ppo.init)(jax.random.key(0)), 80)

        def play(policy, ppo=ppo):
            act = functools.partial(ppo.act, policy, greedy=True)
            return evaluate(env, act, jax.random.key(1), 5, ppo.memory(32)).returns

        returns = np.asarray(jax.jit(play)(state.policy))
        if gru:
            np.testing.assert_allclose(returns.mean(), 1, atol=0.1)
            memory, obs = net.memory(2), jnp.zeros((2, 6)).at[:, 0].set(jnp.float32([1, -1]))
            obs, values = obs.at[:, 1].set(1), []
            for time in range(3):
                memory, _, value = net.step(state.policy.params, memory, obs)
                values.append(value)
                obs = jnp.zeros((2, 6)).at[:, 2 + time].set(1)
            np.testing.assert_allclose(
                values, np.float32([[0.81] * 2, [0.9] * 2, [1] * 2]), atol=0.1
            )
        else:  # at best the middle of both
            assert returns.mean() < 0.8
