"""Contenders in processes of their own, measured turn by turn.

All are on one core with one thread, in float32. A contender that fails is left out and named.
"""

import dataclasses
import math
import pathlib
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import common, environments, race
from benchmarks.workers import ContenderFailed, Worker
from jaxrl_guided.runtime.errors import UserError

_LEAST_SECONDS, _MOST_RUNS = 1.0, 100


@dataclasses.dataclass
class Measured:
    """What is known of a contender.

    Attributes:
      per_unit: seconds a unit (a token, a question) in each repeat.
      rss_mb: most memory.
      note: its versions.
      failed: why it has no numbers; empty if it has.
    """

    per_unit: list[float] = dataclasses.field(default_factory=list)
    rss_mb: float = 0.0
    note: str = ""
    failed: str = ""

    @property
    def rate(self) -> float:
        """Units per second."""
        return 1 / statistics.median(self.per_unit)

    @property
    def timing(self) -> common.Timing:
        """Of a unit."""
        return common.Timing(
            statistics.median(self.per_unit), min(self.per_unit), max(self.per_unit)
        )


def ours(module: str) -> list[str]:
    """How a contender of ours, a module of `benchmarks`, is started."""
    return [sys.executable, "-m", f"benchmarks.{module}"]


def peer(environment: str, script: str) -> tuple[list[str], str]:
    """How a peer is started, or an empty list and the reason; installs its environment."""
    try:
        python = environments.make_environment(environment, pathlib.Path(race.ENVS.value))
    except UserError as error:
        print(f"{environment} is left out: {error}", flush=True)
        return [], str(error)
    return [str(python), str(race.SCRIPTS / script)], ""


def measure(
    contenders: Mapping[str, tuple[Sequence[str], Mapping[str, Any]]], repeats: int
) -> tuple[dict[str, Measured], dict[str, float]]:
    """Starts all, lets each run once unmeasured, then measures in turn.

    Args:
      contenders: command and task by name; ours begin with `ours`.
      repeats: measured repeats of each, of as many runs as make `_LEAST_SECONDS`.

    Returns:
      What was measured, and the floor that `ours` tells if its task is to sample.
    """
    found = {name: Measured() for name in contenders}
    workers: dict[str, Worker] = {}
    times: dict[str, int] = {}
    floor: dict[str, float] = {}
    try:
        for seed in range(repeats + 1):
            for name, (command, task) in contenders.items():
                try:
                    if found[name].failed:
                        continue
                    if name not in workers:
                        workers[name] = Worker(command, task)
                        found[name].note = workers[name].ready["note"]
                    runs = [
                        workers[name].ask(f"run {seed * _MOST_RUNS + i}")
                        for i in range(times.get(name, 1))
                    ]
                except ContenderFailed as error:
                    if name.startswith("ours"):
                        raise RuntimeError(f"{name} failed: {error}") from error
                    found[name].failed = str(error)
                    print(f"{name} failed: {error}", flush=True)
                    continue
                seconds = sum(run["seconds"] for run in runs)
                if seed:
                    found[name].per_unit.append(seconds / sum(run["steps"] for run in runs))
                else:
                    times[name] = min(math.ceil(_LEAST_SECONDS / seconds), _MOST_RUNS)
                found[name].rss_mb = max(found[name].rss_mb, runs[-1]["rss_mb"])
        if contenders["ours"][1]["work"] == "sample":
            floor = workers["ours"].ask("floor")
    finally:
        for worker in workers.values():
            worker.close()
    return found, floor


def speed_row(
    case: str, metric: str, found: Mapping[str, Measured], goals: Mapping[str, float]
) -> common.Row:
    """Units per second of `ours` beside its peers.

    Args:
      found: of `measure`.
      goals: by peer, how many times as fast ours shall be; of peers without numbers none is judged.
    """
    first = found["ours"]
    there = {name: one for name, one in found.items() if name != "ours" and not one.failed}
    wanted = {name: goal for name, goal in goals.items() if name in there}
    counted = {"ours": first} | there
    notes = [f"{first.rate / one.rate:.2f}× {name}" for name, one in there.items()]
    notes += [f"{name} failed: {one.failed}" for name, one in found.items() if one.failed]
    notes += [one.note for one in there.values() if one.note]
    notes += [f"{name} {one.timing.note}" for name, one in counted.items() if one.timing.note]
    met = common.all_of(
        common.faster(first.timing, there[name].timing, goal) for name, goal in wanted.items()
    )
    return common.Row(
        case,
        metric,
        "1/s",
        first.rate,
        {name: one.rate for name, one in there.items()},
        ", ".join(f"≥ {goal:g}× {name}" for name, goal in wanted.items()),
        met if wanted else None,
        "; ".join(notes),
    )
