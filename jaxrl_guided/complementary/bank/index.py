"""Exact search over the bank's vectors, kept in step with it and read without a lock.

Whoever searches takes a `View`. A writer never changes what a view shows of vectors and life: new
rows lie behind its end, and a death makes a new mask. Counters of use are seen as they are.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxrl_guided.complementary.bank.records import Entry, Event, Usage

_PRODUCTS = 1 << 16
"""Of a block: they fit in a cache."""
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
    step = max(1, _PRODUCTS // max(len(queries), 1))
    for start in range(0, len(view.ids), step):
        block = queries @ view.vectors[start : start + step].T
        if not whole:
            block[:, ~allowed[start : start + step]] = -np.inf
        rows, products = _merged(rows, products, block, start)
    return Found(rows, products)


def _merged(
    rows: np.ndarray, products: np.ndarray, block: np.ndarray, start: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best of what was found and of a block `f32[Q, B]` of later rows, in order."""
    count, k = rows.shape
    better = block > products[:, -1:]
    if np.count_nonzero(better) > 4 * k * count and block.shape[1] > k:
        better &= block >= np.partition(block, -k, axis=1)[:, -k:][:, :1]
    query, column = np.nonzero(better)
    if not len(query):
        return rows, products
    # Side by side behind what was found: of equal ones a stable sort leaves the older in front.
    hits = np.bincount(query, minlength=count)
    place = k + np.arange(len(query)) - np.repeat(np.cumsum(hits) - hits, hits)
    all_rows = np.full((count, k + hits.max()), -1, np.int64)
    all_products = np.full(all_rows.shape, -np.inf, np.float32)
    all_rows[:, :k], all_products[:, :k] = rows, products
    all_rows[query, place], all_products[query, place] = start + column, block[query, column]
    best = np.argsort(-all_products, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(all_rows, best, 1), np.take_along_axis(all_products, best, 1)
