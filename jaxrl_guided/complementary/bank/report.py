"""What a person wants to know of a bank: its entries, where they come from, what they led to."""

import datetime
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl_guided.complementary.bank.log import Log
from jaxrl_guided.complementary.bank.records import NOBODY, Contents, Entry, Event, Usage
from jaxrl_guided.runtime.markdown import markdown_table

ORDERS: Mapping[str, Callable[[Entry, Usage], float]] = {
    "new": lambda entry, usage: entry.id,
    "used": lambda entry, usage: usage.retrievals,
    "best": lambda entry, usage: usage.total / max(usage.credits, 1),
    "worst": lambda entry, usage: -usage.total / max(usage.credits, 1),
}
"""What entries are sorted by, largest first."""

_TITLE = 48


def gini(counts: Sequence[int] | np.ndarray) -> float:
    """How unequal counts are: 0 if all are the same, near 1 if one has all; 0 of nothing."""
    ordered = np.sort(np.asarray(counts, np.float64))
    if not len(ordered) or not ordered.sum():
        return 0.0
    ranks = np.arange(1, len(ordered) + 1)
    return float((2 * ranks - len(ordered) - 1) @ ordered / (len(ordered) * ordered.sum()))


def entry_data(entry: Entry, usage: Usage) -> dict[str, Any]:
    """An entry without its vector, as JSON data."""
    return {
        "id": entry.id,
        "title": entry.title,
        "content": entry.content,
        "task": entry.task,
        "operation": entry.operation,
        "parents": list(entry.parents),
        "generation": None if entry.generation == NOBODY else entry.generation,
        "episode": None if entry.episode == NOBODY else entry.episode,
        "retrievals": usage.retrievals,
        "credits": usage.credits,
        "mean_credit": usage.total / usage.credits if usage.credits else None,
    }


def listing(contents: Contents, order: str, limit: int) -> str:
    """The first entries by one of `ORDERS`, as a table."""
    key = ORDERS[order]
    chosen = sorted(
        contents.entries.values(), key=lambda e: (key(e, contents.used(e.id)), e.id), reverse=True
    )[:limit]
    rows = []
    for entry in chosen:
        data = entry_data(entry, contents.used(entry.id))
        credit = data["mean_credit"]
        rows.append(
            [
                str(entry.id),
                entry.title if len(entry.title) <= _TITLE else entry.title[: _TITLE - 1] + "…",
                entry.task,
                entry.operation,
                f"{data['retrievals']:,}",
                "" if credit is None else f"{credit:+.2f} ({data['credits']:,})",
            ]
        )
    head = f"{len(contents.entries):,} entries at version {contents.version:,}"
    columns = ["entry", "title", "task", "made by", "shown", "mean outcome (of)"]
    return f"{head}\n\n{markdown_table(columns, rows)}"


def biography(log: Log, entry: int) -> str:
    """An entry whole, the entries that it was made of, and all that happened to it.

    Raises:
      BankError: there is none.
    """
    found, events = log.history(entry)
    lines = [f"# Entry {entry}: {found.title}", "", found.content, ""]
    lines.append(f"task {found.task or '(all)'}, made by {found.operation}")
    if found.episode != NOBODY:
        lines.append(f"learned from episode {found.episode}, generation {found.generation}")
    if found.parents:
        lines += ["", "Made of:", *_ancestors(log, found.parents, 1)]
    lines += ["", "What happened:", *_told(events)]
    return "\n".join(lines)


def _ancestors(log: Log, parents: Iterable[int], depth: int) -> list[str]:
    lines = []
    for parent in parents:
        row = log.database.one("SELECT title, parents FROM entries WHERE id = ?", (parent,))
        title = "(dropped by compact)" if row is None else row[0]
        lines.append(f"{'  ' * depth}{parent}: {title}")
        if row is not None:
            lines += _ancestors(log, log.history(parent)[0].parents, depth + 1)
    return lines


def _told(events: Sequence[Event]) -> list[str]:
    lines = []
    for event in events:
        when = f"step {event.step}"
        if event.at:
            when += f", {datetime.datetime.fromtimestamp(event.at):%Y-%m-%d %H:%M:%S}"
        what: str = event.kind
        if event.kind == "died":
            what = f"died ({event.note})"
        if event.kind == "credited":
            what = f"credited {event.value:+.2g}"
        by = "" if event.episode == NOBODY else f" by episode {event.episode}"
        lines.append(f"  {what}{by} ({when})")
    return lines


def statistics(log: Log, contents: Contents) -> dict[str, Any]:
    """Numbers of a bank at a version, as JSON data."""
    entries = list(contents.entries.values())
    used = [contents.used(entry.id) for entry in entries]
    credits = sum(usage.credits for usage in used)
    kinds = log.database.execute("SELECT kind, count(*) FROM events GROUP BY kind").fetchall()
    deaths = "SELECT note, count(*) FROM events WHERE kind = 'died' GROUP BY note"
    return {
        "path": os.fspath(log.database.path),
        "megabytes": round(log.database.path.stat().st_size / 1e6, 3),
        "embedder": log.database.embedder,
        "dim": log.database.dim,
        "version": contents.version,
        "entries": len(entries),
        "made_by": dict(Counter(entry.operation for entry in entries)),
        "tasks": dict(Counter(entry.task for entry in entries)),
        "shown": sum(usage.retrievals for usage in used),
        "never_shown": sum(not usage.retrievals for usage in used),
        "gini": round(gini([usage.retrievals for usage in used]), 4),
        "mean_credit": sum(usage.total for usage in used) / credits if credits else None,
        "events_of_all_branches": dict(kinds),
        "deaths_of_all_branches": dict(log.database.execute(deaths).fetchall()),
        "branches": [branch._asdict() for branch in log.branches()],
        "checkpoints": log.checkpoints(),
    }
