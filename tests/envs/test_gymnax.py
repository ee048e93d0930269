"""gymnax's environments behind our interface, against gymnax and gymnasium."""

import gymnasium
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs import from_gymnax, make
from jaxrl_guided.envs.types import Box, Discrete
from tests.envs import conformance

NAMES = gymnax.registered_envs


@pytest.fixture
def mnist(monkeypatch, tmp_path):
    """A hundred images that stand for MNIST."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (100, 28, 28), dtype=np.uint8)
    part = images, rng.integers(0, 10, 100, dtype=np.uint8)
    monkeypatch.setattr("gymnax.utils.load_mnist.load_mnist", lambda: (part, part))
    for name in from_gymnax._MNIST_FILES:
        (tmp_path / name).touch()
    monkeypatch.setattr(from_gymnax, "_MNIST_DIRECTORY", tmp_path)


def test_there_are_26():
    assert len(NAMES) == 26


@pytest.mark.parametrize("name", NAMES)
def test_conformance(name, mnist):
    conformance.check(make(f"gymnax/{name}", num_envs=3))


def test_spaces():
    pendulum = make("gymnax/Pendulum-v1", 2)
    assert isinstance(pendulum.action_space, Box)
    assert pendulum.action_space.shape == (1,)
    np.testing.assert_array_equal(pendulum.action_space.low, [-2])
    np.testing.assert_array_equal(pendulum.action_space.high, [2])
    assert make("gymnax/CartPole-v1", 2).action_space == Discrete(2)
    assert make("gymnax/FrozenLake-misc", 2).observation_space == Discrete(16)
    assert make("gymnax/Breakout-MinAtar", 2).observation_space.shape == (10, 10, 4)


def rollout(env, policy, steps, seed=0):
    """States before each step `[T, N]`, observations acted on, and TimeSteps."""

    def step(carry, key):
        state, obs = carry
        action = policy(key, obs)
        after, result = env.step(state, action)
        return (after, result.obs), (state, obs, action, result)

    start = env.reset(jax.random.key(seed))
    scan = jax.jit(lambda c, k: jax.lax.scan(step, c, k)[1])
    return scan(start, jax.random.split(jax.random.key(seed + 1), steps))


def random_policy(env):
    space, n = env.action_space, env.num_envs
    if isinstance(space, Discrete):
        return lambda key, obs: jax.random.randint(key, (n,), 0, space.n)
    return lambda key, obs: jax.random.uniform(
        key, (n, *space.shape), minval=space.low, maxval=space.high
    )


def test_cartpole_is_gymnasiums():
    env = make("gymnax/CartPole-v1", 4)
    _, obs, action, steps = rollout(env, random_policy(env), 200)
    reference = gymnasium.make("CartPole-v1").unwrapped
    reference.reset(seed=0)
    ends = 0
    for t in range(200):
        reference.state = np.asarray(obs[t, 0], np.float64)
        reference.steps_beyond_terminated = None
        after, reward, terminated, _, _ = reference.step(int(action[t, 0]))
        np.testing.assert_allclose(steps.final_obs[t, 0], after, atol=1e-5)
        assert terminated == bool(steps.terminated[t, 0])
        assert reward == steps.reward[t, 0]
        ends += terminated
    assert ends > 3


def test_pendulum_is_gymnasiums():
    env = make("gymnax/Pendulum-v1", 2)
    states, _, action, steps = rollout(env, random_policy(env), 100)
    reference = gymnasium.make("Pendulum-v1").unwrapped
    reference.reset(seed=0)
    for t in range(100):
        reference.state = np.array([states.inner.theta[t, 0], states.inner.theta_dot[t, 0]])
        after, reward, *_ = reference.step(np.asarray(action[t, 0]))
        np.testing.assert_allclose(steps.final_obs[t, 0], after, atol=1e-4)
        assert steps.reward[t, 0] == pytest.approx(reward, abs=1e-3)


def test_a_fallen_pole_is_terminated_and_step_500_truncated():
    env = make("gymnax/CartPole-v1", 8)
    *_, fallen = rollout(env, lambda key, obs: jnp.ones(8, jnp.int32), 20)
    assert fallen.terminated.any(0).all()
    assert not fallen.truncated.any()

    def balance(key, obs):
        x, v, angle, speed = obs.T
        return (angle + 0.5 * speed + 0.05 * (x + v) > 0).astype(jnp.int32)

    *_, steps = rollout(env, balance, 1000)
    assert not steps.terminated.any()
    np.testing.assert_array_equal(np.flatnonzero(steps.truncated[:, 0]), [499, 999])
    assert (abs(np.asarray(steps.obs)[499]) <= 0.05).all()
    starts = np.asarray(steps.obs)[[499, 999]]
    assert (starts[0] != starts[1]).all()


def test_options_reach_class_and_parameters():
    assert make("gymnax/DeepSea-bsuite", 2, size=5).observation_space.shape == (5, 5)
    env = make("gymnax/CartPole-v1", 2, max_steps=7, gravity=0.0, force_mag=0.0)
    *_, steps = rollout(env, random_policy(env), 14)
    np.testing.assert_array_equal(np.flatnonzero(steps.truncated[:, 1]), [6, 13])


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"gravitation": 1.0}, TypeError, "no option gravitation; it has .*gravity"),
        ({"max_steps_in_episode": -3}, ValueError, "max_steps must be a whole number from 1"),
        ({"max_steps": 0}, ValueError, "max_steps must be a whole number from 1, not 0"),
    ],
)
def test_options_out_of_range(options, error, message):
    with pytest.raises(error, match=message):
        make("gymnax/CartPole-v1", 2, **options)


def test_missing_mnist_is_one_clear_error(monkeypatch, tmp_path):
    monkeypatch.setattr(from_gymnax, "_MNIST_DIRECTORY", tmp_path)
    with pytest.raises(ValueError, match=f"reads MNIST from {tmp_path}, which lacks train-images"):
        make("gymnax/MNISTBandit-bsuite", 2)


def test_unknown_names_list_the_familys():
    with pytest.raises(ValueError, match=r"unknown 'gymnax/Xyz'; .* gymnax/CartPole-v1, "):
        make("gymnax/Xyz", 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_steps_stay_in_the_spaces(name, mnist):
    """Bounds of the observation space hold, numbers are finite, episodes restart."""
    env = make(f"gymnax/{name}", 4)
    _, obs, _, steps = rollout(env, random_policy(env), 300)
    space = env.observation_space
    for seen in (obs, steps.final_obs):
        assert np.isfinite(seen).all()
        low, high = (0, space.n - 1) if isinstance(space, Discrete) else (space.low, space.high)
        assert (np.asarray(seen) >= low - 1e-5).all()
        assert (np.asarray(seen) <= high + 1e-5).all()
    assert np.isfinite(steps.reward).all()
    assert not (steps.terminated & steps.truncated).any()
