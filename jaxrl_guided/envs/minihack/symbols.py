"""NetHack's 5,976 glyphs as an alphabet of 39 symbols.

What a glyph shows is told apart where its character would not: water from lava, a door from a wall.
Monsters are classed by how dangerous they are.
"""

import functools
from typing import Any

import numpy as np

SYMBOLS: tuple[str, ...] = (
    "unseen",
    "wall",
    "doorway",
    "open door",
    "closed door",
    "bars or tree",
    "floor",
    "dark floor",
    "corridor",
    "stairs up",
    "stairs down",
    "furniture",
    "water",
    "ice",
    "lava",
    "trap",
    "effect",
    "boulder",
    "statue",
    "weapon",
    "armour",
    "ring or amulet",
    "tool",
    "food",
    "potion",
    "scroll",
    "spellbook",
    "wand",
    "gold",
    "gem or rock",
    "other thing",
    "you",
    "pet",
    "monster that stays",
    "monster of level 0",
    "monster of level 1 or 2",
    "monster of level 3 to 5",
    "monster of level 6 or more",
    "unknown monster",
)
"""A cell's symbol is a number: the place in this list."""

SYMBOL = {name: number for number, name in enumerate(SYMBOLS)}
MONSTERS = range(SYMBOL["monster that stays"], SYMBOL["monster of level 6 or more"] + 1)

_TERRAIN = (
    ("unseen", 1),
    ("wall", 11),
    ("doorway", 1),
    ("open door", 2),
    ("closed door", 2),
    ("bars or tree", 2),
    ("floor", 1),
    ("dark floor", 1),
    ("corridor", 2),
    ("stairs up", 1),
    ("stairs down", 1),
    ("stairs up", 1),  # ladders
    ("stairs down", 1),
    ("furniture", 5),
    ("water", 1),
    ("ice", 1),
    ("lava", 1),
    ("floor", 2),  # lowered drawbridges
    ("wall", 2),  # raised ones
    ("floor", 2),  # air and cloud
    ("water", 1),
    ("trap", 23),
    ("effect", 22),
)
"""NetHack 3.6's map symbols in their order, `S_stone` to the last before explosions."""

_OBJECTS = (
    "other thing",
    "other thing",
    "weapon",
    "armour",
    "ring or amulet",
    "ring or amulet",
    "tool",
    "food",
    "potion",
    "scroll",
    "spellbook",
    "wand",
    "gold",
    "gem or rock",
    "boulder",
    "other thing",
    "other thing",
    "other thing",
)
"""By NetHack's class of objects; boulders and statues share one, but statues have other glyphs."""


@functools.cache
def glyph_table() -> np.ndarray:
    """`u8[number of glyphs]`, the symbol of each glyph."""
    from nle import nethack as n

    monsters = [_monster(n.permonst(i)) for i in range(n.NUMMONS)]
    parts = [
        (n.GLYPH_MON_OFF, monsters),
        (n.GLYPH_PET_OFF, SYMBOL["pet"]),
        (n.GLYPH_INVIS_OFF, SYMBOL["unknown monster"]),
        (n.GLYPH_DETECT_OFF, monsters),
        (n.GLYPH_BODY_OFF, SYMBOL["food"]),
        (n.GLYPH_RIDDEN_OFF, monsters),
        (n.GLYPH_OBJ_OFF, [_object(n.objclass(i)) for i in range(n.NUM_OBJECTS)]),
        (n.GLYPH_CMAP_OFF, [SYMBOL[name] for name, count in _TERRAIN for _ in range(count)]),
        (n.GLYPH_EXPLODE_OFF, SYMBOL["effect"]),
        (n.GLYPH_SWALLOW_OFF, SYMBOL["unknown monster"]),
        (n.GLYPH_STATUE_OFF, SYMBOL["statue"]),
    ]
    table = np.zeros(n.MAX_GLYPH, np.uint8)
    ends = [first for first, _ in parts[1:]] + [n.MAX_GLYPH]
    for (first, symbols), end in zip(parts, ends, strict=True):
        table[first:end] = symbols
    return table


def _monster(kind: Any) -> int:
    """By NetHack's level of difficulty, 0 to 30 and more."""
    if kind.mmove == 0:
        return SYMBOL["monster that stays"]
    place = np.searchsorted((0, 2, 5), kind.mlevel)
    return SYMBOL["monster of level 0"] + int(place)


def _object(kind: Any) -> int:
    return SYMBOL[_OBJECTS[ord(kind.oc_class)]]
