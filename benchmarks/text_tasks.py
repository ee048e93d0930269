"""Tasks in text: steps and resets per second beside their stock loops, in processes, and in a mix.

`python -m benchmarks.text_tasks`: episodes that scripted players have played are played again, so
that only the tasks are timed. `alfworld` is beside TextWorld's PddlEnv, and `swe` beside commands
without a sandbox.
"""

import contextlib
import functools
import pathlib
import statistics
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks import common, stock_alfworld
from jaxrl_guided.envs.swe.interpreter import interpreter
from jaxrl_guided.envs.swe.sandbox import Limits, Sandbox, check_sandbox
from jaxrl_guided.envs.text.record import play
from jaxrl_guided.envs.text.source import MIXES, TaskSource
from jaxrl_guided.envs.text.task import Said, TextTask, awaited
from jaxrl_guided.runtime import versions
from jaxrl_guided.runtime.errors import validation
from jaxrl_guided.runtime.extras import check_installed

NAME = "text_tasks"
GAMES, QUICK_GAMES, TURNS = 24, 4, 30
TASKS: Mapping[str, float] = {
    "minihack/Room-Ultimate-5x5": 0.0,
    "webshop": 2000.0,
    "alfworld": 0.0,
    "sokoban": 0.0,
}
"""Steps per second that are asked for; 0 where nothing is."""

MIX, KEPT, MOST_MS = "mix3", 0.9, 10.0
SLOTS, REPEATS, COMMANDS = 16, 3, 100
_PAUSE = 0.0002


class Played(NamedTuple):
    """An episode that was played before."""

    seed: int
    answers: Sequence[str]


def recorded(name: str, episodes: int) -> list[Played]:
    """Episodes of a task or a mix as its scripted players play them."""
    found = []
    with (
        validation(),
        contextlib.closing(TaskSource(name, ())) as source,
        contextlib.closing(source.make()) as task,
    ):
        for seed in range(episodes):
            player = source.player(seed)
            player.reset(seed)
            opening = awaited(task.reset(seed))
            turns = [*play(task, player.answer, opening.observation)]
            found.append(Played(seed, [turn.answer for turn in turns]))
    return found


def drive(tasks: Sequence[TextTask], episodes: Sequence[Played]) -> float:
    """Plays episodes in tasks side by side, none of which waits for another; returns seconds."""
    queue = deque(episodes)
    begun = time.perf_counter()
    busy = [_slot(task, queue) for task in tasks]
    while busy:
        told = [next(slot, None) for slot in busy]
        busy = [slot for slot, waits in zip(busy, told, strict=True) if waits is not None]
        if busy and all(told):
            time.sleep(_PAUSE)
    return time.perf_counter() - begun


def _slot(task: TextTask, queue: deque[Played]) -> Iterator[bool]:
    """Goes on by a step at a time; True: it waits for its task."""
    while queue:
        episode = queue.popleft()
        yield from _known(task.reset(episode.seed))
        for answer in episode.answers:
            yield from _known(task.step(answer))


def _known(said: Said) -> Iterator[bool]:
    while said.later is not None:
        found = said.later()
        if found is None:
            yield True
        else:
            said = found
    yield False


def measure_task(name: str, episodes: int) -> list[common.Row]:
    """A task in this process, and in as many as there are cores."""
    played = recorded(name, episodes)
    steps = sum(len(episode.answers) for episode in played)
    rows = []
    for workers in (0, *range(1, len(versions.cores()) + 1)):
        with _tasks(name, workers, SLOTS if workers else 1) as (tasks, _):
            drive(tasks, played[: len(tasks)])  # what is made once
            times = [drive(tasks, played) for _ in range(REPEATS)]
            memory = _megabytes_of_children() if workers else 0.0
        where = f"{workers} processes" if workers else "in this process, one core"
        rate, goal = steps / statistics.median(times), TASKS[name] if not workers else 0.0
        rows.append(
            common.Row(
                f"{name}, {where}",
                "steps per second, with resets",
                "steps/s",
                rate,
                goal=f"≥ {goal:,.0f}" if goal else "",
                met=rate >= goal if goal else None,
                note=f"{memory / workers:.0f} MB a process" if workers else _resets(name, played),
            )
        )
    return rows


@contextlib.contextmanager
def _tasks(name: str, workers: int, count: int) -> Iterator[tuple[list[TextTask], TaskSource]]:
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(contextlib.closing(TaskSource(name, (), workers)))
        made = [stack.enter_context(contextlib.closing(source.make())) for _ in range(count)]
        yield made, source


def _resets(name: str, played: Sequence[Played]) -> str:
    """How long they take, in words."""
    with _tasks(name, 0, 1) as ((task,), _):
        times = []
        for episode in played:
            begun = time.perf_counter()
            task.reset(episode.seed)
            times.append(time.perf_counter() - begun)
    middle, most = 1000 * statistics.median(times), 1000 * max(times)
    return f"a reset takes {middle:.2f} ms, {most:.0f} at most"


def _megabytes_of_children() -> float:
    """Memory of this process's own children."""
    total = 0.0
    for task in pathlib.Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            for line in pathlib.Path(f"/proc/{child}/status").read_text().splitlines():
                total += int(line.split()[1]) / 1024 if line.startswith("VmRSS:") else 0.0
    return total


def measure_mix(episodes: int) -> common.Row:
    """Tasks of a mix at once, each in processes of its own, beside one after the other.

    Both have the same processes for a task, as many as there are cores. A mix in which no task
    waits for another takes as long as its tasks take one after the other on all cores.
    """
    names, workers = MIXES[MIX], len(versions.cores())
    of_parts = [recorded(name, episodes) for name in names]
    mixed = recorded(MIX, len(names) * episodes)
    steps = [sum(len(e.answers) for e in played) for played in of_parts]
    together, alone = [], []
    with contextlib.ExitStack() as stack:
        sources = [stack.enter_context(_tasks(name, workers, SLOTS)) for name in names]
        mix, _ = stack.enter_context(_tasks(MIX, workers, len(names) * SLOTS))
        for repeat in range(REPEATS + 1):
            apart = sum(
                drive(tasks, played) for (tasks, _), played in zip(sources, of_parts, strict=True)
            )
            at_once = drive(mix, mixed)
            if repeat:  # the first makes what is made once
                together.append(at_once)
                alone.append(apart)
    kept = statistics.median(alone) / statistics.median(together)
    kept *= sum(len(e.answers) for e in mixed) / sum(steps)
    return common.Row(
        f"{MIX}, {workers} processes for each task",
        "rate beside its tasks one after the other",
        "×",
        kept,
        goal=f"≥ {KEPT:g}",
        met=kept >= KEPT,
        note=f"{sum(steps) / statistics.median(alone):,.0f} steps/s one after the other",
    )


def measure_sandbox(commands: int) -> common.Row:
    """What the sandbox adds to a command."""
    with validation(), tempfile.TemporaryDirectory() as folder:
        check_sandbox()
        sandbox = Sandbox(pathlib.Path(folder), Limits(), interpreter().prefixes)
        bare = functools.partial(subprocess.run, ["bash", "-c", "true"], check=True)
        runs: dict[str, Callable[[], object]] = {
            "ours": lambda: sandbox.run(["bash", "-c", "true"]),
            "bare": bare,
        }
        found = common.measure_interleaved(runs, REPEATS, commands)
    added = 1000 * (found["ours"].median - found["bare"].median)
    return common.Row(
        "swe, a command that does nothing",
        "added by the sandbox",
        "ms",
        added,
        {"subprocess alone": 1000 * found["bare"].median},
        f"≤ {MOST_MS:g}",
        added <= MOST_MS,
    )


def run() -> None:
    """Measures, prints and writes."""
    quick = common.QUICK.value
    games, episodes = (QUICK_GAMES, 30) if quick else (GAMES, 300)
    cases: dict[str, Callable[[], Sequence[common.Row]]] = {
        "stock alfworld": lambda: stock_alfworld.compare(games, TURNS),
        **{name: functools.partial(measure_task, name, episodes) for name in TASKS},
        "swe": lambda: [measure_sandbox(COMMANDS // 10 if quick else COMMANDS)],
        MIX: lambda: [measure_mix(episodes)],
    }
    common.check_only([*cases])
    with validation():
        check_installed("the benchmark", ("alfworld", "textworld", "fast_downward"), "alfworld")
    rows: list[common.Row] = []
    for name, measure in cases.items():
        if common.fits(name):
            print(f"{name} …", flush=True)
            rows += measure()
    common.write_results(NAME, rows, common.results_path(NAME))


if __name__ == "__main__":
    common.main(run)
