"""The bank's file: SQLite, its tables, and what can be wrong with it."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from jaxrl_guided.runtime.errors import StorageError, UserError
from jaxrl_guided.runtime.locks import Held, take_lock

SCHEMA = 1
_APPLICATION = 0x6A786267
Durability = Literal["full", "normal"]

_TABLES = """
CREATE TABLE facts(name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE branches(
  id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, parent INTEGER, start INTEGER NOT NULL,
  at REAL NOT NULL);
CREATE TABLE versions(
  id INTEGER PRIMARY KEY AUTOINCREMENT, branch INTEGER NOT NULL, at REAL NOT NULL);
CREATE INDEX versions_of ON versions(branch, id);
CREATE TABLE entries(
  id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, content TEXT NOT NULL,
  vector BLOB NOT NULL, task TEXT NOT NULL, operation TEXT NOT NULL, parents TEXT NOT NULL,
  generation INTEGER NOT NULL, episode INTEGER NOT NULL);
CREATE TABLE events(
  version INTEGER NOT NULL, place INTEGER NOT NULL, kind TEXT NOT NULL, entry INTEGER NOT NULL,
  episode INTEGER NOT NULL, value REAL NOT NULL, at REAL NOT NULL, step INTEGER NOT NULL,
  note TEXT NOT NULL, PRIMARY KEY(version, place)) WITHOUT ROWID;
CREATE INDEX events_of ON events(entry);
CREATE TABLE checkpoints(name TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
"""


class BankError(UserError):
    """The bank cannot be opened or read; the message names the file and what would be right."""


class Database:
    """A bank's file. One thread at a time; whoever shares it holds a lock.

    Args:
      path: of the file; made if it is absent, unless `read_only`.
      dim: numbers in a vector; None: as the file says.
      embedder: name of what makes the vectors; empty: as the file says.
      durability: `full` survives power loss, `normal` kill -9 alone, and is faster.
      read_only: nothing is written, and another process may be writing.

    Attributes:
      path, dim, embedder: see above.

    Raises:
      BankError: it is no bank, of a newer format or other vectors, damaged, cannot be written, or
        another process writes it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        dim: int | None = None,
        embedder: str = "",
        durability: Durability = "full",
        read_only: bool = False,
    ) -> None:
        self.path = Path(path)
        self._lock: int | None = None
        self._connection: sqlite3.Connection | None = None
        try:
            there = self.path.exists()
        except OSError as error:
            raise BankError(f"{self.path} cannot be read: {error.strerror}") from error
        if read_only and (not there or self.path.is_dir()):
            raise BankError(f"{self.path}: there is no such bank")
        if dim is None and not there:
            raise BankError(f"{self.path} is new: say how many numbers its vectors have")
        try:
            if not read_only:
                self._take_lock()
            self._connection = _connect(self.path, read_only)
            self._check()
            if not read_only:
                self._prepare(dim, embedder, durability)
            self.dim, self.embedder = int(self.fact("dim")), str(self.fact("embedder"))
            if dim not in (None, self.dim):
                raise BankError(f"{self.path}: its vectors have {self.dim} numbers, not {dim}")
            if embedder not in ("", self.embedder):
                raise BankError(
                    f"{self.path}: its vectors are of the embedder '{self.embedder}', not of "
                    f"'{embedder}'"
                )
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error | StorageError):
                raise BankError(f"{self.path} cannot be opened: {error}") from error
            raise

    def _take_lock(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = take_lock(self.path.with_name(f".{self.path.name}.lock"))
        except OSError as error:
            raise BankError(f"{self.path} cannot be written: {error.strerror or error}") from error
        except Held as held:
            raise BankError(f"{self.path} is being written by the process {held.owner}") from held

    def _check(self) -> None:
        (application,), (schema,) = (
            self.one("PRAGMA application_id"),
            self.one("PRAGMA user_version"),
        )
        (tables,) = self.one("SELECT count(*) FROM sqlite_master")
        if tables and application != _APPLICATION:
            raise BankError(f"{self.path} is a database, but no bank of this library")
        if schema > SCHEMA:
            raise BankError(
                f"{self.path} is of format {schema}, this library reads up to {SCHEMA}: update it"
            )
        (found,) = self.one("PRAGMA quick_check(1)")
        if found != "ok":
            what = " ".join(found.split())
            raise BankError(f"{self.path} is damaged ({what}): restore it from a copy")

    def _prepare(self, dim: int | None, embedder: str, durability: Durability) -> None:
        self.execute("PRAGMA journal_mode = WAL")
        self.execute(f"PRAGMA synchronous = {durability.upper()}")
        with self.transaction():
            if self.one("PRAGMA user_version") != (0,):
                return  # that a transaction can begin shows that the file can be written
            if dim is None:
                raise BankError(f"{self.path} is empty: say how many numbers its vectors have")
            for statement in _TABLES.split(";"):
                self.execute(statement)
            self.set_fact("dim", dim)
            self.set_fact("embedder", embedder)
            self.execute(f"PRAGMA application_id = {_APPLICATION}")
            self.execute(f"PRAGMA user_version = {SCHEMA}")

    @property
    def connection(self) -> sqlite3.Connection:
        """Of the open file.

        Raises:
          ValueError: it was closed.
        """
        if self._connection is None:
            raise ValueError(f"the bank {self.path} is closed")
        return self._connection

    def execute(self, query: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Runs a statement."""
        return self.connection.execute(query, values)

    def one(self, query: str, values: tuple[Any, ...] = ()) -> Any:
        """The first row, or None."""
        return self.execute(query, values).fetchone()

    def fact(self, name: str) -> int | str:
        """What the file says of itself; 0 if it does not."""
        (value,) = self.one("SELECT value FROM facts WHERE name = ?", (name,)) or (0,)
        return value if isinstance(value, str) else int(value)

    def set_fact(self, name: str, value: int | str) -> None:
        """Writes what `fact` reads."""
        self.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, on the disk when it ends.

        Raises:
          StorageError: nothing was written.
        """
        try:
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StorageError(f"cannot write {self.path}: {error}") from error

    def close(self) -> None:
        """Closes the file; what was committed is there. Again: does nothing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _connect(path: Path, read_only: bool) -> sqlite3.Connection:
    address = path.absolute().as_uri()
    if read_only:
        # A directory that cannot be written has no room for the shared memory of a WAL.
        frozen = "" if os.access(path.parent, os.W_OK) else "&immutable=1"
        address = f"{address}?mode=ro{frozen}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection
