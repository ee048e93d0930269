"""Arrays that a pool and its workers share: one unlinked file, mapped by all of them.

The file has no name, so that the system frees it with the last process, however that ends.
"""

import dataclasses
import math
import mmap
import os
import tempfile
from collections.abc import Sequence

import numpy as np

_ALIGNMENT = 64
_IN_MEMORY = "/dev/shm"


@dataclasses.dataclass(frozen=True)
class Field:
    """An array `dtype[N, *shape]`."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def nbytes(self, rows: int) -> int:
        """Bytes of N rows, with what fills them up to the next field."""
        size = rows * math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return -(-size // _ALIGNMENT) * _ALIGNMENT


def create_file() -> int:
    """Descriptor of a new, empty file without a name, in memory where the system offers that."""
    where = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryFile(dir=where) as file:
        return os.dup(file.fileno())


def size_of(fields: Sequence[Field], rows: int) -> int:
    """Bytes of the file."""
    return sum(field.nbytes(rows) for field in fields)


def allocate(descriptor: int, size: int) -> None:
    """Gives the file that size.

    Raises:
      OSError: there is not so much memory.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def map_arrays(descriptor: int, fields: Sequence[Field], rows: int) -> dict[str, np.ndarray]:
    """The arrays in a file of that size; they keep it mapped."""
    memory = mmap.mmap(descriptor, size_of(fields, rows))
    arrays, offset = {}, 0
    for field in fields:
        count = rows * math.prod(field.shape)
        flat = np.frombuffer(memory, field.dtype, count, offset)
        arrays[field.name] = flat.reshape(rows, *field.shape)
        offset += field.nbytes(rows)
    return arrays
