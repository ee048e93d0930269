"""What an experience bank has learned, for people who want to read it.

    python -m experiments.bank stats runs/room
    python -m experiments.bank show runs/room --sort=best --limit=10
    python -m experiments.bank show runs/room --entry=17
    python -m experiments.bank search runs/room --query="a dark room with a monster"
    python -m experiments.bank export runs/room --out=entries.jsonl
    python -m experiments.bank compact runs/room

The second argument is a run directory, or a bank's file. All but `compact` only read, also while
the run goes on; `--version` reads the bank as it was. `compact` drops what neither a checkpoint nor
the latest version needs.
"""

import contextlib
import json
import pathlib

from absl import flags

from jaxrl_guided.complementary.bank import BANK_FILE, Bank, report
from jaxrl_guided.complementary.bank.database import Database
from jaxrl_guided.complementary.bank.index import Index, search
from jaxrl_guided.complementary.bank.log import Log
from jaxrl_guided.complementary.bank.records import Contents
from jaxrl_guided.runtime import app, files
from jaxrl_guided.runtime.errors import UserError, validation

_VERSION = flags.DEFINE_integer("version", None, "Version to read; default: the latest.", 0)
_ENTRY = flags.DEFINE_integer("entry", None, "show: one entry, its lineage and its history.", 1)
_SORT = flags.DEFINE_enum("sort", "new", list(report.ORDERS), "show: what comes first.")
_LIMIT = flags.DEFINE_integer("limit", 20, "show, search: entries at most.", 1)
_QUERY = flags.DEFINE_string("query", None, "search: text that entries are to be near to.")
_OUT = flags.DEFINE_string("out", None, "export: file of JSON lines, an entry each.")


def run(verb: str, place: str) -> None:
    """Does what the verb says."""
    if verb not in _VERBS:
        raise UserError(f"unknown '{verb}'; choose one of {', '.join(_VERBS)}")
    path = pathlib.Path(place)
    path = path / BANK_FILE if path.is_dir() else path
    if verb == "compact":
        _compact(path)
        return
    with contextlib.closing(Database(path, read_only=True)) as database:
        _READ[verb](Log(database))


def _show(log: Log) -> None:
    if _ENTRY.value is not None:
        print(report.biography(log, _ENTRY.value))
    else:
        print(report.listing(_read(log), _SORT.value, _LIMIT.value))


def _read(log: Log) -> Contents:
    return log.read(log.latest() if _VERSION.value is None else _VERSION.value)


def _search(log: Log) -> None:
    from jaxrl_guided.backbones.embedders import make_embedder

    if not _QUERY.value:
        raise UserError("--query must be given, with a text to look for")
    contents, index = _read(log), Index(log.database.dim)
    with validation():
        embed = make_embedder(log.database.embedder)
    index.apply(contents.version, list(contents.entries.values()), [], [])
    rows, products = search(index.view, embed([_QUERY.value]), _LIMIT.value)
    for row, product in zip(rows[0], products[0], strict=True):
        if row >= 0:
            entry = contents.entries[int(index.view.ids[row])]
            print(f"{product:.3f}  {entry.id}: {entry.title}\n       {entry.content}")


def _export(log: Log) -> None:
    if not _OUT.value:
        raise UserError("--out must be given, a file for the entries")
    files.check_new(_OUT.value, "out")
    contents = _read(log)
    lines = [
        json.dumps(report.entry_data(entry, contents.used(entry.id)), ensure_ascii=False)
        for entry in contents.entries.values()
    ]
    files.write_text(_OUT.value, "".join(f"{line}\n" for line in lines))
    print(f"{len(lines):,} entries of version {contents.version:,} in {_OUT.value}")


def _stats(log: Log) -> None:
    print(json.dumps(report.statistics(log, _read(log)), indent=2, ensure_ascii=False))


def _compact(path: pathlib.Path) -> None:
    if not path.is_file():
        raise UserError(f"{path}: there is no such bank")
    before = path.stat().st_size
    with Bank(path) as bank:
        entries, events = bank.compact()
    saved = (before - path.stat().st_size) / 1e6
    print(f"dropped {entries:,} entries and {events:,} events; the file is {saved:.2f} MB smaller")


_READ = {"show": _show, "search": _search, "export": _export, "stats": _stats}
_VERBS = (*_READ, "compact")

if __name__ == "__main__":
    app.main(run, {"VERB": "; ".join(_VERBS), "RUN": "a run directory, or the file of a bank"})
