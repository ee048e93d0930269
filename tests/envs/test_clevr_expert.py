"""The scripted expert's predictions, choices and success, and the collector."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.clevr import expert
from jaxrl_guided.envs.clevr.collect import collect, record
from jaxrl_guided.envs.clevr.instructions import Kind, instruction_set
from jaxrl_guided.envs.types import Box, Dict, Discrete, TimeStep, VectorEnv

BEHIND, LEFT, FRONT, RIGHT = range(4)
SPREAD = np.array([[-0.25, 0.2], [0.35, 0.2], [0.4, 0.55], [-0.4, 0.55], [-0.4, -0.15]], np.float32)


def predicted(positions, action):
    positions = np.asarray(positions, np.float32)
    return np.asarray(jax.jit(expert.predict)(jnp.asarray(positions)))[action] - positions


def with_balls(**places):
    """All balls in far corners but those given by index, as b0=(x, y)."""
    positions = np.array([[9, 9], [9, -9], [-9, 9], [-9, -9], [9, 0]], np.float32)
    for name, place in places.items():
        positions[int(name[1])] = place
    return positions


def test_free_pushes_travel_as_measured():
    cases = {0: (0.25, 0), 1: (0, 0.25), 2: (-0.25, 0), 3: (0, -0.25)}
    cases |= {4: (0.197, 0.197), 5: (-0.197, 0.197), 6: (0.197, -0.197), 7: (-0.197, -0.197)}
    for direction, way in cases.items():
        moved = predicted(with_balls(b3=(0, 0.2)), 3 * 8 + direction)[3]
        np.testing.assert_allclose(moved, way, atol=1e-6)


@pytest.mark.parametrize("gap, mover, struck", [(0.0, 0.145, 0.146), (0.1, 0.188, 0.089)])
def test_head_on_pushes_share_the_way_as_measured(gap, mover, struck):
    moved = predicted(with_balls(b0=(-0.2, 0.2), b1=(0.06 + gap, 0.2)), 0)
    np.testing.assert_allclose(moved[0], (mover, 0), atol=0.002)
    np.testing.assert_allclose(moved[1], (struck, 0), atol=0.002)


def test_walls_stop_pushes():
    at_wall = with_balls(b0=(0.47, 0.2), b1=(0.21, 0.2))
    np.testing.assert_allclose(predicted(at_wall, 0)[0], 0, atol=1e-6)
    np.testing.assert_allclose(predicted(at_wall, 4)[0], 0, atol=1e-6)  # friction holds it
    np.testing.assert_allclose(predicted(at_wall, 1)[0], (0, 0.25), atol=1e-6)
    # A ball at the wall cannot give way, so that the one behind it stays, too.
    np.testing.assert_allclose(predicted(at_wall, 8)[:2], 0, atol=1e-6)
    half_way = with_balls(b0=(0.37, 0.2))
    np.testing.assert_allclose(predicted(half_way, 4)[0], (0.1, 0.1), atol=1e-6)


def act(goals, positions=SPREAD, kind=Kind.RELATIONS, seed=0, repeat=64):
    relations = np.full((3, 3), -1, np.int32)
    relations[: len(goals)] = np.array(goals, np.int32).reshape(-1, 3)
    actions = expert.expert_action(
        jax.random.key(seed),
        jnp.broadcast_to(positions, (repeat, 5, 2)),
        jnp.full(repeat, kind, jnp.int32),
        jnp.broadcast_to(relations, (repeat, 3, 3)),
    )
    assert actions.dtype == jnp.int32
    return set(np.asarray(actions).tolist())


def test_either_ball_moves_and_ties_are_drawn():
    """Red right by .25 or blue left by .25: both put red .35 m left of blue and meet the goal."""
    assert act([(0, 1, LEFT)]) == {0, 8 + 2}


def test_a_met_goal_is_kept_while_the_other_is_pursued():
    """With cyan below red, moving red would lose the first goal, so that blue moves."""
    positions = SPREAD.copy()
    positions[4] = (-0.25, -0.12)
    assert act([(4, 0, FRONT), (0, 1, LEFT)], positions) == {8 + 2}


def test_easy_draws_every_allowed_push_of_the_named_ball():
    allowed = {BEHIND: {1, 4, 5}, LEFT: {2, 5, 7}, FRONT: {3, 6, 7}, RIGHT: {0, 4, 6}}
    for ball in range(5):
        for direction, pushes in allowed.items():
            drawn = act([(ball, -1, direction)], kind=Kind.ONE_STEP)
            assert drawn == {ball * 8 + push for push in pushes}


def test_sort_and_order_measure_their_layouts():
    cluster = np.array([[0.3, 0.2], [-0.3, 0.2], [0, 0.2], [0, 0.5], [0, -0.1]], np.float32)
    none = np.full((3, 3), -1, np.int32)
    assert float(expert.layout_cost(cluster, Kind.SORT, none)) == 0.0
    loose = cluster.copy()
    loose[4] = (0.4, -0.15)
    assert float(expert.layout_cost(loose, Kind.SORT, none)) > 0.1
    row = np.stack([np.linspace(-0.47, 0.47, 5), np.full(5, 0.2)], 1).astype(np.float32)
    in_order = float(expert.layout_cost(row, Kind.ORDER, none))
    assert in_order < 1e-5
    assert float(expert.layout_cost(row[::-1].copy(), Kind.ORDER, none)) > 1.0


def counting_env(num_envs):
    """Slot n counts from 0; its episodes last 1, 2, … 7 steps in turn, the odd ones truncated."""

    def observe(state):
        episode, step = state
        slot = jnp.arange(num_envs)
        data = jnp.stack([slot, episode, step], -1).astype(jnp.float32)
        return {"state": data, "instruction": (slot + episode) % 3}

    def reset(key):
        state = jnp.arange(num_envs), jnp.zeros(num_envs, jnp.int32)
        return state, observe(state)

    def step(state, action):
        episode, count = state
        done = count >= episode % 7
        final = observe((episode, count + 1))
        state = episode + done, jnp.where(done, 0, count + 1)
        return state, TimeStep(
            obs=observe(state),
            reward=action.astype(jnp.float32),
            terminated=done & (episode % 2 == 0),
            truncated=done & (episode % 2 == 1),
            final_obs=final,
            info={"success": final["state"][:, 1] % 3 == 0},
        )

    space = Dict({"state": Box((3,)), "instruction": Discrete(3)})
    return VectorEnv("toy/count", num_envs, space, Discrete(10), reset, step)


def test_record_keeps_the_first_whole_episodes_of_every_slot():
    def policy(key, obs):
        count = obs["state"][:, 2].astype(jnp.int32)
        return count, count == 0

    seen = []
    episodes = record(
        counting_env(4),
        policy,
        42,
        jax.random.key(0),
        {"env": "toy/count"},
        lambda done, total: seen.append((done, total)),
    )
    # Slots 0 and 1 owe eleven episodes, 2 and 3 ten; slot n starts with episode number n.
    numbers = [slot + i for slot, owed in enumerate((11, 11, 10, 10)) for i in range(owed)]
    assert episodes.lengths.tolist() == [number % 7 + 1 for number in numbers]
    starts = episodes.starts
    assert episodes.observations[starts, 1].tolist() == numbers
    slots = np.repeat([0, 1, 2, 3], [11, 11, 10, 10])
    assert episodes.observations[starts, 0].tolist() == slots.tolist()
    assert episodes.instruction.tolist() == ((slots + numbers) % 3).tolist()
    counts = np.concatenate([np.arange(length) for length in episodes.lengths])
    assert episodes.observations[:, 2].tolist() == counts.tolist()
    assert episodes.actions.tolist() == counts.tolist()
    assert episodes.rewards.tolist() == counts.tolist()
    assert episodes.is_expert.tolist() == (counts == 0).tolist()
    assert episodes.final_observations[:, 2].tolist() == episodes.lengths.tolist()
    ends = starts + episodes.lengths - 1
    assert episodes.terminated[ends].tolist() == [number % 2 == 0 for number in numbers]
    assert episodes.metadata["success_rate"] == pytest.approx(
        np.mean([number % 3 == 0 for number in numbers])
    )
    assert seen[-1] == (42, 42)


def test_collected_real_episodes():
    real = instruction_set("real")
    episodes = collect(real, 96, jax.random.key(0), num_envs=64)
    assert episodes.num_episodes == 96
    assert episodes.observations.shape == (episodes.num_steps, 10)
    assert episodes.observations.dtype == np.float32
    assert episodes.metadata["success_rate"] > 0.9
    assert episodes.metadata["texts"] == list(real.texts)
    assert 0.7 < episodes.is_expert.mean() < 0.9
    assert len(np.unique(episodes.actions)) == 40
    assert len(np.unique(episodes.instruction)) > 80
    # The last positions of a success satisfy the goal, by the benchmark's rule.
    final = episodes.final_observations.reshape(-1, 5, 2)
    source, destination, direction = real.relations[episodes.instruction, 0].T
    rows = np.arange(96)
    offset = final[rows, source] - final[rows, destination]
    angle = np.degrees(np.arctan2(offset[:, 1], offset[:, 0]))
    centre = np.array([90.0, 180.0, -90.0, 0.0])[direction]
    turn = np.abs((angle - centre + 180) % 360 - 180)
    met = (turn <= 45.01) & (np.linalg.norm(offset, axis=-1) < 0.3911)
    ends = episodes.starts + episodes.lengths - 1
    np.testing.assert_array_equal(met, episodes.terminated[ends])


@pytest.mark.slow
def test_the_same_key_collects_the_same_episodes():
    first, again = (collect(instruction_set("easy"), 32, jax.random.key(3)) for _ in range(2))
    for name, array in first.arrays().items():
        np.testing.assert_array_equal(array, again.arrays()[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "level, floor",
    [("real", 0.97), ("easy", 0.75), ("hard-two", 0.85), ("hard-three", 0.6), ("hard-sort", 0.95)],
)
def test_expert_success(level, floor):
    """Easy is decided by one action, of which a fifth is random."""
    episodes = collect(instruction_set(level), 1024, jax.random.key(1))
    assert episodes.metadata["success_rate"] >= floor


def test_bad_arguments_are_named():
    real = instruction_set("real")
    with pytest.raises(ValueError, match="num_episodes: 0, but at least 1"):
        collect(real, 0, jax.random.key(0))
    with pytest.raises(ValueError, match=r"random_fraction: 1\.5 is not within 0 … 1"):
        collect(real, 5, jax.random.key(0), random_fraction=1.5)
