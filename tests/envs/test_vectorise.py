"""Restarts, limits and types of environments made from single ones."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.types import Box, Dict, Discrete
from jaxrl_guided.envs.vectorise import Outcome, SingleEnv, vectorise
from tests.envs import conformance


def walk(limit=100, end=3):
    """Starts at a random fraction below 1; an action is added; at `end` it ends.

    The start is weakly typed, and the number of steps an integer at reset, a real after a step.
    """

    def reset(key):
        start = jax.random.uniform(key)
        return {"x": start, "steps": 0}, {"x": start[None], "two": 2.0}

    def step(key, state, action):
        del key
        x, steps = state["x"] + action, state["steps"] + 1.0
        obs = {"x": x[None], "two": jnp.float32(2)}
        return {"x": x, "steps": steps}, Outcome(obs, 1, x >= end, steps >= limit, {"seen": x})

    return SingleEnv(reset, step)


def make(num_envs=3, single=None, **options):
    space = Dict({"x": Box((1,)), "two": Box(())})
    return vectorise("walk", single or walk(), num_envs, space, Discrete(2), **options)


@pytest.mark.parametrize(
    "space",
    [
        Dict({"x": Box((3,)), "two": Box(())}),
        Dict({"x": Box((1,)), "three": Box(())}),
        Box((1,)),
    ],
)
def test_observations_must_be_what_their_space_says(space):
    with pytest.raises(ValueError, match=r"walk: .* not lie in"):
        vectorise("walk", walk(), 2, space, Discrete(2))


def test_there_must_be_an_environment():
    with pytest.raises(ValueError, match="num_envs must be at least 1, not 0"):
        make(0)


def test_bounds_must_not_be_swapped():
    with pytest.raises(ValueError, match="low must nowhere be above high"):
        Box((2,), np.array([0.0, 2.0]), 1.0)


def run(env, actions, seed=0):
    """TimeSteps of constant actions, one `[N]` row a step, and the states before each."""
    state, _ = env.reset(jax.random.key(seed))
    states, steps = [], []
    for row in actions:
        states.append(state)
        state, step = env.step(state, jnp.asarray(row, jnp.int32))
        steps.append(step)
    return states, jax.tree.map(lambda *x: np.stack(x), *steps)


def test_the_task_ends_and_the_episode_restarts():
    env = make()
    states, steps = run(env, [[1, 0, 1]] * 3)
    np.testing.assert_array_equal(steps.terminated, [[0, 0, 0], [0, 0, 0], [1, 0, 1]])
    assert not steps.truncated.any()
    start = np.asarray(states[0].inner["x"])
    np.testing.assert_allclose(
        steps.final_obs["x"][2, :, 0], start + np.array([3, 0, 3]), rtol=1e-6
    )
    assert (steps.obs["x"][2, [0, 2], 0] < 1).all()
    assert (steps.obs["x"][2, [0, 2], 0] != start[[0, 2]]).all()
    np.testing.assert_array_equal(steps.obs["x"][2, 1], start[1:2])
    np.testing.assert_array_equal(steps.info["seen"], steps.final_obs["x"][..., 0])


@pytest.mark.parametrize("options", [{"max_steps": 2}, {"single": walk(limit=2)}])
def test_a_limit_truncates(options):
    _, steps = run(make(**options), [[0, 0, 1]] * 5)
    np.testing.assert_array_equal(steps.truncated[:, 0], [0, 1, 0, 1, 0])
    assert not steps.terminated.any()


def test_an_end_at_the_limit_is_terminated_and_not_truncated():
    _, steps = run(make(max_steps=3), [[1, 0, 1]] * 3)
    np.testing.assert_array_equal(steps.terminated[2], [1, 0, 1])
    np.testing.assert_array_equal(steps.truncated[2], [0, 1, 0])


def test_time_is_that_of_the_open_episode():
    states, _ = run(make(max_steps=4), [[1, 0, 0]] * 6)
    np.testing.assert_array_equal([s.time for s in states][-1], [2, 1, 1])


def test_cached_reset_starts_where_the_first_episode_started():
    _, obs = make(cached_reset=True).reset(jax.random.key(0))
    _, steps = run(make(cached_reset=True), [[1, 1, 1]] * 6)
    for row in (2, 5):
        np.testing.assert_array_equal(steps.obs["x"][row], obs["x"])


def test_types_are_the_wider_ones_and_never_weak():
    env = make()
    state, obs = env.reset(jax.random.key(0))
    assert state.inner["steps"].dtype == jnp.float32
    assert obs["two"].dtype == jnp.float32
    conformance.check(make(single=walk()))


def test_one_compilation_serves_all_steps():
    env = make()
    step = jax.jit(chex.assert_max_traces(env.step, n=1))
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    for _ in range(3):
        state, _ = step(state, jnp.zeros(3, jnp.int32))


def test_a_population_restarts_only_where_an_episode_ends():
    """The reset stays behind a condition under vmap, and members are those of their own keys."""
    env = make()
    keys = jax.random.split(jax.random.key(5), 2)
    state, _ = jax.vmap(env.reset)(keys)
    actions = jnp.int32([[1, 0, 1], [0, 1, 0]])
    assert " cond[" in str(jax.make_jaxpr(jax.vmap(env.step))(state, actions))
    alone = [env.reset(key)[0] for key in keys]
    for _ in range(7):
        state, steps = jax.vmap(env.step)(state, actions)
        for n in (0, 1):
            alone[n], step = env.step(alone[n], actions[n])
            ours = jax.tree.map(lambda x, n=n: x[n], steps)
            jax.tree.map(np.testing.assert_array_equal, ours, step)


def test_same_key_same_episodes_other_key_others():
    first, again, other = (run(make(), [[1, 1, 1]] * 4, seed)[1].obs["x"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


@pytest.mark.parametrize("max_steps", [0, -1, 2.5, True])
def test_limits_out_of_range(max_steps):
    with pytest.raises(ValueError, match="max_steps must be a whole number from 1"):
        make(max_steps=max_steps)


def test_cached_reset_is_a_flag():
    with pytest.raises(ValueError, match="cached_reset must be True or False, not 'no'"):
        make(cached_reset="no")


def test_reset_and_step_must_agree():
    single = walk()

    def reset(key):
        state, obs = single.reset(key)
        return state, obs["x"]

    with pytest.raises(ValueError, match="the same nest of arrays"):
        make(single=SingleEnv(reset, single.step))

    def longer(key):
        state, obs = single.reset(key)
        return state, {**obs, "x": jnp.zeros(2)}

    with pytest.raises(ValueError, match=r"shape \(2,\) where step gives \(1,\)"):
        make(single=SingleEnv(longer, single.step))
