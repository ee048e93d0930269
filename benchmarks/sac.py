"""SAC against the field's libraries.

`python -m benchmarks.sac`: Pendulum-v1, one environment, one update a step; see `race` for how it
is measured. Both sides treat time limits as they ship.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks import common, race
from benchmarks.standings import Standing

NAME = "sac"
PENDULUM_BAR = -200.0
FLAT = 0.9
"""Slowest over fastest that a speed may be at any size of the replay."""

_TASK: dict[str, Any] = {
    "algorithm": "sac",
    "env": "Pendulum-v1",
    "seeds": 1,
    "steps": 15_000,
    "num_envs": 1,
    "learning_starts": 1_000,
    "batch": 256,
    "learning_rate": 1e-3,
    "gamma": 0.99,
    "tau": 0.005,
    "hidden": [64, 64],
    "activation": "relu",
}


def _pendulum(replay: int, peers: Sequence[str], seeds: int = 1, **options: Any) -> race.Case:
    task = _TASK | {"replay": replay, "seeds": seeds}
    return race.make_case(
        f"Pendulum-v1, replay {replay:,}", task, peers, bar=PENDULUM_BAR, **options
    )


CASES = (
    _pendulum(
        100_000,
        ("rejax", race.REPAIRED, "sbx", "stable-baselines3"),
        goals={"rejax": 2.5, race.REPAIRED: 1.05, "sbx": 3.3, "stable-baselines3": 11.0},
        starts=1,
    ),
    _pendulum(4_096, ("rejax", race.REPAIRED)),
    _pendulum(1_048_576, ("rejax", race.REPAIRED), starts=1),
    _pendulum(100_000, (race.REPAIRED,), seeds=16, starts=1),
)


def flatness(standings: Sequence[Standing]) -> list[common.Row]:
    """Our speed at the slowest size of the replay over that at the fastest, for one seed."""
    single = [one for one in standings if one.case.endswith("1 seed")]
    if len(single) < 2:
        return []
    speeds = [one.ours.speed for one in single]
    valid = all(one.ours.timing.valid for one in single)
    share = min(speeds) / max(speeds)
    return [
        common.Row(
            case="Pendulum-v1, " + ", ".join(_replay(one) for one in single),
            metric="slowest over fastest speed",
            unit="1",
            ours=share,
            goal=f"≥ {FLAT:g}",
            met=share >= FLAT if valid else None,
            note="" if valid else "void: a speed's repeats spread too far",
        )
    ]


def _replay(standing: Standing) -> str:
    return standing.case.split(", ")[1]


def run() -> None:
    """Measures, prints and writes."""
    common.check_only([case.name for case in CASES])
    standings = race.race_all(CASES)
    rows = race.all_rows(standings) + flatness(standings)
    common.write_results(NAME, rows, common.results_path(NAME))


if __name__ == "__main__":
    common.main(run)
