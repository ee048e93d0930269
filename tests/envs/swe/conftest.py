"""A sandbox where this machine has one."""

import pytest

from jaxrl_guided.envs.swe.interpreter import interpreter
from jaxrl_guided.envs.swe.sandbox import Limits, Sandbox, check_sandbox, find_bwrap
from jaxrl_guided.envs.swe.scoring import Tester


@pytest.fixture(scope="session")
def sandboxed():
    """Skips where the system allows no sandbox; one that is not installed is a failure."""
    find_bwrap()
    try:
        check_sandbox()
    except ValueError as error:
        pytest.skip(str(error))


@pytest.fixture
def make_sandbox(sandboxed, tmp_path):
    def make(**limits):
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        settings = {"seconds": 20.0, "disk_mb": 20, "processes": 16, "output": 2000}
        return Sandbox(work, Limits(**{**settings, **limits}), interpreter().prefixes)

    return make


@pytest.fixture
def tester(sandboxed):
    return Tester(interpreter(), Limits(60.0), seconds=2.0, plugins=False)
