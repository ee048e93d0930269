"""The bank as a run uses it: the file, what it holds now, and the index, changed together."""

import dataclasses
import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jaxrl_guided.complementary.bank import compaction
from jaxrl_guided.complementary.bank.database import Database, Durability
from jaxrl_guided.complementary.bank.index import Index, View
from jaxrl_guided.complementary.bank.log import Appended, Log
from jaxrl_guided.complementary.bank.records import Draft, Entry, Event, Usage, Write


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The bank at a version, counts of use included; it never changes.

    Attributes:
      view: what is searched.
      by_id: entries.
      tasks: numbers of scopes in the view.
    """

    view: View
    by_id: Mapping[int, Entry]
    tasks: Mapping[str, int]

    def get(self, entry: int) -> Entry | None:
        """An entry."""
        return self.by_id.get(entry)

    def entries(self) -> list[Entry]:
        """All, oldest first."""
        return list(self.by_id.values())

    def task_number(self, task: str) -> int | None:
        """Number of a scope in the view; None: it has no entry."""
        return self.tasks.get(task)


class Bank:
    """A durable bank. Any thread may read and write; writes are one after the other.

    What a method has returned from is on the disk. A write that fails changes nothing anywhere.

    Args:
      path: of the file.
      dim: d, numbers in a vector; None: as an existing file says.
      embedder: name of what makes the vectors; empty: as an existing file says.
      run: who writes, for those who read the history.
      version: to go on from; None: the latest. An older one starts a branch.
      capacity: entries at most; the oldest make room.
      durability: see `Database`.

    Raises:
      BankError: see `Database`; or there is no such version.
      ValueError: capacity below 1.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        dim: int | None = None,
        embedder: str = "",
        run: str = "",
        version: int | None = None,
        capacity: int = 20_000,
        durability: Durability = "full",
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self._lock = threading.Lock()
        self._log = Log(Database(path, dim, embedder, durability))
        try:
            self.branch = self._log.branch_from(run, version)
            self._contents = self._log.read(self._log.head(self.branch))
        except BaseException:
            self._log.database.close()
            raise
        self._index = Index(self.dim)
        entries = list(self._contents.entries.values())
        used = [(Event("retrieved", entry), usage) for entry, usage in self._contents.usage.items()]
        self._index.apply(self._contents.version, entries, [], used)

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return self._log.database.dim

    @property
    def version(self) -> int:
        """The latest."""
        return self.view.version

    @property
    def view(self) -> View:
        """What is searched, without a lock; see `View`."""
        return self._index.view

    def __len__(self) -> int:
        return len(self._contents.entries)

    def task_number(self, task: str) -> int | None:
        """Number of a scope in `View.tasks`; None: it has no entry yet."""
        return self._index.tasks.get(task)

    def snapshot(self) -> Snapshot:
        """What it holds now."""
        with self._lock:
            entries, tasks = dict(self._contents.entries), dict(self._index.tasks)
            return Snapshot(self.view.frozen(), entries, tasks)

    def entries(self) -> list[Entry]:
        """All, oldest first."""
        with self._lock:
            return list(self._contents.entries.values())

    def get(self, entry: int) -> Entry | None:
        """An entry, or None if it is not there (any more)."""
        return self._contents.entries.get(entry)

    def usage(self, entry: int) -> Usage:
        """Of an entry that is there."""
        return self._contents.used(entry)

    def write(self, write: Write, at: float = 0.0, step: int = 0) -> list[Entry] | None:
        """Adds and deletes, as a whole.

        Args:
          at: seconds of the clock.
          step: updates of the actor so far.

        Returns:
          The new entries; None if one that is to be deleted is not there: nothing has changed.

        Raises:
          ValueError: a vector of another size or not finite, an entry deleted twice, or more drafts
            than the bank has room for.
          StorageError: nothing has changed.
        """
        for draft in write.drafts:
            self._check(draft)
        if len(write.drafts) > self.capacity:
            raise ValueError(f"{len(write.drafts)} entries for a capacity of {self.capacity}")
        if len(set(write.deletes)) < len(write.deletes):
            raise ValueError(f"entries deleted twice: {write.deletes}")
        with self._lock:
            if not all(entry in self._contents.entries for entry in write.deletes):
                return None

            deaths = [(entry, write.reason) for entry in write.deletes]
            deaths += [(entry, "capacity") for entry in self._oldest(write)]

            def events(ids: Sequence[int]) -> list[Event]:
                births = [Event("born", entry, at=at, step=step) for entry in ids]
                ends = [Event("died", e, at=at, step=step, note=why) for e, why in deaths]
                return births + ends

            return self._append(write.drafts, events).born

    def _oldest(self, write: Write) -> list[int]:
        """Entries that make room for a write."""
        there = self._contents.entries
        over = len(there) - len(write.deletes) + len(write.drafts) - self.capacity
        if over <= 0:
            return []
        staying = (entry for entry in there if entry not in write.deletes)
        return list(itertools.islice(staying, over))

    def record(self, events: Sequence[Event]) -> None:
        """Adds retrievals and credits; those of entries that have died are history only.

        Raises:
          ValueError: another kind of event.
          StorageError: nothing has changed.
        """
        if bad := {event.kind for event in events} - {"retrieved", "credited"}:
            raise ValueError(f"only retrievals and credits are recorded, not {sorted(bad)}")
        if events:
            with self._lock:
                self._append((), lambda ids: events)

    def _append(
        self, drafts: Sequence[Draft], events: Callable[[Sequence[int]], Sequence[Event]]
    ) -> Appended:
        done = self._log.append(self.branch, drafts, events)
        self._contents.apply(done.version, done.events, done.born)
        died = [event.entry for event in done.events if event.kind == "died"]
        alive = self._contents.entries
        used = [
            (event, self._contents.used(event.entry))
            for event in done.events
            if event.kind in ("retrieved", "credited") and event.entry in alive
        ]
        self._index.apply(done.version, done.born, died, used)
        return done

    def _check(self, draft: Draft) -> None:
        if draft.vector.shape != (self.dim,) or not np.isfinite(draft.vector).all():
            raise ValueError(
                f"the vector of '{draft.title}' must be {self.dim} finite numbers, it has shape "
                f"{draft.vector.shape}"
            )

    def checkpoint(self, name: str) -> int:
        """Names the latest version, and returns it; `compact` keeps it.

        Raises:
          StorageError: it has no name.
        """
        with self._lock:
            self._log.name_checkpoint(name, self._contents.version)
            return self._contents.version

    def compact(self) -> tuple[int, int]:
        """Drops entries and events that neither a checkpoint nor the latest version needs.

        Returns:
          Numbers of entries and events that were dropped.
        """
        with self._lock:
            return compaction.compact(self._log, self.branch)

    def close(self) -> None:
        """Closes the file. Again: does nothing."""
        with self._lock:
            self._log.database.close()

    def __enter__(self) -> "Bank":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
