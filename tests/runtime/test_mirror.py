"""Remote run directories: what is fetched, and what is copied and when."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from etils import epath

from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.mirror import Mirror, is_remote
from jaxrl_guided.runtime.rundir import open_run
from tests.experiments.scripts import command, environment


def test_remote_paths_have_a_scheme():
    assert is_remote("gs://bucket/run")
    assert not is_remote("/tmp/gs:/run")


def test_files_are_fetched_and_only_changes_are_copied(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "large").write_text("stays")
    (tmp_path / "metrics.jsonl").write_text("1\n")
    mirror = Mirror(epath.Path(tmp_path))
    assert [p.name for p in mirror.local.iterdir()] == ["metrics.jsonl"]
    (tmp_path / "metrics.jsonl").unlink()
    mirror.upload()
    assert not (tmp_path / "metrics.jsonl").exists()  # it had not changed
    with (mirror.local / "metrics.jsonl").open("a") as file:
        file.write("2\n")
    (mirror.local / "tensorboard").mkdir()
    (mirror.local / "tensorboard" / "events").write_bytes(b"\x00")
    (mirror.local / ".lock").write_text("1")
    mirror.upload()
    assert (tmp_path / "metrics.jsonl").read_text() == "1\n2\n"
    assert (tmp_path / "tensorboard" / "events").read_bytes() == b"\x00"
    assert sorted(os.listdir(tmp_path)) == ["checkpoints", "metrics.jsonl", "tensorboard"]


def test_the_directory_here_goes_with_the_mirror(tmp_path):
    mirror = Mirror(epath.Path(tmp_path / "new"))
    local = mirror.local
    assert local.exists()
    del mirror
    assert not local.exists()


def test_what_cannot_be_written_is_named(tmp_path):
    mirror = Mirror(epath.Path(tmp_path / "file" / "run"))
    (tmp_path / "file").write_text("")
    (mirror.local / "a").write_text("")
    with pytest.raises(UserError, match=r"file/run/a cannot be written"):
        mirror.upload()


def test_runs_of_parts_must_be_local():
    with pytest.raises(UserError, match="--run_dir=gs://bucket/run must be a local directory"):
        open_run("gs://bucket/run", "lago", {})


EMULATOR = """
from gcp_storage_emulator.handlers import objects
from gcp_storage_emulator.server import create_server

plain = objects.download

def download(request, response, storage, *more, **named):  # with the header that the emulator lacks
    plain(request, response, storage, *more, **named)
    if response.status.value < 300:
        names = request.params["bucket_name"], request.params["object_id"]
        response["x-goog-generation"] = storage.get_file_obj(*names)["generation"]

objects.download = download
server = create_server("localhost", 0, in_memory=True, default_bucket="bucket")
server.start()
print(server._api._httpd.server_address[1], flush=True)
input()
"""

READER = """
import sys
from etils import epath
root = epath.Path("gs://bucket/runs/one")
names = sorted(entry.name for entry in root.iterdir())
print("NAMES", *names)
print("METRICS", (root / "metrics.jsonl").read_text().count("step"))
print("SESSIONS", (root / "versions.json").read_text().count("started"))
"""


@pytest.fixture(scope="module")
def storage():
    """Variables that lead gs:// paths to an emulated storage."""
    server = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(EMULATOR)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    address = f"http://localhost:{int(server.stdout.readline())}"
    yield {
        "STORAGE_EMULATOR_HOST": address,
        "TENSORSTORE_GCS_HTTP_URL": address,
        "GOOGLE_APPLICATION_CREDENTIALS": "",
    }
    server.kill()
    server.wait()


@pytest.mark.slow
def test_a_run_in_a_bucket_is_stopped_and_goes_on(storage, tmp_path):
    variables = environment(tmp_path / "compiled") | storage
    arguments = command(
        "train",
        "--preset=smoke",
        "--config.ppo.total_steps=3072",
        "--config.evaluation.curve_points=12",
        "--run_dir=gs://bucket/runs/one",
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    first = subprocess.Popen(arguments, env=variables, cwd=tmp_path, **pipes)
    seen = ""
    while "64/3,072" not in seen:  # it has begun
        line = first.stderr.readline()
        assert line, seen
        seen += line
    first.terminate()
    assert "gs://bucket/runs/one" in first.communicate()[1]
    assert first.returncode == 130
    second = subprocess.run(arguments, env=variables, cwd=tmp_path, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    assert "| return |" in second.stdout
    reader = subprocess.run(
        [sys.executable, "-c", READER], env=variables, capture_output=True, text=True, check=True
    )
    found = dict(line.split(" ", 1) for line in reader.stdout.splitlines())
    assert set(found["NAMES"].split()) >= {
        "checkpoints",
        "config.json",
        "curve.png",
        "metrics.jsonl",
        "policy",
        "summary.json",
        "tensorboard",
    }
    assert int(found["METRICS"]) >= 12
    assert json.loads(found["SESSIONS"]) == 2
    assert os.listdir(tmp_path) == ["compiled"]
