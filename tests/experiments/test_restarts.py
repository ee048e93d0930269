"""Training runs that are killed or preempted end as if nothing had happened; several processes."""

import json
import os
import random
import signal
import socket
import subprocess
import time

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.experiments.scripts import REPOSITORY, command, environment, run

pytestmark = pytest.mark.slow

SMALL = (
    "--preset=smoke",
    "--config.evaluation.curve_points=12",
    "--config.evaluation.episodes=4",
)
RUNS = {
    "ppo": (*SMALL, "--config.ppo.total_steps=3072"),
    "gru": (*SMALL, "--config.ppo.total_steps=3072", "--config.network.gru=8"),
    "sac": (*SMALL, "--config.algorithm=sac", "--config.sac.total_steps=1024"),
}


def policy(path):
    """All numbers of the final policies, as orbax finds them, whatever devices they were on."""
    where, reader = path / "policy" / "0" / "state", ocp.PyTreeCheckpointer()
    tree = reader.metadata(where).item_metadata.tree
    plain = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    return jax.tree.leaves(reader.restore(where, restore_args=plain))


def steps_saved(path):
    """Checkpoints that are complete."""
    return [p for p in path.glob("checkpoints/*") if p.name.isdigit()]


def wait_until(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("kind", RUNS)
def test_a_killed_run_ends_with_the_same_bits(kind, tmp_path):
    """kill -9 at three random moments, the first of them after the first checkpoint."""
    run(tmp_path, "train", *RUNS[kind], f"--run_dir={tmp_path / 'whole'}")
    cut, draw = tmp_path / "cut", random.Random(kind)
    for attempt in range(3):
        process = subprocess.Popen(
            command("train", *RUNS[kind], f"--run_dir={cut}"),
            cwd=tmp_path,
            env=environment(tmp_path / "compiled"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if attempt == 0:
            wait_until(lambda: steps_saved(cut), process)
            time.sleep(draw.uniform(0, 0.5))
        else:
            time.sleep(draw.uniform(1, 15))
        process.kill()
        process.communicate()
    assert not (cut / "summary.json").exists() or attempt > 0
    run(tmp_path, "train", *RUNS[kind], f"--run_dir={cut}")
    for ours, theirs in zip(policy(cut), policy(tmp_path / "whole"), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    summaries = [json.loads((tmp_path / d / "summary.json").read_text()) for d in ("cut", "whole")]
    for summary in summaries:
        del summary["minutes"]
    assert summaries[0] == summaries[1]
    rows = [json.loads(line)["step"] for line in (cut / "metrics.jsonl").read_text().splitlines()]
    assert rows == sorted(set(rows))


def devices(count):
    return {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}", "JAX_PLATFORMS": "cpu"}


DIVIDED = (*SMALL, "--config.ppo.total_steps=1536", "--config.ppo.num_envs=8")


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    """The run that two processes of four devices are compared with."""
    path = tmp_path_factory.mktemp("one")
    run(path, "train", *DIVIDED, "--devices=1", f"--run_dir={path / 'run'}")
    return path / "run"


def close(path, expected):
    for ours, theirs in zip(policy(path), policy(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_two_processes_are_one_run(tmp_path, one_device):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            command(
                "train",
                *DIVIDED,
                f"--run_dir={tmp_path / 'run'}",
                f"--coordinator=localhost:{port}",
                "--processes=2",
                f"--process={i}",
            ),
            env=environment(tmp_path / "compiled") | devices(4),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    outputs = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "| return |" in outputs[0][0]
    assert "| return |" not in outputs[1][0]  # the first one writes
    close(tmp_path / "run", one_device)
    session = json.loads((tmp_path / "run" / "versions.json").read_text())
    assert len(session) == 1


def test_a_job_goes_on_after_a_preemption(tmp_path, one_device):
    """SIGTERM to the second process only: both save and stop, and are started again."""
    job = subprocess.Popen(
        [
            REPOSITORY / "experiments" / "tpu_job.sh",
            "--local=2",
            "--",
            *command("train", *DIVIDED, f"--run_dir={tmp_path / 'run'}")[1:],
        ],
        env=environment(tmp_path / "compiled") | devices(4) | {"PYTHON": command("train")[0]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: steps_saved(tmp_path / "run"), job)
    found = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True)
    children = sorted(map(int, found.stdout.split()))
    assert len(children) == 2
    os.kill(children[1], signal.SIGTERM)
    output, errors = job.communicate(timeout=600)
    assert job.returncode == 0, errors
    assert "stopped, with everything saved" in errors
    assert "attempt 2" in errors
    assert "| return |" in output
    close(tmp_path / "run", one_device)
    assert len(json.loads((tmp_path / "run" / "versions.json").read_text())) == 2


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--local=2", "--", "-m", "x"], "the command needs --run_dir"),
        (["--local=0", "--", "-m", "x", "--run_dir=r"], "--local must be a number from 1, not '0'"),
        (["--nmae=x", "--", "-m", "x"], "'--nmae=x' is no option"),
        (["--local=2"], "give the command behind --"),
        (["--name=x", "--", "-m", "x", "--run_dir=r"], "--name, --zone and --type must be given"),
        (
            ["--name=x", "--zone=y", "--type=z", "--", "-m", "x", "--run_dir=r"],
            "--run_dir must be a gs:// path",
        ),
    ],
)
def test_mistaken_jobs_are_refused(arguments, message):
    job = [REPOSITORY / "experiments" / "tpu_job.sh", *arguments]
    result = subprocess.run(job, capture_output=True, text=True)
    assert result.returncode == 2
    assert f"error: {message}" in result.stderr
    assert result.stdout == ""


def test_a_mistaken_command_ends_the_job():
    job = [REPOSITORY / "experiments" / "tpu_job.sh", "--local=1", "--"]
    arguments = [*command("train", "--preset=nonsense", "--run_dir=runs/nonsense")[1:]]
    variables = environment(REPOSITORY / ".cache" / "jax") | {"PYTHON": command("train")[0]}
    result = subprocess.run([*job, *arguments], capture_output=True, text=True, env=variables)
    assert result.returncode == 2
    assert result.stderr.count("attempt") == 1
