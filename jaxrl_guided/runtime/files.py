"""Small text and JSON files that are either whole or absent, local or remote (`gs://`)."""

import contextlib
import json
import math
import os
from typing import Any

import numpy as np
from etils import epath

from jaxrl_guided.runtime.errors import StorageError, UserError

PathLike = str | os.PathLike[str]


def to_jsonable(value: Any) -> Any:
    """Arrays and numpy scalars become lists and numbers; what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(item) for item in value]
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"{type(value).__name__} cannot be written as JSON: {value!r}")
    return to_jsonable(array.tolist())


def write_text(path: PathLike, text: str) -> None:
    """`write_bytes` of a text."""
    write_bytes(path, text.encode())


def write_bytes(path: PathLike, content: bytes) -> None:
    """Writes a file in one step: a reader (or a crash) sees the old content or the new one.

    Raises:
      StorageError: it cannot be written.
    """
    target = epath.Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StorageError(f"cannot write {target}: {error.strerror or error}") from error


def check_new(path: PathLike, flag: str) -> None:
    """Tries, before any work, whether the file or directory that `--flag` names can be written.

    Raises:
      UserError: it exists, or its parent cannot be made or written.
    """
    target = epath.Path(path)
    if target.exists():
        raise UserError(f"--{flag}={path} exists; choose another or remove it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        trial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        trial.write_text("")
        trial.unlink()
    except OSError as error:
        raise UserError(f"--{flag}={path} cannot be written: {error.strerror or error}") from error


def write_json(path: PathLike, value: Any) -> None:
    """Writes `value` as JSON that any reader takes (no NaN), in one step."""
    text = json.dumps(to_jsonable(value), indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def read_json(path: PathLike) -> Any:
    """Reads a JSON file.

    Raises:
      UserError: it is absent, unreadable or damaged; the message names the file.
    """
    target = epath.Path(path)
    try:
        return json.loads(target.read_text())
    except OSError as error:
        raise UserError(f"cannot read {target}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{target} is damaged, it is not valid JSON: {error}") from error
