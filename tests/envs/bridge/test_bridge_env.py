"""Host environments inside jit: the pool's numbers, exact restoring, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided import envs
from jaxrl_guided.envs.bridge.env import make_bridge
from jaxrl_guided.envs.bridge.pool import Pool
from jaxrl_guided.envs.types import Box, Dict, Discrete
from jaxrl_guided.learners.evaluate import evaluate, uniform_action
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from tests.envs import conformance
from tests.envs.bridge import hosts, soak


@pytest.fixture
def make():
    """Makes environments that are closed after the test."""
    made = []

    def build(factory=hosts.Counter, num_envs=4, **options):
        options = {"max_steps": 9, "info": ("success",), "workers": 0} | options
        made.append(make_bridge(Pool("gym/Counter", factory, num_envs, **options)))
        return made[-1]

    yield build
    for env in made:
        env.close()


def play(env, actions, state):
    """Steps within one program: the last state, and the TimeSteps `[T, N, …]`."""
    return jax.jit(lambda s, a: jax.lax.scan(env.step, s, a))(state, actions)


def test_spaces(make):
    env = make()
    assert env.action_space == Discrete(4)
    space = env.observation_space
    assert isinstance(space, Dict)
    assert space.spaces["draw"] == Box((), 0.0, 1.0)
    assert space.spaces["inner"] == Dict({"sum": Box((2,), -99.0, 99.0)})
    assert space.spaces["kind"] == Discrete(3)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_program_gives_the_pools_numbers(make, workers):
    env = make(workers=workers)
    state, obs = jax.jit(env.reset)(jax.random.key(3))
    pool = Pool("gym/Counter", hosts.Counter, 4, workers=0, max_steps=9, info=("success",))
    np.testing.assert_array_equal(pool.reset(np.asarray(state.seed))["draw"], obs["draw"])
    actions = jax.random.randint(jax.random.key(0), (12, 4), 0, 4)
    state, steps = play(env, actions, state)
    for t in range(12):
        step = pool.step(np.asarray(actions[t]))
        np.testing.assert_array_equal(steps.obs["inner"]["sum"][t], step.obs["inner/sum"])
        np.testing.assert_array_equal(steps.final_obs["kind"][t], step.final_obs["kind"])
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(steps, name)[t], getattr(step, name))
        np.testing.assert_array_equal(steps.info["success"][t], step.info["success"])
    assert state.episode.tolist() == [2] * 4
    assert state.time.tolist() == [2] * 4
    np.testing.assert_array_equal(state.actions[:, :2], actions[10:].T)
    pool.close()


def test_reset_and_step_agree(make):
    conformance.check(make())
    conformance.check(make(hosts.cartpole))


def test_a_state_can_be_stepped_once(make):
    env = make()
    state, _ = env.reset(jax.random.key(0))
    env.step(state, jnp.zeros(4, jnp.int32))
    with pytest.raises(
        jax.errors.JaxRuntimeError, match="state is of step 0, the environments are"
    ):
        jax.block_until_ready(env.step(state, jnp.zeros(4, jnp.int32)))
    jax.effects_barrier()


def test_seeds_cannot_be_vmapped_over_environments_made_for_one(make):
    with pytest.raises(ValueError, match=r"gym/Counter .* 1 members, not for a vmap over 2"):
        jax.vmap(make().reset)(jax.random.split(jax.random.key(0), 2))


def test_members_have_environments_of_their_own(make):
    """Under one vmap each steps its share, and gets what it would get alone."""
    keys = jax.random.split(jax.random.key(0), 3)
    actions = jax.random.randint(jax.random.key(1), (3, 12, 4), 0, 4)

    def episode(env, key, actions):
        state, first = env.reset(key)
        state, steps = play(env, actions, state)
        return first, state, steps

    shared = make_bridge(
        Pool("gym/Counter", hosts.Counter, 12, workers=2, max_steps=9, info=("success",)), members=3
    )
    together = jax.jit(jax.vmap(lambda *args: episode(shared, *args)))(keys, actions)
    for i in range(3):
        alone = jax.jit(lambda *args: episode(make(), *args))(keys[i], actions[i])
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[i], y), together, alone)
    shared.close()


def test_callbacks_that_would_hang_are_refused():
    factory = functools.partial(soak.Wide, 5_000)
    env = make_bridge(Pool("gym/Wide", factory, 4, workers=0, max_steps=3))
    state, _ = env.reset(jax.random.key(0))
    actions = jnp.zeros((4, 5_000))
    assert jax.eval_shape(env.step, state, actions)[1].reward.shape == (4,)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"gym/Wide: callbacks with 80,004 bytes"):
        jax.block_until_ready(jax.jit(env.step)(state, actions))
    env.close()


def test_a_member_alone_is_no_population():
    env = make_bridge(Pool("gym/Counter", hosts.Counter, 4, workers=0, max_steps=9), members=2)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"2 members of 2 .* not for \(2,\)"):
        jax.block_until_ready(jax.jit(env.reset)(jax.random.key(0)))
    env.close()
    with pytest.raises(ValueError, match="4 environments do not divide into 3 members"):
        make_bridge(Pool("gym/Counter", hosts.Counter, 4, workers=0, max_steps=9), members=3)


def test_a_saved_state_goes_on_in_another_pool(make):
    env, other = make(), make(workers=2)
    actions = jax.random.randint(jax.random.key(0), (30, 4), 0, 4)
    state, _ = env.reset(jax.random.key(3))
    state, steps = play(env, actions[:13], state)
    saved = jax.device_get((state, jax.tree.map(lambda x: x[-1], steps.obs)))
    expected = play(env, actions[13:], state)
    other.host.restore(*saved)
    jax.tree.map(np.testing.assert_array_equal, play(other, actions[13:], saved[0]), expected)


def test_what_cannot_be_played_again_is_named(make, capsys):
    env, other = make(hosts.Unseeded), make(hosts.Unseeded)
    state, obs = env.reset(jax.random.key(3))
    other.host.restore(state, obs)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 4
    assert "episode of environment 0 starts anew: observation 'draw' differs" in said[0]
    _, step = other.step(state, jnp.zeros(4, jnp.int32))
    assert step.truncated.all()


def test_a_fault_reaches_the_caller_of_a_program(make):
    env = make(functools.partial(hosts.Counter, "raise"), workers=1)
    state, _ = env.reset(jax.random.key(0))
    with pytest.raises(jax.errors.JaxRuntimeError, match="KeyError: 'lost the key'"):
        jax.block_until_ready(play(env, jnp.ones((5, 4), jnp.int32), state))


def test_learners_take_them(make):
    env, judged = make(hosts.cartpole, 4), make(hosts.cartpole, 8)
    config = PPOConfig(total_steps=64, num_envs=4, rollout_steps=8, epochs=1, minibatches=2)
    network = make_actor_critic(env.observation_space, env.action_space, NetworkConfig((8,)))
    ppo = make_ppo(env, network, config)
    state = jax.jit(ppo.init)(jax.random.key(0))
    iterate = jax.jit(ppo.iterate)
    for _ in range(2):
        state, metrics = iterate(state)
    assert all(np.isfinite(value) for value in metrics.values())

    def act(memory, key, obs):
        return memory, uniform_action(judged, key)

    results = jax.jit(lambda key: evaluate(judged, act, key, 20))(jax.random.key(1))
    assert (results.length <= 9).all()
    assert results.finished.all()


def test_any_environment_of_gymnasium_by_its_name():
    env = envs.make("gym/Acrobot-v1", num_envs=2, workers=0, max_steps=7)
    state, obs = env.reset(jax.random.key(0))
    assert obs.shape == (2, 6)
    state, steps = play(env, jnp.zeros((7, 2), jnp.int32), state)
    assert steps.truncated[-1].all()
    env.close()
    with pytest.raises(ValueError, match="environment: unknown 'gym/Acrobat-v1'"):
        envs.make("gym/Acrobat-v1")
    module = "tests.envs.bridge.registered:Counter-v0"  # imported where it is made
    env = envs.make(f"gym/{module}", num_envs=2, workers=1, end=3)
    assert isinstance(env.observation_space, Dict)
    env.close()


def test_episodes_can_be_longer_than_their_own_limit():
    module = "tests.envs.bridge.registered:Counter-v0"  # 20 steps, by itself
    env = envs.make(f"gym/{module}", num_envs=1, workers=0, max_steps=30, end=99)
    state, _ = env.reset(jax.random.key(0))
    for number in range(1, 31):
        state, after = env.step(state, jnp.zeros(1, jnp.int32))
        assert bool(after.truncated[0]) == (number == 30)
    env.close()
