"""What benchmarks share: flags, fair timing, the table that they print and the file they write.

Results go to `benchmarks/results/NAME.json`; a `--quick` run goes there only when `--out` says so.
A run of some cases (`--only`) leaves the file's other rows, with where and when they were measured.
"""

import dataclasses
import datetime
import os
import pathlib
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
from absl import flags
from rich.console import Console
from rich.table import Table

from jaxrl_guided.runtime import app, files, versions
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.markdown import number, verdict

RESULTS = pathlib.Path(__file__).parent / "results"
MAX_SPREAD = 0.05

QUICK = flags.DEFINE_bool("quick", False, "About a minute: fewer and smaller cases.")
ONLY = flags.DEFINE_string("only", None, "Regular expression: the cases to measure; others stay.")
OUT = flags.DEFINE_string("out", None, "JSON file to write; default benchmarks/results/NAME.json.")


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured number beside the peers' and its goal.

    Attributes:
      case: what was run, as `clevr/real, 256 environments`.
      metric: what was measured, as `environment steps per second`.
      unit: its unit.
      ours: our value.
      peers: name to value of what it is compared with, measured in the same run.
      goal: the goal in words, empty without one.
      met: whether the goal is met; None without one, or where the measurement is void.
      note: what a reader must know, as the reason of a void measurement.
    """

    case: str
    metric: str
    unit: str
    ours: float
    peers: Mapping[str, float] = dataclasses.field(default_factory=dict)
    goal: str = ""
    met: bool | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds per call over the repeats of one candidate."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Range over median: (high − low) / median."""
        return (self.high - self.low) / self.median

    @property
    def valid(self) -> bool:
        """False when the machine was too noisy for the number to count."""
        return self.spread <= MAX_SPREAD

    @property
    def note(self) -> str:
        """Empty, or why the number does not count."""
        return "" if self.valid else f"void: repeats spread by {100 * self.spread:.0f} %"


def faster(ours: Timing, peer: Timing, goal: float) -> bool | None:
    """Whether `ours` is at least `goal` times as fast as `peer`; None if noise hides it.

    Medians decide where both are valid; else what holds for the repeats furthest apart.
    """
    if ours.valid and peer.valid:
        return goal * ours.median <= peer.median
    if goal * ours.high <= peer.low:
        return True
    return False if goal * ours.low > peer.high else None


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """False if one is, else None if one is."""
    found = list(verdicts)
    if False in found:
        return False
    return None if None in found else True


def pin_to_core() -> int | None:
    """Pins this process to the last core that it may use; call it before JAX starts.

    Returns the core, or None on a system that cannot pin.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = versions.cores()[-1]
    os.sched_setaffinity(0, {core})
    return core


def measure_interleaved(
    candidates: Mapping[str, Callable[[], Any]], repeats: int = 5, calls: int = 1
) -> dict[str, Timing]:
    """Times the candidates in turn (A, B, A, B, …), so that drift of the machine hits all alike.

    Args:
      candidates: name to function; its result is waited for. One call of each, not timed, goes
        before (compilation).
      repeats: measurements per candidate.
      calls: calls per measurement, for functions of less than some milliseconds.
    """
    if repeats < 1 or calls < 1:
        raise ValueError(f"repeats and calls must be at least 1, got {repeats}, {calls}")
    for function in candidates.values():
        jax.block_until_ready(function())
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, function in candidates.items():
            start = time.perf_counter()
            for _ in range(calls):
                result = function()
            jax.block_until_ready(result)
            seconds[name].append((time.perf_counter() - start) / calls)
    return {
        name: Timing(statistics.median(values), min(values), max(values))
        for name, values in seconds.items()
    }


def table_cells(row: Mapping[str, Any]) -> list[str]:
    """A row (as JSON data) as the texts of its table; the columns are `COLUMNS`."""
    peers = ", ".join(f"{name} {number(value)}" for name, value in row["peers"].items())
    measured = f"{row['metric']} [{row['unit']}]"
    met = "void" if row["goal"] and row["met"] is None else verdict(row["met"])
    return [row["case"], measured, number(row["ours"]), peers, row["goal"], met, row["note"]]


COLUMNS = ("case", "metric", "ours", "peers", "goal", "met", "note")


def main(run: Callable[[], None]) -> None:
    """Entry point of a benchmark; its `--help` lists the flags that all have."""
    for flag in (QUICK, ONLY, OUT):
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[flag.name])
    app.main(run)


def check_only(names: Sequence[str] = ()) -> None:
    """Before any work: `--only` must fit one of the cases' names; without names there are no parts.

    Raises:
      UserError: it does not, or is no regular expression.
    """
    if ONLY.value is None:
        return
    if not names:
        raise UserError("--only: this benchmark is measured whole; leave it out")
    try:
        found = any(map(fits, names))
    except re.error as error:
        raise UserError(f"--only={ONLY.value} is no regular expression: {error}") from error
    if not found:
        raise UserError(f"--only={ONLY.value} fits none of: {'; '.join(names)}")


def fits(name: str) -> bool:
    """Whether a case of this name is to be measured."""
    return re.search(ONLY.value or "", name) is not None


def results_path(name: str) -> pathlib.Path | None:
    """Where to write, after `--out` and `--quick`; None for nowhere."""
    if OUT.value:
        return pathlib.Path(OUT.value)
    return None if QUICK.value else RESULTS / f"{name}.json"


def write_results(name: str, rows: Sequence[Row], path: pathlib.Path | None) -> None:
    """Prints the rows as a table and, when `path` is given, writes them with date and machine.

    With `--only` the rows of other cases in an existing file stay, each with its `origin`.

    Args:
      name: of the benchmark, as `clevr_env`.
      rows: at least one.
      path: usually `results_path(name)`.

    Raises:
      ValueError: no rows.
      UserError: the file cannot be written.
    """
    if not rows:
        raise ValueError(f"rows must hold at least one measurement of {name}")
    records = [dataclasses.asdict(row) for row in rows]
    table = Table(*COLUMNS, title=name)
    for record in records:
        table.add_row(*table_cells(record))
    Console().print(table)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        origin = {"date": date, **versions.snapshot()}
        if ONLY.value and path.exists():
            records = _among(files.read_json(path), records, origin)
        files.write_json(path, {"name": name, **origin, "rows": records})
        print(f"wrote {path}")


def _among(
    old: Mapping[str, Any], records: Sequence[dict[str, Any]], origin: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The file's rows with those of the measured cases in their places or at the end."""
    whence = {name: old[name] for name in origin}
    cases: dict[str, list[dict[str, Any]]] = {}
    for row in old["rows"]:
        came = row.get("origin", whence)
        kept = {**row, "origin": came} if came != origin else row
        cases.setdefault(row["case"], []).append(kept)
    cases |= {row["case"]: [] for row in records}
    for row in records:
        cases[row["case"]].append(row)
    return [row for rows in cases.values() for row in rows]
