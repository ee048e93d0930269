"""PPO as a whole: what acting and learning share, reproducibility, and the guidance hook."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxrl_guided.envs.probes import TASKS, make_probe
from jaxrl_guided.learners.evaluate import evaluate
from jaxrl_guided.learners.guidance import Guidance
from jaxrl_guided.learners.normaliser import normalise
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.learners.ppo.update import make_optimiser
from jaxrl_guided.learners.train import make_chunk, train
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from tests.learners.counting_env import make_counting_env
from tests.learners.states import equal, leaves

GAMMA = 0.9


def build(env, config, guidance=None, features=None, **network):
    network = {"hidden": (8,)} | network
    spaces = env.observation_space, env.action_space
    net = make_actor_critic(*spaces, NetworkConfig(**network), features)
    return net, make_ppo(env, net, config, guidance)


# Everything that may be switched on, on one small probe.
FULL = PPOConfig(
    total_steps=64 * 20,
    num_envs=8,
    rollout_steps=8,
    epochs=2,
    minibatches=4,
    gamma=GAMMA,
    value_clip=0.5,
    scale_reward=True,
    target_kl=1.0,
)


@functools.cache
def full():
    """The learner, and its compiled parts."""
    net, ppo = build(make_probe("limit", 8), FULL)
    return net, ppo, jax.jit(ppo.init), jax.jit(ppo.collect), make_chunk(ppo.iterate, 16)


def advance(iterations, seed=0):
    _, _, init, _, chunk = full()
    state, _ = chunk.run(init(jax.random.key(seed)), None, np.int32(iterations))
    return state


@pytest.fixture(scope="module")
def rollout():
    """A rollout in the fourth iteration, and the state after it."""
    _, _, _, collect, _ = full()
    return collect(advance(3))


def update_of(config):
    """The update of another configuration, of the same shapes as `FULL`."""
    return jax.jit(build(make_probe("limit", 8), config)[1].update)


def test_the_number_of_environments_must_match():
    with pytest.raises(ValueError, match="num_envs is 64, but probe/limit-discrete has 8"):
        build(make_probe("limit", 8), PPOConfig())


def test_learning_starts_from_the_policy_that_acted(rollout):
    """Also with normaliser statistics that move between iterations: ratio 1, same values."""
    net = full()[0]
    state, seen = rollout
    flat = jax.tree.map(lambda x: x.reshape(64, *x.shape[2:]), (seen.obs, seen.raw_action))
    obs = normalise(state.policy.normaliser, flat[0])
    assert not np.allclose(obs, flat[0], atol=0.1)
    _, policy, value = jax.jit(net.step)(state.policy.params, {}, obs)
    ratio = np.exp(policy.log_prob(flat[1]) - seen.log_prob.reshape(-1))
    np.testing.assert_allclose(ratio, 1, atol=1e-5)
    np.testing.assert_allclose(value, seen.value.reshape(-1), atol=1e-5)


def test_the_only_minibatch_of_one_epoch_has_no_divergence(rollout):
    _, metrics = update_of(dataclasses.replace(FULL, epochs=1, minibatches=1))(*rollout)
    assert metrics["kl"] < 1e-10
    assert metrics["clip_fraction"] == 0
    assert metrics["share_of_steps"] == 1


def test_gradients_are_clipped_by_their_global_norm():
    optimiser = make_optimiser(dataclasses.replace(FULL, max_grad_norm=1.0))
    grads = {"a": jnp.float32([3.0, 0.0]), "b": jnp.float32([-4.0])}
    _, state = optimiser.update(grads, optimiser.init(grads))
    np.testing.assert_allclose(state[1].mu["a"], [0.06, 0.0], rtol=1e-5)
    np.testing.assert_allclose(state[1].mu["b"], [-0.08], rtol=1e-5)


def test_statistics_equal_numpys_over_all_rollouts():
    collect = full()[3]
    seen = [np.asarray(collect(advance(done))[1].obs).reshape(64, 6) for done in range(3)]
    moments = advance(3).policy.normaliser
    np.testing.assert_allclose(moments.mean, np.concatenate(seen).mean(0), atol=1e-6)
    np.testing.assert_allclose(moments.var, np.concatenate(seen).var(0), atol=1e-6)


def test_bootstrap_reads_the_final_observation_and_never_the_one_after_reset():
    env = make_counting_env([2, 3, 100])
    config = PPOConfig(num_envs=3, rollout_steps=6, minibatches=1, normalise_obs=False)
    net, ppo = build(env, config)
    state, seen = jax.jit(lambda key: ppo.collect(ppo.init(key)))(jax.random.key(0))
    value = functools.partial(jax.jit(net.value), state.policy.params, {})
    np.testing.assert_array_equal(seen.truncated[:, 0], [False, True] * 3)
    np.testing.assert_allclose(seen.final_value[1, 0], value(jnp.float32([2, 0])), rtol=1e-5)
    np.testing.assert_allclose(seen.final_value[3, 0], value(jnp.float32([2, 1])), rtol=1e-5)
    np.testing.assert_allclose(seen.final_value[5, 1], value(jnp.float32([3, 1])), rtol=1e-5)
    np.testing.assert_allclose(seen.last_value[2], value(jnp.float32([6, 0])), rtol=1e-5)
    assert abs(value(jnp.float32([2, 0])) - value(jnp.float32([0, 1]))) > 1e-3
    sums = {name: float(total) for name, total in seen.episodes.items()}
    expected = {"episodes": 5, "return_sum": 21, "squared_return_sum": 99}
    assert sums == expected | {"length_sum": 12, "success_sum": 5}


def test_same_seed_is_bit_equal_and_another_differs():
    assert equal(advance(4), advance(4))
    assert not equal(advance(4).policy, advance(4, seed=1).policy)


def test_resume_from_a_saved_state_is_bit_equal():
    state = advance(3)
    saved, structure = leaves(state), jax.tree.structure(state)
    restored = [
        jax.random.wrap_key_data(jnp.asarray(x)) if x.dtype == np.uint32 else jnp.asarray(x)
        for x in saved
    ]
    state, rows = full()[4].run(jax.tree.unflatten(structure, restored), None, np.int32(4))
    assert equal(state, advance(7))
    # The schedule goes on: mean rate over the optimiser steps of iteration 3 of 20.
    steps = np.arange(3 * 8, 4 * 8)
    want = np.mean(5e-4 * (1 - steps / 160))
    np.testing.assert_allclose(rows["learning_rate"][0], want, rtol=1e-5)


def test_a_run_compiles_once_and_its_state_keeps_its_types():
    _, ppo, init, _, chunk = full()
    state = train(chunk, init(jax.random.key(0)), 20)
    assert state.iteration == 20
    assert chunk.run._cache_size() == 1
    before = jax.eval_shape(ppo.init, jax.random.key(0))
    after, metrics = jax.eval_shape(ppo.iterate, before)
    assert jax.tree.leaves(after) == jax.tree.leaves(before)
    assert not [leaf for leaf in jax.tree.leaves((before, after, metrics)) if leaf.weak_type]


def test_no_key_is_used_twice():
    _, ppo, init, _, _ = full()

    def evaluation(state):
        act = functools.partial(ppo.act, state.policy)
        return evaluate(make_probe("limit", 8), act, jax.random.key(0), 9, {})

    def reuses(key):
        return jax.random.normal(key) + jax.random.uniform(key)

    key = jax.random.key(0)
    with jax.debug_key_reuse(True):
        state = jax.eval_shape(init, key)
        jax.eval_shape(jax.jit(lambda s: ppo.iterate(ppo.iterate(s)[0])), state)
        jax.eval_shape(jax.jit(evaluation), state)
        with pytest.raises(jax.errors.KeyReuseError):
            jax.eval_shape(jax.jit(reuses), key)


def test_divergence_above_the_target_leaves_out_the_rest_of_the_iteration(rollout):
    state, seen = rollout
    after, metrics = update_of(dataclasses.replace(FULL, target_kl=1e-9))(state, seen)
    # The first step starts without divergence, and ends with some.
    assert after.opt_state[1].count == state.opt_state[1].count + 1
    assert metrics["share_of_steps"] == 1 / 8
    assert not equal(after.policy.params, state.policy.params)


def test_metrics_of_steps_that_are_left_out_do_not_count(rollout):
    """The ratio of an unlikely action overflows in them: 0 times infinity would be nan."""
    state, seen = rollout
    unlikely = jnp.where(jnp.arange(seen.log_prob.size) % 2, -200.0, 0.0)
    seen = dataclasses.replace(seen, log_prob=seen.log_prob + unlikely.reshape(seen.log_prob.shape))
    _, metrics = update_of(dataclasses.replace(FULL, target_kl=1e-9))(state, seen)
    assert metrics["share_of_steps"] == 0


def test_rollouts_store_ids_and_never_text_features():
    env = make_counting_env([3] * 4, instructions=7)
    config = PPOConfig(num_envs=4, rollout_steps=10, epochs=2, minibatches=5)
    features = np.random.default_rng(0).normal(size=(7, 13)).astype(np.float32)
    _, ppo = build(env, config, features=features)
    state = jax.eval_shape(ppo.init, jax.random.key(0))
    shapes = set()

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            shapes.update(v.aval.shape for v in equation.outvars)
            for inner in jax.core.jaxprs_in_params(equation.params):
                visit(inner)

    visit(jax.make_jaxpr(ppo.iterate)(state).jaxpr)
    wide = {shape for shape in shapes if shape[-1:] == (13,)}
    assert (4, 13) in wide
    assert (8, 13) in wide
    assert max(np.prod(shape) for shape in wide) <= 8 * 13
    _, rollout = jax.eval_shape(ppo.collect, state)
    assert rollout.obs["instruction"].shape == (10, 4)
    assert state.policy.normaliser["instruction"] is None


@struct.dataclass
class ToyState:
    calls: jax.Array
    progress: jax.Array
    raw: jax.Array


def toy_guidance(beta=1.0):
    """A prior that says: action [signal · frozen > 0]."""

    def targets(frozen, state, rollout):
        raw = jnp.all(jnp.abs(rollout.obs[..., 0]) == 1) & jnp.all(rollout.done)
        state = dataclasses.replace(state, calls=state.calls + 1, raw=state.raw & raw)
        return (rollout.obs[..., 0] * frozen > 0).astype(jnp.int32), state

    def loss(distribution, targets, state):
        value = -distribution.log_prob(targets).mean()
        return beta * value, {"prior_loss": value}

    def after_update(state, metrics, progress):
        assert {"prior_loss", "kl", "success_sum"} <= set(metrics)
        return dataclasses.replace(state, progress=progress)

    start = ToyState(jnp.int32(0), jnp.float32(0), jnp.bool_(True))
    return Guidance(lambda num_envs, key: start, targets, loss, after_update)


def test_guidance_leads_where_rewards_do_not():
    """Rewards do not depend on actions here: only rightly shuffled targets can teach the policy."""
    config = PPOConfig(
        total_steps=64 * 20,
        num_envs=8,
        rollout_steps=8,
        epochs=4,
        minibatches=4,
        learning_rate=0.02,
    )
    _, ppo = build(make_probe("observation", 8), config, toy_guidance())
    chunk, init = make_chunk(ppo.iterate), jax.jit(ppo.init)
    for sign in (1.0, -1.0):
        frozen = jnp.float32(sign)
        state, rows = chunk.run(init(jax.random.key(0)), frozen, np.int32(20))
        assert rows["prior_loss"][19] < 0.1
        probe = jnp.zeros((2, 6)).at[:, 0].set(jnp.float32([1, -1]))
        _, greedy = ppo.act(state.policy, {}, jax.random.key(0), probe, greedy=True)
        assert greedy.tolist() == ([1, 0] if sign > 0 else [0, 1])
        assert state.guidance.calls == 20
        assert state.guidance.progress == 1
        assert state.guidance.raw
        assert not frozen.is_deleted()
    assert chunk.run._cache_size() == 1


def test_without_guidance_nothing_is_kept_for_it():
    ppo = full()[1]
    state = jax.eval_shape(ppo.init, jax.random.key(0))
    assert jax.tree.leaves(state.guidance) == []
    assert "prior_loss" not in jax.eval_shape(ppo.iterate, state)[1]


PROBES = PPOConfig(
    total_steps=256 * 150,
    num_envs=16,
    rollout_steps=16,
    epochs=4,
    minibatches=4,
    learning_rate=5e-3,
    gamma=GAMMA,
    entropy_weight=0.0,
    normalise_obs=False,
)


@pytest.mark.parametrize("continuous", [pytest.param(False, marks=pytest.mark.slow), True])
def test_probes_are_learned(continuous):
    """The seven that need no memory, and an eighth member of the population that may not learn."""
    env = make_probe("joint", 16, continuous)
    net, ppo = build(env, PROBES, hidden=(32,), initial_std=0.5)
    state = jax.jit(jax.vmap(ppo.init))(jax.random.split(jax.random.key(0), 8))
    tasks = jnp.arange(8, dtype=jnp.int32) % 7
    rates = jnp.where(jnp.arange(8) < 7, PROBES.learning_rate, 0.0)
    state = dataclasses.replace(
        state,
        env_state=dataclasses.replace(state.env_state, task=tasks),
        hyper=dataclasses.replace(state.hyper, learning_rate=rates),
    )
    untrained = jax.tree.map(lambda x: np.asarray(x[7]), state.policy.params)
    chunk = make_chunk(jax.vmap(ppo.iterate, in_axes=(0, None)))
    state = train(chunk, state, PROBES.iterations)
    assert chunk.run._cache_size() == 1
    assert equal(jax.tree.map(lambda x: x[7], state.policy.params), untrained)

    # Observations: nothing, signal +1, signal -1, times 0 … 4.
    obs = jnp.zeros((8, 6)).at[1, 0].set(1).at[2, 0].set(-1).at[3:, 1:].set(jnp.eye(5))
    values = jax.jit(jax.vmap(lambda policy: net.value(policy.params, {}, obs)))(state.policy)
    values = dict(zip(TASKS, np.asarray(values), strict=False))
    close = functools.partial(np.testing.assert_allclose, atol=0.1)
    close(values["constant"][0], 1)
    close(values["observation"][1:3], [1, -1])
    close(values["discount"][3:5], [GAMMA, 1])
    close(values["action"][0], 1)
    close(values["joint"][1:3], [1, 1])
    close(values["limit"][3:], [10] * 5)
    close(values["end"][3:], [4.0951, 3.439, 2.71, 1.9, 1])

    act = functools.partial(ppo.act, memory={}, key=jax.random.key(0), obs=obs, greedy=True)
    _, actions = jax.jit(jax.vmap(lambda policy: act(policy)))(state.policy)
    actions = dict(zip(TASKS, np.asarray(actions).reshape(8, 8), strict=False))
    close(actions["action"][0], 0.5 if continuous else 1)
    close(actions["joint"][1:3], [0.5, -0.5] if continuous else [1, 0])

    joint = jax.tree.map(lambda x: x[TASKS.index("joint")], state.policy)
    policy_of = functools.partial(ppo.act, joint)
    run = jax.jit(
        lambda key: [
            evaluate(env, functools.partial(policy_of, greedy=greedy), key, 5, {})
            for greedy in (True, False)
        ]
    )
    for results in run(jax.random.key(1)):
        close(results.returns.mean(), 1)
        assert results.success.all()
