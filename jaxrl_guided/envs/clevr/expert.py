"""Scripted expert of CLEVR-Robot: a greedy look-ahead over the 40 pushes (LaGO, arXiv 2606.24669).

A push is predicted in closed form: the ball travels a fixed way, shares the rest of it with the
first ball that it meets, and nobody leaves the wall box. The push with the least cost of the
predicted layout is chosen. Only positions are seen, as by a policy.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.clevr.goals import GREEN, MAX_SORT_DISTANCE, one_step_success, related
from jaxrl_guided.envs.clevr.instructions import Kind
from jaxrl_guided.envs.clevr.table import (
    CENTRE_HIGH,
    CENTRE_LOW,
    COMPASS,
    DIRECTIONS,
    MIN_GAP,
    NUM_ACTIONS,
    NUM_BALLS,
)

_SLANTING = np.all(DIRECTIONS != 0, axis=1, keepdims=True)
TRAVEL = np.sign(DIRECTIONS) * np.where(_SLANTING, 0.197, 0.25).astype(np.float32)
"""Way of a free ball from rest, metres, by `action % 8` (measured in MuJoCo)."""

# Of the way that remains at a head-on contact, what the pushed ball loses and the struck one gets
# (MuJoCo: .145/.146 m at gap 0, .188/.089 m at gap .10).
_TAKEN_SHARE = 0.415
_GIVEN_SHARE = 0.585
_GRAZING = 0.5  # cosine of a contact below which a held ball no longer holds the pushed one

# Costs, metres.
_TARGET_DISTANCE = 0.3
_UNMET = 0.1
_MARGIN = 0.01
_SORT_DISTANCE = 0.2
_ORDER_STEP = np.array([0.235, 0.0], np.float32)


def predict(positions: jax.Array) -> jax.Array:
    """Layouts after each of the 40 pushes.

    Args:
      positions: `f32[5, 2]` ball centres in metres.

    Returns:
      `f32[40, 5, 2]`.
    """
    ball, direction = np.divmod(np.arange(NUM_ACTIONS), len(TRAVEL))
    start, way = positions[ball], jnp.asarray(TRAVEL[direction])
    length = jnp.linalg.norm(way, axis=-1, keepdims=True)
    heading = way / length
    # Friction at a wall stops a slanting push where it meets the wall.
    way = way * _free_share(start, way)
    length = jnp.linalg.norm(way, axis=-1, keepdims=True)

    offset = positions[None] - start[:, None]  # [40, 5, 2]
    along = jnp.einsum("akc,ac->ak", offset, heading)
    miss = jnp.sum(offset**2, -1) - along**2
    contact = along - jnp.sqrt(jnp.maximum(MIN_GAP**2 - miss, 0.0))
    other = np.arange(NUM_BALLS) != ball[:, None]
    meets = other & (along > 0.0) & (miss < MIN_GAP**2) & (contact < length)
    contact = jnp.where(meets, jnp.maximum(contact, 0.0), jnp.inf)
    first = jnp.argmin(contact, axis=-1)
    reached = jnp.minimum(jnp.min(contact, axis=-1, keepdims=True), length)
    rest = length - reached

    struck = positions[first]
    normal = struck - start - reached * heading
    normal = normal / jnp.maximum(jnp.linalg.norm(normal, axis=-1, keepdims=True), 1e-6)
    cosine = jnp.sum(normal * heading, -1, keepdims=True)
    impulse = rest * cosine * normal
    given = _GIVEN_SHARE * impulse
    share = _free_share(struck, given)
    # A struck ball that cannot give way holds the pushed one, too, unless it is only grazed.
    kept = (rest * heading - _TAKEN_SHARE * impulse) * jnp.where(cosine > _GRAZING, share, 1.0)
    moved = jax.nn.one_hot(ball, NUM_BALLS)[..., None] * (reached * heading + kept)[:, None]
    pushed = jax.nn.one_hot(first, NUM_BALLS)[..., None] * (share * given)[:, None]
    return jnp.clip(positions + moved + pushed, CENTRE_LOW, CENTRE_HIGH)


def _free_share(start: jax.Array, way: jax.Array) -> jax.Array:
    """`f32[A, 1]`: the share of a straight `way` that stays in the wall box."""
    room = jnp.where(way > 0.0, CENTRE_HIGH - start, start - CENTRE_LOW)
    share = jnp.maximum(room, 0.0) / jnp.maximum(jnp.abs(way), 1e-6)
    return jnp.clip(jnp.min(share, axis=-1, keepdims=True), 0.0, 1.0)


def layout_cost(positions: jax.Array, kind: jax.Array, relations: jax.Array) -> jax.Array:
    """How far a layout is from what the instruction asks, in metres; 0 if it is met.

    Args:
      positions: `f32[..., 5, 2]`.
      kind: `i32[]`, not ONE_STEP.
      relations: `i32[3, 3]`.

    Returns:
      `f32[...]`.
    """
    source, destination, direction = relations.T
    offset = positions[..., source, :] - positions[..., destination, :]
    target = _TARGET_DISTANCE * jnp.asarray(COMPASS)[direction]
    away = _UNMET + jnp.linalg.norm(offset - target, axis=-1)
    met = related(offset, direction, _MARGIN)
    spatial = jnp.sum(jnp.where(met | (source < 0), 0.0, away), -1)

    steps = positions[..., 1:, :] - positions[..., :-1, :]
    order = jnp.sum(jnp.linalg.norm(steps - _ORDER_STEP, axis=-1), -1)
    to_green = jnp.linalg.norm(positions - positions[..., GREEN, None, :], axis=-1)
    sort = jnp.sum(
        jnp.where(to_green < MAX_SORT_DISTANCE - _MARGIN, 0.0, to_green - _SORT_DISTANCE), -1
    )
    return jnp.select([kind == Kind.ORDER, kind == Kind.SORT], [order, sort], spatial)


def _action_cost(positions: jax.Array, kind: jax.Array, relations: jax.Array) -> jax.Array:
    """`f32[40]` for one environment."""
    solves = one_step_success(relations, jnp.arange(NUM_ACTIONS))
    layouts = predict(positions)
    look_ahead = layout_cost(layouts, kind, relations) + _overlap(layouts)
    return jnp.where(kind == Kind.ONE_STEP, 1.0 - solves, look_ahead)


def _overlap(layouts: jax.Array) -> jax.Array:
    """`f32[40]`: metres by which balls overlap in `f32[40, 5, 2]`: a third one stops the push."""
    first, second = np.triu_indices(NUM_BALLS, 1)
    gaps = jnp.linalg.norm(layouts[:, first] - layouts[:, second], axis=-1)
    return jnp.sum(jnp.maximum(MIN_GAP - _MARGIN - gaps, 0.0), -1)


@jax.jit
def expert_action(
    key: jax.Array, positions: jax.Array, kind: jax.Array, relations: jax.Array
) -> jax.Array:
    """The push with the least predicted cost; equal ones are drawn at random.

    Args:
      key: random key for ties.
      positions: `f32[N, 5, 2]` ball centres in metres.
      kind: `i32[N]` of `Kind`.
      relations: `i32[N, 3, 3]`, as in `InstructionSet`.

    Returns:
      `i32[N]` actions, ball · 8 + direction.
    """
    cost = jax.vmap(_action_cost)(positions, kind, relations)
    noise = jax.random.uniform(key, cost.shape, maxval=1e-4)
    return jnp.argmin(cost + noise, axis=-1).astype(jnp.int32)
