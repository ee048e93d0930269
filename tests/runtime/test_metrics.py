"""Metrics files: values, resuming without duplicates, crashes."""

import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.metrics import FILE_NAME, MetricsWriter, read_metrics


def write_steps(directory, steps, resume_step=-1):
    with MetricsWriter(directory, resume_step) as writer:
        for step in steps:
            writer.write(step, {"loss": step / 2})


def events(directory):
    """All (tag, step, value) in the order written, read by the record format's definition."""
    found = []
    for path in sorted((directory / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            event = event_pb2.Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            found += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
    return found


def test_values_of_every_kind(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(
            jnp.int32(5),
            {
                "float": 0.1,
                "array": jnp.float32(2.5),
                "bf16": jnp.asarray(1.5, jnp.bfloat16),
                "count": np.int64(7),
                "nan": jnp.nan,
                "seeds": jnp.asarray([1.0, jnp.nan, 3.0]),
            },
        )
    text = (tmp_path / FILE_NAME).read_text()
    assert json.loads(text) == {
        "step": 5,
        "float": 0.1,
        "array": 2.5,
        "bf16": 1.5,
        "count": 7,
        "nan": None,
        "seeds": [1.0, None, 3.0],
    }
    (record,) = read_metrics(tmp_path)
    assert math.isnan(record["nan"])
    np.testing.assert_array_equal(record["seeds"], [1.0, np.nan, 3.0])


def test_tensorboard_gets_the_mean_of_finite_values(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(5, {"seeds": np.asarray([1.0, np.nan, 3.0]), "nan": float("nan")})
        writer.write(6, {"seeds": 4.0})
    assert events(tmp_path) == [("seeds", 5, 2.0), ("seeds", 6, 4.0)]


def test_line_is_readable_before_the_writer_is_closed(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"loss": 0.5})
        assert read_metrics(tmp_path) == [{"step": 1, "loss": 0.5}]


def test_resume_drops_later_lines_and_keeps_the_earlier_ones_exact(tmp_path):
    write_steps(tmp_path, [1, 2, 3, 4])
    kept = (tmp_path / FILE_NAME).read_bytes().splitlines()[:2]
    write_steps(tmp_path, [3, 4, 5], resume_step=2)
    assert [record["step"] for record in read_metrics(tmp_path)] == [1, 2, 3, 4, 5]
    assert (tmp_path / FILE_NAME).read_bytes().splitlines()[:2] == kept


def test_start_without_a_checkpoint_starts_the_curve_anew(tmp_path):
    write_steps(tmp_path, [1, 2])
    write_steps(tmp_path, [1])
    assert [record["step"] for record in read_metrics(tmp_path)] == [1]


def test_line_cut_by_a_crash_is_dropped(tmp_path):
    write_steps(tmp_path, [1, 2])
    with open(tmp_path / FILE_NAME, "a") as file:
        file.write('{"step": 3, "lo')
    assert [record["step"] for record in read_metrics(tmp_path)] == [1, 2]
    write_steps(tmp_path, [3], resume_step=2)
    assert [record["step"] for record in read_metrics(tmp_path)] == [1, 2, 3]


def test_a_line_that_is_no_text_is_named(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(b'{"step": 1}\n\xff\xfe\n')
    with pytest.raises(UserError, match="line 2, is damaged"):
        read_metrics(tmp_path)


@pytest.mark.parametrize("line", ["nonsense", '{"loss": 1}', "[1]", '{"step": null}'])
def test_damaged_line_is_named_and_the_file_left_alone(tmp_path, line):
    write_steps(tmp_path, [1])
    path = tmp_path / FILE_NAME
    path.write_text(path.read_text() + line + "\n" + '{"step": 2}\n')
    before = path.read_bytes()
    with pytest.raises(UserError, match="line 2"):
        read_metrics(tmp_path)
    with pytest.raises(UserError, match="line 2"):
        MetricsWriter(tmp_path, resume_step=1)
    assert path.read_bytes() == before


def test_absent_file_is_named(tmp_path):
    with pytest.raises(UserError, match=FILE_NAME):
        read_metrics(tmp_path)


@pytest.mark.slow
def test_kill_loses_no_written_line(tmp_path):
    script = f"""
        from jaxrl_guided.runtime.metrics import MetricsWriter
        writer = MetricsWriter({str(tmp_path)!r})
        for step in range(10**9):
            writer.write(step, {{"loss": step / 3, "text": [1.0] * 50}})
            print(step, flush=True)
    """
    for _ in range(5):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=pathlib.Path(__file__).parents[2],
        )
        child.stdout.readline()
        time.sleep(0.3)
        child.send_signal(signal.SIGKILL)
        acknowledged = [0, *map(int, child.stdout.read().split("\n")[:-1])]
        child.wait()
        child.stdout.close()
        steps = [record["step"] for record in read_metrics(tmp_path)]
        assert steps == list(range(len(steps)))
        assert len(acknowledged) > 1
        assert steps[-1] >= acknowledged[-1]


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"loss": 0.5})
        write, room = os.write, [7]

        def write_what_fits(file, data):
            if not room[0]:
                raise OSError(28, "No space left on device")
            written = write(file, data[: room[0]])
            room[0] -= written
            return written

        monkeypatch.setattr(os, "write", write_what_fits)
        with pytest.raises(UserError, match=r"cannot write .*metrics.jsonl: No space left"):
            writer.write(2, {"loss": 0.25})
        room[0] = 1000
        writer.write(2, {"loss": 0.25})
    assert [record["step"] for record in read_metrics(tmp_path)] == [1, 2]
