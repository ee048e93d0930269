"""Evaluation counts exactly the first episode of each environment."""

import jax
import jax.numpy as jnp
import pytest

from jaxrl_guided.learners.evaluate import evaluate
from tests.learners.counting_env import make_counting_env


def run(limits, cap):
    env = make_counting_env(limits)

    def act(memory, key, obs):
        return memory, jnp.zeros(len(limits), jnp.int32)

    return jax.jit(lambda key: evaluate(env, act, key, cap))(jax.random.key(0))


def test_only_first_episodes_count():
    results = run([1, 2, 5], cap=100)
    assert results.returns.tolist() == [1, 3, 15]
    assert results.length.tolist() == [1, 2, 5]
    assert results.success.tolist() == [False, True, True]
    assert results.success_at_end.tolist() == [False, True, False]
    assert results.finished.tolist() == [True, True, True]


def test_the_cap_ends_what_does_not_end_by_itself():
    results = run([2, 1_000_000], cap=3)
    assert results.returns.tolist() == [3, 6]
    assert results.length.tolist() == [2, 3]
    assert results.finished.tolist() == [True, False]


def test_the_policy_sees_the_observations_and_new_keys():
    env = make_counting_env([4])

    def act(memory, key, obs):
        jax.debug.callback(lambda *seen: calls.append(seen), obs, jax.random.bits(key))
        return memory, jnp.zeros(1, jnp.int32)

    calls = []
    evaluate(env, act, jax.random.key(0), 10)
    jax.effects_barrier()
    assert sorted(obs[0, 0] for obs, _ in calls) == [0, 1, 2, 3]
    assert len({int(bits) for _, bits in calls}) == 4


def test_what_a_policy_remembers_goes_from_step_to_step():
    env = make_counting_env([3], actions_are_rewards=True)

    def act(memory, key, obs):
        return memory + 1, memory[None]

    results = evaluate(env, act, jax.random.key(0), 10, memory=jnp.int32(5))
    assert results.returns.tolist() == [5 + 6 + 7]


def test_a_cap_of_zero_is_refused():
    with pytest.raises(ValueError, match="max_steps must be positive, not 0"):
        run([1], cap=0)
