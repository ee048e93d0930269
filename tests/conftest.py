"""Compiled programs of the tests stay on disk, so that a second run of the tests is fast."""

import pathlib

from jaxrl_guided.runtime import compile_cache

compile_cache.enable(pathlib.Path(__file__).parents[1] / ".cache" / "jax")
