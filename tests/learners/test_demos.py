"""SAC beside demonstrations: what is read of a dataset, how batches are shared, that it counts."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.envs.probes import make_probe
from jaxrl_guided.envs.types import Box, Dict, Discrete, VectorEnv
from jaxrl_guided.learners.evaluate import evaluate
from jaxrl_guided.learners.guidance import Guidance
from jaxrl_guided.learners.job_config import TrainConfig
from jaxrl_guided.learners.replay import Steps, init_replay
from jaxrl_guided.learners.sac import SACConfig, make_sac
from jaxrl_guided.learners.sac.demos import check_origin, demonstrations
from jaxrl_guided.learners.sac.learner import _draw
from jaxrl_guided.learners.train import make_chunk, train
from jaxrl_guided.networks.soft import SoftNetworkConfig, make_soft_network
from jaxrl_guided.runtime.errors import UserError
from tests.learners.test_job import learner_of


def build(env, config, guidance=None):
    spaces = env.observation_space, env.action_space
    net = make_soft_network(*spaces, SoftNetworkConfig((16,)))
    return net, make_sac(env, net, config, guidance)


def episodes(lengths, terminated, observations=None, actions=None, rewards=None):
    """Episodes whose steps are numbered from 0, the final observations being -1, -2, …"""
    total, ends = sum(lengths), np.cumsum(lengths) - 1
    number = np.arange(total, dtype=np.float32)[:, None]
    last = np.zeros(total, bool)
    last[ends] = True
    kind = np.repeat(terminated, lengths)
    return Episodes(
        observations=number if observations is None else observations,
        actions=np.zeros(total, np.int32) if actions is None else actions,
        rewards=number[:, 0] if rewards is None else rewards,
        terminated=last & kind,
        truncated=last & ~kind,
        is_expert=np.ones(total, bool),
        final_observations=-1 - np.arange(len(lengths), dtype=np.float32)[:, None],
        instruction=np.arange(len(lengths), dtype=np.int32),
        lengths=np.int32(lengths),
        metadata={"env": "toy/real"},
    )


def toy(observation_space, action_space):
    def reset(key):
        def zeros(space):
            if isinstance(space, Dict):
                return {name: zeros(part) for name, part in space.spaces.items()}
            return jnp.zeros((1, *space.shape), space.dtype)

        return (), zeros(observation_space)

    return VectorEnv("toy", 1, observation_space, action_space, reset, lambda s, a: None)


def test_steps_follow_each_other_and_end_in_final_observations():
    space = Dict({"state": Box((1,)), "instruction": Discrete(2)})
    env = toy(space, Box((2,), np.float32([0, -2]), np.float32([4, 2])))
    actions = np.float32([[0, -2], [4, 2], [2, 0], [1, 1], [3, -1]])
    net = make_soft_network(space, env.action_space, SoftNetworkConfig((4,)))
    demos = demonstrations(episodes([2, 3], [True, False], actions=actions), env, net)
    steps = demos.steps
    assert demos.inserted == 5
    np.testing.assert_array_equal(steps.obs["state"][:, 0, 0], [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(steps.next_obs["state"][:, 0, 0], [1, -1, 3, 4, -2])
    np.testing.assert_array_equal(steps.obs["instruction"][:, 0], [0, 0, 1, 1, 1])
    np.testing.assert_array_equal(steps.next_obs["instruction"][:, 0], [0, 0, 1, 1, 1])
    np.testing.assert_array_equal(steps.terminated[:, 0], [0, 1, 0, 0, 0])
    np.testing.assert_array_equal(steps.done[:, 0], [0, 1, 0, 0, 1])
    unit = [[-1, -1], [1, 1], [0, 0], [-0.5, 0.5], [0.5, -0.5]]
    np.testing.assert_allclose(steps.action[:, 0], unit)


def test_other_spaces_are_refused():
    net = make_soft_network(Box((1,)), Discrete(2), SoftNetworkConfig((4,)))
    recorded = episodes([2, 3], [True, False])
    demonstrations(recorded, toy(Box((1,)), Discrete(2)), net)
    texts = Dict({"state": Box((1,)), "instruction": Discrete(1)})
    two = Dict({"a": Box((1,)), "b": Box((1,)), "instruction": Discrete(2)})
    threes = episodes([2, 3], [True, False], actions=np.full(5, 3, np.int32))
    for data, space, actions, message in (
        (recorded, Box((3,)), Discrete(2), r"observations of shape \(1,\), not \(3,\)"),
        (recorded, Box((1,)), Box((2,), -1.0, 1.0), r"actions of shape \(\), not \(2,\)"),
        (recorded, Box((1,), -9.0, 3.0), Discrete(2), r"observations that are not within"),
        (recorded, texts, Discrete(2), r"observations up to 1, not below 1"),
        (recorded, two, Discrete(2), r"observations None, the environment \['a', 'b', 'instr"),
        (threes, Box((1,)), Discrete(2), r"actions up to 3, not below 2"),
    ):
        with pytest.raises(ValueError, match=f"demonstrations have {message}"):
            demonstrations(data, toy(space, actions), net)


def test_demonstrations_of_another_task_are_refused():
    recorded = episodes([1], [True])
    recorded.metadata.update(env="clevr/real", reward="goal", horizon=50)
    check_origin(recorded, "clevr/real", {"reward": "goal"})
    check_origin(recorded, "clevr/real", {"reward": "goal", "horizon": 50, "other": 1})
    for env, options, message in (
        ("clevr/easy", {"reward": "goal"}, "are of clevr/real, not of clevr/easy"),
        ("clevr/real", {"reward": "distance"}, "were made with reward=goal"),
        ("clevr/real", {}, r"give the environment the same \(options reward=goal\)"),
        ("clevr/real", {"reward": "goal", "horizon": 10}, "were made with horizon=50"),
    ):
        with pytest.raises(ValueError, match=message):
            check_origin(recorded, env, options)


def test_returns_reach_the_end_of_the_dataset():
    """Fewer steps than n, the last of which alone is rewarded."""
    env = toy(Box((1,)), Discrete(2))
    net = make_soft_network(Box((1,)), Discrete(2), SoftNetworkConfig((4,)))
    demos = demonstrations(episodes([3], [True], rewards=np.float32([0, 0, 1])), env, net)
    config = SACConfig(400, batch=64, demo_share=1.0, n_step=5)
    batch = _draw(config, demos, demos, jnp.float32(0.5), jax.random.key(0))
    seen = set(zip(batch.obs[:, 0].tolist(), batch.reward.tolist(), strict=True))
    assert seen == {(0.0, 0.25), (1.0, 0.5), (2.0, 1.0)}
    np.testing.assert_array_equal(batch.discount, 0)


@pytest.mark.parametrize("share, wanted", [(0.5, 8), (0.25, 4), (1.0, 16)])
def test_batches_are_shared_exactly(share, wanted):
    def ring(value):
        ones = jnp.ones((40, 1))
        no = jnp.zeros((40, 1), bool)
        steps = Steps(value * ones, jnp.int32(ones), value * ones, no, no, value * ones)
        return dataclasses.replace(init_replay(steps, 40), steps=steps, inserted=jnp.int32(40))

    config = SACConfig(400, batch=16, demo_share=share, n_step=3)
    batch = _draw(config, ring(0.0), ring(1.0), jnp.float32(1.0), jax.random.key(0))
    assert batch.obs.sum() == wanted
    np.testing.assert_array_equal(batch.reward, 3 * batch.obs)


LEARN = SACConfig(
    replay_capacity=1024,
    total_steps=16 * 4 * 60,
    num_envs=16,
    chunk_steps=4,
    updates_per_step=0.25,
    learning_starts=64,
    batch=64,
    actor_rate=3e-3,
    critic_rate=3e-3,
    alpha_rate=0.0,
    initial_alpha=0.003,
    tau=0.05,
    demo_share=1.0,
)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_learner_believes_its_demonstrations(sign):
    """From random actions with their rewards, or with these reversed, and nothing of its own."""
    env, rng = make_probe("joint", 16), np.random.default_rng(0)
    signal, action = rng.choice([-1, 1], 512), rng.integers(0, 2, 512).astype(np.int32)
    obs = np.zeros((512, 6), np.float32)
    obs[:, 0] = signal
    reward = np.where(action == (signal > 0), 1.0, -1.0)
    recorded = episodes([1] * 512, [True] * 512, obs, action, np.float32(sign * reward))
    recorded = dataclasses.replace(recorded, final_observations=obs)
    net, sac = build(env, LEARN)
    demos = demonstrations(recorded, env, net)
    chunk = make_chunk(lambda state, demos: sac.iterate(state, None, demos))
    state = train(chunk, jax.jit(sac.init)(jax.random.key(0)), LEARN.iterations, demos)
    assert chunk.run._cache_size() == 1
    act = functools.partial(sac.act, state.policy, greedy=True)
    results = jax.jit(lambda key: evaluate(env, act, key, 2))(jax.random.key(1))
    np.testing.assert_allclose(results.returns, sign)


def test_what_is_missing_or_does_not_go_together_is_named():
    env = make_probe("joint", 16)
    _, sac = build(env, LEARN)
    with pytest.raises(ValueError, match=r"demo_share 1\.0 needs demonstrations"):
        jax.eval_shape(lambda key: sac.iterate(sac.init(key)), jax.random.key(0))
    guidance = Guidance(*[lambda *_: None] * 4)
    with pytest.raises(ValueError, match="demo_share must be 0 with guidance"):
        build(env, LEARN, guidance)
    with pytest.raises(ValueError, match=r"sac\.demo_share must be in \[0, 1\], not 1.5"):
        SACConfig(400, demo_share=1.5)
    half = SACConfig(1000, demo_share=0.5)
    for wrong in ({"sac": half}, {"demos": "data"}, {"demos": "data", "algorithm": "ppo"}):
        with pytest.raises(ValueError, match="need each other"):
            TrainConfig(**{"algorithm": "sac"} | wrong)
    config = TrainConfig(algorithm="sac", sac=half, demos="nowhere")
    with pytest.raises(UserError, match="nowhere: is no dataset directory"):
        learner_of(config)
