"""Episodes of a task or a mix by their seeds: which are judged, shown and played, and of what."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jaxrl_guided.learners.language.rollouts import Episode
from jaxrl_guided.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class Seeds:
    """Seeds of a task, divided so that nothing is judged on what it has learned from.

    Attributes:
      judged: for evaluation, the first eighth.
      shown: for demonstrations, the second.
      played: for training, the rest.
      parts: labels of a mix's tasks, which take turns (`Mix`); of one task, its name.
    """

    judged: range
    shown: range
    played: range
    parts: Sequence[str] = ("",)

    def part(self, seed: int) -> str:
        """Which task an episode is of."""
        return self.parts[seed % len(self.parts)]

    def draw(self, random: np.random.Generator, count: int) -> list[int]:
        """Seeds for training; tasks take turns."""
        parts = len(self.parts)
        rows = random.integers(len(self.played) // parts, size=count)
        return [self.played[int(row) * parts + i % parts] for i, row in enumerate(rows)]

    def successes(self, episodes: Sequence[Episode], name: str) -> dict[str, float]:
        """The share of episodes that succeed as `name`, and of a mix of each task as `name_task`.

        The tasks have equally many episodes or are left out.
        """
        found = {name: float(np.mean([episode.success for episode in episodes]))}
        if len(self.parts) > 1:
            for label in self.parts:
                own = [e.success for e in episodes if self.part(e.start.seed) == label]
                found |= {f"{name}_{label}": float(np.mean(own))} if own else {}
        return found


def divide(instances: int, parts: Sequence[str] = ("",)) -> Seeds:
    """Divides the seeds of a task or a mix."""
    part = instances // 8
    return Seeds(range(part), range(part, 2 * part), range(2 * part, instances), parts)


def check_whole(parts: Sequence[str], counts: Mapping[str, int]) -> None:
    """Raises UserError for numbers of episodes that are not the same for all tasks of a mix."""
    for name, count in counts.items():
        if count % len(parts):
            raise UserError(
                f"{name} must be a multiple of {len(parts)}, the tasks of the mix, not {count}"
            )
