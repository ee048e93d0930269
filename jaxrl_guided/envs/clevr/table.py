"""The CLEVR-Robot table: its balls, walls, pushes and compass (LaGO, arXiv 2606.24669).

Metres; x grows to the right, y to the back, as seen from the front of the table.
"""

from typing import TypeVar

import jax
import numpy as np

NUM_BALLS = 5
BALL_RADIUS = 0.13
MIN_GAP = 2 * BALL_RADIUS
"""Distance of the centres of balls that touch."""

WALL_LOW = np.array([-0.6, -0.3], np.float32)
WALL_HIGH = np.array([0.6, 0.7], np.float32)
CENTRE_LOW = np.array([-0.47, -0.17], np.float32)
CENTRE_HIGH = np.array([0.47, 0.57], np.float32)
"""Where a ball at rest against a wall has its centre: a radius away from it."""

DIRECTIONS = np.array(
    [[1, 0], [0, 1], [-1, 0], [0, -1], [0.8, 0.8], [-0.8, 0.8], [0.8, -0.8], [-0.8, -0.8]],
    np.float32,
)
"""Direction of the push, and its force in newtons, of `action % 8`; the ball is `action // 8`."""
NUM_ACTIONS = NUM_BALLS * len(DIRECTIONS)
OPPOSITE = (
    len(DIRECTIONS) * np.arange(NUM_BALLS)[:, None] + np.array([2, 3, 0, 1, 7, 6, 5, 4])
).ravel()
"""`i64[NUM_ACTIONS]`: the action that pushes the same ball the opposite way."""

COMPASS = np.array([[0, 1], [-1, 0], [0, -1], [1, 0]], np.float32)
"""Unit vectors of behind, left, front, right."""

MAX_RELATION = 0.391
"""A spatial relation asks that the centres are nearer than this."""

Array = TypeVar("Array", np.ndarray, jax.Array)


def along_across(offset: Array, forward: Array) -> tuple[Array, Array]:
    """Components of `[..., 2]` offsets along unit vectors and across them, to their left."""
    along = (offset * forward).sum(-1)
    across = offset[..., 1] * forward[..., 0] - offset[..., 0] * forward[..., 1]
    return along, across
