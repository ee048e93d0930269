"""Run directories: creation, resuming, refusals that leave files alone, locks."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

from jaxrl_guided.runtime import files
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.rundir import open_run


@dataclasses.dataclass(frozen=True)
class Config:
    lr: float = 0.1
    sizes: tuple[int, ...] = (1, 2)


def contents(path):
    return {
        str(p.relative_to(path)): p.read_bytes()
        for p in path.rglob("*")
        if p.is_file() and p.name != ".lock"
    }


def test_new_directory_holds_configuration_and_versions(tmp_path):
    with open_run(tmp_path / "a" / "b", "ppo", Config()) as run:
        assert not run.resumed
        run.write_summary({"success": float("nan")}, "# Summary\n")
    root = tmp_path / "a" / "b"
    assert json.loads((root / "config.json").read_text()) == {"lr": 0.1, "sizes": [1, 2]}
    session = json.loads((root / "versions.json").read_text())[0]
    assert {"git", "python", "packages", "devices", "command", "started"} <= set(session)
    assert json.loads((root / "summary.json").read_text()) == {"success": None}
    assert (root / "summary.md").read_text() == "# Summary\n"


def test_default_directory_is_new_each_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_run(None, "ppo", Config()) as first, open_run(None, "ppo", Config()) as second:
        assert first.path != second.path
        assert str(first.path).startswith("runs/ppo-")


def test_equal_configuration_resumes_and_adds_a_session(tmp_path):
    open_run(tmp_path, "ppo", Config()).close()
    with open_run(tmp_path, "ppo", Config()) as run:
        assert run.resumed
    assert len(json.loads((tmp_path / "versions.json").read_text())) == 2


@pytest.mark.parametrize("name, kind", [("policy", "directory"), ("summary.json", "file")])
def test_what_is_in_the_way_is_named_before_the_work(name, kind, tmp_path):
    open_run(tmp_path, "ppo", Config()).close()
    (tmp_path / name).write_text("") if kind == "directory" else (tmp_path / name).mkdir()
    before = contents(tmp_path)
    with pytest.raises(UserError, match=f"{name} is in the way: it must be a {kind}"):
        open_run(tmp_path, "ppo", Config())
    assert contents(tmp_path) == before


@pytest.mark.parametrize("path, reason", [("", "must name a directory"), ("http://a/b", "gs://")])
def test_a_path_that_is_none(path, reason):
    with pytest.raises(UserError, match=reason):
        open_run(path, "ppo", Config(), remote=True)


def test_other_configuration_is_refused_and_nothing_changes(tmp_path):
    open_run(tmp_path, "ppo", Config()).close()
    (tmp_path / "metrics.jsonl").write_text("precious\n")
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"another configuration \(lr: 0.1, not 0.2\)"):
        open_run(tmp_path, "ppo", Config(lr=0.2))
    assert contents(tmp_path) == before
    open_run(tmp_path, "ppo", Config()).close()  # the refusal has freed the lock


def test_foreign_directory_is_refused_and_nothing_changes(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="no run directory"):
        open_run(tmp_path, "ppo", Config())
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="is a file"):
        open_run(tmp_path / "file", "ppo", Config())
    with pytest.raises(UserError, match="--run_dir"):
        open_run(tmp_path / "file" / "below", "ppo", Config())


@pytest.mark.parametrize("place", ["/proc/run", "/dev/null/run"])
def test_unwritable_place_is_named(place):
    with pytest.raises(UserError, match=f"--run_dir={place}"):
        open_run(place, "ppo", Config())


def test_damaged_configuration_is_named(tmp_path):
    open_run(tmp_path, "ppo", Config()).close()
    (tmp_path / "config.json").write_text('{"lr": 0.')
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        open_run(tmp_path, "ppo", Config())


def test_crash_before_the_configuration_was_written_is_no_obstacle(tmp_path):
    (tmp_path / ".lock").write_text("123")
    (tmp_path / ".config.json.123.tmp").write_text('{"l')
    with open_run(tmp_path, "ppo", Config()) as run:
        assert not run.resumed


def test_second_run_on_one_directory_is_refused(tmp_path):
    with (
        open_run(tmp_path, "ppo", Config()),
        pytest.raises(UserError, match=f"in use by the process {os.getpid()}"),
    ):
        open_run(tmp_path, "ppo", Config())


def test_lock_of_a_killed_process_is_taken_over(tmp_path):
    script = f"""
        import time
        from tests.runtime.test_rundir import Config, open_run
        run = open_run({str(tmp_path)!r}, "ppo", Config())
        print("open", flush=True)
        time.sleep(60)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=pathlib.Path(__file__).parents[2],
    )
    try:
        assert child.stdout.readline() == "open\n"
        with pytest.raises(UserError, match=f"in use by the process {child.pid}"):
            open_run(tmp_path, "ppo", Config())
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    with open_run(tmp_path, "ppo", Config()) as run:
        assert run.resumed


def test_written_text_is_whole_or_old(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    files.write_json(path, {"a": 1})
    with pytest.raises(TypeError, match="object"):
        files.write_json(path, {"a": object()})
    assert files.read_json(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["x.json"]


def test_write_into_a_missing_directory_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*nowhere"):
        files.write_json(tmp_path / "nowhere" / "x.json", {})


def test_a_run_of_another_script_is_named_as_such(tmp_path):
    (tmp_path / "config.json").write_text('{"vary": [], "train": {}, "lr": 1}')
    with pytest.raises(UserError, match="holds a run of another script; name another directory"):
        open_run(tmp_path, "x", Config())
