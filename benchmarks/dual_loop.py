"""The dual loop: what an extractor costs the actor's steps.

`python -m benchmarks.dual_loop`: an extractor that only takes ten times as long as a step, beside
the loop and waited for; then one with a model of its own, on a second device with a core of its
own, and on the actor's device. Small models of the preset `nano`; the actor does the same in both.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence

from benchmarks import common
from benchmarks.ours_dual_loop import SLOWER
from jaxrl_guided.runtime.errors import UserError

NAME = "dual_loop"
_KEPT, _WAITED, _ROLLOUTS = 0.98, 0.5, 1.02
_FLAGS = "--xla_force_host_platform_device_count=2 --xla_cpu_multi_thread_eigen=false"
"""Two devices, each of which computes in one thread."""


def _seconds(case: str, repeats: int) -> list[list[float]]:
    """Of each repeat, measured in a process of its own."""
    print(f"{case} …", flush=True)
    command = [sys.executable, "-m", "benchmarks.ours_dual_loop", case, str(repeats)]
    environment = {**os.environ, "XLA_FLAGS": _FLAGS, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{case} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def _row(
    case: str,
    metric: str,
    pairs: Sequence[Sequence[float]],
    goal: str,
    met: Callable[[float], bool],
) -> common.Row:
    """Median of the ratios of pairs that were measured one after the other.

    The goal is judged if all repeats agree.
    """
    ratios = [second / first for first, second in pairs]
    verdicts = {met(ratio) for ratio in ratios}
    note = f"{min(ratios):.3g} to {max(ratios):.3g} in {len(ratios)} repeats"
    judged = goal and len(verdicts) == 1
    return common.Row(
        case,
        metric,
        "×",
        statistics.median(ratios),
        {"alone": 1.0},
        goal,
        verdicts.pop() if judged else None,
        note,
    )


def rows(repeats: int) -> list[common.Row]:
    """All measurements."""
    slow, step = f"extractor that takes {SLOWER} × a step", "time of a step"
    stub = _seconds("stub", repeats)
    beside, waited = [pair[:2] for pair in stub], [[alone, wait] for alone, _, wait in stub]
    found = [
        _row(slow, step, beside, f"≤ {1 / _KEPT:.3g}", lambda x: x <= 1 / _KEPT),
        _row(
            slow,
            f"{step} that waits for it",
            waited,
            f"≥ {1 / _WAITED:.3g}, it is a load",
            lambda x: x >= 1 / _WAITED,
        ),
    ]
    case, played = "extractor's model on", "time of a step's rollouts"
    for number, where, goal in (
        (1, "a device of its own", f"≤ {_ROLLOUTS}"),
        (0, "the actor's device", ""),
    ):
        pairs = _seconds(f"device-{number}", repeats)
        found.append(_row(f"{case} {where}", played, pairs, goal, lambda x: x <= _ROLLOUTS))
    return found


def run() -> None:
    """Measures, prints and writes."""
    common.check_only()
    found = rows(2 if common.QUICK.value else 5)
    common.write_results(NAME, found, common.results_path(NAME))


if __name__ == "__main__":
    common.main(run)
