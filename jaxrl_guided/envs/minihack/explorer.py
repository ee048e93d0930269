"""A scripted player of MiniHack's mazes and key rooms, from the text that a language model sees."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from jaxrl_guided.envs.minihack.room_player import STEPS, Cell, read_map

_KEY, _STAIRS, _DOOR, _OPEN = "(>+'"
_NO_WAY = frozenset(["|", "-", "#", " ", _DOOR])
_STRAIGHT = ("north", "east", "south", "west")
_STAYED = re.compile("solid stone|a wall|door|diagonally")
"""What the message of a move says that did not lead anywhere."""

_MESSAGE = re.compile(r"^Message: (.*)$", re.MULTILINE)
Failed = set[tuple[Cell, str]]
Known = dict[Cell, str]


class Explorer:
    """Keeps a map of what it has seen, and walks to the stairs when it knows a way.

    Until then it fetches a key that it sees, opens a locked door with it, and else walks to the
    nearest cell from which there may be more to see.
    """

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, seed: int) -> None:
        """A new episode, of which nothing is known; nothing is left to chance."""
        self._me: Cell = (0, 0)
        self._known: Known = {}
        self._visited: set[Cell] = set()
        self._failed: Failed = set()
        self._last = ""
        self._has_key = self._unlocked = False

    def answer(self, observation: str) -> str:
        """The next action, as an answer."""
        full = _MESSAGE.search(observation)  # the compact form has no other words
        message = full[1] if full else observation
        self._look(read_map(observation), message)
        self._last = self._decide(message)
        return f"<answer>{self._last}</answer>"

    def _look(self, seen: Mapping[Cell, str], message: str) -> None:
        """Adds what is seen to the map, after finding out whether the last move was one."""
        here = next((cell for cell, char in seen.items() if char == "@"), None)
        if here is None:  # something hides the player
            return
        around = {(row - here[0], column - here[1]): char for (row, column), char in seen.items()}
        if self._last in STEPS:
            after = _beside(self._me, self._last)
            stayed = _STAYED.search(message) or self._differs(around, after) > self._differs(
                around, self._me
            )
            if stayed:
                self._failed.add((self._me, self._last))
            else:
                self._me = after
        for (row, column), char in around.items():
            cell = self._me[0] + row, self._me[1] + column
            if char != "@" or cell not in self._known:  # what is below the player is remembered
                self._known[cell] = char
        self._visited.add(self._me)

    def _differs(self, around: Mapping[Cell, str], me: Cell) -> int:
        """Cells that the map has otherwise, were the player there."""
        pairs = ((self._known.get((me[0] + r, me[1] + c)), char) for (r, c), char in around.items())
        return sum(before not in (None, "@", char) and char != "@" for before, char in pairs)

    def _decide(self, message: str) -> str:
        if self._last == "pickup":
            self._has_key = "nothing here" not in message
        self._unlocked |= self._last == "apply" and "unlock" in message
        if step := self._to(self._is(_STAIRS)):
            return step
        if not self._has_key:
            if "You see here a key" in message:
                return "pickup"
            if step := self._to(self._is(_KEY)):
                return step
        elif step := self._through_the_door():
            return step
        return (
            self._to(self._may_show_more)
            or self._to(lambda cell: cell not in self._visited)
            or _STRAIGHT[0]
        )

    def _is(self, char: str) -> Callable[[Cell], bool]:
        return lambda cell: self._known[cell] == char

    def _may_show_more(self, cell: Cell) -> bool:
        """It was not visited, and what is beside it was not all seen."""
        beside = (_beside(cell, name) for name in STEPS)
        return cell not in self._visited and any(each not in self._known for each in beside)

    def _through_the_door(self) -> str | None:
        """To a door that is closed, with the key, and through it; None: none is known."""
        doors = [cell for cell, char in self._known.items() if char == _DOOR]
        before = {
            (row - STEPS[name][0], column - STEPS[name][1]): name
            for row, column in doors
            for name in _STRAIGHT
        }
        if self._me in before:
            return before[self._me] if self._unlocked else "apply"
        return self._to(lambda cell: cell in before)

    def _to(self, wanted: Callable[[Cell], bool]) -> str | None:
        """The first step of a shortest way to another cell; None: there is none."""
        first: dict[Cell, str] = {self._me: ""}
        queue = deque([self._me])
        while queue:
            cell = queue.popleft()
            if cell != self._me and wanted(cell):
                return first[cell]
            for name, after in _ways(self._known, cell, self._failed):
                if after not in first:
                    first[after] = first[cell] or name
                    queue.append(after)
        return None


def _ways(known: Known, cell: Cell, failed: Failed) -> Iterator[tuple[str, Cell]]:
    for name in STEPS:
        after = _beside(cell, name)
        # Nobody goes through a door aslant.
        aslant = name not in _STRAIGHT and _OPEN in (known.get(cell), known.get(after))
        if known.get(after, "|") not in _NO_WAY and not aslant and (cell, name) not in failed:
            yield name, after


def _beside(cell: Cell, name: str) -> Cell:
    return cell[0] + STEPS[name][0], cell[1] + STEPS[name][1]
