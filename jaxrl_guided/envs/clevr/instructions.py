"""Instruction tables of CLEVR-Robot: texts and their goals, by level (LaGO, arXiv 2606.24669)."""

import dataclasses
import enum
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from jaxrl_guided.envs.clevr import grammar
from jaxrl_guided.envs.clevr.feasible import find_witness
from jaxrl_guided.envs.clevr.table import COMPASS, NUM_BALLS

GOALS = tuple(
    (source, destination, direction)
    for source, destination in itertools.permutations(range(NUM_BALLS), 2)
    for direction in range(len(COMPASS))
)
"""The 80 spatial goals (source, destination, direction)."""

SETS_PER_FAMILY = 150
FRAMES_PER_SET = 2
MAX_RELATIONS = 3


class Kind(enum.IntEnum):
    """How an instruction is judged."""

    RELATIONS = 0
    ONE_STEP = 1
    ORDER = 2
    SORT = 3


@dataclasses.dataclass(frozen=True)
class InstructionSet:
    """The instructions of one level; an environment draws an index uniformly at reset.

    Attributes:
      level: name of the level.
      texts: `I` sentences.
      kind: `i32[I]` of `Kind`.
      relations: `i32[I, 3, 3]`: up to three goals (source, destination, direction), −1 where
        absent. Balls are red, blue, green, purple, cyan; directions behind, left, front, right.
        ONE_STEP has (ball, −1, direction) in row 0.
      held_out: `bool[I]`: Real instructions kept for choosing, false elsewhere.
    """

    level: str
    texts: tuple[str, ...]
    kind: np.ndarray
    relations: np.ndarray
    held_out: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, level: str, index: np.ndarray) -> "InstructionSet":
        """The instructions at `index` (`bool[I]` or integers), under another name."""
        index = np.arange(len(self))[index]
        return InstructionSet(
            level,
            tuple(self.texts[i] for i in index),
            self.kind[index],
            self.relations[index],
            self.held_out[index],
        )


def instruction_set(
    level: str, *, confounded: bool = False, allow_conflicts: bool = False
) -> InstructionSet:
    """The instructions of `level`, the same ones at every call.

    Args:
      level: one of `LEVELS`. `real-train` and `real-heldout` divide `real`; `hard` is the union of
        the four `hard-…` families, in which the short families are repeated so that a uniform draw
        meets each family equally often.
      confounded: Rephrase only: two styles per direction, none shared, as in the papers.
      allow_conflicts: `hard`, `hard-two`, `hard-three` only: goal sets are drawn without asking
        whether they can be satisfied, as the public benchmark does.

    Raises:
      ValueError: unknown level, or an option that the level does not have.
    """
    if level not in LEVELS:
        raise ValueError(f"level: unknown '{level}'; choose one of {', '.join(LEVELS)}")
    if confounded and level != "rephrase":
        raise ValueError(f"confounded: only level 'rephrase' has it, not '{level}'")
    if allow_conflicts and level not in ("hard", "hard-two", "hard-three"):
        raise ValueError(
            f"allow_conflicts: only 'hard', 'hard-two', 'hard-three' have it, not '{level}'"
        )
    return _cached(level, confounded, allow_conflicts)


@functools.cache
def _cached(level: str, confounded: bool, allow_conflicts: bool) -> InstructionSet:
    if level == "rephrase":
        return _rephrase(confounded)
    if level in ("hard", "hard-two", "hard-three"):
        return _BUILDERS[level](allow_conflicts)
    return _BUILDERS[level]()


_Row = tuple[str, list[tuple[int, int, int]]]


def _table(level: str, kind: Kind, rows: Iterable[_Row]) -> InstructionSet:
    """An instruction set of one kind from (text, goals) rows; arrays are read-only."""
    texts, goals = zip(*rows, strict=True)
    relations = np.full((len(texts), MAX_RELATIONS, 3), -1, np.int32)
    for row, goal in zip(relations, goals, strict=True):
        row[: len(goal)] = np.array(goal, np.int32).reshape(-1, 3)
    kinds = np.full(len(texts), kind, np.int32)
    return _read_only(InstructionSet(level, texts, kinds, relations, np.zeros(len(texts), bool)))


def _read_only(instructions: InstructionSet) -> InstructionSet:
    for array in (instructions.kind, instructions.relations, instructions.held_out):
        array.flags.writeable = False
    return instructions


def _fill(frame: str, goal: tuple[int, int, int], directions: tuple[str, ...]) -> str:
    source, destination, direction = goal
    return frame.format(
        s=grammar.COLOURS[source],
        d=grammar.COLOURS[destination],
        x=directions[direction],
        o=directions[(direction + 2) % len(COMPASS)],
    )


def _phrasing(variant: int) -> tuple[str, ...]:
    """Real's four direction phrases of one of its three phrasings."""
    return tuple(phrases[variant] for phrases in grammar.REAL_DIRECTIONS)


def _real() -> InstructionSet:
    keys = list(itertools.product(GOALS, range(len(grammar.REAL_FRAMES)), range(3)))
    rows = (
        (_fill(grammar.REAL_FRAMES[frame], goal, _phrasing(variant)), [goal])
        for goal, frame, variant in keys
    )
    held_out = [
        goal in grammar.HELD_OUT_GOALS or frame in grammar.HELD_OUT_FRAMES
        for goal, frame, _ in keys
    ]
    instructions = _table("real", Kind.RELATIONS, rows)
    return _read_only(dataclasses.replace(instructions, held_out=np.array(held_out)))


def _real_part(level: str, held_out: bool) -> InstructionSet:
    real = instruction_set("real")
    return _read_only(real.select(level, real.held_out == held_out))


def _rephrase(confounded: bool) -> InstructionSet:
    styles = list(enumerate(grammar.REPHRASE_STYLES))
    rows = (
        (_fill(style.frame, goal, style.directions), [goal])
        for goal in GOALS
        for number, style in styles
        if not confounded or number // 2 == goal[2]
    )
    return _table("rephrase", Kind.RELATIONS, rows)


def _easy() -> InstructionSet:
    rows = (
        (
            frame.format(b=colour, x=phrases[number % len(phrases)]),
            [(ball, -1, direction)],
        )
        for ball, colour in enumerate(grammar.COLOURS)
        for direction, phrases in enumerate(grammar.EASY_DIRECTIONS)
        for number, frame in enumerate(grammar.EASY_FRAMES)
    )
    return _table("easy", Kind.ONE_STEP, rows)


def _goal_sets(size: int, allow_conflicts: bool) -> Iterator[list[tuple[int, int, int]]]:
    """A fixed random sequence of different goal sets; satisfiable ones unless conflicts may be."""
    rng = np.random.default_rng(size)
    seen = set()
    while True:
        drawn = [GOALS[i] for i in rng.choice(len(GOALS), size, replace=False)]
        key = frozenset(drawn)
        pairs = {frozenset(goal[:2]) for goal in drawn}
        if key in seen:
            continue
        seen.add(key)
        # Two goals on one pair of balls contradict or repeat each other.
        if allow_conflicts or (len(pairs) == size and find_witness(np.array(drawn)) is not None):
            yield drawn


def _conjunction(goals: list[tuple[int, int, int]], number: int) -> str:
    clauses = [
        _fill(grammar.CLAUSE, goal, _phrasing((number + i) % 3)) for i, goal in enumerate(goals)
    ]
    separator = " and " if len(clauses) == 2 else ", and "
    return separator.join([", ".join(clauses[:-1]), clauses[-1]])


def _hard_relations(level: str, size: int, allow_conflicts: bool) -> InstructionSet:
    count = len(grammar.CONJUNCTION_FRAMES)
    step = count // FRAMES_PER_SET
    sets = itertools.islice(_goal_sets(size, allow_conflicts), SETS_PER_FAMILY)
    rows = (
        (
            grammar.CONJUNCTION_FRAMES[(number + step * use) % count].format(
                all=_conjunction(goals, number + use)
            ),
            goals,
        )
        for number, goals in enumerate(sets)
        for use in range(FRAMES_PER_SET)
    )
    return _table(level, Kind.RELATIONS, rows)


def _fixed(level: str, kind: Kind, texts: tuple[str, ...]) -> InstructionSet:
    return _table(level, kind, ((text, []) for text in texts))


def _hard(allow_conflicts: bool) -> InstructionSet:
    families = [
        instruction_set("hard-two", allow_conflicts=allow_conflicts),
        instruction_set("hard-three", allow_conflicts=allow_conflicts),
        instruction_set("hard-order"),
        instruction_set("hard-sort"),
    ]
    longest = max(len(family) for family in families)
    # A family whose size does not divide the longest would be drawn with another weight.
    index = [np.tile(np.arange(len(family)), longest // len(family)) for family in families]
    parts = [family.select("hard", i) for family, i in zip(families, index, strict=True)]
    return _read_only(
        InstructionSet(
            "hard",
            tuple(itertools.chain.from_iterable(part.texts for part in parts)),
            np.concatenate([part.kind for part in parts]),
            np.concatenate([part.relations for part in parts]),
            np.concatenate([part.held_out for part in parts]),
        )
    )


_BUILDERS: dict[str, Callable[..., InstructionSet]] = {
    "real": _real,
    "real-train": functools.partial(_real_part, "real-train", False),
    "real-heldout": functools.partial(_real_part, "real-heldout", True),
    "rephrase": _rephrase,
    "easy": _easy,
    "hard": _hard,
    "hard-two": functools.partial(_hard_relations, "hard-two", 2),
    "hard-three": functools.partial(_hard_relations, "hard-three", 3),
    "hard-order": functools.partial(_fixed, "hard-order", Kind.ORDER, grammar.ORDER_TEXTS),
    "hard-sort": functools.partial(_fixed, "hard-sort", Kind.SORT, grammar.SORT_TEXTS),
}

LEVELS = tuple(_BUILDERS)
"""Names of the levels."""
