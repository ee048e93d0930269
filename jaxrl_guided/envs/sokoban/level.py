"""Levels of Sokoban: rules, a generator that plays backwards, and a search for solutions."""

import dataclasses
import random
from collections import deque
from collections.abc import Iterator, Mapping

Cell = tuple[int, int]

MOVES: Mapping[str, Cell] = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
"""Rows down and columns right."""

_MOST_WALLS = 3
"""Inner cells that are walls at most."""


@dataclasses.dataclass(frozen=True)
class Position:
    """What moves: the agent and the boxes."""

    agent: Cell
    boxes: frozenset[Cell]


@dataclasses.dataclass(frozen=True)
class Level:
    """A room.

    Attributes:
      size: rows and columns, outer walls among them.
      floor: all cells that are no wall.
      targets: where the boxes belong.
      start: the first position.
      moves: of the shortest solution.
    """

    size: int
    floor: frozenset[Cell]
    targets: frozenset[Cell]
    start: Position
    moves: int


def beside(cell: Cell, step: Cell) -> Cell:
    """The cell that a step leads to."""
    return cell[0] + step[0], cell[1] + step[1]


def move(floor: frozenset[Cell], position: Position, step: Cell) -> Position:
    """The position after a step that may push a box; the same one where there is no room."""
    agent = beside(position.agent, step)
    if agent not in floor:
        return position
    if agent not in position.boxes:
        return Position(agent, position.boxes)
    pushed = beside(agent, step)
    if pushed not in floor or pushed in position.boxes:
        return position
    return Position(agent, position.boxes - {agent} | {pushed})


def solve(floor: frozenset[Cell], targets: frozenset[Cell], start: Position) -> list[str] | None:
    """A shortest list of moves that brings all boxes to targets; None: there is none."""
    came: dict[Position, tuple[Position, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        position = queue.popleft()
        if position.boxes == targets:
            names = []
            while (last := came[position]) is not None:
                position, name = last
                names.append(name)
            return names[::-1]
        for name, step in MOVES.items():
            after = move(floor, position, step)
            if after not in came:
                came[after] = (position, name)
                queue.append(after)
    return None


def make_level(seed: int, size: int, boxes: int, shortest: int, longest: int) -> Level:
    """A level whose shortest solution has from `shortest` to `longest` moves, the same for a seed.

    Args:
      size: rows and columns with the outer walls, from 5 on.
      boxes: from 1 on.

    Raises:
      ValueError: no such level was found among many rooms.
    """
    rng = random.Random(f"sokoban {seed}")
    for _ in range(1000):
        floor = _room(rng, size)
        if len(floor) < 2 * boxes + 1 or not _connected(floor):
            continue
        targets = frozenset(rng.sample(sorted(floor), boxes))
        by_moves = _played_backwards(floor, targets, longest)
        lengths = [moves for moves in sorted(by_moves) if moves >= shortest]
        if lengths:
            moves = rng.choice(lengths)
            start = rng.choice(by_moves[moves])
            return Level(size, floor, targets, start, moves)
    raise ValueError(
        f"no level of size {size} with {boxes} boxes takes from {shortest} to {longest} moves; "
        "ask for fewer moves or a larger room"
    )


def _room(rng: random.Random, size: int) -> frozenset[Cell]:
    side = range(1, size - 1)
    inner = [(row, column) for row in side for column in side]
    return frozenset(inner) - set(rng.sample(inner, rng.randint(0, _MOST_WALLS)))


def _connected(floor: frozenset[Cell]) -> bool:
    found = {min(floor)}
    queue = [*found]
    while queue:
        cell = queue.pop()
        new = {beside(cell, step) for step in MOVES.values()} & floor - found
        found |= new
        queue += new
    return found == floor


def _played_backwards(
    floor: frozenset[Cell], targets: frozenset[Cell], longest: int
) -> dict[int, list[Position]]:
    """Positions by the number of moves of their shortest solutions, up to `longest`."""
    solved = [Position(agent, targets) for agent in sorted(floor - targets)]
    known, layers = set(solved), {0: solved}
    for moves in range(1, longest + 1):
        layer = [before for position in layers[moves - 1] for before in _before(floor, position)]
        layers[moves] = [p for p in dict.fromkeys(layer) if p not in known]
        known.update(layers[moves])
    return {moves: layer for moves, layer in layers.items() if layer}


def _before(floor: frozenset[Cell], position: Position) -> Iterator[Position]:
    """Positions from which one move leads to this one: the agent steps back, or pulls a box."""
    for row, column in MOVES.values():
        behind, ahead = (
            beside(position.agent, (-row, -column)),
            beside(position.agent, (row, column)),
        )
        if behind not in floor or behind in position.boxes:
            continue
        yield Position(behind, position.boxes)
        if ahead in position.boxes:
            yield Position(behind, position.boxes - {ahead} | {position.agent})
