"""Training runs that are killed or preempted end as if nothing had happened; several processes."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
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
    """Iterations whose checkpoints are complete."""
    return [int(p.name) for p in path.glob("checkpoints/*") if p.name.isdigit()]


def wait_until(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.02)


def kill_three_times(start, cut, draw):
    """kill -9 at three random moments, each after one more checkpoint in `cut`."""
    reached = 0
    for _ in range(3):
        process = start(cut)
        wait_until(lambda: max(steps_saved(cut), default=0) > reached, process)
        time.sleep(draw.uniform(0, 0.3))
        process.kill()
        process.communicate()
        reached = max(steps_saved(cut))
        assert not (cut / "summary.json").exists()


@pytest.mark.parametrize("kind", RUNS)
def test_a_killed_run_ends_with_the_same_bits(kind, tmp_path):
    """kill -9 at three random moments, each after one more checkpoint."""
    run(tmp_path, "train", *RUNS[kind], f"--run_dir={tmp_path / 'whole'}")
    cut = tmp_path / "cut"

    def start(run_dir):
        return subprocess.Popen(
            command("train", *RUNS[kind], f"--run_dir={run_dir}"),
            cwd=tmp_path,
            env=environment(tmp_path / "compiled"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    kill_three_times(start, cut, random.Random(kind))
    run(tmp_path, "train", *RUNS[kind], f"--run_dir={cut}")
    for ours, theirs in zip(policy(cut), policy(tmp_path / "whole"), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    summaries = [json.loads((tmp_path / d / "summary.json").read_text()) for d in ("cut", "whole")]
    for summary in summaries:
        del summary["minutes"]
    assert summaries[0] == summaries[1]
    rows = [json.loads(line)["step"] for line in (cut / "metrics.jsonl").read_text().splitlines()]
    assert rows == sorted(set(rows))


SAVED_OFTEN = "from jaxrl_guided.learners.language import job; job._SAVE_SECONDS = 0"
STEPS = ("--config.save_every=1", "--config.steps=6", "--config.judge.every=3")
LANGUAGE_RUNS = {
    "train_llm": (SAVED_OFTEN, (), ("model",)),
    "complementary": ("", STEPS, ("actor", "extractor")),
}


@pytest.mark.parametrize("script", LANGUAGE_RUNS)
def test_a_killed_language_run_ends_with_the_same_bits(script, tmp_path):
    """kill -9 at three random moments; here each round is saved, not each minute."""
    prelude, arguments, models = LANGUAGE_RUNS[script]
    code = (
        f"import runpy, sys\n{prelude}\nsys.argv[0] = '{script}'\n"
        f"runpy.run_module('experiments.{script}', run_name='__main__')\n"
    )

    def start(run_dir):
        return subprocess.Popen(
            [sys.executable, "-c", code, "--preset=smoke", *arguments, f"--run_dir={run_dir}"],
            cwd=tmp_path,
            env=environment(tmp_path / "compiled"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    whole, cut = start(tmp_path / "whole"), tmp_path / "cut"
    assert whole.wait(timeout=600) == 0, whole.stderr.read()
    kill_three_times(start, cut, random.Random(0))
    last = start(cut)
    assert last.wait(timeout=600) == 0, last.stderr.read()
    for name in (f"{m}/{f}" for m in models for f in ("model.safetensors", "tokenizer.json")):
        assert (cut / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    ours, theirs = (
        json.loads((tmp_path / name / "summary.json").read_text()) for name in ("cut", "whole")
    )
    assert ours["curve"] == theirs["curve"]


def devices(count):
    return {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}", "JAX_PLATFORMS": "cpu"}


DIVIDED = (*SMALL, "--config.ppo.total_steps=1536", "--config.ppo.num_envs=8")
DIVIDED_SAC = (*SMALL, "--config.algorithm=sac", "--config.sac.total_steps=512")
DIVIDED_SAC += ("--config.sac.num_envs=8", "--config.sac.batch=16")


def on_one_device(path, arguments):
    """The run that two processes of four devices are compared with."""
    run(path, "train", *arguments, "--devices=1", f"--run_dir={path / 'run'}")
    return path / "run"


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    return on_one_device(tmp_path_factory.mktemp("one"), DIVIDED)


def start_two(path, run_dir, arguments=DIVIDED, separate=False, more=((), ())):
    """Two processes of four devices each, in directories of their own if `separate`.

    `more` are arguments of each.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    where = ("--processes=2", f"--coordinator=localhost:{port}")
    return [
        subprocess.Popen(
            command("train", *arguments, run_dir, *where, f"--process={i}", *more[i]),
            cwd=path / str(i) if separate else path,
            env=environment(path / "compiled") | devices(4),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]


def close(path, expected):
    for ours, theirs in zip(policy(path), policy(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_two_processes_are_one_run(tmp_path, one_device):
    processes = start_two(tmp_path, f"--run_dir={tmp_path / 'run'}")
    outputs = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "| return |" in outputs[0][0]
    assert "| return |" not in outputs[1][0]  # the first one writes
    close(tmp_path / "run", one_device)
    session = json.loads((tmp_path / "run" / "versions.json").read_text())
    assert len(session) == 1


def test_two_processes_are_one_run_of_sac(tmp_path):
    (tmp_path / "one").mkdir()
    expected = on_one_device(tmp_path / "one", DIVIDED_SAC)
    processes = start_two(tmp_path, f"--run_dir={tmp_path / 'run'}", DIVIDED_SAC)
    outputs = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    close(tmp_path / "run", expected)


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
    assert "stopped by a preemption" in errors
    assert "attempt 2" in errors
    assert "| return |" in output
    close(tmp_path / "run", one_device)
    assert len(json.loads((tmp_path / "run" / "versions.json").read_text())) == 2


def test_a_job_that_is_asked_to_stop_waits_for_what_is_saved(tmp_path):
    job = subprocess.Popen(
        [
            REPOSITORY / "experiments" / "tpu_job.sh",
            "--local=1",
            "--",
            *command("train", *RUNS["ppo"], f"--run_dir={tmp_path / 'run'}")[1:],
        ],
        env=environment(tmp_path / "compiled") | {"PYTHON": command("train")[0]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: steps_saved(tmp_path / "run"), job)
    job.terminate()
    _, errors = job.communicate(timeout=300)
    assert job.returncode == 130, errors
    assert "stopped; the same command goes on" in errors  # written by the run, before the job's end
    run(tmp_path, "train", *RUNS["ppo"], f"--run_dir={tmp_path / 'run'}")


def test_one_process_that_fails_ends_the_others(tmp_path):
    """The first one cannot write its metrics: the other must not wait for it for minutes."""
    (tmp_path / "run").mkdir()
    first = run(tmp_path, "train", *DIVIDED, f"--run_dir={tmp_path / 'run'}")
    assert first.returncode == 0
    (tmp_path / "run" / "metrics.jsonl").write_text("no line of metrics\n")
    started = time.monotonic()
    processes = start_two(tmp_path, f"--run_dir={tmp_path / 'run'}")
    outputs = [process.communicate(timeout=200) for process in processes]
    assert processes[0].returncode == 2, outputs
    assert "metrics.jsonl, line 1, is damaged" in outputs[0][1]
    assert processes[1].returncode != 0
    assert time.monotonic() - started < 200


def test_processes_must_have_the_same_flags(tmp_path):
    """Each would train its share of the seeds in its own way."""
    processes = start_two(
        tmp_path,
        f"--run_dir={tmp_path / 'run'}",
        more=((), ("--config.ppo.clip=0.9",)),
    )
    outputs = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [2, 2], outputs
    for _, errors in outputs:
        assert "all processes must have the same flags" in errors
    assert not (tmp_path / "run").exists()


def test_a_port_that_is_taken_is_named(tmp_path):
    with socket.create_server(("", 0)) as taken:
        address = f"localhost:{taken.getsockname()[1]}"
        two = (f"--coordinator={address}", "--processes=2", "--process=0")
        where = f"--run_dir={tmp_path / 'run'}"
        result = run(tmp_path, "train", *DIVIDED, *two, where, check=False)
    assert result.returncode == 2
    assert f"--coordinator={address}: Address already in use; take another port" in result.stderr


def test_processes_must_share_the_run_directory(tmp_path):
    for i in range(2):
        (tmp_path / str(i)).mkdir()
    processes = start_two(tmp_path, "--run_dir=run", separate=True)
    outputs = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [2, 2], outputs
    assert "must be the same directory for all processes" in outputs[0][1] + outputs[1][1]


GCLOUD = r"""#!/usr/bin/env bash
(IFS=$'\x1f'; printf '%s\x1e' "$*" >> "$FAKE/calls")
case "$4" in
  list) [ ! -f "$FAKE/state" ] || cat "$FAKE/state" ;;
  create) echo READY > "$FAKE/state" ;;
  delete) rm -f "$FAKE/state" ;;
  scp) [ -f "$5" ] && cp "$5" "$FAKE/job.tar.gz" ;;
  ssh)
    case "$*" in
      *experiments.train*)
        count=$(cat "$FAKE/count" 2>/dev/null || echo 0)
        echo $((count + 1)) > "$FAKE/count"
        [ "$count" -gt 0 ] || { echo PREEMPTED > "$FAKE/state"; exit 255; }
        exit "${CODE:-0}" ;;
    esac ;;
esac
exit $?
"""


def on_a_slice(tmp_path, **variables):
    """A job on a slice that is preempted once; its result and the calls of gcloud."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gcloud").write_text(GCLOUD)
    (tmp_path / "bin" / "gcloud").chmod(0o755)
    where = {"FAKE": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    result = subprocess.run(
        [
            REPOSITORY / "experiments" / "tpu_job.sh",
            *("--name=ppo", "--zone=z", "--type=v5litepod-16", "--spot", "--"),
            *("-m", "experiments.train", "--config.env=a b", "--run_dir=gs://bucket/run"),
        ],
        env=os.environ | where | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    records = (tmp_path / "calls").read_text().split("\x1e")[:-1]
    calls = [record.split("\x1f") for record in records]
    assert all(call[:3] == ["compute", "tpus", "tpu-vm"] and "--zone=z" in call for call in calls)
    return result, [call[3:] for call in calls]


def test_a_slice_is_made_filled_used_made_anew_and_deleted(tmp_path):
    result, calls = on_a_slice(tmp_path)
    assert result.returncode == 0, result.stderr
    assert "stopped by a preemption" in result.stderr
    verbs = [call[0] for call in calls if call[0] != "list"]
    once = ["create", "scp", "ssh", "ssh"]
    assert verbs == [*once, "delete", *once, "delete"]
    create = next(call for call in calls if call[0] == "create")
    assert create[1:5] == [
        "ppo",
        "--accelerator-type=v5litepod-16",
        "--version=tpu-ubuntu2204-base",
        "--spot",
    ]
    scp = next(call for call in calls if call[0] == "scp")
    assert scp[2:4] == ["ppo:job.tar.gz", "--worker=all"]
    listed = subprocess.run(
        ["tar", "-tzf", tmp_path / "job.tar.gz"], capture_output=True, text=True, check=True
    )
    assert "experiments/train.py" in listed.stdout
    launched = next(text for text in map(" ".join, calls) if "experiments.train" in text)
    assert r"--config.env=a\ b --run_dir=gs://bucket/run  --coordinator=auto" in launched


@pytest.mark.parametrize("code, said", [(2, "mistaken"), (3, "diverged")])
def test_what_would_happen_again_ends_the_job_and_the_slice(code, said, tmp_path):
    result, calls = on_a_slice(tmp_path, CODE=str(code))
    assert result.returncode == code
    assert said in result.stderr
    assert calls[-1][0] == "delete"


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
