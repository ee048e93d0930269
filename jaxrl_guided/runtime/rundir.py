"""The run directory: who made it (configuration, versions) and where its results lie.

A directory belongs to one configuration and to one process at a time. Opening an existing one of
the same configuration resumes it; anything else is refused before a file is touched.

A remote directory (`gs://`) holds checkpoints, and copies of the small files that are written on
this machine. Nothing there can be locked or appended to.
"""

import datetime
import os
import sys
from contextlib import AbstractContextManager
from typing import Any

import jax
from etils import epath

from jaxrl_guided.runtime import config as config_lib
from jaxrl_guided.runtime import files, versions
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.locks import Held, take_lock
from jaxrl_guided.runtime.mesh import agree, is_leader, unanimous
from jaxrl_guided.runtime.mirror import Mirror, is_remote

_MAX_LISTED = 5
_LOCK = ".lock"
_DIRECTORIES = ("checkpoints", "policy", "tensorboard")
_FILES = (
    "config.json",
    "versions.json",
    "metrics.jsonl",
    "summary.json",
    "summary.md",
    "curve.png",
)


class RunDir(AbstractContextManager["RunDir"]):
    """An opened run directory; a context manager that gives the lock back.

    Attributes:
      path: local directory of small files: metrics, summary, pictures.
      home: the directory as it was named; `path` but for a remote one.
      config: the configuration as JSON data.
      resumed: whether an earlier process has worked here; of the process that opened it.
    """

    def __init__(self, path: files.PathLike, config: Any, follow: bool = False):
        """Creates or resumes the directory; with `follow` another process has. See `open_run`."""
        self.home = self.path = epath.Path(path)
        self.config = config_lib.to_dict(config)
        self._lock: int | None = None
        self._mirror: Mirror | None = None
        if follow:
            return
        self._check_kind()
        if is_remote(path):
            self._mirror = Mirror(self.home)
            self.path = self._mirror.local
        self._make_directory()
        self._take_lock()
        try:
            self.resumed = self._claim()
            self.sync()
        except BaseException:
            self.close()
            raise

    @property
    def checkpoints(self) -> epath.Path:
        """Directory of the checkpoints."""
        return self.home / "checkpoints"

    def write_summary(self, data: dict[str, Any], text: str) -> None:
        """Writes `summary.json` and `summary.md`."""
        files.write_json(self.path / "summary.json", data)
        files.write_text(self.path / "summary.md", text)

    def sync(self) -> None:
        """Copies what has changed to a remote directory; does nothing for a local one.

        Raises:
          StorageError: it cannot be written.
        """
        if self._mirror is not None:
            self._mirror.upload()

    def close(self) -> None:
        """Gives the directory free for other processes."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __exit__(self, *error: object) -> None:
        try:
            self.sync()
        finally:
            self.close()

    def _check_kind(self) -> None:
        """Refuses, before anything is created, what is not ours."""
        if "[" in os.fspath(self.path):
            raise UserError(f"--run_dir={self.path}: checkpoints cannot lie below a '['; rename it")
        try:
            if not self.path.exists():
                return
            is_file = not self.path.is_dir()
            names = set() if is_file else {entry.name for entry in self.path.iterdir()}
        except Exception as error:  # storages have exceptions of their own
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"--run_dir={self.path}: {reason}") from error
        if is_file:
            raise UserError(f"--run_dir={self.path} is a file; name a directory")
        self._check_kinds_of_parts(names)
        strangers = [name for name in names if name != _LOCK and not name.endswith(".tmp")]
        if strangers and "config.json" not in names:
            raise UserError(
                f"--run_dir={self.path} exists and is no run directory (it has no config.json); "
                "name another one"
            )

    def _check_kinds_of_parts(self, names: set[str]) -> None:
        """Refuses a file where a directory will be written, and the reverse."""
        for name in names.intersection(_DIRECTORIES):
            if not (self.path / name).is_dir():
                raise UserError(f"{self.path / name} is in the way: it must be a directory")
        for name in names.intersection(_FILES):
            if (self.path / name).is_dir():
                raise UserError(f"{self.path / name} is in the way: it must be a file")

    def _make_directory(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"--run_dir={self.path} cannot be created: {reason}") from error

    def _take_lock(self) -> None:
        """Holds the directory until it is closed."""
        try:
            self._lock = take_lock(self.path / _LOCK)
        except OSError as error:
            raise UserError(f"--run_dir={self.path} is not writable: {error.strerror}") from error
        except Held as held:
            raise UserError(
                f"--run_dir={self.path} is in use by the process {held.owner}; wait for it or name "
                "another directory"
            ) from held

    def _claim(self) -> bool:
        """Writes or compares the configuration; returns whether the run is resumed."""
        path = self.path / "config.json"
        resumed = path.exists()
        if resumed:
            theirs = files.read_json(path)
            lines = config_lib.differences(theirs, self.config)
            if lines and _of_another_script(theirs, self.config):
                raise UserError(
                    f"--run_dir={self.home} holds a run of another script; name another directory"
                )
            if lines:
                shown = "; ".join(lines[:_MAX_LISTED])
                more = len(lines) - _MAX_LISTED
                shown += f" and {more} more" if more > 0 else ""
                raise UserError(
                    f"--run_dir={self.home} holds a run of another configuration ({shown}); "
                    "name another directory or use its configuration"
                )
        else:
            files.write_json(path, self.config)
        self._add_session()
        return resumed

    def _add_session(self) -> None:
        """Appends this process to `versions.json`: a resumed run may use other versions."""
        path = self.path / "versions.json"
        sessions = files.read_json(path) if path.exists() else []
        if not isinstance(sessions, list):
            raise UserError(f"{path} is damaged, it is no list; move it away")
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        sessions.append({"started": started, "command": sys.argv, **versions.snapshot()})
        files.write_json(path, sessions)


def _of_another_script(theirs: Any, ours: Any) -> bool:
    """Whether configurations have less than half of their fields in common."""
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return False
    return 2 * len(theirs.keys() & ours.keys()) < len(theirs.keys() | ours.keys())


def open_run(path: files.PathLike | None, name: str, config: Any, remote: bool = False) -> RunDir:
    """Opens the run directory at `path`, or a new `runs/NAME-TIME`, named on stderr, for None.

    Of several processes, all of which must call it, the first one opens it.

    Args:
      path: usually `--run_dir`.
      name: the run's name, for the default path.
      config: the configuration dataclass that the directory belongs to.
      remote: whether it may be a remote one.

    Raises:
      UserError: the path is remote and may not be, a file, not writable, of another configuration,
        no run directory, or in use by another process. Existing files are untouched.
    """
    alone = jax.process_count() == 1
    if path is not None and not os.fspath(path):
        raise UserError("--run_dir must name a directory, or be left out")
    if path is None:
        if not alone:
            raise UserError("--run_dir must be given where there are several processes")
        time = datetime.datetime.now().strftime("%Y%m%d-%H%M%S-%f")
        path = epath.Path("runs") / f"{name}-{time}"
        print(f"run directory: {path}", file=sys.stderr)
    if is_remote(path) and not remote:
        raise UserError(f"--run_dir={path} must be a local directory: the run has parts in files")
    return RunDir(path, config) if alone else _open_together(path, config)


def _open_together(path: files.PathLike, config: Any) -> RunDir:
    """The first process opens the directory, and all learn whether it could."""
    if not unanimous(config_lib.config_hash(config)):
        raise UserError("all processes must have the same flags, but the configurations differ")
    if is_leader():
        try:
            run = RunDir(path, config)
        except BaseException:
            agree(0, False)
            raise
        agree(1, False)
    else:
        opened, _ = agree(0, False)
        if not opened:
            raise UserError(f"--run_dir={os.fspath(path)} could not be opened by the first process")
        run = RunDir(path, config, follow=True)
    if agree(0, not (run.home / "config.json").exists())[1]:
        run.close()
        raise UserError(f"--run_dir={os.fspath(path)} must be the same directory for all processes")
    return run
