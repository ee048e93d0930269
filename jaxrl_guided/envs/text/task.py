"""What agents that speak play: episodes in text, a conversation each."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeVar

TASK = "task"
"""Name of the reward that the task itself gives."""


@dataclasses.dataclass(frozen=True)
class Opening:
    """How an episode begins.

    Attributes:
      system: what the agent is, what it can do and how it says so; the same for all episodes.
      observation: the first message to it.
      description: what this episode asks for, in a line; experience is looked up by it.
      later: as of `Reply`.
    """

    system: str
    observation: str
    description: str
    later: Callable[[], "Opening | None"] | None = None


@dataclasses.dataclass(frozen=True)
class Reply:
    """What follows an answer.

    Attributes:
      observation: the next message to the agent; of no use after the last answer.
      rewards: by name, `TASK` and others such as penalties; an episode's return is the sum of all.
      terminated: the episode has ended by what happened in it.
      truncated: it was ended before that.
      success: the task is solved; once at most in an episode, at its end.
      acted: the answer named something to do; False: nothing has happened, `observation` says why.
      role: who speaks, the environment (`user`) or a tool that the agent has called.
      later: set while what follows is not known yet (another process works on it): asked from time
        to time, it gives the reply, or None for not yet. Nothing else of this reply counts then.
    """

    observation: str
    rewards: Mapping[str, float] = dataclasses.field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    acted: bool = True
    role: Literal["user", "tool"] = "user"
    later: Callable[[], "Reply | None"] | None = None


Said = TypeVar("Said", Opening, Reply)
_PAUSE = 0.0005
"""Seconds between two looks for what comes later."""


def changed(said: Said, change: Callable[[Said], Said]) -> Said:
    """An opening or a reply after a change, which waits for one that comes later."""
    if (later := said.later) is None:
        return change(said)

    def when_known() -> Said | None:
        found = later()
        return None if found is None else changed(found, change)

    return dataclasses.replace(said, later=when_known)


def awaited(said: Said) -> Said:
    """What is said, after waiting for it where it comes later."""
    while said.later is not None:
        found = said.later()
        if found is None:
            time.sleep(_PAUSE)
        else:
            said = found
    return said


def limited(reply: Reply, over: bool) -> Reply:
    """A reply after which the episode is truncated if its turns are `over`, unless it has ended."""

    def cut(known: Reply) -> Reply:
        truncated = known.truncated or (over and not known.terminated)
        return dataclasses.replace(known, truncated=truncated)

    return changed(reply, cut)


class TextTask(Protocol):
    """One episode after the other, on the host.

    Attributes:
      max_turns: answers in an episode; whoever plays it counts them.
      instances: number of seeds, each of which is another episode.
    """

    max_turns: int
    instances: int

    def reset(self, seed: int) -> Opening:
        """Starts the episode of that seed, 0 … `instances` − 1: always the same one."""
        ...

    def step(self, answer: str) -> Reply:
        """Reads an answer, does what it says, and shows what follows.

        Any text is an answer; one that cannot be read changes nothing in the episode.
        """
        ...

    def close(self) -> None:
        """Frees what the task holds."""
        ...


class Demonstrator(Protocol):
    """Plays a task from the same messages that an agent gets."""

    def reset(self, seed: int) -> None:
        """A new episode begins; the seed decides what the demonstrator leaves to chance."""
        ...

    def answer(self, observation: str) -> str:
        """What it says to a message."""
        ...
