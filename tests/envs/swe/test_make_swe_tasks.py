"""The script that makes tasks, as a user calls it."""

import pathlib
import subprocess
import sys

import pytest
import small_package

from jaxrl_guided.envs.swe.dataset import read_tasks

REPOSITORY = pathlib.Path(__file__).parents[3]


def call(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "experiments.make_swe_tasks", *map(str, arguments)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )


def test_a_file_of_tasks(sandboxed, tmp_path):
    folder, out = small_package.write(tmp_path / "repos"), tmp_path / "tasks.jsonl"
    arguments = (f"--package={folder}", f"--out={out}", "--test_seconds=1", "--noplugins")
    done = call(*arguments, "--count=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 tasks of ")
    assert f"in {out}; its option repos is {tmp_path / 'repos'}" in done.stdout
    assert len(read_tasks(str(out), str(tmp_path / "repos"))) == 2
    again = call(*arguments)
    assert (again.returncode, again.stderr) == (
        2,
        f"error: --out={out} exists; choose another or remove it\n",
    )


@pytest.mark.slow
def test_a_folder_without_tests_is_one_line(sandboxed, tmp_path):
    done = call(f"--package={tmp_path}", f"--out={tmp_path / 'tasks.jsonl'}")
    assert done.returncode == 2
    assert done.stderr == (f"error: package: '{tmp_path}' has no tests, files named test_….py\n")
