"""brax's environments behind our interface, against brax and its wrappers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax import envs as brax_envs
from brax.envs.wrappers.training import EpisodeWrapper, VmapWrapper

from jaxrl_guided.envs import make
from jaxrl_guided.envs.from_brax import list_names
from tests.envs import conformance

pytestmark = pytest.mark.filterwarnings("ignore:.*not actively being maintained")
BACKENDS = ("generalized", "spring", "positional", "mjx")
ROBOTS = [name for name in list_names() if name != "fast"]  # `fast` has no physics


def test_conformance_without_physics():
    env = make("brax/fast", 3)
    conformance.check(env)
    assert (env.action_space.low, env.action_space.high) == (-1, 1)


def test_conformance_with_a_dictionary_of_observations():
    conformance.check(make("brax/fast", 3, obs_mode="dict_state", asymmetric_obs=True))


def test_conformance_of_a_robot():
    conformance.check(make("brax/inverted_pendulum", 3, backend="spring"))


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ROBOTS)
def test_conformance(name, backend):
    if name == "swimmer":
        message = "does not run with jax" if backend == "generalized" else "Unsupported backend"
        with pytest.raises(ValueError, match=message):
            make("brax/swimmer", 3, backend=backend)
    else:
        conformance.check(make(f"brax/{name}", 3, backend=backend))


def rollout(env, actions, seed=0):
    """First observations, TimeSteps and states after each step."""

    def step(state, action):
        state, result = env.step(state, action)
        return state, (result, state)

    def run(key):
        state, obs = env.reset(key)
        return obs, jax.lax.scan(step, state, actions)[1]

    return jax.jit(run)(jax.random.key(seed))


def test_an_episode_without_physics_is_cut_and_starts_again():
    _, (steps, _) = rollout(make("brax/fast", 2, max_steps=5), jnp.ones((12, 2, 1)))
    np.testing.assert_array_equal(np.flatnonzero(steps.truncated[:, 0]), [4, 9])
    assert not steps.terminated.any()
    speed = np.asarray(steps.final_obs)[:, 0, 1]
    np.testing.assert_allclose(speed[:10], 0.02 * np.array([1, 2, 3, 4, 5] * 2), rtol=1e-5)
    np.testing.assert_array_equal(steps.obs[4], 0)


def test_an_episode_has_a_step():
    with pytest.raises(ValueError, match="max_steps must be a whole number from 1, not 0"):
        make("brax/fast", 2, max_steps=0)


def test_unknown_options_are_braxs_error():
    with pytest.raises(TypeError, match="backed"):
        make("brax/reacher", 2, backed="spring")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inverted_pendulum", "reacher"])
def test_steps_are_braxs(name):
    """The same start and actions through brax's own wrappers, until the first episode's end."""
    env = make(f"brax/{name}", 4, backend="generalized", max_steps=20)
    rng = np.random.default_rng(0)
    actions = jnp.asarray(rng.uniform(-1, 1, (40, 4, *env.action_space.shape)), jnp.float32)
    obs, (steps, _) = rollout(env, actions)

    theirs = VmapWrapper(brax_envs.get_environment(name, backend="generalized"))
    theirs = EpisodeWrapper(theirs, 20, 1)
    keys = jax.random.split(jax.random.split(jax.random.key(0))[1], 4)
    state = theirs.reset(jax.random.key_data(keys))
    np.testing.assert_array_equal(state.obs, obs)
    alive, step = np.ones(4, bool), jax.jit(theirs.step)
    for t in range(20):
        state = step(state, actions[t])
        np.testing.assert_allclose(steps.final_obs[t][alive], state.obs[alive], atol=1e-4)
        np.testing.assert_allclose(steps.reward[t][alive], state.reward[alive], atol=1e-4)
        truncated = np.asarray(state.info["truncation"])
        np.testing.assert_array_equal(steps.truncated[t][alive], truncated[alive])
        ended = np.asarray(state.done) * (1 - truncated)
        np.testing.assert_array_equal(steps.terminated[t][alive], ended[alive])
        alive &= ~np.asarray(state.done, bool)
    assert not alive.any()
    starts = np.asarray(steps.obs)[np.asarray(steps.done)]
    assert len(np.unique(starts[:, 0])) == len(starts)


@pytest.mark.slow
def test_cached_reset_is_what_brax_does():
    env = make("brax/inverted_pendulum", 4, backend="generalized", max_steps=20, cached_reset=True)
    obs, (steps, _) = rollout(env, jnp.ones((60, 4, 1)))
    done = np.asarray(steps.done)
    assert done.any(0).all()
    for t, n in zip(*np.nonzero(done), strict=True):
        np.testing.assert_array_equal(steps.obs[t, n], obs[n])
