"""The bank's events, to which more are only ever added, on branches.

A version is one committed transaction; versions grow over the whole file. A branch is a line of
versions that starts at a version of another branch, and sees of that one what came before.
"""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from jaxrl_guided.complementary.bank.database import BankError, Database
from jaxrl_guided.complementary.bank.records import Contents, Draft, Entry, Event

_VISIBLE = "SELECT id FROM versions WHERE branch = ? AND id <= ?"


class StaleVersion(BankError):
    """A version that has never been, or that `compact` has removed."""


class Appended(NamedTuple):
    """A new version: its number, its entries with their ids, its events."""

    version: int
    born: list[Entry]
    events: list[Event]


class Branch(NamedTuple):
    """A line of versions; `parent` is None for one that starts empty, `start` then 0."""

    id: int
    run: str
    parent: int | None
    start: int
    head: int


class Log:
    """Versions of a bank in a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def append(
        self,
        branch: int,
        drafts: Sequence[Draft],
        events: Callable[[Sequence[int]], Sequence[Event]],
    ) -> Appended:
        """Adds a version to a branch.

        Args:
          drafts: of new entries.
          events: of the version, given the ids of the new entries.

        Raises:
          StorageError: nothing was written.
        """
        execute = self.database.execute
        with self.database.transaction():
            version = execute(
                "INSERT INTO versions(branch, at) VALUES (?, ?)", (branch, time.time())
            ).lastrowid
            assert version is not None
            born = []
            for draft in drafts:
                row = _row(draft)
                place = execute("INSERT INTO entries VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", row)
                born.append(_entry((place.lastrowid, *row)))
            done = list(events([entry.id for entry in born]))
            self.database.connection.executemany(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (version, place, e.kind, e.entry, e.episode, e.value, e.at, e.step, e.note)
                    for place, e in enumerate(done)
                ],
            )
        return Appended(version, born, done)

    def head(self, branch: int) -> int:
        """Latest version that a branch sees."""
        one = self.database.one
        (version,) = one("SELECT max(id) FROM versions WHERE branch = ?", (branch,))
        if version is None:
            (version,) = one("SELECT start FROM branches WHERE id = ?", (branch,))
        return int(version)

    def latest(self) -> int:
        """Latest version of the newest branch; 0 of an empty bank."""
        (newest,) = self.database.one("SELECT max(id) FROM branches")
        return 0 if newest is None else self.head(newest)

    def branch_from(self, run: str, version: int | None) -> int:
        """The branch that goes on from a version, a new one unless it is a head; None: the newest.

        Args:
          run: who writes it, for those who read the history.

        Raises:
          StaleVersion: the version cannot be read.
          StorageError: the new branch cannot be written.
        """
        (newest,) = self.database.one("SELECT max(id) FROM branches")
        if version is None and newest is not None:
            return int(newest)
        parent = None
        if version:
            self.check(version)
            parent = self._branch_of(version)
            if self.head(parent) == version:
                return parent
        with self.database.transaction():
            added = self.database.execute(
                "INSERT INTO branches(run, parent, start, at) VALUES (?, ?, ?, ?)",
                (run, parent, version or 0, time.time()),
            ).lastrowid
        assert added is not None
        return added

    def _branch_of(self, version: int) -> int:
        (branch,) = self.database.one("SELECT branch FROM versions WHERE id = ?", (version,))
        return int(branch)

    def lineage(self, version: int) -> list[tuple[int, int]]:
        """What a version sees: branches, and up to which of their versions each."""
        seen: list[tuple[int, int]] = []
        while version:
            branch = self._branch_of(version)
            seen.append((branch, version))
            (version,) = self.database.one("SELECT start FROM branches WHERE id = ?", (branch,))
        return seen

    def check(self, version: int) -> None:
        """Raises StaleVersion if a version cannot be read."""
        one, names = self.database.one, self.checkpoints()
        there = one("SELECT 1 FROM versions WHERE id = ?", (version,))
        first = int(self.database.fact("compacted"))
        if version == 0 or (there and (version >= first or version in names.values())):
            return
        (last,) = one("SELECT max(id) FROM versions")
        named = "".join(f", {name} ({number})" for name, number in names.items())
        raise StaleVersion(
            f"{self.database.path} has no version {version}: there are {first} to {last or 0}"
            f"{named}"
        )

    def read(self, version: int) -> Contents:
        """The bank at a version: the fold of all events that it sees.

        Raises:
          StaleVersion: it cannot be read.
          BankError: the file is damaged.
        """
        with self._reading():
            self.check(version)
            born: list[Entry] = []
            events: list[tuple[int, int, Event]] = []
            for seen in self.lineage(version):
                rows = self.database.execute(
                    f"SELECT * FROM events WHERE version IN ({_VISIBLE})", seen
                )
                events += [(row[0], row[1], Event(*row[2:])) for row in rows]
                births = f"SELECT entry FROM events WHERE kind = 'born' AND version IN ({_VISIBLE})"
                rows = self.database.execute(f"SELECT * FROM entries WHERE id IN ({births})", seen)
                born += [_entry(row) for row in rows]
            events.sort(key=lambda event: event[:2])
            contents = Contents()
            contents.apply(version, [event for _, _, event in events], born)
            return contents

    def history(self, entry: int) -> tuple[Entry, list[Event]]:
        """An entry, alive or dead, and what happened to it on all branches.

        Raises:
          BankError: there is none, or it was dropped by `compact`.
        """
        with self._reading():
            row = self.database.one("SELECT * FROM entries WHERE id = ?", (entry,))
            if row is None:
                raise BankError(f"{self.database.path} has no entry {entry}")
            rows = self.database.execute(
                "SELECT kind, entry, episode, value, at, step, note FROM events WHERE entry = ? "
                "ORDER BY version, place",
                (entry,),
            )
            return _entry(row), [Event(*event) for event in rows]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise BankError(f"{self.database.path} cannot be read: {error}") from error

    def branches(self) -> list[Branch]:
        """All, oldest first."""
        rows = self.database.execute("SELECT id, run, parent, start FROM branches ORDER BY id")
        return [
            Branch(number, run, parent, start, self.head(number))
            for number, run, parent, start in rows.fetchall()
        ]

    def checkpoints(self) -> dict[str, int]:
        """Versions by name; `compact` keeps them."""
        rows = self.database.execute("SELECT name, version FROM checkpoints ORDER BY version, name")
        return dict(rows.fetchall())

    def name_checkpoint(self, name: str, version: int | None) -> None:
        """Names a version; a name that was given before moves. None: forgets the name.

        Raises:
          StaleVersion: the version cannot be read.
          StorageError: nothing was written.
        """
        if version is not None:
            self.check(version)
        with self.database.transaction():
            self.database.execute("DELETE FROM checkpoints WHERE name = ?", (name,))
            if version is not None:
                self.database.execute("INSERT INTO checkpoints VALUES (?, ?)", (name, version))


def open_past(path: str | os.PathLike[str], version: int | None = None) -> Contents:
    """The bank at a version (None: the newest branch's latest), while others may be writing.

    Raises:
      BankError: see `Database` and `Log.read`.
    """
    log = Log(Database(path, read_only=True))
    try:
        return log.read(log.latest() if version is None else version)
    finally:
        log.database.close()


def _row(draft: Draft) -> tuple[Any, ...]:
    return (
        draft.title,
        draft.content,
        np.asarray(draft.vector, "<f4").tobytes(),
        draft.task,
        draft.operation,
        json.dumps(draft.parents),
        draft.generation,
        draft.episode,
    )


def _entry(row: Sequence[Any]) -> Entry:
    number, title, content, vector, task, operation, parents, generation, episode = row
    return Entry(
        title,
        content,
        np.frombuffer(vector, "<f4").astype(np.float32),
        task,
        operation,
        tuple(json.loads(parents)),
        generation,
        episode,
        number,
    )
