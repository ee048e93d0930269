"""Several tasks as one: each episode is of one of them, which its seed says."""

from collections.abc import Callable, Sequence

from jaxrl_guided.envs.text.task import Opening, Reply, TextTask, limited

_EIGHTHS = 8
"""Users divide seeds into eighths (`learners.language.seeds.divide`)."""


class Shelf:
    """Tasks of one kind that nobody plays: there are never more of them than are played at once.

    Args:
      make: one more.
    """

    def __init__(self, make: Callable[[], TextTask]) -> None:
        self._make, self._free = make, list[TextTask]()

    def take(self) -> TextTask:
        """One of them, or a new one."""
        return self._free.pop() if self._free else self._make()

    def put(self, task: TextTask) -> None:
        """Gives one back."""
        self._free.append(task)

    def close(self) -> None:
        """Closes those that are here."""
        while self._free:
            self._free.pop().close()


class Mix:
    """Plays an episode of one task or the other, each with its own limit of turns.

    Seeds go around: episode `seed` is of task `seed % parts`. All tasks have as many seeds as the
    one with the most, whose others repeat. They do so within eighths: what the first eighth of the
    seeds has of a task, no other has.

    Args:
      names: of the tasks, for errors.
      shelves: of the tasks.

    Raises:
      ValueError: a task has too few episodes.
    """

    def __init__(self, names: Sequence[str], shelves: Sequence[Shelf]) -> None:
        self._shelves = shelves
        tasks = [shelf.take() for shelf in shelves]
        self._eighths = [task.instances // _EIGHTHS for task in tasks]
        self.max_turns = max(task.max_turns for task in tasks)
        for shelf, task in zip(shelves, tasks, strict=True):
            shelf.put(task)
        if not all(self._eighths):
            few = names[self._eighths.index(0)]
            raise ValueError(
                f"task: a mix needs tasks with at least {_EIGHTHS} episodes; {few} has fewer"
            )
        self.instances = len(shelves) * _EIGHTHS * max(self._eighths)
        self._task: TextTask | None = None
        self._part = self._turns = 0

    def reset(self, seed: int) -> Opening:
        """Begins an episode of the task whose turn that seed is."""
        self.close()
        self._part, number = seed % len(self._shelves), seed // len(self._shelves)
        self._task, self._turns = self._shelves[self._part].take(), 0
        return self._task.reset(_within(number, self._eighths[self._part], max(self._eighths)))

    def step(self, answer: str) -> Reply:
        """A step of that task."""
        assert self._task is not None
        self._turns += 1
        return limited(self._task.step(answer), self._turns >= self._task.max_turns)

    def close(self) -> None:
        """Ends the episode; whoever has the shelves closes them."""
        if self._task is not None:
            self._shelves[self._part].put(self._task)
            self._task = None


def _within(number: int, eighth: int, most: int) -> int:
    """The place in eight times `eighth` seeds of one of eight times `most`, in the same eighth."""
    part, place = divmod(number, most)
    return part * eighth + place % eighth
