"""The probes keep the environment interface and give the rewards that their values rest on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.probes import HORIZONS, TASKS, make_probe


def rewards_of(task, actions, continuous=False):
    """Steps taken with `actions [T, N, …]`: signals, rewards, terminated, truncated; `[T, N]`."""
    env = make_probe(task, actions.shape[1], continuous)

    def step(state, action):
        after, result = env.step(state, action)
        return after, (state.signal, result.reward, result.terminated, result.truncated)

    state, _ = env.reset(jax.random.key(0))
    return map(np.asarray, jax.jit(lambda s: jax.lax.scan(step, s, actions)[1])(state))


@pytest.mark.parametrize("continuous", [False, True])
def test_reset_and_step_agree_in_type(continuous):
    env = make_probe("joint", 4, continuous)
    state, obs = jax.eval_shape(env.reset, jax.random.key(0))
    action = jnp.zeros((4, 1)) if continuous else jnp.zeros(4, jnp.int32)
    after, result = jax.eval_shape(env.step, state, action)
    assert (after, result.obs, result.final_obs) == (state, obs, obs)
    weak = [leaf for leaf in jax.tree.leaves((state, obs, after, result)) if leaf.weak_type]
    assert not weak
    assert obs.shape == (4, *env.observation_space.shape)


@pytest.mark.parametrize("task", TASKS)
def test_episodes_end_at_their_horizon_in_the_right_way(task):
    _, _, terminated, truncated = rewards_of(task, np.zeros((10, 2), np.int32))
    ends = (np.arange(10) + 1) % HORIZONS[TASKS.index(task)] == 0
    over, never = truncated if task == "limit" else terminated, np.zeros((10, 2), bool)
    np.testing.assert_array_equal(over, np.stack([ends, ends], axis=1))
    np.testing.assert_array_equal(terminated if task == "limit" else truncated, never)


def test_rewards():
    actions = np.random.default_rng(0).integers(0, 2, (10, 8)).astype(np.int32)
    signal, reward, _, _ = rewards_of("joint", actions)
    np.testing.assert_array_equal(reward, np.where(actions == (signal > 0), 1, -1))
    signal, reward, _, _ = rewards_of("observation", actions)
    np.testing.assert_array_equal(reward, signal)
    assert (signal[1:] != signal[:-1]).mean() == pytest.approx(0.5, abs=0.2)
    _, reward, _, _ = rewards_of("discount", actions)
    np.testing.assert_array_equal(reward[:, 0], [0, 1] * 5)
    real = np.float32(actions)[..., None]
    signal, reward, _, _ = rewards_of("joint", real, continuous=True)
    np.testing.assert_allclose(reward, 1 - (real[..., 0] - signal / 2) ** 2)


def test_an_unknown_probe_is_refused():
    with pytest.raises(ValueError, match="probe 'joint2' is unknown; there are constant"):
        make_probe("joint2", 2)
