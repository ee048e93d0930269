"""Training curves: one JSON line per step, and the same numbers as TensorBoard events."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from etils import epath

from jaxrl_guided.runtime import files
from jaxrl_guided.runtime.errors import StorageError, UserError

FILE_NAME = "metrics.jsonl"


def _lines(path: epath.Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a metrics file. A last line cut by a crash is left out."""
    text = path.read_bytes().decode(errors="replace")
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        try:
            record = json.loads(line)
            record["step"] = int(record["step"])
        except (ValueError, KeyError, TypeError) as error:
            if not line.endswith("\n"):
                return
            raise UserError(f"{path}, line {number}, is damaged: {line.strip()[:80]!r}") from error
        if line.endswith("\n"):
            yield record


def read_metrics(directory: files.PathLike) -> list[dict[str, Any]]:
    """Reads a run directory's metrics, in the order written; null values come back as NaN.

    Raises:
      UserError: the file is absent or a line in it is damaged.
    """
    path = epath.Path(directory) / FILE_NAME
    if not path.exists():
        raise UserError(f"{path} does not exist; name the directory of a run that has started")
    return [{k: _restore(v) for k, v in record.items()} for record in _lines(path)]


def _restore(value: Any) -> Any:
    if isinstance(value, list):
        return [_restore(item) for item in value]
    return float("nan") if value is None else value


class MetricsWriter(AbstractContextManager["MetricsWriter"]):
    """Appends metrics to a local run directory.

    A line is handed to the system as a whole before `write` returns, so a killed process loses
    none that was written. Values are scalars, or `[num_seeds]` vectors, of which TensorBoard
    gets the mean over what is finite.
    """

    def __init__(self, directory: files.PathLike, resume_step: int = -1):
        """Opens the writer.

        Args:
          directory: the run directory.
          resume_step: step of the checkpoint that the run goes on from (−1 from the start); later
            lines, which the run will write once more, are dropped.
        """
        # Imported here: it takes a while and readers of metrics do not need it.
        from tensorboardX import SummaryWriter

        self._directory = os.fspath(directory)
        path = epath.Path(directory) / FILE_NAME
        if path.exists():
            kept = [record for record in _lines(path) if record["step"] <= resume_step]
            files.write_text(path, "".join(json.dumps(record) + "\n" for record in kept))
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error
        self._events = SummaryWriter(
            os.path.join(self._directory, "tensorboard"), purge_step=resume_step + 1
        )

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes one line `{"step": step, **metrics}`.

        Raises:
          StorageError: the disk is full.
        """
        record = files.to_jsonable({"step": int(step), **metrics})
        self._append((json.dumps(record, allow_nan=False) + "\n").encode())
        for name, value in metrics.items():
            array = np.asarray(value, dtype=np.float64)
            finite = array[np.isfinite(array)]
            if finite.size:
                self._events.add_scalar(name, float(finite.mean()), int(step))

    def _append(self, line: bytes) -> None:
        """Writes the whole line or, on a full disk, nothing of it."""
        before = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            os.ftruncate(self._file, before)
            path = os.path.join(self._directory, FILE_NAME)
            raise StorageError(f"cannot write {path}: {error.strerror}") from error

    def flush(self) -> None:
        """Hands everything to the system, TensorBoard's events, too."""
        self._events.flush()

    def close(self) -> None:
        """Flushes and closes the files."""
        os.close(self._file)
        self._events.close()

    def __exit__(self, *error: object) -> None:
        self.close()
