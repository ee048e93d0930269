"""Calling the scripts: in this process (fast), or as a user does."""

import os
import pathlib
import runpy
import subprocess
import sys

from absl.testing import flagsaver

from jaxrl_guided.runtime import app

REPOSITORY = pathlib.Path(__file__).parents[2]
NAMES = sorted(
    path.stem for path in (REPOSITORY / "experiments").glob("*.py") if path.stem != "__init__"
)


def call(name, *arguments):
    """Runs `experiments.NAME` as the main program of this process; returns the exit code."""
    saved, argv = flagsaver.save_flag_values(), sys.argv
    assert app.RUN_DIR.name in saved  # the entry point's flags stay, the script's own go
    sys.argv = [name, *map(str, arguments)]
    try:
        runpy.run_module(f"experiments.{name}", run_name="__main__")
    except SystemExit as end:
        return end.code or 0
    finally:
        sys.argv = argv
        flagsaver.restore_flag_values(saved)
    return 0


def command(name, *arguments):
    """The command line of a script."""
    return [sys.executable, "-m", f"experiments.{name}", *map(str, arguments)]


def environment(cache):
    """Environment variables of a process: programs compile in little time, and only once."""
    return {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }


def run(directory, name, *arguments, check=True):
    """Runs a script in a process of its own with `directory` as the working directory."""
    result = subprocess.run(
        command(name, *arguments),
        cwd=directory,
        env=environment(directory / "compiled"),
        capture_output=True,
        text=True,
    )
    assert not check or result.returncode == 0, result.stderr
    return result
