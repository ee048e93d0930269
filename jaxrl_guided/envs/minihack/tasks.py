"""The tasks of MiniHack that come with it: names, limits and actions, as its registry has them.

Those of Boxoban are left out: their levels have to be downloaded.
"""

from collections.abc import Mapping, Sequence

_KINDS = ("", "Random-", "Dark-", "Monster-", "Trap-", "Ultimate-")
_ROOMS = {f"Room-{kind}{side}x{side}": 20 * side for side in (5, 15) for kind in _KINDS}
_MAZES = {
    f"MazeWalk-{kind}{size}": steps
    for size, steps in (("9x9", 200), ("15x15", 1000), ("45x19", 1000))
    for kind in ("", "Mapped-")
}
_KEY_ROOMS = {
    f"KeyRoom-{kind}": steps
    for kind, steps in (
        ("Fixed-S5", 200),
        ("S5", 200),
        ("Dark-S5", 200),
        ("S15", 400),
        ("Dark-S15", 400),
    )
}
_RIVERS = dict.fromkeys(
    ("River", "River-Narrow", "River-Monster", "River-Lava", "River-MonsterLava"), 350
)
_SOKOBANS = {f"Sokoban{level}{half}": 2000 for level in (1, 2, 3, 4) for half in "ab"}

MAX_STEPS: Mapping[str, int] = _ROOMS | _MAZES | _KEY_ROOMS | _RIVERS | _SOKOBANS
"""Longest episode by the task's name."""

COMPASS = (
    "north",
    "east",
    "south",
    "west",
    "northeast",
    "southeast",
    "southwest",
    "northwest",
)

KEYS: Mapping[str, int] = {
    **dict(zip(COMPASS, b"kljhunby", strict=True)),
    "apply": ord("a"),
    "close": ord("c"),
    "eat": ord("e"),
    "kick": 0x1F & ord("d"),
    "open": ord("o"),
    "pickup": ord(","),
    "search": ord("s"),
}
"""NetHack's keys by the action's name."""


def gymnasium_id(task: str) -> str:
    """The name under which MiniHack registers it."""
    return f"MiniHack-{task}-v{int(task.startswith('Sokoban'))}"


def actions_of(task: str) -> Sequence[str]:
    """Names of the actions that MiniHack gives the task, in its order."""
    if task.startswith("KeyRoom"):
        return (*COMPASS, "pickup", "apply")
    if task.startswith("Sokoban"):
        return (*COMPASS, "open", "eat", "pickup")
    return COMPASS
