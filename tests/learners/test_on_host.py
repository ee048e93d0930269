"""The host's loop against the same functions with callbacks in one program."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from jaxrl_guided.envs import make
from jaxrl_guided.learners.build import prepare
from jaxrl_guided.learners.evaluate import evaluate
from jaxrl_guided.learners.job import POLICY, run_job
from jaxrl_guided.learners.job_config import CappedEvaluation
from jaxrl_guided.learners.on_host import make_chunk_on_host, make_evaluation_on_host
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.learners.presets import SMOKE
from jaxrl_guided.learners.sac import SACConfig, make_sac
from jaxrl_guided.learners.sweep import SweepConfig, prepare_sweep, run_sweep
from jaxrl_guided.learners.train import make_chunk, train
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from jaxrl_guided.networks.soft import SoftNetworkConfig, make_soft_network
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.rundir import open_run
from jaxrl_guided.runtime.signals import StopFlag, Stopped
from tests.learners.states import leaves

CARTPOLE = "gym/CartPole-v1"
HOST = dataclasses.replace(SMOKE, env=CARTPOLE, options=("workers=0", "max_steps=20"))
PPO = PPOConfig(total_steps=256, num_envs=4, rollout_steps=8, epochs=2, minibatches=2)
SAC = SACConfig(64, total_steps=64, num_envs=2, learning_starts=8, batch=8)


@pytest.fixture
def environments():
    """Makes environments that are closed at the end."""
    made = []

    def create(num_envs, members):
        made.append(make(CARTPOLE, num_envs, members=members, workers=0, max_steps=20))
        return made[-1]

    yield create
    for env in made:
        env.close()


def ppo_on(env, gru):
    spaces = env.observation_space, env.action_space
    return make_ppo(env, make_actor_critic(*spaces, NetworkConfig((8,), gru=gru)), PPO)


def sac_on(env):
    spaces = env.observation_space, env.action_space
    return make_sac(env, make_soft_network(*spaces, SoftNetworkConfig((8,))), SAC)


@pytest.mark.parametrize(
    "num_envs, iterations, on",
    [
        pytest.param(
            4, 6, functools.partial(ppo_on, gru=4), id="ppo with memory", marks=pytest.mark.slow
        ),
        pytest.param(2, 30, sac_on, id="sac"),
    ],
)
def test_same_numbers_as_by_callbacks(num_envs, iterations, on, environments):
    def run(make_one):
        env = environments(num_envs, 3)
        learner = on(env)
        state = jax.jit(jax.vmap(learner.init))(jax.random.split(jax.random.key(0), 3))
        state, rows = make_one(env, learner).run(state, (None,), np.int32(iterations))
        return leaves(state), {name: np.asarray(row)[:iterations] for name, row in rows.items()}

    def by_callbacks(env, learner):
        return make_chunk(jax.vmap(lambda s, more: learner.iterate(s, *more), in_axes=(0, None)))

    state, rows = run(make_chunk_on_host)
    expected, expected_rows = run(by_callbacks)
    assert rows.keys() == expected_rows.keys()
    assert rows["episodes"].sum() > 0
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    jax.tree.map(close, rows, expected_rows)
    jax.tree.map(close, state, expected)


def test_nothing_is_compiled_after_the_first_iteration(environments, caplog):
    env = environments(4, 2)
    learner = ppo_on(env, 0)
    state = jax.jit(jax.vmap(learner.init))(jax.random.split(jax.random.key(0), 2))
    chunk = make_chunk_on_host(env, learner)
    with jax.log_compiles():
        state, _ = chunk.run(state, (None,), np.int32(1))
        assert "Compiling" in caplog.text
        caplog.clear()
        state = train(chunk, state, 5, (None,))
    assert "Compiling" not in caplog.text
    assert state.iteration.tolist() == [5, 5]


def test_evaluation_is_that_of_one_program(environments):
    def choose(policy, memory, key, obs):
        del key
        return memory + 1, (obs @ policy > 0).astype(np.int32)

    policies = np.array([[0, 0, 1.0, 1.0], [0, 0, -1.0, 0]], np.float32)
    key, memory = jax.random.key(7), np.zeros(4, np.int32)
    run = make_evaluation_on_host(environments(4, 2), choose, 15, memory)
    results = run(policies, key)
    for i, policy in enumerate(policies):
        act = functools.partial(choose, policy)
        alone = jax.jit(lambda act=act: evaluate(environments(4, 1), act, key, 15, memory))()
        jax.tree.map(lambda x, y, i=i: np.testing.assert_array_equal(x[i], y), results, alone)
    assert results.length[0].tolist() == [15] * 4  # capped before the limit of 20
    assert not results.finished[0].any()
    assert results.finished[1].all()


def do(config, path, stop=None):
    with open_run(path, "job", config) as run:
        return run_job(prepare(config, len(config.seeds)), run, stop or StopFlag())


class StopsAfter(StopFlag):
    """Asks to stop when it has been asked so many times."""

    def __init__(self, times):
        super().__init__()
        self.times = times

    @property
    def requested(self):
        self.times -= 1
        return self.times < 0


@pytest.mark.parametrize("algorithm", ["ppo", pytest.param("sac", marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(algorithm, tmp_path):
    config = dataclasses.replace(HOST, algorithm=algorithm)
    expected = do(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        do(config, tmp_path / "parts", StopsAfter(3))
    found = do(config, tmp_path / "parts")
    assert found["final"] == expected["final"]
    assert found["curve"] == expected["curve"]
    assert found["random"] == expected["random"]
    assert len(found["final"]["return"]) == 2
    for path in ("whole", "parts"):
        assert (tmp_path / path / POLICY).is_dir()


def test_more_episodes_than_environments(tmp_path):
    evaluation = CappedEvaluation(episodes=10, curve_points=1, curve_episodes=3)
    result = do(dataclasses.replace(HOST, evaluation=evaluation), tmp_path)
    assert 5 < result["random"]["return"][0] < 20
    assert all(5 < value <= 20 for value in result["final"]["return"])


@pytest.mark.slow
def test_sweep(tmp_path):
    config = SweepConfig(HOST, ("learning_rate=1e-3,1e-9",))
    with open_run(tmp_path, "sweep", config) as run:
        result = run_sweep(config, prepare_sweep(config), run, StopFlag())
    learned = np.reshape(result["final"]["return"], (2, 2))
    assert np.all(learned[0] != learned[1])  # the same seeds at another rate


def test_one_device_only():
    with pytest.raises(UserError, match="devices must be 1, in one process: env gym/CartPole"):
        prepare(HOST, 2, devices=2)


@pytest.mark.parametrize("option", ["members=3", "num_envs=3"])
def test_what_follows_from_other_settings_is_no_option(option):
    with pytest.raises(ValueError, match="it follows from ppo"):
        dataclasses.replace(HOST, options=(option,))


def test_an_environment_that_cannot_be_made_is_one_line():
    config = dataclasses.replace(HOST, options=("workers=1", "no_such_option=3"))
    with pytest.raises(
        UserError, match=r"--config.options=workers=1,no_such_option=3: .*no_such_option"
    ):
        prepare(config, 1)
