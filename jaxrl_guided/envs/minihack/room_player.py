"""A scripted player of MiniHack's rooms, from the text that a language model sees."""

import re
from collections.abc import Sequence

from jaxrl_guided.envs.minihack.tasks import COMPASS

STEPS = dict(
    zip(
        COMPASS,
        ((-1, 0), (0, 1), (1, 0), (0, -1), (-1, 1), (1, 1), (1, -1), (-1, -1)),
        strict=True,
    )
)
"""Rows down and columns right of an action."""

_CLOCKWISE = ("north", "northeast", "east", "southeast", "south", "southwest", "west", "northwest")
_WORD = re.compile(r"[A-Za-z]{3}")

SEARCH = ("southeast", "west", "north", "east", "south")
"""Legs that find the stairs of a small dark room most often."""

_FULL_MAP = re.compile(r"^Map,[^\n]*\n(.*?)\nMeaning:$", re.MULTILINE | re.DOTALL)

Cell = tuple[int, int]


def read_map(observation: str) -> dict[Cell, str]:
    """Cells that are seen, by row and column, of the map of `text.render` or `render_compact`."""
    full = _FULL_MAP.search(observation)
    rows = full[1].split("\n") if full else _last_rows(observation)
    return {
        (row, column): char
        for row, line in enumerate(rows)
        for column, char in enumerate(line)
        if char not in "_ "
    }


def _last_rows(observation: str) -> list[str]:
    """The compact map stands at the end, after words or nothing."""
    rows: list[str] = []
    for line in reversed(observation.splitlines()):
        if " " in line or _WORD.search(line):
            break
        rows.insert(0, line)
    return rows


class RoomPlayer:
    """Walks to the stairs when it sees them; until then along legs, each to where it is blocked.

    Args:
      legs: names of directions, walked in turn, over and over.
    """

    def __init__(self, legs: Sequence[str]) -> None:
        self._legs = legs
        self.reset(0)

    def reset(self, seed: int) -> None:
        """A new episode: begins with the first leg."""
        self._leg, self._before = 0, ""

    def answer(self, observation: str) -> str:
        """The next step, as an answer."""
        return f"<answer>{self._direction(observation)}</answer>"

    def _direction(self, observation: str) -> str:
        cells, same = read_map(observation), observation == self._before
        self._before = observation
        me = next((cell for cell, char in cells.items() if char == "@"), None)
        if me is None:  # hidden, as below a monster that holds it
            return self._legs[self._leg]
        stairs = next((cell for cell, char in cells.items() if char == ">"), None)
        if stairs is not None:
            return _towards(me, stairs, cells)
        for _ in self._legs:
            step = STEPS[self._legs[self._leg]]
            if not same and _is_free(cells, (me[0] + step[0], me[1] + step[1])):
                break
            self._leg, same = (self._leg + 1) % len(self._legs), False
        return self._legs[self._leg]


def _is_free(cells: dict[Cell, str], cell: Cell) -> bool:
    """It is seen, and no wall."""
    return cells.get(cell, "|") not in "|-"


def _towards(me: Cell, target: Cell, cells: dict[Cell, str]) -> str:
    """The step that comes nearest; the straightest of those."""

    def left(name: str) -> tuple[int, int]:
        away = [abs(me[i] + STEPS[name][i] - target[i]) for i in (0, 1)]
        return max(away), sum(away)

    there = [n for n in _CLOCKWISE if _is_free(cells, (me[0] + STEPS[n][0], me[1] + STEPS[n][1]))]
    return min(there or _CLOCKWISE, key=left)
