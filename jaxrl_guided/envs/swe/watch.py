"""What a process in the sandbox uses: memory, disk, and what it has written to its output."""

import contextlib
import math
import os
import pathlib

_BLOCK = 512
_SMALLEST = 4096
"""Bytes that an empty file counts for: a flood of them is one, too."""

_DEEPEST = 100


def memory_of(pid: int) -> int:
    """Bytes in memory of a process and all below it.

    Pages that a fork shares with its parent count for both. What no process has mapped (a file of
    `memfd_create`) does not count.
    """
    total, left = 0, [pid]
    while left:
        place = f"/proc/{left.pop()}"
        with contextlib.suppress(OSError):  # it has ended
            for task in os.listdir(f"{place}/task"):
                children = pathlib.Path(place, "task", task, "children").read_text()
                left += [int(child) for child in children.split()]
            for line in pathlib.Path(place, "status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += 1024 * int(line.split()[1])
    return total


def disk_of(folder: pathlib.Path) -> float:
    """Bytes on disk of all below a folder; infinite where it nests too deep or may not be read."""
    total, left = 0, [(os.fspath(folder), 0)]
    while left:
        place, depth = left.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    total += max(_BLOCK * status.st_blocks, _SMALLEST)
                    if entry.is_dir(follow_symlinks=False):
                        left.append((entry.path, depth + 1))
        except (FileNotFoundError, NotADirectoryError):  # removed meanwhile
            continue
        except OSError:
            return math.inf
        if depth > _DEEPEST:
            return math.inf
    return total


class Clip:
    """Bytes of which the beginning and the end are kept.

    Args:
      limit: bytes to keep.
    """

    def __init__(self, limit: int) -> None:
        self._half, self._head, self._tail, self._total = limit // 2, bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        """Takes what comes next."""
        self._total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def left_out(self) -> int:
        """Bytes of the middle that are missing in the text."""
        return max(0, self._total - len(self._head) - self._half)

    def text(self) -> str:
        """All of it, or its two ends around a note."""
        end = self._tail[-self._half :] if self.left_out else self._tail
        note = f"\n[... {self.left_out} bytes left out ...]\n".encode() if self.left_out else b""
        return bytes(self._head + note + end).decode(errors="replace")


def clip(text: str, limit: int) -> str:
    """A text, its middle left out where it is longer."""
    kept = Clip(limit)
    kept.add(text.encode())
    return kept.text()
