"""Local files of a remote directory, copied there when they have changed."""

import os
import pathlib
import tempfile

from etils import epath

from jaxrl_guided.runtime.errors import StorageError, UserError
from jaxrl_guided.runtime.files import PathLike

_STORAGES = ("gs", "s3")


def is_remote(path: PathLike) -> bool:
    """Whether a path names a storage, as `gs://bucket/run`.

    Raises:
      UserError: it names one that is not known.
    """
    scheme, found, _ = os.fspath(path).partition("://")
    if found and scheme not in _STORAGES:
        raise UserError(f"{os.fspath(path)} must be a local path or start with gs:// or s3://")
    return bool(found)


class Mirror:
    """A directory on this machine that stands for a remote one.

    It starts with the files of the remote directory, without those below its subdirectories.

    Attributes:
      local: the directory.
    """

    def __init__(self, remote: epath.Path):
        """Fetches the files.

        Raises:
          UserError: they cannot be read.
        """
        self._remote = remote
        self._directory = tempfile.TemporaryDirectory(prefix="jaxrl_guided-")
        self.local = epath.Path(self._directory.name)
        try:
            if remote.exists():
                for entry in remote.iterdir():
                    if entry.is_file():
                        (self.local / entry.name).write_bytes(entry.read_bytes())
        except Exception as error:  # storages have exceptions of their own
            raise UserError(f"{remote} cannot be read: {error}") from error
        self._copied = self._versions()

    def upload(self) -> None:
        """Copies files that are new or have changed.

        Raises:
          StorageError: the remote directory cannot be written.
        """
        now = self._versions()
        for name in [name for name, version in now.items() if version != self._copied.get(name)]:
            target = self._remote / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes((self.local / name).read_bytes())
            except Exception as error:
                raise StorageError(f"{target} cannot be written: {error}") from error
            self._copied[name] = now[name]

    def _versions(self) -> dict[str, tuple[int, int]]:
        """Time and size of every file, by its path below the directory; locks are none."""
        root = pathlib.Path(self._directory.name)
        found = [path for path in root.rglob("*") if path.is_file() and path.name[0] != "."]
        stats = {path.relative_to(root).as_posix(): path.stat() for path in found}
        return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}
