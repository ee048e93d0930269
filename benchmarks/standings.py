"""What contenders of a race have done, as rows of a results table."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.common import Row, Timing
from jaxrl_guided.runtime.markdown import number
from jaxrl_guided.runtime.stats import bootstrap

OURS = "ours"
COMPILE_LIMIT = 6.0
"""Seconds."""


@dataclasses.dataclass
class Measured:
    """One contender in one case.

    Attributes:
      cold: seconds from the start of a process to the end of its first run.
      compiled: seconds of compilation, empty where they cannot be told apart.
      per_step: seconds of a step, of each warm run.
      steps: environment steps of a run.
      rss_mb: largest memory of its processes, in MB.
      returns: of each trained policy.
      note: the contender's own.
      failed: why there is nothing of it, empty otherwise.
    """

    cold: list[float] = dataclasses.field(default_factory=list)
    compiled: list[float] = dataclasses.field(default_factory=list)
    per_step: list[float] = dataclasses.field(default_factory=list)
    steps: int = 0
    rss_mb: float = 0.0
    returns: list[float] = dataclasses.field(default_factory=list)
    note: str = ""
    failed: str = ""

    @property
    def speed(self) -> float:
        """Environment steps per second, the median."""
        return 1 / statistics.median(self.per_step)

    @property
    def timing(self) -> Timing:
        return timing(self.per_step)

    def reaches(self, bar: float | None) -> bool:
        """Whether the mean return is at the bar."""
        return bar is None or bool(np.mean(self.returns) >= bar)


@dataclasses.dataclass(frozen=True)
class Standing:
    """The results of a case.

    Attributes:
      case: its name.
      measured: by contender, those that failed included.
      goals: peer to the ratio of speeds that we are to reach.
      bar: return below which a speed does not count; None for none.
      floor: seconds of a step of the environment, and of its matrix products; empty for none.
      absent: peers that did not start, with the reason.
    """

    case: str
    measured: Mapping[str, Measured]
    goals: Mapping[str, float]
    bar: float | None = None
    floor: Mapping[str, float] = dataclasses.field(default_factory=dict)
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def ours(self) -> Measured:
        return self.measured[OURS]

    @property
    def peers(self) -> dict[str, Measured]:
        """Those that were measured."""
        return {name: one for name, one in self.measured.items() if name != OURS and not one.failed}


def timing(values: Sequence[float]) -> Timing:
    """Median and range."""
    return Timing(statistics.median(values), min(values), max(values))


def rows(standing: Standing) -> list[Row]:
    """Speed, its floor, return, compilation, cold time and memory."""
    found = [_speed(standing)]
    if standing.floor:
        found.append(_floor(standing))
    return [*found, _returns(standing), _compiled(standing), _cold(standing), _memory(standing)]


def _speed(standing: Standing) -> Row:
    ours, peers = standing.ours, standing.peers
    notes = [_range(ours)]
    if not ours.timing.valid:
        notes.append(ours.timing.note)
    if not ours.reaches(standing.bar):
        notes.append(f"below the return bar {standing.bar:g}")
    for name, peer in peers.items():
        said = [f"{ours.speed / peer.speed:.3g}× {name} ({_range(peer)})"]
        if not peer.timing.valid:
            said.append(peer.timing.note)
        if not peer.reaches(standing.bar):
            said.append("misses the return bar, not scored")
        notes.append(", ".join([*said, *filter(None, [peer.note])]))
    notes += [
        f"{name} failed: {one.failed}" for name, one in standing.measured.items() if one.failed
    ]
    notes += [f"{name} absent: {reason}" for name, reason in standing.absent.items()]
    return Row(
        case=standing.case,
        metric="environment steps per second on one core, compiled before",
        unit="1/s",
        ours=ours.speed,
        peers={name: peer.speed for name, peer in peers.items()},
        goal=", ".join(f"≥ {ratio:g}× {name}" for name, ratio in standing.goals.items()),
        met=_met(standing),
        note="; ".join(notes),
    )


def _range(measured: Measured) -> str:
    low, high = 1 / max(measured.per_step), 1 / min(measured.per_step)
    return f"{number(low)} to {number(high)}"


def _met(standing: Standing) -> bool | None:
    """None unless all goals can be judged, or one of them is missed."""
    if not standing.goals:
        return None
    ours = standing.ours
    if not ours.reaches(standing.bar):
        return False
    verdicts = []
    for name, ratio in standing.goals.items():
        peer = standing.peers.get(name)
        counts = (
            peer is not None
            and peer.timing.valid
            and ours.timing.valid
            and peer.reaches(standing.bar)
        )
        verdicts.append(ours.speed >= ratio * peer.speed if peer and counts else None)
    return False if False in verdicts else None if None in verdicts else True


def _floor(standing: Standing) -> Row:
    env, products = (standing.floor[name] for name in ("environment_seconds", "products_seconds"))
    return Row(
        case=standing.case,
        metric="share of the speed of environment and matrix products alone",
        unit="%",
        ours=100 * standing.ours.speed * (env + products),
        note=(
            f"floor {number(1 / (env + products))} steps/s: environment {1e6 * env:.2f} µs a step, "
            f"products {1e6 * products:.2f} µs, all else "
            f"{1e6 * (1 / standing.ours.speed - env - products):.2f} µs"
        ),
    )


def _returns(standing: Standing) -> Row:
    everyone = {OURS: standing.ours} | standing.peers
    intervals = [
        f"{name} {bootstrap(np.asarray(one.returns)):.4g}"
        for name, one in everyone.items()
        if len(one.returns) > 1
    ]
    return Row(
        case=standing.case,
        metric=f"return of greedy actions after {standing.ours.steps:,} steps in all",
        unit=f"mean of {len(standing.ours.returns)} policies",
        ours=float(np.mean(standing.ours.returns)),
        peers={name: float(np.mean(peer.returns)) for name, peer in standing.peers.items()},
        goal="" if standing.bar is None else f"≥ {standing.bar:g}",
        met=None if standing.bar is None else standing.ours.reaches(standing.bar),
        note="; ".join(intervals),
    )


def _compiled(standing: Standing) -> Row:
    times = standing.ours.compiled
    return Row(
        case=standing.case,
        metric="tracing and compilation",
        unit="s",
        ours=statistics.median(times),
        peers={
            name: statistics.median(peer.compiled)
            for name, peer in standing.peers.items()
            if peer.compiled
        },
        goal=f"≤ {COMPILE_LIMIT:g} s",
        met=max(times) <= COMPILE_LIMIT,
        note=f"{min(times):.1f} to {max(times):.1f} s in {_processes(times)}",
    )


def _cold(standing: Standing) -> Row:
    times = timing(standing.ours.cold)
    return Row(
        case=standing.case,
        metric=f"from the start of the process to the end of {standing.ours.steps:,} steps in all",
        unit="s",
        ours=times.median,
        peers={name: statistics.median(peer.cold) for name, peer in standing.peers.items()},
        note=f"{times.low:.1f} to {times.high:.1f} s in {_processes(standing.ours.cold)}",
    )


def _memory(standing: Standing) -> Row:
    return Row(
        case=standing.case,
        metric="peak memory of the process",
        unit="MB",
        ours=standing.ours.rss_mb,
        peers={name: peer.rss_mb for name, peer in standing.peers.items()},
    )


def _processes(values: Sequence[float]) -> str:
    return f"{len(values)} process{'es' * (len(values) > 1)}"
