"""A map of what a player of MiniHack has seen, drawn from where the player is."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from jaxrl_guided.envs.minihack.room_player import STEPS, Cell, read_map

STAIRS, DOOR, BOULDER, WATER = ">+`}"
_OPEN = "'"
_NO_WAY = frozenset(["|", "-", "#", " ", DOOR, BOULDER, WATER])
STRAIGHT = ("north", "east", "south", "west")
_STAYED = re.compile("solid stone|a wall|door|diagonally|You try to move|cannot move past")
"""What the message of a move says that did not lead anywhere."""

_MESSAGE = re.compile(r"^Message: (.*)$", re.MULTILINE)


def message_of(observation: str) -> str:
    """What the game has said; the compact form has no other words, and all of it is returned."""
    full = _MESSAGE.search(observation)
    return full[1] if full else observation


def beside(cell: Cell, name: str) -> Cell:
    """The next cell in a direction."""
    return cell[0] + STEPS[name][0], cell[1] + STEPS[name][1]


class Atlas:
    """Cells by row and column from where the episode began.

    Attributes:
      me: where the player is.
      known: what was seen, by cell; what is below the player is remembered.
      visited: where the player was.
      failed: moves that led nowhere, as cell and direction.
    """

    def __init__(self) -> None:
        self.me: Cell = (0, 0)
        self.known: dict[Cell, str] = {}
        self.visited: set[Cell] = set()
        self.failed: set[tuple[Cell, str]] = set()

    def look(self, observation: str, last: str) -> bool:
        """Adds what is seen, after finding out whether the last action was a move that led on.

        Returns:
          Whether the player stands where the action should have led.
        """
        seen, message, moved = read_map(observation), message_of(observation), False
        here = next((cell for cell, char in seen.items() if char == "@"), None)
        if here is None:  # something hides the player
            return False
        around = {(row - here[0], column - here[1]): char for (row, column), char in seen.items()}
        if last in STEPS:
            moved = self._moved(around, last, message)
            if moved:
                self.me = beside(self.me, last)
            else:
                self.failed.add((self.me, last))
        for (row, column), char in around.items():
            cell = self.me[0] + row, self.me[1] + column
            if char != "@":
                self.known[cell] = char
            elif self.known.get(cell, BOULDER) == BOULDER:
                self.known[cell] = "."
        self.visited.add(self.me)
        return moved

    def cells(self, char: str) -> list[Cell]:
        """Where something was seen last."""
        return [cell for cell, known in self.known.items() if known == char]

    def may_show_more(self, cell: Cell) -> bool:
        """It was not visited, and what is beside it was not all seen."""
        around = (beside(cell, name) for name in STEPS)
        return cell not in self.visited and any(each not in self.known for each in around)

    def is_free(self, cell: Cell) -> bool:
        """Whether one can stand there, as far as one knows."""
        return self.known.get(cell, "|") not in _NO_WAY

    def to(self, wanted: Callable[[Cell], bool]) -> str | None:
        """The first step of a shortest way to another cell; None: there is none."""
        first: dict[Cell, str] = {self.me: ""}
        queue = deque([self.me])
        while queue:
            cell = queue.popleft()
            if cell != self.me and wanted(cell):
                return first[cell]
            for name, after in self._ways(cell):
                if after not in first:
                    first[after] = first[cell] or name
                    queue.append(after)
        return None

    def _moved(self, around: Mapping[Cell, str], last: str, message: str) -> bool:
        if _STAYED.search(message):
            return False
        # A boulder that is pushed looks the same from where it was pushed; one that stays is told.
        if self.known.get(beside(self.me, last)) == BOULDER:
            return True
        return self._differs(around, beside(self.me, last)) <= self._differs(around, self.me)

    def _differs(self, around: Mapping[Cell, str], me: Cell) -> int:
        """Cells that the map has otherwise, were the player there."""
        pairs = ((self.known.get((me[0] + r, me[1] + c)), char) for (r, c), char in around.items())
        return sum(before not in (None, "@", char) and char != "@" for before, char in pairs)

    def _ways(self, cell: Cell) -> Iterator[tuple[str, Cell]]:
        for name in STEPS:
            after = beside(cell, name)
            # Nobody goes through a door aslant.
            aslant = name not in STRAIGHT and _OPEN in (self.known.get(cell), self.known.get(after))
            if self.is_free(after) and not aslant and (cell, name) not in self.failed:
                yield name, after
