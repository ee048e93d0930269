"""CLEVR-Robot as a vector environment: episodes, restarts, random floors, the registry."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs import make, names
from jaxrl_guided.envs.clevr import make_clevr, push
from jaxrl_guided.envs.clevr.expert import expert_action
from jaxrl_guided.envs.clevr.goals import count_satisfied, count_subgoals
from jaxrl_guided.envs.clevr.instructions import InstructionSet, Kind, instruction_set
from jaxrl_guided.envs.clevr.scene import sample_scenes
from jaxrl_guided.envs.types import Box, Dict, Discrete


def tiny(kind, *rows):
    """One instruction per row of goals."""
    table = np.full((len(rows), 3, 3), -1, np.int32)
    for entry, goals in zip(table, rows, strict=True):
        entry[: len(goals)] = np.array(goals, np.int32).reshape(-1, 3)
    size = len(rows)
    texts = tuple(f"instruction {i}" for i in range(size))
    return InstructionSet("tiny", texts, np.full(size, kind, np.int32), table, np.zeros(size, bool))


TWO_GOALS = tiny(Kind.RELATIONS, [(0, 1, 1)], [(2, 3, 0)])


def rollout(env, seed, steps):
    """First observation, last state and TimeSteps `[T, N, …]` of random actions."""
    rng = np.random.default_rng(seed)
    state, obs = env.reset(jax.random.key(seed))
    results = []
    for _ in range(steps):
        state, result = env.step(state, rng.integers(40, size=env.num_envs, dtype=np.int32))
        results.append(result)
    return obs, state, jax.tree.map(lambda *leaves: np.stack(leaves), *results)


# Compiling a step takes seconds: tests share two environments.
@functools.cache
def endless():
    """Success does not end episodes, velocities are shown."""
    return make_clevr(TWO_GOALS, 64, horizon=3, expose_velocity=True, terminate_on_success=False)


@functools.cache
def real_rollout(num_envs=512, seed=0):
    env = make("clevr/real", num_envs=num_envs)
    return env, rollout(env, seed, 60)


def test_spaces_and_arrays_agree():
    for env, size, texts in ((real_rollout()[0], 10, 4320), (endless(), 20, 2)):
        _, obs = env.reset(jax.random.key(0))
        assert env.action_space == Discrete(40)
        assert isinstance(env.observation_space, Dict)
        assert env.observation_space.spaces["instruction"] == Discrete(texts)
        box = env.observation_space.spaces["state"]
        assert isinstance(box, Box)
        assert box.shape == (size,)
        assert obs["state"].shape == (env.num_envs, size)
        assert obs["state"].dtype == jnp.float32
        assert (obs["state"] >= box.low).all()
        assert (obs["state"] <= box.high).all()
        assert obs["instruction"].shape == (env.num_envs,)
        assert obs["instruction"].dtype == jnp.int32


def test_a_step_keeps_the_types_of_the_state():
    env = endless()
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    after, result = jax.eval_shape(env.step, state, jnp.zeros(64, jnp.int32))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), after
    )
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((state, after, result)))


def test_a_step_is_a_push():
    env = endless()
    state, obs = env.reset(jax.random.key(0))
    action = np.arange(64, dtype=np.int32) % 40
    positions, velocities = jax.jit(push)(state.positions, state.velocities, action)
    np.testing.assert_array_equal(obs["state"][:, :10], state.positions.reshape(64, 10))
    after, result = env.step(state, action)
    np.testing.assert_allclose(after.positions, positions, atol=1e-4)
    shown = np.concatenate([positions.reshape(64, 10), velocities.reshape(64, 10)], axis=1)
    np.testing.assert_allclose(result.obs["state"], shown, atol=1e-3)
    assert np.abs(velocities).max() > 0.5


def test_the_horizon_truncates_and_restarts():
    obs, state, steps = rollout(endless(), 0, 7)
    expected = np.tile(np.arange(1, 8)[:, None] % 3 == 0, 64)
    np.testing.assert_array_equal(steps.truncated, expected)
    assert not steps.terminated.any()
    assert steps.info["success"].any()
    # Between restarts the next observation is the one that the step led to.
    same = (steps.obs["state"] == steps.final_obs["state"]).all(-1)
    np.testing.assert_array_equal(same, ~expected)
    # New scenes: at rest, spread out, and different in every environment.
    scenes = steps.obs["state"][2, :, :10].reshape(64, 5, 2)
    assert (steps.obs["state"][2, :, 10:] == 0).all()
    assert len(np.unique(scenes[:, 0, 0])) == 64
    assert (np.linalg.norm(scenes[:, 0] - scenes[:, 1], axis=-1) > 0.359).all()
    assert (obs["state"][:, :10] != steps.obs["state"][2, :, :10]).any(-1).all()
    np.testing.assert_array_equal(state.steps, 1)


def test_success_terminates_and_is_reported_before_the_restart():
    _, (_, _, steps) = real_rollout()
    success = steps.info["success"]
    np.testing.assert_array_equal(steps.terminated, success)
    assert success.sum() > 100
    np.testing.assert_array_equal(steps.reward[success], 100)
    np.testing.assert_array_equal(steps.info["satisfied"], success)
    real = instruction_set("real")
    instruction = steps.final_obs["instruction"]
    holds = jax.jit(jax.vmap(jax.vmap(count_satisfied)))(
        jnp.asarray(real.kind[instruction]),
        jnp.asarray(real.relations[instruction]),
        steps.final_obs["state"].reshape(*instruction.shape, 5, 2),
    )
    np.testing.assert_array_equal(holds, success)


def test_instructions_are_kept_through_the_episode_and_drawn_anew():
    _, (obs, _, steps) = real_rollout()
    done = (steps.terminated | steps.truncated)[:-1]
    np.testing.assert_array_equal(steps.final_obs["instruction"][0], obs["instruction"])
    shown, following = steps.obs["instruction"][:-1], steps.final_obs["instruction"][1:]
    np.testing.assert_array_equal(shown, following)
    acted_on = steps.final_obs["instruction"][:-1]
    np.testing.assert_array_equal(shown[~done], acted_on[~done])
    assert (shown[done] != acted_on[done]).mean() > 0.99
    # Uniform: the mean of n draws from 0 … 4319 has a standard error of 1247 / √n.
    assert shown[done].mean() == pytest.approx(2159.5, abs=4 * 1247 / np.sqrt(done.sum()))


def test_the_key_decides_the_episode():
    first, again, other = (rollout(endless(), seed, 5)[-1] for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert (first.obs["state"] != other.obs["state"]).any(-1).all()


def test_a_batch_equals_its_environments_alone():
    """Restarts included: the horizon is short."""
    together = endless()
    alone = make_clevr(TWO_GOALS, 1, horizon=3, expose_velocity=True, terminate_on_success=False)
    state, _ = together.reset(jax.random.key(0))
    single = {i: jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], state) for i in (0, 7, 63)}
    rng = np.random.default_rng(0)
    for _ in range(5):
        action = rng.integers(40, size=64, dtype=np.int32)
        state, result = together.step(state, action)
        for i in single:
            single[i], part = alone.step(single[i], action[i : i + 1])
            np.testing.assert_allclose(part.obs["state"][0], result.obs["state"][i], atol=1e-3)
            assert part.obs["instruction"][0] == result.obs["instruction"][i]
            assert part.truncated[0] == result.truncated[i]


def test_one_step_instructions_end_after_one_step():
    env = make_clevr(tiny(Kind.ONE_STEP, [(2, -1, 0)]), 40)
    state, _ = env.reset(jax.random.key(0))
    _, result = env.step(state, jnp.arange(40, dtype=jnp.int32))
    assert result.terminated.all()
    assert not result.truncated.any()
    assert set(np.flatnonzero(result.info["success"])) == {16 + 1, 16 + 4, 16 + 5}
    np.testing.assert_array_equal(result.reward, result.info["success"])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_envs": 0}, "num_envs: must be at least 1, got 0"),
        ({"num_envs": 2, "horizon": 0}, "horizon: must be at least 1, got 0"),
        ({"num_envs": 2, "reward": "sparse"}, "reward: unknown 'sparse'; .* goal, distance"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_clevr(TWO_GOALS, **arguments)


def test_registry_makes_every_level():
    levels = ["real", "rephrase", "easy", "hard", "hard-two", "hard-three", "hard-order"]
    levels += ["hard-sort", "real-train", "real-heldout"]
    assert set(names()) >= {f"clevr/{level}" for level in levels}
    for level in levels:
        env = make(f"clevr/{level}", num_envs=3, reward="distance", horizon=10)
        assert env.name == f"clevr/{level}"
        assert env.num_envs == 3
        texts = instruction_set(level).texts
        assert env.observation_space.spaces["instruction"] == Discrete(len(texts))


def first_episode_success(steps):
    """Share of environments whose first episode is solved."""
    done = steps.terminated | steps.truncated
    first = np.cumsum(done, axis=0) - done == 0
    assert done.any(0).all()
    return (steps.info["success"] & first).any(0).mean()


def test_random_policy_has_the_measured_success_on_real():
    _, (*_, steps) = real_rollout()
    assert first_episode_success(steps) == pytest.approx(0.37, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize(
    "level, expected, tolerance",
    [
        ("real", 0.37, 0.02),
        ("rephrase", 0.37, 0.02),
        ("easy", 0.075, 0.01),
        ("hard-two", 0.057, 0.015),
        ("hard-three", 0.007, 0.005),
        ("hard-sort", 0.013, 0.006),
        ("hard-order", 0.0, 0.001),
    ],
)
def test_random_policy_has_the_measured_success(level, expected, tolerance):
    env = make(f"clevr/{level}", num_envs=4096)
    success = first_episode_success(rollout(env, 0, 50)[-1])
    print(f"{level}: {success:.4f}")
    assert success == pytest.approx(expected, abs=tolerance)


@dataclasses.dataclass
class Planar:
    """Our dynamics, episodes in lockstep."""

    positions: np.ndarray

    def __post_init__(self):
        self.velocities, self.push = np.zeros_like(self.positions), jax.jit(push)

    def step(self, action, _):
        self.positions, self.velocities = self.push(self.positions, self.velocities, action)


class Solid:
    """MuJoCo, episodes in lockstep."""

    def __init__(self, positions):
        peer = pytest.importorskip("benchmarks.peers.clevr_mujoco")
        self.scenes = [peer.ClevrMujoco() for _ in positions]
        for scene, start in zip(self.scenes, positions, strict=True):
            scene.set_state(start)

    @property
    def positions(self):
        return np.array([scene.positions for scene in self.scenes], np.float32)

    def step(self, action, going_on):
        for index in np.flatnonzero(going_on):
            self.scenes[index].push(action[index])


def solved(simulator, kind, relations, expert, horizon=50):
    """Share of episodes that are solved within the horizon."""
    satisfied, wanted = (
        jax.jit(jax.vmap(count_satisfied)),
        jax.vmap(count_subgoals)(kind, relations),
    )
    rng, success = np.random.default_rng(0), np.zeros(len(kind), bool)
    for step in range(horizon):
        action = rng.integers(40, size=len(kind), dtype=np.int32)
        if expert:
            planned = expert_action(jax.random.key(step), simulator.positions, kind, relations)
            action = np.where(rng.random(len(kind)) < 0.8, planned, action)
        simulator.step(action, ~success)
        success |= np.asarray(
            satisfied(kind, relations, jnp.asarray(simulator.positions)) == wanted
        )
    return success.mean()


@pytest.mark.slow
@pytest.mark.parametrize("level, expert", [("real", False), ("real", True), ("hard-two", True)])
def test_policies_succeed_as_often_as_in_mujoco(level, expert):
    instructions, episodes = instruction_set(level), 1500
    index = np.random.default_rng(1).integers(len(instructions.texts), size=episodes)
    kind = jnp.asarray(instructions.kind[index])
    relations = jnp.asarray(instructions.relations[index])
    zeros = jnp.zeros((episodes, 5, 2))
    keys = jax.random.split(jax.random.key(0), episodes)
    starts = np.asarray(sample_scenes(keys, zeros, jnp.ones(episodes, bool)))
    planar, solid = (solved(s(starts), kind, relations, expert) for s in (Planar, Solid))
    print(f"{level}, expert {expert}: planar {planar:.3f}, MuJoCo {solid:.3f}")
    assert planar == pytest.approx(solid, abs=0.03)
    assert planar > 0.3
