"""Long stepping with other work pending, on one core and on two, by both forms: no hang."""

import os
import subprocess
import sys
import time

import pytest

SECONDS = 600
PATIENCE = 120
SMALL, LARGE = 8, 10_000
"""Numbers of an action; those of four environments have 160 kB in the larger case."""


@pytest.mark.slow
def test_ten_minutes():
    cores = sorted(os.sched_getaffinity(0))[:2]
    runs = {}
    for where in {",".join(map(str, cores[:n])) for n in (1, 2)}:
        for form, size in (("callbacks", SMALL), ("in_turn", LARGE), ("loop", LARGE)):
            command = [sys.executable, "-m", "tests.envs.bridge.soak", form, str(size)]
            runs[form, where] = subprocess.Popen(
                [*command, str(SECONDS), where], stdout=subprocess.PIPE, text=True
            )
    end = time.monotonic() + SECONDS + PATIENCE
    try:
        for run in runs.values():
            out, _ = run.communicate(timeout=max(end - time.monotonic(), 1))
            assert run.returncode == 0
            assert int(out.split()[-1]) > 1000
    finally:
        for run in runs.values():
            run.kill()
