"""Side-by-side speed of learners: ours and peers, in processes of their own, turn by turn.

Each contender is started, compiled and run once (cold), `starts` times in turn; the last processes
stay, and then take turns (A, B, A, B, …) with new seeds. All are on one core with one thread, with
evaluation, logging and checkpoints off; the policies of every run are judged between the turns.
"""

import dataclasses
import functools
import math
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from benchmarks import common, environments
from benchmarks.standings import OURS, Measured, Standing, rows
from benchmarks.workers import ContenderFailed, Worker
from jaxrl_guided.runtime.errors import UserError

PEERS = flags.DEFINE_list("peers", None, "Peers to race against; '' for none. Default: all.")
ENVS = flags.DEFINE_string("envs", ".bench", "Directory of the peers' environments.")
PUREJAXRL = flags.DEFINE_string(
    "purejaxrl", None, "Path of a clone of PureJaxRL, which has no package."
)

SCRIPTS = pathlib.Path(__file__).parent / "peers"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A library to race against.

    Attributes:
      script: in `peers`.
      environment: of `peers/requirements`.
      options: what its task has beside the case's.
    """

    script: str
    environment: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


REPAIRED = "rejax with its sampling repaired"
LIBRARY: dict[str, Peer] = {
    "purejaxrl": Peer("race_purejaxrl.py", "rejax"),
    "rejax": Peer("race_rejax.py", "rejax"),
    REPAIRED: Peer("race_rejax.py", "rejax", {"repaired": True}),
    "sbx": Peer("race_sb3.py", "sb3", {"library": "sbx"}),
    "stable-baselines3": Peer("race_sb3.py", "sb3", {"library": "stable-baselines3"}),
    "brax": Peer("race_brax.py", "brax"),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A race.

    Attributes:
      name: what `--only` is matched with.
      task: of all contenders; `steps` are those of one seed.
      peers: who can take part.
      goals: peer to the ratio of speeds that we are to reach.
      bar: return below which a speed does not count; None for none.
      starts: cold measurements.
      repeats: warm measurements.
    """

    name: str
    task: Mapping[str, Any]
    peers: tuple[str, ...]
    goals: Mapping[str, float] = dataclasses.field(default_factory=dict)
    bar: float | None = None
    starts: int = 3
    repeats: int = 5


def make_case(name: str, task: Mapping[str, Any], peers: Sequence[str], **options: Any) -> Case:
    """A case whose steps are the next multiple of an iteration, so that all do the same number."""
    batch = task["num_envs"] * task.get("rollout_steps", 1)
    steps = math.ceil(task["steps"] / batch) * batch
    name = f"{name}, {task['seeds']} seed{'s' * (task['seeds'] > 1)}"
    return Case(name, {**task, "steps": steps}, tuple(peers), **options)


def shrink(case: Case) -> Case:
    """The case in seconds, to see that it runs: two iterations, no goals."""
    task = dict(case.task)
    if task["algorithm"] == "ppo":
        task["steps"] = 2 * task["num_envs"] * task["rollout_steps"]
    else:
        task |= {"steps": 300, "learning_starts": 50}
    return dataclasses.replace(case, task=task, goals={}, bar=None, starts=1, repeats=2)


def race_all(cases: Sequence[Case]) -> list[Standing]:
    """Races those cases that `--only` and `--quick` leave over.

    Raises:
      UserError: `--only` or `--peers` name what there is not.
    """
    if common.QUICK.value:
        cases = [shrink(case) for case in (cases if common.ONLY.value else cases[:1])]
    cases = [case for case in cases if common.fits(case.name)]
    wanted = _wanted_peers()
    commands: dict[str, list[str]] = {}
    absent: dict[str, str] = {}
    for name in dict.fromkeys(name for case in cases for name in case.peers if name in wanted):
        try:
            commands[name] = _command(name)
        except UserError as error:
            absent[name] = str(error)
            print(f"{name} is left out: {error}", flush=True)
    common.pin_to_core()
    return [
        race(
            case,
            {name: commands[name] for name in case.peers if name in commands},
            {name: absent[name] for name in case.peers if name in absent},
        )
        for case in cases
    ]


def _wanted_peers() -> list[str]:
    """Those of `--peers`; by default all, and none in a quick run."""
    if PEERS.value is None:
        return [] if common.QUICK.value else list(LIBRARY)
    names = [name for name in PEERS.value if name]
    if unknown := sorted(set(names) - set(LIBRARY)):
        raise UserError(f"--peers: unknown {', '.join(unknown)}; there are {', '.join(LIBRARY)}")
    return names


def _command(name: str) -> list[str]:
    """How the peer is started; installs it.

    Raises:
      UserError: it cannot be.
    """
    peer = LIBRARY[name]
    if name == "purejaxrl":
        if PUREJAXRL.value is None:
            raise UserError("no clone given with --purejaxrl=PATH")
        if not (pathlib.Path(PUREJAXRL.value) / "purejaxrl" / "ppo.py").exists():
            raise UserError(f"--purejaxrl={PUREJAXRL.value} has no purejaxrl/ppo.py")
    python = environments.make_environment(peer.environment, pathlib.Path(ENVS.value))
    return [str(python), str(SCRIPTS / peer.script)]


def _task(case: Case, name: str) -> dict[str, Any]:
    task = dict(case.task)
    if name in LIBRARY:
        task |= LIBRARY[name].options
    if name == "purejaxrl" and PUREJAXRL.value is not None:
        task["path"] = str(pathlib.Path(PUREJAXRL.value).absolute())
    return task


def race(
    case: Case, commands: Mapping[str, Sequence[str]], absent: Mapping[str, str] | None = None
) -> Standing:
    """One case.

    Args:
      commands: of the peers, and of us where it is not the usual one.
      absent: peers that cannot take part, with the reason.

    Raises:
      RuntimeError: we failed ourselves; a peer that fails is left out and named.
    """
    print(f"{case.name} …", flush=True)
    track = _Track(case, {OURS: [sys.executable, "-m", "benchmarks.ours"], **commands})
    try:
        for _ in range(case.starts):
            track.turn(track.start)
        for seed in range(1, case.repeats + 1):
            track.turn(functools.partial(track.run, seed))
        if case.task["seeds"] == 1:
            track.turn(track.find_floor)
    finally:
        track.close()
    goals, bar = case.goals, case.bar
    return Standing(case.name, track.measured, goals, bar, track.floor, dict(absent or {}))


class _Track:
    """The processes of a case, and what was measured of them."""

    def __init__(self, case: Case, commands: Mapping[str, Sequence[str]]) -> None:
        self.measured = {name: Measured() for name in commands}
        self.floor: dict[str, float] = {}
        self._case, self._commands = case, commands
        self._workers: dict[str, Worker] = {}

    def turn(self, act: Callable[[str], None]) -> None:
        """Everyone's, one after the other."""
        for name, measured in self.measured.items():
            if measured.failed:
                continue
            try:
                act(name)
            except ContenderFailed as error:
                if name == OURS:
                    raise RuntimeError(f"{OURS} failed in {self._case.name}: {error}") from error
                measured.failed = str(error)
                print(f"{name} failed: {error}", flush=True)

    def start(self, name: str) -> None:
        """A new process up to the end of its first run; it takes the place of an earlier one."""
        if name in self._workers:
            self._workers.pop(name).close()
        worker = Worker(self._commands[name], _task(self._case, name))
        self._workers[name] = worker
        answer, measured = worker.ask("run 0"), self.measured[name]
        measured.cold.append(time.perf_counter() - worker.started)
        measured.steps = answer["steps"]
        measured.note = worker.ready["note"]
        if worker.ready["compile_seconds"] is not None:
            measured.compiled.append(worker.ready["compile_seconds"])
        measured.rss_mb = max(measured.rss_mb, answer["rss_mb"])

    def run(self, seed: int, name: str) -> None:
        """A warm run, and the judgement of what it has learned."""
        worker, measured = self._workers[name], self.measured[name]
        answer = worker.ask(f"run {seed}")
        measured.per_step.append(answer["seconds"] / answer["steps"])
        measured.returns += worker.ask("judge")["returns"]
        measured.rss_mb = max(measured.rss_mb, answer["rss_mb"])

    def find_floor(self, name: str) -> None:
        """Of us only: it is the same for all."""
        if name == OURS:
            self.floor = self._workers[name].ask("floor")

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()


def all_rows(standings: Sequence[Standing]) -> list[common.Row]:
    """The rows of all cases."""
    return [row for standing in standings for row in rows(standing)]
