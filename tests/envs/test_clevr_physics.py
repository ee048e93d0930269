"""CLEVR-Robot's dynamics against literal values, MuJoCo and the symmetries of the table."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.clevr import push
from jaxrl_guided.envs.clevr.physics import PUSHER_OFFSET
from jaxrl_guided.envs.clevr.scene import sample_scenes
from jaxrl_guided.envs.clevr.table import (
    BALL_RADIUS,
    CENTRE_HIGH,
    CENTRE_LOW,
    NUM_ACTIONS,
    NUM_BALLS,
)

RIGHT, DIAGONAL = 0, 4
FAR = np.array(
    [[-0.2, 0.2], [0.42, -0.12], [0.42, 0.52], [-0.42, 0.52], [-0.42, -0.12]], np.float32
)
BATCH = 256
push_jit = jax.jit(push)


def ours(positions, actions, velocities=None):
    """Ways of all balls and end velocities, for each of the actions in turn."""
    positions = np.asarray(positions, np.float32)
    velocities = np.zeros_like(positions) if velocities is None else velocities
    ways = []
    for action in actions:
        after, velocities = push_jit(positions, velocities, np.int32(action))
        ways.append(np.asarray(after) - positions)
        positions = np.asarray(after)
    return np.array(ways), np.asarray(velocities)


def mujoco_scene():
    return pytest.importorskip("benchmarks.peers.clevr_mujoco").ClevrMujoco()


def theirs(positions, actions):
    scene = mujoco_scene()
    scene.set_state(np.asarray(positions))
    ways = []
    for action in actions:
        before = scene.positions
        scene.push(action)
        ways.append(scene.positions - before)
    return np.array(ways), scene.velocities


SIMULATORS = pytest.mark.parametrize("simulate, tolerance", [(ours, 0.012), (theirs, 0.007)])


@SIMULATORS
def test_free_pushes_have_the_measured_ways(simulate, tolerance):
    ways, velocities = simulate(FAR, [RIGHT])
    np.testing.assert_allclose(ways[0, 0], (0.25, 0), atol=tolerance)
    np.testing.assert_allclose(velocities[0], (0.79, 0), atol=0.06)
    np.testing.assert_allclose(ways[0, 1:], 0, atol=1e-3)
    ways, _ = simulate(FAR, [DIAGONAL])
    np.testing.assert_allclose(ways[0, 0], (0.197, 0.197), atol=tolerance)


@SIMULATORS
def test_velocity_carries_over_to_the_next_push(simulate, tolerance):
    start = FAR.copy()
    start[0, 0] = -0.47
    ways, _ = simulate(start, [RIGHT] * 3)
    np.testing.assert_allclose(ways[:, 0, 0], (0.25, 0.285, 0.296), atol=tolerance + 0.01)


@SIMULATORS
@pytest.mark.parametrize("gap, mover, struck", [(0.0, 0.145, 0.146), (0.1, 0.188, 0.089)])
def test_head_on_pushes_share_the_way(simulate, tolerance, gap, mover, struck):
    start = FAR.copy()
    start[1] = (-0.2 + 2 * BALL_RADIUS + gap, 0.2)
    ways, _ = simulate(start, [RIGHT])
    np.testing.assert_allclose(ways[0, :2, 0], (mover, struck), atol=tolerance)


@functools.cache
def reference_transitions(episodes=48, steps=48):
    """Random-policy episodes in MuJoCo: positions, velocities, action, next positions, step."""
    scene, rng = mujoco_scene(), np.random.default_rng(0)
    keys = jax.random.split(jax.random.key(0), episodes)
    starts = sample_scenes(keys, jnp.zeros((episodes, NUM_BALLS, 2)), jnp.ones(episodes, bool))
    rows = []
    for start in np.asarray(starts):
        scene.set_state(start)
        for step in range(steps):
            before, action = (scene.positions, scene.velocities), rng.integers(NUM_ACTIONS)
            scene.push(action)
            rows.append((*before, action, scene.positions, step))
    dtypes = (np.float32, np.float32, np.int32, np.float32, np.int32)
    return [
        np.array(column, dtype)
        for column, dtype in zip(zip(*rows, strict=True), dtypes, strict=True)
    ]


def test_transitions_agree_with_mujoco(record_property):
    """The project's limits are 15 and 35 mm; the model does better and shall not fall back."""
    positions, velocities, action, expected, step = reference_transitions()
    moved = np.abs(expected - positions).max((1, 2)) > 0.02
    assert moved.sum() >= 2000
    batches = (a.reshape(-1, BATCH, *a.shape[1:]) for a in (positions, velocities, action))
    actual = np.concatenate([push_jit(*args)[0] for args in zip(*batches, strict=True)])
    error = 1000 * np.abs(actual - expected).max((1, 2))
    median, high, highest = np.percentile(error[moved], (50, 90, 99))
    first = np.percentile(error[moved & (step == 0)], (50, 90))
    figures = {"median": median, "90th": high, "99th": highest}
    figures |= {"first steps, median": first[0], "first steps, 90th": first[1]}
    for name, value in figures.items():
        record_property(f"error {name} (mm)", round(float(value), 1))
        print(f"error {name}: {value:.1f} mm")
    assert median < 8
    assert high < 20
    assert highest < 50
    assert first[0] < 35


@functools.cache
def random_episodes(steps=50):
    """Positions and velocities `f32[T, N, 5, 2]` after each step from fresh scenes, actions."""
    rng, none = np.random.default_rng(1), np.zeros((BATCH, NUM_BALLS, 2), np.float32)
    keys = jax.random.split(jax.random.key(1), BATCH)
    state = sample_scenes(keys, jnp.asarray(none), jnp.ones(BATCH, bool)), none
    actions = rng.integers(NUM_ACTIONS, size=(steps, BATCH), dtype=np.int32)
    states = []
    for action in actions:
        state = push_jit(*state, action)
        states.append(state)
    positions, velocities = (np.stack(part) for part in zip(*states, strict=True))
    return positions, velocities, actions


def test_balls_stay_between_the_walls():
    positions, velocities, _ = random_episodes()
    assert np.isfinite(positions).all()
    assert np.isfinite(velocities).all()
    assert (positions > CENTRE_LOW - 0.008).all()
    assert (positions < CENTRE_HIGH + 0.008).all()
    assert np.abs(velocities).max() < 2


def test_balls_overlap_by_a_centimetre_at_most():
    positions, _, _ = random_episodes()
    first, second = np.triu_indices(NUM_BALLS, 1)
    distance = np.linalg.norm(positions[..., first, :] - positions[..., second, :], axis=-1)
    assert distance.min() > 2 * BALL_RADIUS - 0.01
    assert distance.min() < 2 * BALL_RADIUS  # they do touch


def test_degenerate_layouts_stay_finite():
    """All balls in one point, a pusher on another ball's centre, a ball outside the walls."""
    together = np.zeros((NUM_BALLS, 2), np.float32)
    under_pusher, outside = FAR.copy(), FAR.copy()
    under_pusher[1] = FAR[0] - (PUSHER_OFFSET, 0)
    outside[0] = (0.9, 0.9)
    for positions in (together, under_pusher, outside):
        ways, velocities = ours(positions, [RIGHT, DIAGONAL])
        assert np.isfinite(ways).all()
        assert np.isfinite(velocities).all()


def test_reflection_at_the_y_axis_reflects_the_result():
    mirrored_direction = np.array([2, 1, 0, 3, 5, 4, 7, 6])
    positions, velocities, actions = random_episodes()
    positions, velocities, actions = positions[4], velocities[4], actions[5]
    mirrored = 8 * (actions // 8) + mirrored_direction[actions % 8]
    flip = np.array([-1, 1], np.float32)
    expected = push_jit(positions, velocities, actions)
    actual = push_jit(positions * flip, velocities * flip, mirrored)
    # The two edges of a contact are swept in the other order: equal to convergence only.
    difference = np.abs(actual[0] * flip - expected[0])
    assert np.quantile(difference, 0.95) < 1e-3
    assert difference.max() < 0.01


def test_any_batch_shape_gives_the_same_as_single_pushes():
    positions, velocities, actions = random_episodes()
    args = positions[4, :6], velocities[4, :6], actions[5, :6]
    single = [push_jit(*(a[i] for a in args)) for i in range(6)]
    folded = push_jit(*(a.reshape(2, 3, *a.shape[1:]) for a in args))
    mapped = jax.jit(jax.vmap(push))(*args)
    for part in range(2):
        expected = np.stack([s[part] for s in single])
        np.testing.assert_allclose(folded[part].reshape(expected.shape), expected, atol=1e-5)
        np.testing.assert_allclose(mapped[part], expected, atol=1e-5)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"must be \(3, 5, 2\), got \(2, 5, 2\)"):
        push(np.zeros((2, 5, 2)), np.zeros((2, 5, 2)), np.zeros(3, np.int32))
