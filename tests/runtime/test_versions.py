"""What a result is stamped with."""

import os
import subprocess

import jax
import pytest

from jaxrl_guided.runtime import versions


def test_snapshot_names_code_packages_and_machine():
    snapshot = versions.snapshot()
    assert snapshot["packages"]["jax"] == jax.__version__
    assert snapshot["cores"] == len(os.sched_getaffinity(0))
    assert snapshot["cpu"]
    assert len(snapshot["devices"]) == len(jax.devices())


def commit(root, message):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", root, *identity, "commit", "-qm", message], check=True)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository in which the module believes to lie, not yet tracked."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "other.txt").write_text("x")
    subprocess.run(["git", "-C", tmp_path, "add", "other.txt"], check=True)
    commit(tmp_path, "first")
    (tmp_path / "versions.py").write_text("")
    monkeypatch.setattr(versions, "_REPOSITORY", tmp_path)
    monkeypatch.setattr(versions, "__file__", str(tmp_path / "versions.py"))
    return tmp_path


def test_revision_of_a_repository_that_only_surrounds_us_is_not_ours(checkout):
    assert versions.git_revision.__wrapped__() == "unknown"


def test_revision_says_when_files_differ(checkout):
    subprocess.run(["git", "-C", checkout, "add", "versions.py"], check=True)
    commit(checkout, "second")
    head = subprocess.run(
        ["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert versions.git_revision.__wrapped__() == head
    results = checkout / "benchmarks/results"
    results.mkdir(parents=True)
    (results / "table.json").write_text("1")
    subprocess.run(["git", "-C", checkout, "add", "benchmarks"], check=True)
    assert versions.git_revision.__wrapped__() == head
    (checkout / "other.txt").write_text("changed")
    assert versions.git_revision.__wrapped__() == f"{head}-dirty"


def test_without_git_the_revision_is_unknown(checkout, monkeypatch):
    monkeypatch.setenv("PATH", str(checkout))
    assert versions.git_revision.__wrapped__() == "unknown"
