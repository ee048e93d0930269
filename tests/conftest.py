"""Compiled programs of the tests stay on disk, so that a second run of the tests is fast.

In memory they do not stay: each holds about six memory maps, of which Linux gives a process 65,530
(`vm.max_map_count`); one that has them all crashes in whatever it compiles next.
"""

import pathlib

import jax
import pytest

from jaxrl_guided.runtime import compile_cache

compile_cache.enable(pathlib.Path(__file__).parents[1] / ".cache" / "jax")

_MAPS = pathlib.Path("/proc/self/maps")
_MANY = 20_000


@pytest.fixture(autouse=True, scope="module")
def few_memory_maps():
    """Drops compiled programs after a module of tests when there are many."""
    yield
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MANY:
        jax.clear_caches()
