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

LEVELS = (*CATEGORIES, *TASKS)
"""Names of the levels: the categories, and every task alone."""

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
      level: one of `LEVELS`. A task alone has the sentences of Real, Easy or Hard.

    Raises:
      ValueError: unknown level.
    """
    if level not in LEVELS:
        raise ValueError(f"level: unknown '{level}'; choose one of {', '.join(LEVELS)}")
    names, texts = CATEGORIES.get(level, (level,)), _TEXTS.get(level, _OWN_TEXTS)
    rows = [(name, text) for name in names for text in texts[name]]
    held_out = np.array([i in _HELD_OUT for name in names for i in range(len(texts[name]))])
    held_out &= level == "real"
    held_out.flags.writeable = False
    return InstructionSet(
        level, tuple(text for _, text in rows), tuple(name for name, _ in rows), held_out
    )
