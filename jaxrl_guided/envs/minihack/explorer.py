"""A scripted player of MiniHack's mazes and key rooms, from the text that a language model sees."""

from collections.abc import Callable

from jaxrl_guided.envs.minihack.atlas import DOOR, STAIRS, STRAIGHT, Atlas, message_of
from jaxrl_guided.envs.minihack.room_player import STEPS, Cell

_KEY = "("


class Explorer:
    """Keeps a map of what it has seen, and walks to the stairs when it knows a way.

    Until then it fetches a key that it sees, opens a locked door with it, and else walks to the
    nearest cell from which there may be more to see.
    """

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, seed: int) -> None:
        """A new episode, of which nothing is known; nothing is left to chance."""
        self._atlas, self._last = Atlas(), ""
        self._has_key = self._unlocked = False

    def answer(self, observation: str) -> str:
        """The next action, as an answer."""
        self._atlas.look(observation, self._last)
        self._last = self._decide(message_of(observation))
        return f"<answer>{self._last}</answer>"

    def _decide(self, message: str) -> str:
        atlas = self._atlas
        if self._last == "pickup":
            self._has_key = "nothing here" not in message
        self._unlocked |= self._last == "apply" and "unlock" in message
        if step := atlas.to(self._is(STAIRS)):
            return step
        if not self._has_key:
            if "You see here a key" in message:
                return "pickup"
            if step := atlas.to(self._is(_KEY)):
                return step
        elif step := self._through_the_door():
            return step
        return (
            atlas.to(atlas.may_show_more)
            or atlas.to(lambda cell: cell not in atlas.visited)
            or STRAIGHT[0]
        )

    def _is(self, char: str) -> Callable[[Cell], bool]:
        return lambda cell: self._atlas.known[cell] == char

    def _through_the_door(self) -> str | None:
        """To a door that is closed, with the key, and through it; None: none is known."""
        before = {
            (row - STEPS[name][0], column - STEPS[name][1]): name
            for row, column in self._atlas.cells(DOOR)
            for name in STRAIGHT
        }
        if self._atlas.me in before:
            return before[self._atlas.me] if self._unlocked else "apply"
        return self._atlas.to(lambda cell: cell in before)
