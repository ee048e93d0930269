"""Grids: skipping, failing, mixing, pinning, stopping."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from jaxrl_guided.runtime.cells import Cell, load_grid, run_grid, write_result
from jaxrl_guided.runtime.errors import UserError

REPOSITORY = pathlib.Path(__file__).parents[2]
CELLS = [Cell(f"ppo-{i}", {"seed": i}) for i in range(3)]


def python(body):
    """A command whose script sees `path` (result file) and `config_hash`."""

    def command(cell, path):
        head = "import json, os, sys, time\npath, config_hash = sys.argv[1:]\n"
        return [sys.executable, "-c", head + textwrap.dedent(body), str(path), cell.hash]

    return command


WRITE = """
result = {"config_hash": config_hash, "pid": os.getpid(), "cores": list(os.sched_getaffinity(0)),
          "threads": os.environ["OMP_NUM_THREADS"]}
open(path, "w").write(json.dumps(result))
"""


def results(directory):
    return sorted(path.name for path in directory.glob("*.json"))


def test_every_cell_runs_once_pinned_to_one_core(tmp_path):
    report = run_grid(CELLS, python(WRITE), tmp_path / "grid")
    assert report.done == ("ppo-0", "ppo-1", "ppo-2")
    assert (report.skipped, report.failed, report.left) == ((), (), ())
    loaded = load_grid(CELLS, tmp_path / "grid")
    assert len({record["pid"] for record in loaded.values()}) == 3
    assert all(len(record["cores"]) == 1 for record in loaded.values())
    assert all(record["threads"] == "1" for record in loaded.values())
    assert len(os.listdir(tmp_path / "grid")) == 3  # the logs are gone


def test_finished_cells_are_skipped(tmp_path):
    write_result(tmp_path / "ppo-1.json", CELLS[1].config, {"kept": True})
    report = run_grid(CELLS, python(WRITE), tmp_path)
    assert report.done == ("ppo-0", "ppo-2")
    assert report.skipped == ("ppo-1",)
    assert load_grid(CELLS, tmp_path)["ppo-1"]["kept"] is True
    assert run_grid(CELLS, python("sys.exit('not called')"), tmp_path).skipped == (
        "ppo-0",
        "ppo-1",
        "ppo-2",
    )


def test_only_chooses_by_regular_expression(tmp_path):
    report = run_grid(CELLS, python(WRITE), tmp_path, only="-[12]$")
    assert report.done == ("ppo-1", "ppo-2")
    assert results(tmp_path) == ["ppo-1.json", "ppo-2.json"]


def test_failing_cell_is_reported_with_its_log_and_the_others_go_on(tmp_path, capfd):
    body = "if 'ppo-1' in path:\n    print('why it failed'); sys.exit(3)\n" + WRITE
    report = run_grid(CELLS, python(body), tmp_path)
    assert report.done == ("ppo-0", "ppo-2")
    assert report.failed == ("ppo-1",)
    assert (tmp_path / "ppo-1.log").read_text() == "why it failed\n"
    errors = capfd.readouterr().err
    assert "ppo-1: exit code 3" in errors
    assert f"failed: ppo-1 (see {tmp_path}/ppo-1.log)" in errors
    assert run_grid(CELLS, python(WRITE), tmp_path).done == ("ppo-1",)


def test_cell_that_writes_nothing_or_another_configuration_has_failed(tmp_path, capfd):
    assert run_grid(CELLS[:1], python("pass"), tmp_path).failed == ("ppo-0",)
    assert "cannot read" in capfd.readouterr().err
    other = "open(path, 'w').write('{\"config_hash\": \"0\"}')"
    assert run_grid(CELLS[1:2], python(other), tmp_path).failed == ("ppo-1",)


def test_mixed_configurations_are_refused_before_anything_runs(tmp_path):
    write_result(tmp_path / "ppo-0.json", {"seed": 0, "lr": 1}, {})
    with pytest.raises(UserError, match=r"ppo-0\.json is of configuration .* not mixed"):
        load_grid(CELLS, tmp_path)
    with pytest.raises(UserError, match="not mixed"):
        run_grid(CELLS, python(WRITE), tmp_path)
    assert results(tmp_path) == ["ppo-0.json"]


@pytest.mark.parametrize("text", ["", '{"config_ha', "[]", "{}"])
def test_damaged_result_is_named(tmp_path, text):
    (tmp_path / "ppo-0.json").write_text(text)
    with pytest.raises(UserError, match=r"ppo-0\.json"):
        run_grid(CELLS, python(WRITE), tmp_path)


def test_total_is_printed_before_the_start(tmp_path, capfd):
    run_grid(CELLS, python(WRITE), tmp_path, estimate_minutes=lambda cell: 40.0)
    first = capfd.readouterr().err.splitlines()[0]
    assert first == "3 cells to run, 0 finished; about 2 h 00 min on 1 cores"


def test_no_cell_starts_after_max_minutes(tmp_path):
    report = run_grid(CELLS, python("time.sleep(.3)\n" + WRITE), tmp_path, max_minutes=0.1 / 60)
    assert report.done == ("ppo-0",)
    assert report.left == ("ppo-1", "ppo-2")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"cores": 0}, "--cores=0 must lie between 1 and"),
        ({"cores": 10_000}, "--cores=10000 must lie between 1 and"),
        ({"only": "sac"}, "--only=sac matches no cell; ids look like"),
        ({"only": "("}, r"--only=\( is no regular expression"),
        ({"cells": [CELLS[0], CELLS[0]]}, "different ids"),
        ({"directory": "/proc/grid"}, "/proc/grid cannot be created"),
    ],
)
def test_bad_arguments(tmp_path, arguments, message):
    defaults = {"cells": CELLS, "command": python(WRITE), "directory": tmp_path}
    with pytest.raises(UserError, match=message):
        run_grid(**{**defaults, **arguments})
    assert results(tmp_path) == []


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_id_must_be_a_plain_file_name(name):
    with pytest.raises(ValueError, match="id must be"):
        Cell(name, {})


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_two_cores_work_at_once_on_different_cores(tmp_path):
    # Each cell ends only after the other has started.
    body = """
    mark = os.path.dirname(path)
    open(path + ".started", "w").close()
    while len([n for n in os.listdir(mark) if n.endswith(".started")]) < 2:
        time.sleep(.02)
    """
    report = run_grid(CELLS[:2], python(textwrap.dedent(body) + WRITE), tmp_path, cores=2)
    assert set(report.done) == {"ppo-0", "ppo-1"}
    loaded = load_grid(CELLS[:2], tmp_path)
    assert loaded["ppo-0"]["cores"] != loaded["ppo-1"]["cores"]


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("to_all", [False, True], ids=["runner", "group"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_stop_ends_the_children_and_a_rerun_goes_on(tmp_path, signum, to_all):
    body = "open(path + '.pid', 'w').write(str(os.getpid()) + ' ')\ntime.sleep(60)"
    script = f"""
        from tests.runtime.test_cells import CELLS, python, run_grid
        report = run_grid(CELLS, python({body!r}), {str(tmp_path)!r})
        print(report.done, report.failed, report.left, report.stopped)
    """
    runner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    mark = tmp_path / "ppo-0.json.pid"
    wait_for(lambda: mark.exists() and mark.read_text().endswith(" "))
    child = int(mark.read_text())
    assert is_alive(child)
    if to_all:  # as Ctrl-C does: the child may end before the runner looks up
        os.killpg(runner.pid, signum)
    else:
        runner.send_signal(signum)
    output, _ = runner.communicate(timeout=30)
    assert output == "() () ('ppo-0', 'ppo-1', 'ppo-2') True\n"
    assert not is_alive(child)
    assert run_grid(CELLS, python(WRITE), tmp_path).done == ("ppo-0", "ppo-1", "ppo-2")


def test_child_has_one_xla_thread(tmp_path):
    body = """
    import jax, jax.numpy as jnp
    x = jnp.ones((400, 400))
    jax.block_until_ready(x @ x)
    names = [open(f"/proc/self/task/{t}/comm").read() for t in os.listdir("/proc/self/task")]
    pool = sum("XLAEigen" in name for name in names)
    open(path, "w").write(json.dumps({"config_hash": config_hash, "pool": pool}))
    """
    run_grid(CELLS[:1], python(body), tmp_path)
    assert load_grid(CELLS[:1], tmp_path)["ppo-0"]["pool"] == 1


def test_result_is_json_without_nan(tmp_path):
    write_result(tmp_path / "x.json", {"seed": 0}, {"curve": [1.0, float("nan")]})
    record = json.loads((tmp_path / "x.json").read_text())
    assert record.pop("git")
    assert record == {"config_hash": CELLS[0].hash, "curve": [1.0, None]}
    with pytest.raises(ValueError, match="result may not name config_hash"):
        write_result(tmp_path / "x.json", {"seed": 0}, {"config_hash": "0"})
