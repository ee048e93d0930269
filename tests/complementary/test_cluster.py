"""Actor and extractor as two programs that meet in a Ray cluster."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
RAY = pathlib.Path(sys.executable).with_name("ray")
SETTINGS = ("--preset=smoke", "--config.steps=12", "--config.judge.every=12", "--patience=8")


@pytest.fixture(scope="module")
def cluster():
    """Address of a cluster of this machine alone."""
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [RAY, "start", "--head", f"--port={port}", "--num-cpus=1", "--block"]
    command.append("--include-dashboard=false")
    head = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            break
        time.sleep(0.1)
    yield f"127.0.0.1:{port}"
    head.terminate()
    head.wait(60)


def begin(role, directory, *flags):
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "experiments.complementary", f"--role={role}", *SETTINGS),
            *(f"--run_dir={directory / role}", f"--warm_cache={directory / 'warm'}", *flags),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(program):
    _, told = program.communicate(timeout=300)
    return program.returncode, told


def wait_for(path):
    for _ in range(3000):
        if path.exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{path} did not come")


@pytest.mark.slow
def test_two_programs_finish_a_run_in_spite_of_kills(tmp_path, cluster):
    for victim, step, reason in (
        ("extractor", 2, "no sign of life"),
        ("actor", 6, "has ended, and its post with it"),
    ):
        programs = {
            role: begin(role, tmp_path, f"--cluster={cluster}") for role in ("extractor", "actor")
        }
        wait_for(tmp_path / "actor" / "checkpoints" / str(step))
        os.kill(programs[victim].pid, signal.SIGKILL)
        (other,) = programs.keys() - {victim}
        code, told = ended(programs[other])
        assert code == 1
        assert reason in told
        ended(programs[victim])
    last = [begin(role, tmp_path, f"--cluster={cluster}") for role in ("extractor", "actor")]
    for program in last:
        code, told = ended(program)
        assert code == 0, told
    assert "goes on from step" in told
    summary = json.loads((tmp_path / "actor" / "summary.json").read_text())
    assert summary["operations"]["distilled"] == 12 * 8  # each episode once
    for role in ("actor", "extractor"):
        assert (tmp_path / role / role / "model.safetensors").exists()


@pytest.mark.slow
def test_a_third_program_is_refused(tmp_path, cluster):
    actor = begin("actor", tmp_path, f"--cluster={cluster}")
    wait_for(tmp_path / "actor" / "config.json")
    code, told = ended(begin("actor", tmp_path / "other", f"--cluster={cluster}"))
    assert code == 2
    assert f"--cluster={cluster} has a run of this configuration already" in told
    actor.send_signal(signal.SIGTERM)
    code, told = ended(actor)
    assert code == 130
    assert "stopped;" in told


@pytest.mark.slow
def test_without_a_cluster_it_says_how_to_start_one(tmp_path):
    pytest.importorskip("ray")
    code, told = ended(begin("actor", tmp_path, "--cluster=127.0.0.1:9"))
    assert code == 2
    assert "--cluster=127.0.0.1:9: no Ray cluster is reached" in told
    assert "ray start --head" in told
    assert not (tmp_path / "actor").exists()
