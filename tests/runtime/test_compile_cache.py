"""The compilation cache is used by a second process, and is kept apart per kind of host."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from jaxrl_guided.runtime import compile_cache
from jaxrl_guided.runtime.errors import UserError

REPOSITORY = pathlib.Path(__file__).parents[2]
SCRIPT = """
    import sys
    import jax, jax.monitoring
    from jaxrl_guided.runtime import compile_cache
    hits = []
    jax.monitoring.register_event_listener(
        lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None
    )
    path = compile_cache.enable(sys.argv[1])
    print(float(jax.jit(lambda x: x * 3)(2.0)), len(hits), path.name)
"""


def run(directory):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(directory)]
    output = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=REPOSITORY, env=os.environ
    )
    value, hits, name = output.stdout.split()
    return float(value), int(hits), name


def test_second_process_finds_the_first_ones_programs(tmp_path):
    value, hits, name = run(tmp_path)
    assert (value, hits) == (6.0, 0)
    assert list((tmp_path / name).iterdir())
    value, hits, again = run(tmp_path)
    assert value == 6.0
    assert hits > 0
    assert again == name


def test_hosts_with_other_instructions_get_another_directory(tmp_path, monkeypatch):
    # No cache is switched on: a file in the way ends both calls before that.
    (tmp_path / "file").touch()
    messages = []
    for features in ("avx2", "avx512"):
        monkeypatch.setattr(compile_cache, "_host_features", lambda features=features: features)
        with pytest.raises(UserError, match="cannot be created") as caught:
            compile_cache.enable(tmp_path / "file")
        messages.append(str(caught.value))
    assert messages[0] != messages[1]
