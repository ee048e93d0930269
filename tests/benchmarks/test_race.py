"""Races with contenders that do nothing but answer."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from absl import flags

from benchmarks import environments, ppo, race, sac
from benchmarks.race import Case, make_case, shrink
from benchmarks.standings import OURS, rows
from benchmarks.workers import ContenderFailed, Worker
from jaxrl_guided.runtime.errors import UserError

FAKE = """
import json, os, sys
print("chatter of an import")
sys.path.insert(0, {peers!r})
import protocol

class Fake(protocol.Contender):
    def prepare(self):
        print("chatter of a library")
        if self.does("die early"):
            raise SystemExit("no such device")
        return 1.5

    def does(self, what):
        return self.task.get(sys.argv[2], {{}}).get("does") == what

    def run(self, seed):
        with open(self.task["log"], "a") as log:
            log.write(f"{{sys.argv[2]}}{{seed}} ")
        if self.does("die") and seed == 2:
            raise ValueError("the device is gone")
        seconds = self.task[sys.argv[2]]["seconds"]
        return 1000, seconds * (seed if self.does("tire") else 1)

    def judge(self):
        return [self.task[sys.argv[2]].get("returns", 500.0)] * self.task["seeds"]

    def floor(self):
        return {{"environment_seconds": 1e-4, "products_seconds": 4e-4}}

    def note(self):
        return json.dumps({{k: os.environ.get(k) for k in ("OMP_NUM_THREADS", "PYTHONPATH")}})

def make(task):
    # The worker passes the task last, the name of the fake stands before it.
    return Fake(task)

sys.argv[1], sys.argv[2] = sys.argv[2], sys.argv[1]
protocol.serve(make)
"""


@pytest.fixture
def commands(tmp_path):
    """Name to the command of a fake contender."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE.format(peers=str(race.SCRIPTS)))
    return lambda *names: {name: [sys.executable, str(script), name] for name in names}


@pytest.fixture
def make(tmp_path):
    """A case whose contenders do what its keywords say; all take a second for 1000 steps."""

    def build(starts=1, repeats=2, seeds=1, goals=(), bar=None, **does):
        task = {"seeds": seeds, "log": str(tmp_path / "log")}
        task |= {name: {"seconds": 1.0} for name in (OURS, "a", "b")}
        for name, options in does.items():
            task[name] = task[name] | options
        return Case("fake", task, ("a", "b"), dict(goals), bar, starts, repeats)

    return build


@pytest.fixture
def set_flags():
    """Sets command-line flags for one test."""
    values = flags.FLAGS
    if not values.is_parsed():
        values(["test"])
    names = ("quick", "only", "peers", "envs", "purejaxrl")
    saved = {name: values[name].value for name in names}
    yield lambda **new: [setattr(values, name, value) for name, value in new.items()]
    for name, value in saved.items():
        setattr(values, name, value)


def test_contenders_take_turns(commands, make, tmp_path):
    race.race(make(starts=2), commands(OURS, "a"))
    turns = (tmp_path / "log").read_text().split()
    assert turns == ["ours0", "a0", "ours0", "a0", "ours1", "a1", "ours2", "a2"]


def test_rows_of_a_race(commands, make):
    case = make(goals={"a": 2.0}, bar=475.0, a={"seconds": 2.5})
    standing = race.race(case, commands(OURS, "a"), {"b": "not installed"})
    speed, floor, returns, compiled, cold, memory = rows(standing)
    assert speed.ours == pytest.approx(1000)
    assert speed.peers == {"a": pytest.approx(400)}
    assert (speed.goal, speed.met) == ("≥ 2× a", True)
    assert "2.5× a" in speed.note
    assert "b absent: not installed" in speed.note
    assert floor.ours == pytest.approx(50)
    assert (returns.ours, returns.goal, returns.met) == (500, "≥ 475", True)
    assert (compiled.ours, compiled.met, compiled.peers) == (1.5, True, {"a": 1.5})
    assert 0 < cold.ours < 10
    assert 1 < memory.ours < 100  # not that of this process


def test_vmapped_seeds_have_no_floor_and_all_their_returns(commands, make):
    standing = race.race(make(seeds=3), commands(OURS))
    assert len(standing.ours.returns) == 6
    assert not standing.floor


def test_a_missed_goal(commands, make):
    standing = race.race(make(goals={"a": 2.0}, a={"seconds": 1.5}), commands(OURS, "a"))
    assert rows(standing)[0].met is False


def test_a_noisy_peer_makes_the_row_void(commands, make):
    case = make(goals={"a": 2.0}, a={"seconds": 9.0, "does": "tire"})
    row = rows(race.race(case, commands(OURS, "a")))[0]
    assert row.met is None
    assert "void: repeats spread by 67 %" in row.note


def test_a_peer_below_the_bar_is_shown_and_not_scored(commands, make):
    case = make(goals={"a": 2.0}, bar=475.0, a={"seconds": 9.0, "returns": 206.0})
    row = rows(race.race(case, commands(OURS, "a")))[0]
    assert row.met is None
    assert row.peers["a"] == pytest.approx(1000 / 9)
    assert "misses the return bar, not scored" in row.note


def test_our_speed_does_not_count_below_the_bar(commands, make):
    case = make(goals={"a": 2.0}, bar=475.0, a={"seconds": 9.0}, ours={"returns": 400.0})
    speed, _, returns, *_ = rows(race.race(case, commands(OURS, "a")))
    assert speed.met is False
    assert returns.met is False


def test_a_goal_without_its_peer_is_not_judged(commands, make):
    assert rows(race.race(make(goals={"a": 2.0}), commands(OURS)))[0].met is None


@pytest.mark.parametrize(
    "does, reason", [("die early", "no such device"), ("die", "ValueError: the device is gone")]
)
def test_a_peer_that_crashes_is_named_and_the_rest_goes_on(commands, make, does, reason):
    case = make(a={"does": does}, b={"seconds": 4.0})
    row = rows(race.race(case, commands(OURS, "a", "b")))[0]
    assert row.peers == {"b": pytest.approx(250)}
    assert f"a failed: {reason}" in row.note


def test_our_own_crash_is_an_error(commands, make):
    with pytest.raises(RuntimeError, match="ours failed in fake: ValueError: the device is gone"):
        race.race(make(ours={"does": "die"}), commands(OURS))


def test_contenders_have_one_thread_and_none_of_our_paths(commands, make, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    standing = race.race(make(), commands(OURS))
    assert json.loads(standing.ours.note) == {"OMP_NUM_THREADS": "1", "PYTHONPATH": None}


def test_a_contender_that_only_chatters_has_failed():
    with pytest.raises(ContenderFailed, match="hello"):
        Worker([sys.executable, "-c", "print('hello')"], {})
    with pytest.raises(ContenderFailed, match="exit status 3"):
        Worker([sys.executable, "-c", "raise SystemExit(3)"], {})


def test_steps_are_whole_iterations():
    task = {"steps": 1000, "num_envs": 4, "rollout_steps": 128, "seeds": 2}
    case = make_case("x", task, ())
    assert case.task["steps"] == 1024
    assert case.name == "x, 2 seeds"


@pytest.mark.parametrize("case", [*ppo.CASES, *sac.CASES], ids=lambda case: case.name)
def test_cases(case):
    assert set(case.goals) <= set(case.peers) <= set(race.LIBRARY)
    small = shrink(case)
    assert small.task["steps"] < case.task["steps"]
    assert not small.goals
    for name in case.peers:
        peer = race.LIBRARY[name]
        assert (race.SCRIPTS / peer.script).exists()
        assert (environments.REQUIREMENTS / f"{peer.environment}.txt").exists()


def test_quick_races_us_alone_on_the_first_case(set_flags, monkeypatch):
    set_flags(quick=True, only=None, peers=None)
    seen = []
    monkeypatch.setattr(race, "race", lambda case, *peers: seen.append((case, *peers)))
    monkeypatch.setattr(race.common, "pin_to_core", lambda: 0)
    race.race_all(ppo.CASES)
    ((case, commands, absent),) = seen
    assert case.name.startswith("CartPole-v1, 4 environments")
    assert case.task["steps"] == 1024
    assert (commands, absent) == ({}, {})


def test_only_chooses_cases_and_missing_peers_are_named(set_flags, monkeypatch, tmp_path):
    set_flags(quick=False, only="1024", peers=["rejax", "purejaxrl"], purejaxrl=None)

    def refuse(name, root):
        raise UserError("no index")

    seen = []
    monkeypatch.setattr(race, "race", lambda case, *peers: seen.append((case, *peers)))
    monkeypatch.setattr(race.common, "pin_to_core", lambda: 0)
    monkeypatch.setattr(race.environments, "make_environment", refuse)
    race.race_all(ppo.CASES)
    ((_, commands, absent),) = seen
    assert commands == {}
    assert absent == {
        "rejax": "no index",
        "purejaxrl": "no clone given with --purejaxrl=PATH",
    }


def test_unknown_peers_are_refused(set_flags):
    set_flags(peers=["rejx"])
    with pytest.raises(UserError, match="--peers: unknown rejx; there are purejaxrl, rejax"):
        race.race_all(ppo.CASES)


def test_a_clone_that_is_none_is_refused(set_flags, tmp_path):
    set_flags(purejaxrl=str(tmp_path))
    with pytest.raises(UserError, match=r"has no purejaxrl/ppo\.py"):
        race._command("purejaxrl")


def test_an_environment_is_made_once(tmp_path, monkeypatch):
    ran = []

    def run(command, **options):
        ran.append(command)
        python = tmp_path / "brax" / "bin" / "python"
        python.parent.mkdir(exist_ok=True)
        python.touch()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(environments.subprocess, "run", run)
    for _ in range(2):
        assert environments.make_environment("brax", tmp_path) == tmp_path / "brax/bin/python"
    assert len(ran) == 2  # venv and pip
    (tmp_path / "brax" / ".installed").write_text("older pins")
    environments.make_environment("brax", tmp_path)
    assert len(ran) == 4


@pytest.mark.parametrize(
    "written, message",
    [
        ("ERROR: Connection refused", "the package index could not be reached or lacks a pin"),
        ("ERROR: gcc is not there", r"installation of brax\.txt failed \(install\.log\)"),
    ],
)
def test_a_failed_installation_is_one_line(tmp_path, monkeypatch, written, message):
    def run(command, stdout, **options):
        stdout.write(written)
        stdout.flush()
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(environments.subprocess, "run", run)
    with pytest.raises(UserError, match=message):
        environments.make_environment("brax", tmp_path)


def test_flatness(commands, make):
    slow, fast = (
        race.race(make(ours={"seconds": seconds}), commands(OURS)) for seconds in (1.25, 1.0)
    )
    standings = [
        race.dataclasses.replace(one, case=f"Pendulum-v1, replay {size}, 1 seed")
        for one, size in ((slow, "1"), (fast, "2"))
    ]
    (row,) = sac.flatness(standings)
    assert row.case == "Pendulum-v1, replay 1, replay 2"
    assert row.ours == pytest.approx(0.8)
    assert row.met is False
    assert sac.flatness(standings[:1]) == []


def test_peers_scripts_know_their_protocol_alone():
    """They run where this library is not installed."""
    for script in race.SCRIPTS.glob("race_*.py"):
        text = script.read_text()
        assert "jaxrl_guided" not in text, script
        assert "from benchmarks" not in text, script
    code = "import protocol, sys; assert not {'jax', 'numpy'} & set(sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(race.SCRIPTS)}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, env=environment)
