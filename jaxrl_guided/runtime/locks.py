"""Files that one process at a time holds."""

import os

try:
    import fcntl
except ImportError:  # a system without flock: nothing is locked there
    fcntl = None  # type: ignore[assignment]


class Held(Exception):
    """Another process holds the lock; `owner` is its number, as far as it has said."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


def take_lock(path: str | os.PathLike[str]) -> int | None:
    """Locks a file by `flock`: the system frees it when its owner dies, however that happens.

    Returns:
      What `os.close` gives free; None where nothing can be locked.

    Raises:
      OSError: the file cannot be written.
      Held: by another process, or another place in this one.
    """
    if fcntl is None:
        return None
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(lock, 32).decode() or "unknown"
        os.close(lock)
        raise Held(owner) from error
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock
