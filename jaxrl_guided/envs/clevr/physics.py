"""Planar contact dynamics of CLEVR-Robot: one push (LaGO, arXiv 2606.24669; KALM, 2404.09248).

Five balls slide on a table between four walls; a small round pusher, put behind the chosen ball, is
driven by a constant force for 0.4 s. Contacts are MuJoCo's friction pyramids, reduced to the plane:
two edges (normal ± friction·tangent), each with a reference acceleration, a softness and a force
that cannot pull. Projected Gauss–Seidel sweeps solve them, warm-started from the previous substep.

Bodies are rows and environments the last axis. Six bodies have 15 pairs, which a round robin plays
in five rounds of three disjoint pairs: in every round row i meets row i + 3, then the rows change
seats (`_next_round`). Row 0, the pusher, keeps its seat, so that the constants of a pair depend on
its row alone. The optimisation barriers keep XLA from computing a contact anew for each of its uses
(three to four times faster on CPU).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.clevr.table import (
    BALL_RADIUS,
    CENTRE_HIGH,
    CENTRE_LOW,
    DIRECTIONS,
    MIN_GAP,
    NUM_BALLS,
)

PUSHER_RADIUS = 0.05
PUSHER_OFFSET = 0.15

TIMESTEP = 0.01
SUBSTEPS = 40
SWEEPS = 3
_ROUNDS = 5


def _column(first: float, others: list[float]) -> np.ndarray:
    return np.array([first, *others], np.float32)[:, None]


# Masses include the armature.
_PUSHER_MASS = 0.0403
_BALL_MASS = 0.0492
_MASS = _column(_PUSHER_MASS, [_BALL_MASS] * NUM_BALLS)
_DAMPING = _column(0.5, [0.75] * NUM_BALLS)
_TABLE_FRICTION = _column(0.0, [0.072] * NUM_BALLS)
_MIN_SPEED = 0.02  # below it table friction is viscous, so that balls come to rest

# Contacts: MuJoCo's default reference at this time step; they begin at the margin.
_DAMPING_RATE = 105.0
_STIFFNESS = 2770.0
_MARGIN = 0.002
_NO_CONTACT = -1e9  # a reference that no acceleration falls short of


class _Constants(NamedTuple):
    """Of contacts: inverse mass along the normal, friction, softness as a share of the former."""

    inverse_mass: float | np.ndarray
    friction: float | np.ndarray
    softness: float | np.ndarray


# MuJoCo's pyramid has four edges; in the plane, two of half the softness stand for them. Friction
# is lower than MuJoCo's .8: by √2 at the pusher, where the vertical edges carry their share, by a
# fit elsewhere. The pusher is soft because MuJoCo scales softness with a mass without armature.
_PAIR = _Constants(
    _column(1 / _PUSHER_MASS + 1 / _BALL_MASS, [2 / _BALL_MASS] * 2),
    _column(0.57, [0.7] * 2),
    _column(4.7, [0.055] * 2),
)
_WALL = _Constants(1 / _BALL_MASS, 0.7, 0.055)
_PAIR_DISTANCE = _column(PUSHER_RADIUS + BALL_RADIUS, [MIN_GAP] * 2)
_PAIR_INVERSE_MASS = np.concatenate([-1 / _MASS[:3], 1 / _MASS[3:]])

_Forces = tuple[jax.Array, jax.Array]
"""Force on either edge of a contact."""


class _Edge(NamedTuple):
    """One edge of friction pyramids: its direction and its reference acceleration."""

    x: jax.Array
    y: jax.Array
    reference: jax.Array


_Contact = tuple[_Edge, _Edge]


class _State(NamedTuple):
    """Bodies `f32[6, N]`; forces of pairs (per round, `f32[3, N]`), of x walls and y walls."""

    x: jax.Array
    y: jax.Array
    vx: jax.Array
    vy: jax.Array
    pairs: tuple[_Forces, ...]
    wall_x: _Forces
    wall_y: _Forces


def _next_round(rows: jax.Array) -> jax.Array:
    return jnp.stack([rows[seat] for seat in (0, 3, 1, 4, 5, 2)])


def _differences(rows: jax.Array) -> jax.Array:
    """`f32[6, N] -> f32[5, 3, N]`: second minus first body of every pair, round by round."""
    rounds = []
    for _ in range(_ROUNDS):
        rounds.append(rows[3:] - rows[:3])
        rows = _next_round(rows)
    return jnp.stack(rounds)


def _pyramid(
    normal: tuple[jax.Array, jax.Array],
    gap: jax.Array,
    velocity: tuple[jax.Array, jax.Array],
    friction: float | np.ndarray,
) -> _Contact:
    """Both edges of contacts with unit `normal`, at distance `gap` and relative `velocity`."""
    nx, ny = normal
    vx, vy = velocity
    along = jnp.where(
        gap < _MARGIN,
        -_DAMPING_RATE * (vx * nx + vy * ny) - _STIFFNESS * (gap - _MARGIN),
        _NO_CONTACT,
    )
    across = -_DAMPING_RATE * friction * (vy * nx - vx * ny)
    return (
        _Edge(nx - friction * ny, ny + friction * nx, along + across),
        _Edge(nx + friction * ny, ny - friction * nx, along - across),
    )


def _pair_contacts(state: _State) -> list[_Contact]:
    barrier = jax.lax.optimization_barrier
    dx, dy, dvx, dvy = barrier(tuple(map(_differences, state[:4])))
    inverse = barrier(jax.lax.rsqrt(dx * dx + dy * dy + 1e-12))
    contact = barrier(
        _pyramid(
            (dx * inverse, dy * inverse), 1 / inverse - _PAIR_DISTANCE, (dvx, dvy), _PAIR.friction
        )
    )
    return [jax.tree.map(lambda leaf: leaf[r], contact) for r in range(_ROUNDS)]


def _wall_contacts(state: _State) -> tuple[_Contact, _Contact]:
    """Balls against the nearer wall in x and in y."""
    x, y, vx, vy = (rows[1:] for rows in state[:4])
    none = jnp.zeros_like(x)

    def towards_inside(position: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
        low, high = position - CENTRE_LOW[axis], CENTRE_HIGH[axis] - position
        return jnp.where(low < high, 1.0, -1.0), jnp.minimum(low, high)

    side_x, gap_x = towards_inside(x, 0)
    side_y, gap_y = towards_inside(y, 1)
    return jax.lax.optimization_barrier(
        (
            _pyramid((side_x, none), gap_x, (vx, vy), _WALL.friction),
            _pyramid((none, side_y), gap_y, (vx, vy), _WALL.friction),
        )
    )


def _warm(contact: _Contact, forces: _Forces) -> _Forces:
    """The previous substep's forces where the contact still exists."""
    first, second = (
        jnp.where(edge.reference > _NO_CONTACT / 2, force, 0.0)
        for edge, force in zip(contact, forces, strict=True)
    )
    return first, second


def _total(contact: _Contact, forces: _Forces) -> tuple[jax.Array, jax.Array]:
    """x and y of the force that a contact exerts."""
    (first, second), (f1, f2) = contact, forces
    return jax.lax.optimization_barrier(
        (f1 * first.x + f2 * second.x, f1 * first.y + f2 * second.y)
    )


def _relax(
    contact: _Contact, forces: _Forces, ax: jax.Array, ay: jax.Array, constants: _Constants
) -> tuple[_Forces, tuple[jax.Array, jax.Array]]:
    """Gauss–Seidel update of both edges at relative acceleration `ax, ay`; new forces, change."""
    inverse_mass, friction, softness = constants
    soft = softness * inverse_mass
    gain = 1 / (inverse_mass * (1 + friction**2) + soft)
    coupling = inverse_mass * (1 - friction**2)
    (first, second), (f1, f2) = contact, forces
    new1 = jnp.maximum(f1 + gain * (first.reference - first.x * ax - first.y * ay - soft * f1), 0.0)
    change1 = new1 - f1
    miss2 = second.reference - second.x * ax - second.y * ay - coupling * change1 - soft * f2
    new2 = jnp.maximum(f2 + gain * miss2, 0.0)
    new1, new2, change1, change2 = jax.lax.optimization_barrier((new1, new2, change1, new2 - f2))
    return (new1, new2), _total(contact, (change1, change2))


def _push_pair(rows: jax.Array, force: jax.Array) -> jax.Array:
    """Accelerations `rows` after adding the `force[3, N]` of this round, seated for the next."""
    return _next_round(rows + _PAIR_INVERSE_MASS * jnp.concatenate([force, force]))


def _push_ball(rows: jax.Array, force: jax.Array) -> jax.Array:
    return jnp.concatenate([rows[:1], rows[1:] + force * _WALL.inverse_mass])


def _substep(force: jax.Array, state: _State) -> _State:
    barrier = jax.lax.optimization_barrier
    pairs, (wall_x, wall_y) = _pair_contacts(state), _wall_contacts(state)
    x, y, vx, vy = state[:4]

    speed = jnp.sqrt(vx * vx + vy * vy)
    drag = _DAMPING + _TABLE_FRICTION / jnp.maximum(speed, _MIN_SPEED)
    still = jnp.zeros_like(x[1:])
    ax = (jnp.concatenate([force[:1], still]) - drag * vx) / _MASS
    ay = (jnp.concatenate([force[1:], still]) - drag * vy) / _MASS

    warm_pairs = tuple(_warm(c, f) for c, f in zip(pairs, state.pairs, strict=True))
    warm_x, warm_y = _warm(wall_x, state.wall_x), _warm(wall_y, state.wall_y)
    for contact, forces in ((wall_x, warm_x), (wall_y, warm_y)):
        fx, fy = _total(contact, forces)
        ax, ay = _push_ball(ax, fx), _push_ball(ay, fy)
    for contact, forces in zip(pairs, warm_pairs, strict=True):
        fx, fy = _total(contact, forces)
        ax, ay = barrier((_push_pair(ax, fx), _push_pair(ay, fy)))

    def sweep(_: int, carry: tuple) -> tuple:
        ax, ay, old_pairs, old_x, old_y = carry
        new_x, (fx, fy) = _relax(wall_x, old_x, ax[1:], ay[1:], _WALL)
        ax, ay = barrier((_push_ball(ax, fx), _push_ball(ay, fy)))
        new_y, (fx, fy) = _relax(wall_y, old_y, ax[1:], ay[1:], _WALL)
        ax, ay = barrier((_push_ball(ax, fx), _push_ball(ay, fy)))
        new_pairs = []
        for contact, forces in zip(pairs, old_pairs, strict=True):
            dax, day = barrier((ax[3:] - ax[:3], ay[3:] - ay[:3]))
            forces, (fx, fy) = _relax(contact, forces, dax, day, _PAIR)
            ax, ay = barrier((_push_pair(ax, fx), _push_pair(ay, fy)))
            new_pairs.append(forces)
        return ax, ay, tuple(new_pairs), new_x, new_y

    ax, ay, *forces = jax.lax.fori_loop(0, SWEEPS, sweep, (ax, ay, warm_pairs, warm_x, warm_y))
    # Damping is implicit, as in MuJoCo's Euler integrator.
    gain = TIMESTEP * _MASS / (_MASS + TIMESTEP * _DAMPING)
    vx, vy = vx + gain * ax, vy + gain * ay
    return _State(x + TIMESTEP * vx, y + TIMESTEP * vy, vx, vy, *forces)


def _push_flat(
    positions: jax.Array, velocities: jax.Array, action: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`push` over one batch axis."""
    ball, force = jnp.divmod(action, len(DIRECTIONS))
    force = jnp.asarray(DIRECTIONS)[force]
    pushed = jnp.take_along_axis(positions, ball[:, None, None], axis=1)
    pusher = pushed - PUSHER_OFFSET * force[:, None]
    x, y = jnp.concatenate([pusher, positions], axis=1).transpose(2, 1, 0)
    vx, vy = jnp.concatenate([jnp.zeros_like(pusher), velocities], axis=1).transpose(2, 1, 0)
    pair, wall = jnp.zeros_like(x[:3]), jnp.zeros_like(x[1:])
    state = _State(x, y, vx, vy, ((pair, pair),) * _ROUNDS, (wall, wall), (wall, wall))
    state = jax.lax.fori_loop(0, SUBSTEPS, lambda _, s: _substep(force.T, s), state)

    def per_ball(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.stack([x[1:], y[1:]]).transpose(2, 1, 0)

    return per_ball(state.x, state.y), per_ball(state.vx, state.vy)


def push(
    positions: jax.Array, velocities: jax.Array, action: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One environment step: pushes a ball for 0.4 s and lets all bodies interact.

    Args:
      positions: `f32[..., 5, 2]`, ball centres in metres.
      velocities: `f32[..., 5, 2]`, in metres per second.
      action: `i32[...]`, ball · 8 + direction (`DIRECTIONS`).

    Returns:
      Positions and velocities after the push, of the same shapes.

    Raises:
      ValueError: shapes that do not fit together.
    """
    shape = (*action.shape, NUM_BALLS, 2)
    if positions.shape != shape or velocities.shape != shape:
        raise ValueError(
            f"push: for action {action.shape} positions and velocities must be {shape}, "
            f"got {positions.shape} and {velocities.shape}"
        )
    flat = (-1, NUM_BALLS, 2)
    positions, velocities = _push_flat(
        positions.reshape(flat), velocities.reshape(flat), action.reshape(-1)
    )
    return positions.reshape(shape), velocities.reshape(shape)
