"""Exact checkpoints of a whole training state, and content hashes of weights and files.

A checkpoint is orbax's step directory with the state and a stamp: format version, configuration,
the path, shape and dtype of every array, and a content hash. The stamp is compared because orbax
casts a wrong dtype in silence, fills modules by order alone and does not see a flipped bit.
"""

import contextlib
import hashlib
import pathlib
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath

from jaxrl_guided.runtime import config as config_lib
from jaxrl_guided.runtime import files
from jaxrl_guided.runtime.errors import StorageError, UserError
from jaxrl_guided.runtime.mesh import agree, is_leader

T = TypeVar("T")
FORMAT = 1
_ROOT = "state"  # orbax takes no bare array, so the state lies in a dictionary of this name
_MAX_LISTED = 3
_CHUNK_BYTES = 1 << 20
_OF_THE_SYSTEM = re.compile(r"(RESOURCE_EXHAUSTED|NOT_FOUND|PERMISSION_DENIED|UNAVAILABLE)\b")


def _manifest(state: Any) -> dict[str, str]:
    """Path to `dtype[shape]` of every leaf."""
    leaves, _ = jax.tree.flatten_with_path(state)
    return {
        jax.tree_util.keystr(path): f"{getattr(leaf, 'dtype', type(leaf).__name__)}"
        f"{list(np.shape(leaf))}"
        for path, leaf in leaves
    }


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without orbax's warning, at every opening, that what is opened read only is read only."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


class Checkpointer(AbstractContextManager["Checkpointer"]):
    """Saves and restores states in one directory, local or `gs://`; a context manager.

    `save` returns when the checkpoint is complete on disk, so the caller may donate the state
    right away; a process killed meanwhile leaves the earlier checkpoints whole.
    """

    def __init__(
        self,
        directory: files.PathLike,
        config: Any = None,
        keep: int = 2,
        read_only: bool = False,
    ):
        """Opens the directory.

        Args:
          directory: where the steps lie.
          config: configuration dataclass (or its `to_dict`) that states belong to; restoring a
            state of another one is refused. None takes any.
          keep: number of newest steps to keep.
          read_only: the directory must exist and is not changed.

        Raises:
          UserError: the directory is absent (when read only), cannot be written, or has a `[` in
            its path, which orbax takes for a pattern.
        """
        if keep < 1:
            raise UserError(f"keep must be at least 1, got {keep}")
        self._directory = epath.Path(directory)
        if "[" in str(directory):
            raise UserError(f"{directory}: checkpoints cannot lie below a directory with '['")
        if "://" not in str(self._directory):
            self._directory = epath.Path(pathlib.Path(self._directory).absolute())
        self._config = None if config is None else config_lib.to_dict(config)
        if read_only and not self._directory.is_dir():
            raise UserError(f"{self._directory} does not exist; name a directory of checkpoints")
        policy = ocp.checkpoint_managers.LatestN(keep)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=None if read_only else policy,
            enable_async_checkpointing=False,
            cleanup_tmp_directories=not read_only,
            create=not read_only,
            read_only=read_only,
            save_interval_steps=0 if read_only else 1,
        )
        try:
            with _quiet() if read_only else contextlib.nullcontext():
                self._manager = ocp.CheckpointManager(
                    self._directory, options=options, item_names=("state", "stamp")
                )
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"{self._directory} cannot be written: {reason}") from error

    def latest_step(self) -> int | None:
        """The newest complete step, or None."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any, meta: Mapping[str, Any] | None = None) -> None:
        """Saves `state` as `step`; `meta` is JSON data to keep beside it.

        A step that is saved already is left as it is.

        Raises:
          ValueError: a newer step exists.
          StorageError: the directory cannot be written.
        """
        if not self._directory.is_dir():  # else orbax would write on into half a run
            raise StorageError(f"{self._directory} was removed while the run was working")
        latest = self.latest_step()
        if latest == step:
            return
        if latest is not None and latest > step:
            raise ValueError(
                f"step {step} cannot be saved: {self._directory} holds the newer step {latest}"
            )
        stamp = {
            "format": FORMAT,
            "config": self._config,
            "meta": dict(meta or {}),
            "arrays": _manifest(state),
            "content": _local_hash(state),
        }
        arguments = ocp.args.Composite(
            state=ocp.args.StandardSave({_ROOT: state}),
            stamp=ocp.args.JsonSave(files.to_jsonable(stamp)),
        )
        try:
            saved = self._manager.save(step, args=arguments)
            self._manager.wait_until_finished()
        except (OSError, ValueError) as error:  # of the system's errors orbax makes ValueErrors
            if isinstance(error, ValueError) and not _OF_THE_SYSTEM.match(str(error)):
                raise
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise StorageError(f"{self._directory} cannot be written: {reason}") from error
        if not saved:
            raise RuntimeError(f"orbax refused to save step {step} in {self._directory}")

    def go_back(self, step: int) -> None:
        """Deletes what is newer than a step, 0 for all: who goes on from there does not know it.

        Raises:
          UserError: there is no such step; nothing is deleted.
        """
        if step:
            self._existing(step)
        for other in self._manager.all_steps():
            if other > step:
                self._manager.delete(other)

    def stamp(self, step: int | None = None) -> dict[str, Any]:
        """Reads a step's stamp (`config`, `meta`, `arrays`), the newest step's by default.

        Raises:
          UserError: no such step, a damaged stamp, or one of another format.
        """
        step = self._existing(step)
        where = f"checkpoint step {step} in {self._directory}"
        try:
            arguments = ocp.args.Composite(stamp=ocp.args.JsonRestore())
            stamp = self._manager.restore(step, args=arguments)["stamp"]
            found = stamp["format"]
        except Exception as error:
            raise self._damaged(step, error) from error
        if found != FORMAT:
            raise UserError(
                f"{where} has format {found}, this version reads {FORMAT}; use the version of "
                "jaxrl_guided that wrote it"
            )
        return stamp

    def restore(self, template: T, step: int | None = None) -> tuple[T, dict[str, Any]]:
        """Restores a state bit for bit, typed keys included.

        Args:
          template: a state of the same structure with real arrays, as `init` gives; its
            placement on devices is taken over.
          step: which step, the newest by default.

        Returns:
          The state and the `meta` saved beside it.

        Raises:
          UserError: no such step; another format, configuration or structure; damaged files.
        """
        step = self._existing(step)
        stamp = self.stamp(step)
        where = f"checkpoint step {step} in {self._directory}"
        if self._config is not None:
            _refuse(
                config_lib.differences(stamp["config"], self._config),
                f"{where} belongs to another configuration",
            )
        _refuse(
            config_lib.differences(dict(stamp["arrays"]), _manifest(template)),
            f"{where} holds other arrays than this state",
        )
        try:
            arguments = ocp.args.Composite(state=ocp.args.StandardRestore({_ROOT: template}))
            state = self._manager.restore(step, args=arguments)["state"][_ROOT]
        except Exception as error:
            raise self._damaged(step, error) from error
        found = _local_hash(state)  # None, there or here, of a run of several processes
        if None not in (found, stamp["content"]) and found != stamp["content"]:
            raise self._damaged(step, ValueError("the contents differ from what was saved"))
        return state, stamp["meta"]

    def close(self) -> None:
        """Frees orbax's threads."""
        self._manager.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _existing(self, step: int | None) -> int:
        steps = sorted(self._manager.all_steps())
        if not steps:
            raise UserError(f"{self._directory} holds no checkpoint")
        if step is None:
            return steps[-1]
        if step not in steps:
            raise UserError(f"{self._directory} holds no step {step}; it holds {steps}")
        return step

    def _damaged(self, step: int, error: Exception) -> UserError:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        before = any(other < step for other in self._manager.all_steps())
        advice = f"remove {step}/ to use the one before" if before else "make it anew"
        return UserError(
            f"checkpoint step {step} in {self._directory} is damaged; {advice} ({reason})"
        )


def save_alone(directory: files.PathLike, config: Any, state: Any) -> None:
    """Saves `state` as the one step, 0, in place of all that the directory has held.

    Of several processes all must call it.

    Raises:
      StorageError: the directory cannot be written.
    """
    path = epath.Path(directory)
    if is_leader() and path.exists():
        path.rmtree()
    agree(0, False)  # so that nobody begins before it is gone
    with Checkpointer(path, config, keep=1) as checkpoints:
        checkpoints.save(0, state)


def _refuse(lines: list[str], what: str) -> None:
    if lines:
        more = f" and {len(lines) - _MAX_LISTED} more" if len(lines) > _MAX_LISTED else ""
        raise UserError(f"{what} ({'; '.join(lines[:_MAX_LISTED])}{more})")


def content_hash(tree: Any) -> str:
    """SHA-256 of a pytree of arrays: structure, dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    leaves, _ = jax.tree.flatten_with_path(tree)
    for (path, leaf), kind in zip(leaves, _manifest(tree).values(), strict=True):
        digest.update(f"{jax.tree_util.keystr(path)}:{kind};".encode())
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        digest.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _local_hash(state: Any) -> str | None:
    """`content_hash`, or None where other processes hold parts of the state."""
    leaves = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
    return content_hash(state) if all(leaf.is_fully_addressable for leaf in leaves) else None


def file_hash(path: files.PathLike) -> str:
    """SHA-256 of a file, or of all files (names and contents) below a directory.

    Raises:
      UserError: the path does not exist or cannot be read.
    """
    root = pathlib.Path(path)
    digest = hashlib.sha256()
    try:
        members = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
        for member in members:
            if member != root:
                digest.update(f"{member.relative_to(root).as_posix()}:".encode())
            with open(member, "rb") as stream:
                while block := stream.read(_CHUNK_BYTES):
                    digest.update(block)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    return digest.hexdigest()
