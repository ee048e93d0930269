"""Scripts end with one line for a user's mistake and with a traceback for a bug."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from jaxrl_guided.runtime.errors import UserError, validation

REPOSITORY = pathlib.Path(__file__).parents[2]


def run_script(tmp_path, body, *arguments, positional=(), uses_run_dir=True):
    script = tmp_path / "script.py"
    script.write_text(
        "from jaxrl_guided.runtime import app, errors\n"
        + textwrap.dedent(body)
        + f"\napp.main(run, positional={positional!r}, uses_run_dir={uses_run_dir})\n"
    )
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )


def test_success(tmp_path):
    body = "def run(name):\n    print('ran', name, app.RUN_DIR.value)"
    result = run_script(tmp_path, body, "grid", "--run_dir=x", positional={"NAME": "a"})
    assert (result.returncode, result.stdout) == (0, "ran grid x\n")


def test_a_script_without_runs_refuses_a_run_directory(tmp_path):
    body = "def run():\n    print('ran')"
    result = run_script(tmp_path, body, "--run_dir=x", uses_run_dir=False)
    error = "error: --run_dir=x is not used by this script; leave it out\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", error)
    assert run_script(tmp_path, body, uses_run_dir=False).stdout == "ran\n"


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["--nope=1"], "error: Unknown command line flag 'nope'"),
        (["stray"], "error: unexpected argument 'stray'; options are given as --name=value"),
    ],
)
def test_bad_command_line_is_one_line(tmp_path, arguments, line):
    result = run_script(tmp_path, "def run():\n    print('ran')", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_missing_positional_is_named(tmp_path):
    result = run_script(tmp_path, "def run(name):\n    pass", positional={"NAME": "a grid"})
    assert (result.returncode, result.stderr) == (2, "error: missing argument NAME: a grid\n")


def test_help_is_no_failure(tmp_path):
    result = run_script(tmp_path, "def run():\n    raise AssertionError", "--help")
    assert result.returncode == 0
    assert "--run_dir" in result.stdout


def test_user_error_is_one_line_and_debug_trace_shows_more(tmp_path):
    body = "def run():\n    raise errors.UserError('--lr must be\\n positive')"
    result = run_script(tmp_path, body)
    assert (result.returncode, result.stderr) == (2, "error: --lr must be positive\n")
    traced = run_script(tmp_path, body, "--debug_trace")
    assert "Traceback" in traced.stderr
    assert traced.returncode == 2


def test_bug_keeps_its_traceback(tmp_path):
    result = run_script(tmp_path, "def run():\n    raise ValueError('bug')")
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_interrupt(tmp_path):
    result = run_script(tmp_path, "def run():\n    raise KeyboardInterrupt")
    assert (result.returncode, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("error", [ValueError("x must be 1"), FileNotFoundError("no x")])
def test_validation_turns_input_errors_into_user_errors(error):
    with pytest.raises(UserError, match=str(error)), validation():
        raise error


def test_validation_leaves_bugs_alone():
    with pytest.raises(KeyError), validation():
        raise KeyError("bug")


def test_stopped_work_is_not_taken_for_finished(tmp_path):
    body = (
        "from jaxrl_guided.runtime import signals\ndef run():\n    raise signals.Stopped('go on')"
    )
    result = run_script(tmp_path, body)
    assert (result.returncode, result.stderr) == (130, "stopped; go on\n")


def test_an_error_of_the_system_is_one_line(tmp_path):
    body = "def run():\n    raise OSError(28, 'No space left on device', 'x.npy')"
    result = run_script(tmp_path, body)
    line = "error: [Errno 28] No space left on device: 'x.npy'\n"
    assert (result.returncode, result.stderr) == (1, line)
    assert "Traceback" in run_script(tmp_path, body, "--debug_trace").stderr


def test_what_is_not_ours_says_it_all(tmp_path):
    body = (
        "from jaxrl_guided.runtime.errors import ForeignError\n"
        "def run():\n    raise ForeignError('it broke\\nthere')"
    )
    result = run_script(tmp_path, body)
    assert (result.returncode, result.stderr) == (1, "error: it broke\nthere\n")


def test_home_directories_are_found_behind_a_flag(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    body = "def run():\n    print(app.RUN_DIR.value)"
    assert run_script(tmp_path, body, "--run_dir=~/x").stdout == f"{tmp_path}/x\n"
    assert run_script(tmp_path, body, "--run_dir=x/~/y").stdout == "x/~/y\n"
