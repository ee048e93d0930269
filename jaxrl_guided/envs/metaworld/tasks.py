"""Tasks, their four categories, and where a state has their entities (LaGO, arXiv 2606.24669).

A state has 91 numbers: the gripper's x, y, z in metres and its opening in 0 … 1, the target's x, y,
z, and for each entity of `ENTITIES` its x, y, z and quaternion, zeros where the scene has none.
"""

import dataclasses

ENTITIES = (
    "target object",
    "button",
    "lock",
    "handle",
    "window",
    "faucet",
    "wall",
    "coffee",
    "coffee button",
    "hammer",
    "nail",
    "soccer",
)
"""`coffee` is the mug; `target object` is the puck."""

GRIPPER = slice(0, 4)
TARGET = slice(4, 7)
POSE_SIZE = 7
STATE_SIZE = TARGET.stop + POSE_SIZE * len(ENTITIES)

ACTION_MAP = {
    "kind": "continuous",
    "size": 4,
    "low": -1.0,
    "high": 1.0,
    "action": "gripper x, y, z (0.01 m each), closing effort",
}
"""What an action means; a prior and its learner must agree on it."""

_SEEN: dict[str, tuple[str, ...]] = {
    "reach": ("target object",),
    "push": ("target object",),
    "pick-place": ("target object",),
    "button-press": ("button",),
    "door-unlock": ("lock",),
    "door-open": ("handle",),
    "window-open": ("window",),
    "faucet-open": ("faucet",),
    "coffee-push": ("coffee",),
    "coffee-button": ("coffee button",),
    "reach-wall": ("target object",),
    "push-wall": ("target object",),
    "pick-place-wall": ("target object",),
    "button-press-wall": ("button",),
    "door-lock": ("lock",),
    "door-close": ("handle",),
    "window-close": ("window",),
    "faucet-close": ("faucet",),
    "hammer": ("hammer", "nail"),
    "soccer": ("soccer",),
}
"""Entities in the observation of each of Meta-World's own tasks, in its order."""

_BESIDE: dict[str, tuple[str, ...]] = {
    "door-unlock": ("handle",),
    "door-lock": ("handle",),
    "coffee-push": ("coffee button",),
    "coffee-button": ("coffee",),
    "reach-wall": ("wall",),
    "push-wall": ("wall",),
    "pick-place-wall": ("wall",),
    "button-press-wall": ("wall",),
}
"""Entities of the scene that Meta-World does not show."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What is to be done.

    Attributes:
      name: as in `TASKS`.
      parts: Meta-World's tasks that it consists of, one after the other.
    """

    name: str
    parts: tuple[str, ...]

    @property
    def entities(self) -> tuple[str, ...]:
        """Those of its scene."""
        found = {name for part in self.parts for name in (*_SEEN[part], *_BESIDE.get(part, ()))}
        return tuple(name for name in ENTITIES if name in found)


TASKS: dict[str, Task] = {name: Task(name, (name,)) for name in _SEEN}
TASKS |= {
    "make-coffee": Task("make-coffee", ("coffee-push", "coffee-button")),
    "locked-door-open": Task("locked-door-open", ("door-unlock", "door-open")),
}
"""All tasks by name. Those of more than one part are not Meta-World's own."""

_REAL = tuple(TASKS)[:10]
CATEGORIES: dict[str, tuple[str, ...]] = {
    "real": _REAL,
    "rephrase": _REAL,
    "easy": tuple(TASKS)[10:18],
    "hard": ("make-coffee", "locked-door-open", "hammer", "soccer"),
}
"""Names of the tasks of each category."""


def seen(part: str) -> tuple[str, ...]:
    """Entities in the observation of one of Meta-World's tasks, in its order."""
    return _SEEN[part]


def pose(entity: str) -> slice:
    """Where a state holds an entity's position and quaternion."""
    first = TARGET.stop + POSE_SIZE * ENTITIES.index(entity)
    return slice(first, first + POSE_SIZE)
