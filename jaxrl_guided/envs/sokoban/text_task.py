"""Sokoban in text: push all boxes onto the targets."""

from jaxrl_guided.envs.sokoban.level import MOVES, Cell, Level, Position, make_level, move, solve
from jaxrl_guided.envs.text.answers import numbered, parse
from jaxrl_guided.envs.text.task import TASK, Opening, Reply

_ACTIONS = tuple(MOVES)
_LARGEST, _MOST_BOXES = 8, 3
_SYSTEM = (
    "You play Sokoban. Push every box onto a target; boxes cannot be pulled, and only one can be "
    "pushed at a time. Map: # wall, _ floor, . target, $ box, * box on a target, @ you, + you on "
    "a target. Think as briefly as you can, then give one move as <answer>MOVE</answer>.\n"
    f"Moves: {numbered(_ACTIONS)}."
)
_COMPACT = f"Sokoban. Answers: <answer>{'|'.join(_ACTIONS)}</answer>"
_DESCRIPTION = "Sokoban: push {boxes} onto the target{plural}."


class SokobanText:
    """One level after the other; the return is 1 for a solved one, else 0.

    Args:
      size: rows and columns, outer walls among them.
      boxes: to push.
      shortest: moves that a solution takes at least.
      max_turns: answers in an episode; every level can be solved in so many moves.
      compact: few words, for models that learn them from scratch.

    Raises:
      ValueError: a number out of range.
    """

    instances = 2**31

    def __init__(
        self,
        size: int = 6,
        boxes: int = 2,
        shortest: int = 4,
        max_turns: int = 20,
        compact: bool = False,
    ) -> None:
        if not 5 <= size <= _LARGEST:
            raise ValueError(f"size must be from 5 to {_LARGEST}, not {size}")
        if not 1 <= boxes <= _MOST_BOXES:
            raise ValueError(f"boxes must be from 1 to {_MOST_BOXES}, not {boxes}")
        if not 1 <= shortest <= max_turns:
            raise ValueError(f"shortest must be from 1 to max_turns = {max_turns}, not {shortest}")
        self._level_options = (size, boxes, shortest, max_turns)
        self.max_turns, self._compact = max_turns, compact
        make_level(0, *self._level_options)  # says at once that there is no such level

    def reset(self, seed: int) -> Opening:
        """Starts the level of that seed."""
        self._level = make_level(seed, *self._level_options)
        self._now = self._level.start
        boxes = len(self._level.targets)
        description = _DESCRIPTION.format(
            boxes=f"{boxes} boxes" if boxes > 1 else "a box", plural="s" * (boxes > 1)
        )
        return Opening(
            _COMPACT if self._compact else _SYSTEM, draw(self._level, self._now), description
        )

    def step(self, answer: str) -> Reply:
        """One move; against a wall it changes nothing but takes a turn."""
        said = parse(answer, _ACTIONS)
        if said.action is None:
            return Reply(f"Note: {said.note}\n{draw(self._level, self._now)}", acted=False)
        self._now = move(self._level.floor, self._now, MOVES[_ACTIONS[said.action]])
        solved = self._now.boxes == self._level.targets
        return Reply(
            "" if solved else draw(self._level, self._now),
            {TASK: float(solved)},
            terminated=solved,
            success=solved,
        )

    def close(self) -> None:
        """Nothing to free."""


def draw(level: Level, position: Position) -> str:
    """The room as rows of characters."""

    def char(cell: Cell) -> str:
        if cell not in level.floor:
            return "#"
        target = cell in level.targets
        if cell == position.agent:
            return "+" if target else "@"
        if cell in position.boxes:
            return "*" if target else "$"
        return "." if target else "_"

    side = range(level.size)
    return "\n".join("".join(char((row, column)) for column in side) for row in side)


class SokobanPlayer:
    """Reads the map and goes the first move of a shortest solution."""

    def reset(self, seed: int) -> None:
        """Nothing is kept from turn to turn."""

    def answer(self, observation: str) -> str:
        """The next move; any where the boxes are stuck."""
        rows = [line for line in observation.splitlines() if line.startswith("#")]
        cells = {(r, c): char for r, row in enumerate(rows) for c, char in enumerate(row)}
        floor = frozenset(cell for cell, char in cells.items() if char != "#")
        targets = frozenset(cell for cell, char in cells.items() if char in ".*+")
        boxes = frozenset(cell for cell, char in cells.items() if char in "$*")
        (agent,) = (cell for cell, char in cells.items() if char in "@+")
        moves = solve(floor, targets, Position(agent, boxes))
        return f"<answer>{moves[0] if moves else _ACTIONS[0]}</answer>"
