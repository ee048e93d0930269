"""Timing and the results files of benchmarks."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import jax
import pytest
from absl import flags

from benchmarks import common, report
from benchmarks.common import Row, Timing, measure_interleaved, results_path, write_results

REPOSITORY = pathlib.Path(__file__).parents[2]
STEADY, NOISY = Timing(1.0, 0.99, 1.01), Timing(1.0, 0.8, 1.2)
ROW = Row("clevr/real", "speed", "steps/s", 1234.5, {"mujoco": 100.0}, "≥ 30×", False, "small")


@pytest.fixture
def set_flags():
    """Sets command-line flags for one test."""
    values = flags.FLAGS
    if not values.is_parsed():
        values(["test"])
    saved = {name: values[name].value for name in ("quick", "out", "only")}
    yield lambda **new: [setattr(values, name, value) for name, value in new.items()]
    for name, value in saved.items():
        setattr(values, name, value)


def test_candidates_take_turns_after_one_warm_up():
    calls = []
    candidates = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    measure_interleaved(candidates, repeats=2, calls=2)
    assert "".join(calls) == "ab" + "aabb" * 2


def test_times_are_median_and_range_per_call(monkeypatch):
    # The clock is read before and after each measurement: 1, 5 and 3 seconds for two calls.
    readings = iter([0.0, 1.0, 10.0, 15.0, 20.0, 23.0])
    monkeypatch.setattr(common.time, "perf_counter", lambda: next(readings))
    timing = measure_interleaved({"a": lambda: None}, repeats=3, calls=2)["a"]
    assert timing == Timing(median=1.5, low=0.5, high=2.5)


def test_results_are_waited_for():
    @jax.jit
    def slow(x):
        return jax.lax.fori_loop(0, 200, lambda _, y: y @ y / 400, x)

    x = jax.numpy.ones((400, 400))
    timing = measure_interleaved({"slow": lambda: slow(x)}, repeats=2)["slow"]
    # 200 products of 2·400³ operations; no machine makes 100 TFLOP/s on its processor.
    assert timing.low > 200 * 2 * 400**3 / 100e12


def test_noisy_measurements_are_void():
    assert Timing(1.0, 0.98, 1.02).valid
    assert Timing(1.0, 0.98, 1.02).note == ""
    noisy = Timing(1.0, 0.9, 1.1)
    assert not noisy.valid
    assert noisy.note == "void: repeats spread by 20 %"


@pytest.mark.parametrize("arguments", [{"repeats": 0}, {"calls": 0}])
def test_measurement_needs_repeats(arguments):
    with pytest.raises(ValueError, match="at least 1"):
        measure_interleaved({}, **arguments)


def test_results_file(set_flags, tmp_path, capsys):
    set_flags(only=None)
    path = tmp_path / "new" / "clevr_env.json"
    write_results("clevr_env", [ROW], path)
    record = json.loads(path.read_text())
    assert {"date", "cpu", "cores", "devices", "packages", "git", "python"} <= set(record)
    assert record["name"] == "clevr_env"
    (row,) = record["rows"]
    assert row["peers"] == {"mujoco": 100.0}
    assert row["met"] is False
    printed = capsys.readouterr().out
    assert "1,234" in printed
    assert "mujoco" in printed


def test_cases_measured_apart_stay_with_their_origin(set_flags, tmp_path, capsys):
    path = tmp_path / "ppo.json"
    first, second = (dataclasses.replace(ROW, case=case) for case in ("first", "second"))
    set_flags(only=None)
    write_results("ppo", [first, second], path)
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"cpu": "another", "date": "2020-01-01"}))

    set_flags(only="first")
    write_results("ppo", [dataclasses.replace(first, ours=7.0)], path)
    record = json.loads(path.read_text())
    assert [row["case"] for row in record["rows"]] == ["first", "second"]
    assert [row["ours"] for row in record["rows"]] == [7.0, ROW.ours]
    assert record["cpu"] != "another"
    assert "origin" not in record["rows"][0]
    assert record["rows"][1]["origin"]["cpu"] == "another"
    footer = report.render(record).splitlines()[-2:]
    assert footer[0].startswith("second: 2020-01-01, another")
    assert footer[1].startswith(f"All others: {record['date']}")

    write_results("ppo", [dataclasses.replace(second, ours=8.0)], path)
    record = json.loads(path.read_text())
    assert [row["ours"] for row in record["rows"]] == [7.0, 8.0]
    assert not any("origin" in row for row in record["rows"])

    set_flags(only=None)
    write_results("ppo", [second], path)
    assert len(json.loads(path.read_text())["rows"]) == 1


def test_quick_run_leaves_the_committed_file_alone(set_flags, tmp_path):
    set_flags(quick=False, out=None)
    assert results_path("ppo") == REPOSITORY / "benchmarks" / "results" / "ppo.json"
    set_flags(quick=True)
    assert results_path("ppo") is None
    set_flags(out=str(tmp_path / "x.json"))
    assert results_path("ppo") == tmp_path / "x.json"
    write_results("ppo", [ROW], None)
    assert list(tmp_path.iterdir()) == []


def test_empty_results_are_refused(tmp_path):
    with pytest.raises(ValueError, match="rows"):
        write_results("ppo", [], tmp_path / "x.json")


def test_pinning(tmp_path):
    script = """
        import os
        from benchmarks.common import pin_to_core
        core = pin_to_core()
        assert os.sched_getaffinity(0) == {core}
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    subprocess.run(command, check=True, cwd=REPOSITORY, env=os.environ)


@pytest.mark.parametrize(
    ("ours", "peer", "goal", "verdict"),
    [
        (STEADY, STEADY, 1.0, True),
        (STEADY, Timing(2.99, 2.98, 3.0), 3.0, False),
        (NOISY, Timing(2.4, 2.4, 2.4), 2.0, True),
        (NOISY, Timing(2.4, 2.3, 2.4), 2.0, None),
        (NOISY, Timing(1.6, 1.6, 1.6), 2.0, None),
        (NOISY, Timing(1.5, 1.5, 1.5), 2.0, False),
        (STEADY, Timing(3.0, 1.0, 4.0), 2.0, None),
        (STEADY, Timing(3.0, 2.02, 4.0), 2.0, True),
    ],
)
def test_noise_hides_a_verdict_unless_all_repeats_agree(ours, peer, goal, verdict):
    assert common.faster(ours, peer, goal) is verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [([], True), ([True, True], True), ([True, None], None), ([None, False, True], False)],
)
def test_one_miss_is_a_miss(found, verdict):
    assert common.all_of(found) is verdict
