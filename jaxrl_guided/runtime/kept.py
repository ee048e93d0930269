"""Arrays that take long to make, kept in a file for who needs the same ones."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import jax
import numpy as np

from jaxrl_guided.runtime.errors import StorageError, UserError
from jaxrl_guided.runtime.files import write_bytes

T = TypeVar("T")


def kept(path: Path, like: T, make: Callable[[], T]) -> T:
    """What `make` gives, from a file if it is there, else into it.

    Two processes may make the same file at once: each writes a whole one in place of the other's.

    Args:
      path: of the file; its name says all that the arrays depend on.
      like: pytree of the same structure.

    Raises:
      UserError: the file is damaged, or cannot be written.
    """
    if not path.exists():
        found = make()
        _write(path, [np.asarray(leaf) for leaf in jax.tree.leaves(found)])
        return found
    try:
        with np.load(path) as file:
            leaves = [file[str(number)] for number in range(len(file.files))]
        return jax.tree.unflatten(jax.tree.structure(like), map(jax.numpy.asarray, leaves))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"'{path}' is damaged, remove it: {error}") from error


def _write(path: Path, leaves: list[np.ndarray]) -> None:
    content = io.BytesIO()
    named = {str(number): leaf for number, leaf in enumerate(leaves)}
    np.savez(content, allow_pickle=False, **named)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content.getvalue())
    except (OSError, StorageError) as error:
        raise UserError(f"'{path}' cannot be written: {error}") from error
