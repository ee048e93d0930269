"""Instruction tables: texts and their tasks, by level (LaGO, arXiv 2606.24669)."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from jaxrl_guided.envs.metaworld import (
    wording_easy,
    wording_hard,
    wording_real,
    wording_rephrase,
)
from jaxrl_guided.envs.metaworld.tasks import CATEGORIES, TASKS

_TEXTS = {
    "real": wording_real.TEXTS,
    "rephrase": wording_rephrase.TEXTS,
    "easy": wording_easy.TEXTS,
    "hard": wording_hard.TEXTS,
}
_OWN_TEXTS = wording_real.TEXTS | wording_easy.TEXTS | wording_hard.TEXTS

_ALONE = {f"{level}-{task}": (level, task) for level in CATEGORIES for task in CATEGORIES[level]}

HELD_OUT = "real-heldout"
LEVELS = (*CATEGORIES, *TASKS, *_ALONE, HELD_OUT)
"""Names of the levels: the categories, every task alone, every task in the words of its category,
as `rephrase-push`, and Real in the sentences that are kept for choosing."""

_HELD_OUT = (6, 13)
"""Which of a Real task's twenty sentences are kept for choosing, a tenth of them."""


@dataclasses.dataclass(frozen=True)
class InstructionSet:
    """The instructions of one level; an environment draws an index uniformly at reset.

    Attributes:
      level: name of the level.
      texts: `I` sentences, as many for each task.
      tasks: name of each sentence's task.
      held_out: `bool[I]`: Real instructions kept for choosing, false elsewhere.
    """

    level: str
    texts: tuple[str, ...]
    tasks: tuple[str, ...]
    held_out: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    def of(self, tasks: Sequence[str]) -> np.ndarray:
        """Indices of the sentences of some tasks, of all where none is named.

        Raises:
          ValueError: a task that the level does not have.
        """
        if isinstance(tasks, str):
            raise ValueError(f'tasks must be a list of names, as ["{tasks}"], not {tasks!r}')
        known = tuple(dict.fromkeys(self.tasks))
        if not set(tasks) <= set(known):
            raise ValueError(
                f"tasks: must be out of {', '.join(known)} for level '{self.level}', not "
                f"{', '.join(tasks)}"
            )
        return np.flatnonzero([task in (tasks or known) for task in self.tasks])


@functools.cache
def instruction_set(level: str) -> InstructionSet:
    """The instructions of `level`, the same ones at every call.

    Args:
      level: one of `LEVELS`. A task without category has the sentences of Real, Easy or Hard.

    Raises:
      ValueError: unknown level.
    """
    if level not in LEVELS:
        raise ValueError(f"level: unknown '{level}'; choose one of {', '.join(LEVELS)}")
    if level == HELD_OUT:
        return _held_out(instruction_set("real"))
    category, task = _ALONE.get(level, (level, level))
    names, texts = CATEGORIES.get(task, (task,)), _TEXTS.get(category, _OWN_TEXTS)
    rows = [(name, text) for name in names for text in texts[name]]
    held_out = np.array([i in _HELD_OUT for name in names for i in range(len(texts[name]))])
    held_out &= category == "real"
    held_out.flags.writeable = False
    return InstructionSet(
        level, tuple(text for _, text in rows), tuple(name for name, _ in rows), held_out
    )


def _held_out(real: InstructionSet) -> InstructionSet:
    kept = np.flatnonzero(real.held_out)
    texts, tasks = (tuple(values[i] for i in kept) for values in (real.texts, real.tasks))
    return InstructionSet(HELD_OUT, texts, tasks, real.held_out[kept])
