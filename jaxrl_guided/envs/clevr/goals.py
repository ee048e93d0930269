"""What CLEVR-Robot's instructions ask for: subgoals, success, rewards (LaGO, arXiv 2606.24669).

All functions are for one environment; `env` vmaps them. A goal is the pair (`kind`, `relations`)
of an instruction, as in `InstructionSet`. Layouts are `f32[5, 2]` ball centres in metres.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.clevr.instructions import Kind
from jaxrl_guided.envs.clevr.table import (
    COMPASS,
    DIRECTIONS,
    MAX_RELATION,
    NUM_BALLS,
    along_across,
)

RewardName = Literal["goal", "distance"]
REWARDS: tuple[RewardName, ...] = ("goal", "distance")

EASY_PUSHES = COMPASS @ DIRECTIONS.T > 0
"""`bool[4, 8]`: the pushes that move a ball behind, left, front, right."""

GREEN = 2
MAX_SORT_DISTANCE = 0.325
ORDER_SLOPE = float(np.tan(np.radians(30)))
GOAL_OFFSET = 0.195
"""The `goal` reward pulls the source to this point beside the destination, in metres."""

REWARD_SCALE = 10.0
SUCCESS_REWARD = 100.0


def related(offset: jax.Array, direction: jax.Array, margin: float = 0.0) -> jax.Array:
    """`bool[...]`: source − destination `f32[..., 2]` lies in the direction's quadrant, and near.

    Args:
      offset: source − destination, in metres.
      direction: `i32[...]` index into `COMPASS`.
      margin: metres by which both tests are tightened.
    """
    along, across = along_across(offset, jnp.asarray(COMPASS)[direction])
    near = jnp.sum(offset**2, axis=-1) < (MAX_RELATION - margin) ** 2
    return (along - margin > jnp.abs(across)) & near


def _spatial(relations: jax.Array, positions: jax.Array) -> jax.Array:
    """`bool[3]`: the relation is there and holds."""
    source, destination, direction = relations.T
    return (source >= 0) & related(positions[source] - positions[destination], direction)


def count_subgoals(kind: jax.Array, relations: jax.Array) -> jax.Array:
    """`i32[]`: how many subgoals the goal has (ONE_STEP: 1)."""
    spatial = jnp.sum(relations[:, 0] >= 0).astype(jnp.int32)
    chained = (kind == Kind.ORDER) | (kind == Kind.SORT)
    return jnp.where(chained, NUM_BALLS - 1, spatial)


def count_satisfied(kind: jax.Array, relations: jax.Array, positions: jax.Array) -> jax.Array:
    """`i32[]`: how many subgoals hold in a layout (ONE_STEP: 0, it is judged by the action).

    RELATIONS: source − destination lies in the direction's quadrant, centres < .391 apart.
    ORDER: each ball's successor lies within 30° of +x from it. SORT: the others < .325 from green.
    """
    step = jnp.diff(positions, axis=0)
    ordered = jnp.abs(step[:, 1]) < ORDER_SLOPE * step[:, 0]
    to_green = jnp.linalg.norm(positions - positions[GREEN], axis=-1)
    sorted_ = jnp.delete(to_green, GREEN) < MAX_SORT_DISTANCE
    counts = [jnp.sum(holds) for holds in (_spatial(relations, positions), ordered, sorted_)]
    kinds = [kind == Kind.RELATIONS, kind == Kind.ORDER, kind == Kind.SORT]
    return jnp.select(kinds, counts, 0).astype(jnp.int32)


def one_step_success(relations: jax.Array, action: jax.Array) -> jax.Array:
    """`bool[...]`: pushes `i32[...]` move the named ball in the named direction (ONE_STEP)."""
    ball, push = jnp.divmod(action, len(DIRECTIONS))
    return (ball == relations[0, 0]) & jnp.asarray(EASY_PUSHES)[relations[0, 2], push]


def reward(
    name: RewardName,
    kind: jax.Array,
    relations: jax.Array,
    before: jax.Array,
    after: jax.Array,
    success: jax.Array,
) -> jax.Array:
    """`f32[]`: the reward of a step from layout `before` to `after`.

    One relation (Real, Rephrase), by `name`:
      `distance`: 10 · (previous − current distance of source and destination);
      `goal`: 10 · (previous − current distance of the source from the point .195 m beside the
      destination), replaced by 100 on success.
    Several relations, ORDER, SORT: 10 · (change in satisfied subgoals). ONE_STEP: 1 on success.
    """
    source, destination, direction = relations[0]
    aim = GOAL_OFFSET * jnp.asarray(COMPASS)[direction] if name == "goal" else jnp.zeros(2)

    def distance(positions: jax.Array) -> jax.Array:
        return jnp.linalg.norm(positions[source] - positions[destination] - aim)

    approach = REWARD_SCALE * (distance(before) - distance(after))
    if name == "goal":
        approach = jnp.where(success, SUCCESS_REWARD, approach)
    gained = count_satisfied(kind, relations, after) - count_satisfied(kind, relations, before)
    one_relation = (kind == Kind.RELATIONS) & (count_subgoals(kind, relations) == 1)
    return jnp.select(
        [one_relation, kind == Kind.ONE_STEP],
        [approach, success.astype(jnp.float32)],
        REWARD_SCALE * gained.astype(jnp.float32),
    )
