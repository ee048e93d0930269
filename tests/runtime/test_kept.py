"""Arrays in a file: the same as made, made once, told when damaged."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.kept import kept

TREE = {"b": jnp.arange(6.0).reshape(2, 3), "a": (jnp.int32(7), jnp.ones(2))}


def test_what_was_made_once_is_read_from_then_on(tmp_path):
    made = []

    def make():
        made.append(1)
        return TREE

    path = tmp_path / "deep" / "arrays.npz"
    like = {"b": jnp.zeros((2, 3)), "a": (jnp.int32(0), jnp.zeros(2))}
    first, second = kept(path, like, make), kept(path, like, make)
    assert len(made) == 1
    assert [path.name for path in path.parent.iterdir()] == ["arrays.npz"]
    for found in (first, second):
        assert found.keys() == TREE.keys()
        np.testing.assert_array_equal(found["b"], TREE["b"])
        assert found["a"][0] == 7
    assert second["a"][0].dtype == jnp.int32


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 half of one"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "arrays.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"arrays\.npz' is damaged, remove it"):
        kept(tmp_path / "arrays.npz", TREE, lambda: TREE)


def test_a_file_of_other_arrays_is_named(tmp_path):
    kept(tmp_path / "arrays.npz", [jnp.ones(2)], lambda: [jnp.ones(2)])
    with pytest.raises(UserError, match="is damaged"):
        kept(tmp_path / "arrays.npz", TREE, lambda: TREE)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        kept(tmp_path / "file" / "arrays.npz", TREE, lambda: TREE)
