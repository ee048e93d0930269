"""What an agent sees of MiniHack, by the names in `observe`.

Whole maps are `[21, 79]`; those that end in `_crop` are the `[9, 9]` cells around the agent, north
at the top.

| name | what | type |
| --- | --- | --- |
| `symbols`, `symbols_crop` | the kind of each cell, of `symbols.SYMBOLS` | 39 numbers |
| `stats` | see `stats` | f32[22] |
| `inventory` | see `inventory` | f32[18] |
| `glyphs`, `glyphs_crop` | NetHack's number for what a cell shows | i16 |
| `chars`, `chars_crop` | its character | u8 |
| `colors`, `colors_crop` | the character's colour | u8 |
| `blstats` | the numbers of NetHack's bottom line, as `nle` lists them | i64[27] |
| `message` | NetHack's last message, ASCII, filled up with zeros | u8[256] |
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxrl_guided.envs.minihack.symbols import SYMBOL, SYMBOLS, glyph_table

SIDE = 9
_REACH = SIDE // 2

_NO_GLYPH = 2359
"""Glyph of solid rock, which is that of an unseen cell too."""

_USED = (0, 1, 10, 11, 12, 16, 18, 21, 22, 25)
"""Places in `blstats`."""

_CONDITIONS = 13
_CLASSES = 18
_SHARES = np.linspace(0, 1, 5, dtype=np.float32)

Read = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
"""`(what it needs, blstats, share of the time that is over) -> ` a new array."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A named part of the observation.

    Attributes:
      needs: MiniHack's name of what it is made from.
      read: makes it.
      space: from the space of what it needs.
    """

    needs: str
    read: Read
    space: Callable[[spaces.Box], spaces.Space[np.ndarray]]


class Observer:
    """Makes an observation from MiniHack's.

    Attributes:
      needs: MiniHack's names of what it reads.
    """

    def __init__(self, observe: Sequence[str]):
        self._parts = {name: PARTS[name] for name in observe}
        self.needs = tuple(sorted({"blstats", *(part.needs for part in self._parts.values())}))

    def space(self, theirs: Any) -> spaces.Dict:
        """The observation's space, from MiniHack's, a `Dict` of `Box`."""
        return spaces.Dict({k: part.space(theirs[part.needs]) for k, part in self._parts.items()})

    def __call__(self, obs: Mapping[str, np.ndarray], elapsed: float) -> dict[str, np.ndarray]:
        """The observation, which nobody else writes to.

        Args:
          obs: MiniHack's, in arrays that its next step overwrites.
          elapsed: share of the time limit that is over.
        """
        blstats = obs["blstats"]
        return {k: part.read(obs[part.needs], blstats, elapsed) for k, part in self._parts.items()}


def crop(cells: np.ndarray, blstats: np.ndarray, outside: int) -> np.ndarray:
    """`[9, 9]` cells around the agent.

    Args:
      cells: `[21, 79]`.
      outside: what stands for those beyond the map's edge.
    """
    left, top = int(blstats[0]) - _REACH, int(blstats[1]) - _REACH
    inside = cells[max(top, 0) : top + SIDE, max(left, 0) : left + SIDE]
    row, column = max(-top, 0), max(-left, 0)
    found = np.full((SIDE, SIDE), outside, cells.dtype)
    found[row : row + inside.shape[0], column : column + inside.shape[1]] = inside
    return found


def stats(blstats: np.ndarray, elapsed: float) -> np.ndarray:
    """The agent's state in numbers that a network reads, between -1 and 1.

    Args:
      blstats: `i64[27]`, NetHack's.
      elapsed: share of the time limit that is over.

    Returns:
      `f32[22]`: column / 78 and row / 20 of the map, depth / 10, armour class / 10, experience
      level / 10, hunger (0 satiated to 1 starved), burden (0 to 1), share of the hit points that
      is left, share of the time that is over, and whether the agent is turning to stone, turning
      to slime, being strangled, poisoned by food, terminally ill, blind, deaf, stunned, confused,
      hallucinating, levitating, flying, riding.
    """
    n = blstats.tolist()  # of so few numbers, Python's own are faster
    column, row, hp, most_hp, depth, armour, level, hunger, burden, condition = (
        n[i] for i in _USED
    )
    numbers = [
        column / 78,
        row / 20,
        min(depth / 10, 1),
        min(max(armour / 10, -1), 1),
        min(level / 10, 1),
        hunger / 6,
        burden / 5,
        hp / max(most_hp, 1),
        elapsed,
        *(condition >> bit & 1 for bit in range(_CONDITIONS)),
    ]
    return np.array(numbers, np.float32)


def inventory(classes: np.ndarray) -> np.ndarray:
    """How much the agent carries of each of NetHack's classes of objects.

    Args:
      classes: `u8[55]`, the class of each entry, 18 where there is none.

    Returns:
      `f32[18]`, entries of a class / 4, at most 1.
    """
    counts = np.bincount(classes, minlength=_CLASSES + 1)[:_CLASSES]
    return _SHARES[np.minimum(counts, len(_SHARES) - 1)]


def _symbols(glyphs: np.ndarray, blstats: np.ndarray, elapsed: float) -> np.ndarray:
    found = glyph_table().take(glyphs)
    found[blstats[1], blstats[0]] = SYMBOL["you"]
    return found


def _symbols_crop(glyphs: np.ndarray, blstats: np.ndarray, elapsed: float) -> np.ndarray:
    found = glyph_table().take(crop(glyphs, blstats, _NO_GLYPH))
    found[_REACH, _REACH] = SYMBOL["you"]
    return found


def _copy(cells: np.ndarray, blstats: np.ndarray, elapsed: float) -> np.ndarray:
    return cells.copy()


def _cropped(outside: int, cells: np.ndarray, blstats: np.ndarray, elapsed: float) -> np.ndarray:
    return crop(cells, blstats, outside)


def _symbols_space(shape: tuple[int, ...]) -> spaces.MultiDiscrete:
    return spaces.MultiDiscrete(np.full(shape, len(SYMBOLS)))


def _cropped_space(whole: spaces.Box) -> spaces.Box:
    dtype: Any = whole.dtype
    return spaces.Box(int(whole.low.min()), int(whole.high.max()), (SIDE, SIDE), dtype)


_OUTSIDE = {"glyphs": _NO_GLYPH, "chars": ord(" "), "colors": 0}

PARTS: Mapping[str, Part] = {
    "symbols_crop": Part("glyphs", _symbols_crop, lambda _: _symbols_space((SIDE, SIDE))),
    "symbols": Part("glyphs", _symbols, lambda whole: _symbols_space(whole.shape)),
    "stats": Part(
        "blstats",
        lambda blstats, _, elapsed: stats(blstats, elapsed),
        lambda _: spaces.Box(-1, 1, (22,), np.float32),
    ),
    "inventory": Part(
        "inv_oclasses",
        lambda classes, *_: inventory(classes),
        lambda _: spaces.Box(0, 1, (_CLASSES,), np.float32),
    ),
    **{name: Part(name, _copy, lambda box: box) for name in (*_OUTSIDE, "blstats", "message")},
    **{
        f"{name}_crop": Part(name, functools.partial(_cropped, outside), _cropped_space)
        for name, outside in _OUTSIDE.items()
    },
}
"""All parts by name."""
