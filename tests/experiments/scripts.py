"""Calling the scripts: in this process (fast), or as a user does."""

import contextlib
import os
import pathlib
import runpy
import subprocess
import sys
import unittest.mock

from absl import flags
from absl.testing import flagsaver

from jaxrl_guided.runtime import app, cell_flags, devices

REPOSITORY = pathlib.Path(__file__).parents[2]
NAMES = sorted(
    path.stem for path in (REPOSITORY / "experiments").glob("*.py") if path.stem != "__init__"
)
WITH_RUN_DIR = (
    "compare_backbone",
    "complementary",
    "lago",
    "sweep",
    "train",
    "train_llm",
    "train_online",
    "train_prior",
)


def call(name, *arguments):
    """Runs `experiments.NAME` as the main program of this process; returns the exit code."""
    with flags_of_the_entry_point(), unittest.mock.patch.object(sys, "argv", [name, *arguments]):
        try:
            runpy.run_module(f"experiments.{name}", run_name="__main__")
        except SystemExit as end:
            return end.code or 0
    return 0


@contextlib.contextmanager
def flags_of_the_entry_point():
    """Within it, scripts may define flags that others have defined before them."""
    kept = {
        flag.name
        for module, defined in flags.FLAGS.flags_by_module_dict().items()
        if module in (app.__name__, cell_flags.__name__, devices.__name__)
        or module.startswith("absl")
        for flag in defined
    }
    others = {name: flags.FLAGS[name] for name in flags.FLAGS if name not in kept}
    for name in others:
        delattr(flags.FLAGS, name)
    saved = flagsaver.save_flag_values()
    try:
        yield
    finally:
        flagsaver.restore_flag_values(saved)
        for name, flag in others.items():
            flags.FLAGS[name] = flag


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
