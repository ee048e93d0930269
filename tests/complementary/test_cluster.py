"""Actor and extractor as two programs that meet in a Ray cluster."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
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
    with tempfile.TemporaryDirectory(prefix="ray-") as files:  # a short path, for its sockets
        command += ["--include-dashboard=false", f"--temp-dir={files}"]
        head = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: answers(port))
            yield f"127.0.0.1:{port}"
        finally:
            head.terminate()
            head.wait(60)


def answers(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


@pytest.fixture
def begin(tmp_path):
    """Starts a program of a role; ends those that are left."""
    programs = []

    def start(role, *flags, name=None):
        command = [sys.executable, "-m", "experiments.complementary", f"--role={role}", *SETTINGS]
        command += [f"--run_dir={tmp_path / (name or role)}", f"--warm_cache={tmp_path / 'warm'}"]
        pipe = subprocess.PIPE
        programs.append(
            subprocess.Popen([*command, *flags], cwd=ROOT, stderr=pipe, stdout=pipe, text=True)
        )
        return programs[-1]

    yield start
    for program in programs:
        program.kill()
        program.wait()


def ended(program):
    _, told = program.communicate(timeout=300)
    return program.returncode, told


def wait_for(there):
    for _ in range(3000):
        if there():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come")


@pytest.mark.slow
def test_two_programs_finish_a_run_in_spite_of_kills(tmp_path, cluster, begin):
    for victim, step, reason in (
        ("extractor", 2, "no sign of life"),
        ("actor", 6, "has ended, and its post with it"),
    ):
        programs = {role: begin(role, f"--cluster={cluster}") for role in ("extractor", "actor")}
        wait_for((tmp_path / "actor" / "checkpoints" / str(step)).exists)
        os.kill(programs[victim].pid, signal.SIGKILL)
        (other,) = programs.keys() - {victim}
        code, told = ended(programs[other])
        assert code == 1
        assert reason in told
    last = [begin(role, f"--cluster={cluster}") for role in ("extractor", "actor")]
    for program in last:
        code, told = ended(program)
        assert code == 0, told
    assert "goes on from step" in told
    summary = json.loads((tmp_path / "actor" / "summary.json").read_text())
    assert summary["operations"]["distilled"] == 12 * 8  # each episode once
    for role in ("actor", "extractor"):
        assert (tmp_path / role / role / "model.safetensors").exists()


@pytest.mark.slow
def test_stops_and_what_is_refused(tmp_path, cluster, begin):
    actor = begin("actor", f"--cluster={cluster}")
    wait_for((tmp_path / "actor" / "pair.json").exists)
    code, told = ended(begin("actor", f"--cluster={cluster}", name="other"))
    assert code == 2
    assert f"--cluster={cluster} has a run of this configuration already" in told
    # What is wrong with the extractor is told by both.
    wrong = begin("extractor", f"--cluster={cluster}", name="actor")
    code, told = ended(wrong)
    assert code == 2
    assert "is in use by the process" in told
    code, told = ended(actor)
    assert code == 1
    assert "the extractor's program has ended: --run_dir=" in told
    both = [begin(role, f"--cluster={cluster}") for role in ("extractor", "actor")]
    wait_for((tmp_path / "actor" / "checkpoints" / "2").exists)
    for program in both:
        program.send_signal(signal.SIGTERM)
    for program in both:
        code, told = ended(program)
        assert code == 130, told
        assert "stopped;" in told


@pytest.mark.slow
def test_without_a_cluster_it_says_how_to_start_one(tmp_path, begin):
    pytest.importorskip("ray")
    code, told = ended(begin("actor", "--cluster=127.0.0.1:9"))
    assert code == 2
    assert "--cluster=127.0.0.1:9: no Ray cluster is reached" in told
    assert "ray start --head" in told
    assert not (tmp_path / "actor").exists()
