"""The bridge's benchmark: every way steps, and goals are judged on the right numbers."""

import dataclasses
import sys

import pytest
from absl import flags

from benchmarks import bridge, common, race
from benchmarks.bridge import CASES, Case
from jaxrl_guided.runtime import versions

SMALL = Case("gym/CartPole-v1", 2, 64, 20)


@pytest.fixture(autouse=True)
def parsed_flags():
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["test"])


@pytest.mark.parametrize("form", ["pool", "bare", "sync", "async"])
def test_every_way_steps(form):
    task = dataclasses.asdict(SMALL) | {"form": form, "env": "CartPole-v1"}
    rates = bridge._measure([sys.executable, str(race.SCRIPTS / "bridge_forms.py")], task)
    assert len(rates) == bridge.REPEATS
    assert min(rates) > 0


def test_callbacks_and_loop_have_a_cost():
    rows = bridge.forms(SMALL)
    assert [row.metric.split(" by ")[1].split(",")[0] for row in rows] == ["callbacks", "loop"]
    assert all(row.note.startswith("the pool alone") for row in rows)


def judged(case, ours, bare, asynchronous):
    rates = {"ours": ours, "bare loop": bare, "AsyncVectorEnv": asynchronous}
    rates[bridge.AT_ONCE] = 2 * ours
    return bridge._row(case, {name: [value] * 6 for name, value in rates.items()}, [])


def test_goals():
    cores = len(versions.cores())
    large, small = (next(c for c in CASES if c.num_envs == n and "mini" in c.env) for n in (64, 8))
    assert judged(large, 91.0 * cores, 100.0, 10.0).met
    assert not judged(large, 89.0 * cores, 100.0, 10.0).met  # below .9 of the cores
    assert judged(small, 89.0 * cores, 100.0, 10.0).met  # of few environments that is not asked
    assert not judged(small, 89.0 * cores, 100.0, 89.0 * cores / 1.9).met
    row = judged(small, 50.0 * cores, 100.0, 10.0)
    assert row.peers[f"bare loop × {cores} cores"] == 100.0 * cores
    assert row.note.startswith("0.50 of bare loop × cores, 0.50 of bare loops, one a core, at once")


def test_unsteady_repeats_are_void():
    rates = {"ours": [90, 100, 110, 120, 130, 140]}
    rates |= dict.fromkeys(("bare loop", "AsyncVectorEnv", bridge.AT_ONCE), [1] * 6)
    row = bridge._row(SMALL, rates, [])
    assert row.met is None
    assert "void: repeats of ours spread by 26%" in row.note
    assert common.table_cells(dataclasses.asdict(row))[5] == "void"


@pytest.mark.slow
def test_tasks_are_stepped_beside_meta_worlds_own():
    (row,) = bridge.tasks()
    assert min(row.ours, row.peers["Meta-World alone"]) > 0
