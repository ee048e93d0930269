"""How a contender of a race speaks with `benchmarks.race`; standard library only.

A contender is a process of its own. It gets its task as JSON in its first argument and answers
lines on standard input with JSON lines on standard output:

    (start)    {"compile_seconds": 6.1, "note": "rejax 0.1.3"}   when it is ready to be measured
    run SEED   {"steps": 499712, "seconds": 2.9, "rss_mb": 512.0}
    judge      {"returns": [500.0]}   of what the last run has learned, one number a seed
    floor      {"environment_seconds": 1e-6, "products_seconds": 2e-6}   of one step

Between the lines it waits and takes no time of the core. What libraries print goes to standard
error.
"""

import importlib.metadata
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any


class Contender:
    """What a contender does; `task` is the JSON of its first argument."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task

    def prepare(self) -> float | None:
        """Compile; returns the seconds of that, None where it cannot be told apart."""
        raise NotImplementedError

    def run(self, seed: int) -> tuple[int, float]:
        """Train; returns environment steps really done, over all seeds, and seconds."""
        raise NotImplementedError

    def judge(self) -> list[float]:
        """Mean return of each seed's last policy."""
        raise NotImplementedError

    def floor(self) -> dict[str, float]:
        """Seconds of one step of the environment alone, and of the matrix products for it."""
        raise NotImplementedError

    def note(self) -> str:
        """What a reader must know of this contender."""
        return ""


def versions(*packages: str) -> str:
    """Names and versions, as `rejax 0.1.3, gymnax 0.0.9`."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """The result of a call that waits for its results, and its seconds."""
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


def peak_memory() -> float:
    """Largest memory of this program so far, in MB."""
    try:
        with open("/proc/self/status") as status:
            (line,) = (line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    except (OSError, ValueError):
        # Elsewhere than on Linux. There it would have the memory of the process that started us.
        unit = 1024**2 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def serve(make: Callable[[dict[str, Any]], Contender]) -> None:
    """Answer lines until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of libraries

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    contender = make(json.loads(sys.argv[1]))
    seconds = contender.prepare()
    answer({"compile_seconds": seconds, "note": contender.note()})
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "run":
            steps, seconds = contender.run(int(arguments[0]))
            answer({"steps": steps, "seconds": seconds, "rss_mb": peak_memory()})
        elif command == "judge":
            answer({"returns": [float(value) for value in contender.judge()]})
        elif command == "floor":
            answer(contender.floor())
        else:
            raise ValueError(f"unknown command {line!r}")
