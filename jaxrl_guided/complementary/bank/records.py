"""What the bank holds: entries, what happened to them, and the state that follows from it."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

Operation = Literal["add", "update", "merge"]
Kind = Literal["born", "died", "retrieved", "credited"]
NOBODY = -1
"""Stands for no episode, no generation, no entry."""


def text_of(title: str, content: str) -> str:
    """An entry in the form that actors and extractors see, and vectors are made of."""
    return f"<title>{title}</title><content>{content}</content>"


@dataclasses.dataclass(frozen=True)
class Draft:
    """An entry that is to be written.

    Attributes:
      title, content: what an actor reads.
      vector: `f32[d]` of unit length, by which it is found.
      task: its scope; empty: for all tasks.
      operation: how it came to be.
      parents: entries that it was made of.
      generation: number of the extractor's answer that wrote it, which is credited for it.
      episode: that it was learned from.
    """

    title: str
    content: str
    vector: np.ndarray
    task: str = ""
    operation: Operation = "add"
    parents: tuple[int, ...] = ()
    generation: int = NOBODY
    episode: int = NOBODY

    @property
    def text(self) -> str:
        """Title and content in the form that actors and extractors see."""
        return text_of(self.title, self.content)


@dataclasses.dataclass(frozen=True)
class Entry(Draft):
    """An entry of the bank.

    Attributes:
      id: never used again; later entries have larger ones.
    """

    id: int = NOBODY


@dataclasses.dataclass(frozen=True)
class Write:
    """What is done as a whole or not at all.

    Attributes:
      drafts: that become entries.
      deletes: entries that end; all must be there.
      reason: why they end, for those who read the history.
    """

    drafts: tuple[Draft, ...] = ()
    deletes: tuple[int, ...] = ()
    reason: str = "update"


@dataclasses.dataclass(frozen=True)
class Event:
    """What happened to an entry.

    Attributes:
      kind: `born`, `died`, `retrieved` by an episode, or `credited` with the outcome of one.
      entry: its id.
      episode: for which; `NOBODY` if for none.
      value: of a credit, 1 or −1.
      at: seconds of the clock.
      step: updates of the actor so far.
      note: of a death, its reason.
    """

    kind: Kind
    entry: int
    episode: int = NOBODY
    value: float = 0.0
    at: float = 0.0
    step: int = 0
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Usage:
    """Sums over the events of an entry.

    Attributes:
      retrievals: number of them.
      last_at, last_step: of the latest; −inf and −1 before the first.
      credits: number of them.
      total: sum of their values.
    """

    retrievals: int = 0
    last_at: float = -np.inf
    last_step: int = -1
    credits: int = 0
    total: float = 0.0

    def after(self, event: Event) -> "Usage":
        """One retrieval or credit later."""
        if event.kind == "retrieved":
            return dataclasses.replace(
                self, retrievals=self.retrievals + 1, last_at=event.at, last_step=event.step
            )
        return dataclasses.replace(self, credits=self.credits + 1, total=self.total + event.value)


@dataclasses.dataclass
class Contents:
    """The bank at a version.

    Attributes:
      version: 0 is the empty bank.
      entries: alive, oldest first.
      usage: of those that have any.
    """

    version: int = 0
    entries: dict[int, Entry] = dataclasses.field(default_factory=dict)
    usage: dict[int, Usage] = dataclasses.field(default_factory=dict)

    def used(self, entry: int) -> Usage:
        """Of an entry that is alive."""
        return self.usage.get(entry, Usage())

    def apply(self, version: int, events: Iterable[Event], born: Sequence[Entry]) -> None:
        """Goes on to `version`; `born` are the entries whose births are among the events."""
        births = {entry.id: entry for entry in born}
        for event in events:
            if event.kind == "born":
                self.entries[event.entry] = births[event.entry]
            elif event.kind == "died":
                del self.entries[event.entry]
                self.usage.pop(event.entry, None)
            elif event.entry in self.entries:  # else it has died in between
                self.usage[event.entry] = self.used(event.entry).after(event)
        self.version = version
