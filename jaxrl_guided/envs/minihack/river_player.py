"""A scripted player of MiniHack's narrow rivers, from the text that a language model sees."""

from collections import deque
from collections.abc import Collection

from jaxrl_guided.envs.minihack.atlas import BOULDER, STAIRS, STRAIGHT, WATER, Atlas, beside
from jaxrl_guided.envs.minihack.room_player import STEPS, Cell


class RiverPlayer:
    """Pushes boulders into the river, one behind the other, and crosses it there.

    It looks for the river and boulders first. How a boulder gets into the water is searched for
    among all places of player and boulder; a way that fails is searched for anew.
    """

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, seed: int) -> None:
        """A new episode, of which nothing is known; nothing is left to chance."""
        self._atlas, self._last, self._plan = Atlas(), "", list[str]()

    def answer(self, observation: str) -> str:
        """The next action, as an answer."""
        moved = self._atlas.look(observation, self._last)
        if not moved:
            self._plan = []
        self._last = self._decide()
        return f"<answer>{self._last}</answer>"

    def _decide(self) -> str:
        atlas = self._atlas
        if step := atlas.to(lambda cell: atlas.known[cell] == STAIRS):
            return step
        if self._plan:
            return self._plan.pop(0)
        water = atlas.cells(WATER)
        if water:
            bank = max(column for _, column in water)
            if step := atlas.to(lambda cell: cell[1] > bank and atlas.may_show_more(cell)):
                return step
        if step := atlas.to(atlas.may_show_more):
            return step
        self._plan = self._pushes(water)
        return self._plan.pop(0) if self._plan else STRAIGHT[0]

    def _pushes(self, water: Collection[Cell]) -> list[str]:
        """Moves that get a boulder into the water, as far to the east as one can."""
        for column in sorted({column for _, column in water}, reverse=True):
            wanted = {cell for cell in water if cell[1] == column}
            plans = [self._search(boulder, wanted) for boulder in self._atlas.cells(BOULDER)]
            if found := [plan for plan in plans if plan]:
                return min(found, key=len)
        return []

    def _search(self, boulder: Cell, wanted: Collection[Cell]) -> list[str]:
        """The fewest moves that push a boulder into one of some cells; none if there are none."""
        atlas = self._atlas
        start = atlas.me, boulder
        before: dict[tuple[Cell, Cell], tuple[tuple[Cell, Cell], str]] = {}
        queue, seen = deque([start]), {start}
        while queue:
            state = queue.popleft()
            me, stone = state
            for name in STEPS:
                after, pushed = beside(me, name), stone
                if (me, name) in atlas.failed:
                    continue
                if after == stone:
                    pushed = beside(stone, name)
                    if pushed in wanted:
                        return [*_moves(before, start, state), name]
                    if not atlas.is_free(pushed):
                        continue
                elif not atlas.is_free(after) and after != boulder:
                    continue
                following = after, pushed
                if following not in seen:
                    seen.add(following)
                    before[following] = state, name
                    queue.append(following)
        return []


def _moves(
    before: dict[tuple[Cell, Cell], tuple[tuple[Cell, Cell], str]],
    start: tuple[Cell, Cell],
    end: tuple[Cell, Cell],
) -> list[str]:
    """The way from one state to another."""
    found = []
    while end != start:
        end, name = before[end]
        found.append(name)
    return found[::-1]
