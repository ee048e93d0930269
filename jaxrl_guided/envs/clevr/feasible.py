"""Which sets of spatial goals can hold at once on the CLEVR-Robot table: search for a witness."""

import numpy as np

from jaxrl_guided.envs.clevr.table import (
    CENTRE_HIGH,
    CENTRE_LOW,
    COMPASS,
    MAX_RELATION,
    MIN_GAP,
    NUM_BALLS,
    along_across,
)

_MARGIN = 0.002
_STARTS = 64
_ITERATIONS = 150


def violation(positions: np.ndarray, relations: np.ndarray, margin: float = 0.0) -> np.ndarray:
    """Largest broken constraint (metres; ≤ 0 if all hold) of layouts.

    Args:
      positions: `f64[..., 5, 2]` ball centres in metres.
      relations: `i32[G, 3]` rows (source, destination, direction); rows of −1 are ignored.
      margin: metres by which every constraint is tightened.

    Returns:
      `f64[...]`: over the box, the pairwise gap, and each goal's quadrant and distance.
    """
    box = np.maximum(CENTRE_LOW - positions, positions - CENTRE_HIGH).max((-2, -1))
    first, second = np.triu_indices(NUM_BALLS, 1)
    gaps = np.linalg.norm(positions[..., first, :] - positions[..., second, :], axis=-1)
    parts = [box, (MIN_GAP - gaps).max(-1)]
    for source, destination, direction in relations[relations[:, 0] >= 0]:
        offset = positions[..., source, :] - positions[..., destination, :]
        along, across = along_across(offset, COMPASS[direction])
        parts += [np.abs(across) - along, np.linalg.norm(offset, axis=-1) - MAX_RELATION]
    return np.stack(parts).max(0) + margin


def find_witness(relations: np.ndarray) -> np.ndarray | None:
    """A layout `f64[5, 2]` in which all goals hold, or None if the search finds none.

    Deterministic: 64 fixed random layouts are relaxed together by projecting each pair of balls
    onto its own constraints in turn; the first layout that meets everything is the witness.
    """
    rng = np.random.default_rng(0)
    positions = rng.uniform(CENTRE_LOW, CENTRE_HIGH, (_STARTS, NUM_BALLS, 2))
    goals = relations[relations[:, 0] >= 0]
    for _ in range(_ITERATIONS):
        for source, destination, direction in goals:
            offset = positions[:, source] - positions[:, destination]
            change = 0.5 * (_nearest_offset(offset, direction) - offset)
            positions[:, source] += change
            positions[:, destination] -= change
        positions = np.clip(_separate(positions), CENTRE_LOW + _MARGIN, CENTRE_HIGH - _MARGIN)
        found = np.flatnonzero(violation(positions, goals) < 0.0)
        if found.size:
            return positions[found[0]]
    return None


def _nearest_offset(offset: np.ndarray, direction: int) -> np.ndarray:
    """`f64[S, 2]` moved into the quadrant of `direction` and to an allowed distance."""
    forward, leftward = COMPASS[direction], COMPASS[(direction + 1) % len(COMPASS)]
    along, across = along_across(offset, forward)
    half = 0.5 * (along + np.abs(across))
    outside = np.abs(across) > along - _MARGIN
    along = np.where(outside, np.maximum(half, 0.0) + _MARGIN, along)
    across = np.where(outside, np.sign(across) * np.maximum(half, 0.0), across)
    inside = along[:, None] * forward + across[:, None] * leftward
    length = np.linalg.norm(inside, axis=-1, keepdims=True)
    return inside / length * np.clip(length, MIN_GAP + _MARGIN, MAX_RELATION - _MARGIN)


def _separate(positions: np.ndarray) -> np.ndarray:
    """`f64[S, 5, 2]` with every overlapping pair pushed apart by half of its overlap."""
    offset = positions[:, :, None] - positions[:, None]
    length = np.linalg.norm(offset, axis=-1, keepdims=True)
    short = np.where(length > 0.0, np.maximum(MIN_GAP + _MARGIN - length, 0.0), 0.0)
    return positions + 0.5 * (offset / np.maximum(length, 1e-9) * short).sum(2)
