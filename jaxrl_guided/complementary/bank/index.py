"""Exact search over the bank's vectors, kept in step with it and read without a lock.

Whoever searches takes a `View`. A writer never changes what a view shows of vectors and life: new
rows lie behind its end, and a death makes a new mask. Counters of use are seen as they are.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxrl_guided.complementary.bank.records import Entry, Event, Usage

_BLOCK = 4096
"""Rows of a block: its products fit in a cache."""
_FIRST_ROWS = 256


class View(NamedTuple):
    """The rows of an index at one moment.

    Attributes:
      version: of the bank.
      ids: `i64[N]`, of entries; increasing.
      vectors: `f32[N, d]`.
      alive: `bool[N]`.
      tasks: `i32[N]`, see `Index.task_number`.
      retrievals: `i32[N]`, counted live.
      last_at, last_step: `f64[N]` and `i32[N]` of the latest retrieval, live; −inf and −1 for none.
    """

    version: int
    ids: np.ndarray
    vectors: np.ndarray
    alive: np.ndarray
    tasks: np.ndarray
    retrievals: np.ndarray
    last_at: np.ndarray
    last_step: np.ndarray

    def frozen(self) -> "View":
        """A copy whose counters stay; dead rows are left out."""
        rows = np.flatnonzero(self.alive)
        return View(self.version, *(column[rows] for column in self[1:]))

    def of(self, ids: Sequence[int]) -> np.ndarray:
        """Rows `i64[K]` of entries that are, or were, in the view.

        Raises:
          KeyError: one never was.
        """
        rows = np.searchsorted(self.ids, ids)
        if len(rows) and (rows.max() >= len(self.ids) or np.any(self.ids[rows] != ids)):
            raise KeyError(f"no entries {list(ids)}")
        return rows


class Found(NamedTuple):
    """`rows` `i64[Q, k]` of a view and their `products` `f32[Q, k]` with the queries."""

    rows: np.ndarray
    products: np.ndarray


class Index:
    """Rows of a bank; one thread at a time changes them, any number reads `view`.

    Args:
      dim: d, numbers in a vector.
    """

    def __init__(self, dim: int) -> None:
        self.tasks: dict[str, int] = {}
        self._dim = dim
        self._allocate(0, _FIRST_ROWS)
        self._publish(0, np.zeros(0, bool))

    def _allocate(self, rows: int, room: int) -> None:
        self._rows = rows
        self._ids = np.zeros(room, np.int64)
        self._vectors = np.zeros((room, self._dim), np.float32)
        self._tasks = np.zeros(room, np.int32)
        self._retrievals = np.zeros(room, np.int32)
        self._last_at = np.full(room, -np.inf)
        self._last_step = np.full(room, -1, np.int32)

    def _columns(self) -> tuple[np.ndarray, ...]:
        return (
            self._ids,
            self._vectors,
            self._tasks,
            self._retrievals,
            self._last_at,
            self._last_step,
        )

    def _publish(self, version: int, alive: np.ndarray) -> None:
        ids, vectors, *rest = (column[: self._rows] for column in self._columns())
        self.view = View(version, ids, vectors, alive, *rest)

    def task_number(self, task: str) -> int:
        """Number of a scope, in `View.tasks`."""
        return self.tasks.setdefault(task, len(self.tasks))

    def apply(
        self,
        version: int,
        born: Sequence[Entry],
        died: Sequence[int],
        used: Iterable[tuple[Event, Usage]],
    ) -> None:
        """Goes on to a version.

        Args:
          born: entries with larger ids than all before.
          died: ids; they may be among the born.
          used: retrievals and credits with the usage after each.
        """
        alive = self.view.alive
        if born:
            alive = np.concatenate([self._make_room(len(born), alive), np.ones(len(born), bool)])
            for entry in born:
                self._ids[self._rows] = entry.id
                self._vectors[self._rows] = entry.vector
                self._tasks[self._rows] = self.task_number(entry.task)
                self._rows += 1
        if died:
            alive = alive if born else alive.copy()
            alive[np.searchsorted(self._ids[: self._rows], died)] = False
        for event, usage in used:
            row = np.searchsorted(self._ids[: self._rows], event.entry)
            self._retrievals[row] = usage.retrievals
            self._last_at[row], self._last_step[row] = usage.last_at, usage.last_step
        self._publish(version, alive)

    def _make_room(self, more: int, alive: np.ndarray) -> np.ndarray:
        """Room for more rows, in new memory if need be, without the dead; returns the mask."""
        room = len(self._ids)
        if self._rows + more <= room:
            return alive
        keep = np.flatnonzero(alive)
        old = [column[keep] for column in self._columns()]
        needed = len(keep) + more
        while room < 2 * needed:
            room *= 2
        self._allocate(len(keep), room)
        for column, values in zip(self._columns(), old, strict=True):
            column[: len(keep)] = values
        return np.ones(len(keep), bool)


def search(view: View, queries: np.ndarray, k: int, tasks: Sequence[int] | None = None) -> Found:
    """The k rows of largest products with each query, best first; of equal ones, older first.

    Exact, in blocks: after the first, only what beats a query's k-th best is looked at again.

    Args:
      queries: `f32[Q, d]`.
      k: at least 1.
      tasks: scopes that are searched, numbers of `Index.task_number`; None: all.

    Returns:
      Rows and products; where fewer than k entries are there, rows −1 and products −inf fill up.
    """
    queries = np.ascontiguousarray(queries, np.float32)
    allowed = view.alive if tasks is None else view.alive & np.isin(view.tasks, tasks)
    whole = bool(allowed.all())
    rows = np.full((len(queries), k), -1, np.int64)
    products = np.full((len(queries), k), -np.inf, np.float32)
    for start in range(0, len(view.ids), _BLOCK):
        block = queries @ view.vectors[start : start + _BLOCK].T
        if not whole:
            block[:, ~allowed[start : start + _BLOCK]] = -np.inf
        better = block > products[:, -1:]
        for query in np.flatnonzero(better.any(axis=1)):
            new = np.flatnonzero(better[query])
            _merge(rows[query], products[query], new + start, block[query, new])
    return Found(rows, products)


def _merge(
    rows: np.ndarray, products: np.ndarray, new_rows: np.ndarray, new_products: np.ndarray
) -> None:
    """Keeps, in place, the best of `rows` and of later rows, in order."""
    k = len(rows)
    if len(new_rows) > 4 * k:
        least = np.partition(new_products, -k)[-k]
        keep = new_products >= least
        new_rows, new_products = new_rows[keep], new_products[keep]
    all_rows = np.concatenate([rows, new_rows])
    all_products = np.concatenate([products, new_products])
    best = np.argsort(-all_products, kind="stable")[:k]
    rows[:], products[:] = all_rows[best], all_products[best]
