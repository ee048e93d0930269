"""Recorded episodes in flat arrays, and their directory format (LaGO, arXiv 2606.24669).

A dataset directory holds one `.npy` file per array and `dataset.json` with the metadata and, for
every array, its shape, type and hash. It appears complete or not at all, and is read by memory map.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "jaxrl_guided.episodes/1"
_INDEX = "dataset.json"
_STEP_FIELDS = ("actions", "rewards", "terminated", "truncated", "is_expert")
_EPISODE_FIELDS = ("instruction", "lengths")
_OBSERVATION_FIELDS = ("observations", "final_observations")
_PER_EPISODE = (*_EPISODE_FIELDS, "final_observations")

Observations = np.ndarray | dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Episodes:
    """`E` whole episodes with `M` steps in all, one behind another.

    Attributes:
      observations: `[M, …]` or a dictionary of such arrays: what each action was chosen on.
      actions: `[M, …]`.
      rewards: `f32[M]`.
      terminated: `bool[M]`, true only at the last step of an episode.
      truncated: `bool[M]`, true only at the last step of an episode.
      is_expert: `bool[M]`: the action is the expert's, not a random one.
      final_observations: `[E, …]`, structured as `observations`: where the last step led to.
      instruction: `i32[E]` index into `metadata["texts"]`.
      lengths: `i32[E]` steps of each episode, at least one.
      metadata: what JSON can hold; `metadata["env"]` is the environment's registry name.

    Raises:
      ValueError: arrays that do not fit together; the message names the field.
    """

    observations: Observations
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    is_expert: np.ndarray
    final_observations: Observations
    instruction: np.ndarray
    lengths: np.ndarray
    metadata: dict[str, Any]

    def __post_init__(self) -> None:
        if "env" not in self.metadata:
            raise ValueError("metadata: needs 'env', the environment's registry name")
        steps, episodes = int(np.sum(self.lengths)), len(self.lengths)
        if np.any(np.asarray(self.lengths) < 1):
            raise ValueError("lengths: every episode needs at least one step")
        for name, array in self.arrays().items():
            field = name.split(".")[0]
            expected = episodes if field in _PER_EPISODE else steps
            if len(array) != expected:
                raise ValueError(
                    f"{name}: has {len(array)} rows, but lengths say {episodes} episodes with "
                    f"{steps} steps in all"
                )
        done = np.logical_or(self.terminated, self.truncated)
        if not np.array_equal(np.flatnonzero(done), np.cumsum(self.lengths) - 1):
            raise ValueError("lengths: do not match the steps marked as terminated or truncated")

    @property
    def num_episodes(self) -> int:
        """E."""
        return len(self.lengths)

    @property
    def num_steps(self) -> int:
        """M."""
        return len(self.rewards)

    @property
    def starts(self) -> np.ndarray:
        """`i64[E]`: the first step of each episode."""
        return np.cumsum(self.lengths, dtype=np.int64) - self.lengths

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name; those of an observation dictionary as `observations.KEY`."""
        named = {}
        for field in (*_STEP_FIELDS, *_EPISODE_FIELDS, *_OBSERVATION_FIELDS):
            value = getattr(self, field)
            if isinstance(value, dict):
                named.update({f"{field}.{key}": array for key, array in value.items()})
            else:
                named[field] = value
        return named

    def select(self, index: np.ndarray) -> "Episodes":
        """The episodes at `index` (`bool[E]` or integers), in that order."""
        index = np.arange(self.num_episodes)[index]
        lengths = self.lengths[index]
        shift = self.starts[index] - (np.cumsum(lengths, dtype=np.int64) - lengths)
        steps = np.arange(lengths.sum()) + np.repeat(shift, lengths)
        rows = {
            name: array[index if name.split(".")[0] in _PER_EPISODE else steps]
            for name, array in self.arrays().items()
        }
        return _from_arrays(rows, self.metadata)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the dataset to `directory`, which must not exist or be empty.

        Raises:
          ValueError: `directory` is in use, or the metadata cannot be written as JSON.
        """
        target = Path(directory)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ValueError(f"{target}: exists already; choose a new dataset directory")
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            self._write(scratch)
            scratch.chmod(0o755)
            scratch.rename(target)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def _write(self, directory: Path) -> None:
        described = {}
        for name, array in self.arrays().items():
            array = np.ascontiguousarray(array)
            np.save(directory / f"{name}.npy", array)
            described[name] = _describe(array)
        index = {"format": FORMAT, "metadata": self.metadata, "arrays": described}
        try:
            text = json.dumps(index, indent=1)
        except TypeError as error:
            raise ValueError(f"metadata: cannot be written as JSON ({error})") from error
        (directory / _INDEX).write_text(text, encoding="utf-8")


def load(directory: str | os.PathLike[str], family: str | None = None) -> Episodes:
    """Reads a dataset; arrays are read-only memory maps.

    Args:
      directory: what `Episodes.save` wrote.
      family: refuse data of another family of environments: what its registry name has before
        the slash, `clevr` of `clevr/real`.

    Raises:
      ValueError: no dataset there, a missing or damaged file, or another environment; the message
        names the file and what would be right.
    """
    directory = Path(directory)
    index = _read_index(directory / _INDEX)
    env = index["metadata"].get("env")
    if family is not None and str(env).partition("/")[0] != family:
        raise ValueError(f"{directory}: holds episodes of '{env}', but '{family}/…' is needed")
    rows = {
        name: _read_array(directory / f"{name}.npy", described)
        for name, described in index["arrays"].items()
    }
    missing = sorted(
        set(_STEP_FIELDS + _EPISODE_FIELDS + _OBSERVATION_FIELDS)
        - {name.split(".")[0] for name in rows}
    )
    if missing:
        raise ValueError(f"{directory / _INDEX}: lists no {', '.join(missing)}")
    try:
        return _from_arrays(rows, index["metadata"])
    except ValueError as error:
        raise ValueError(f"{directory}: {error}") from error


def _from_arrays(rows: dict[str, np.ndarray], metadata: dict[str, Any]) -> Episodes:
    fields: dict[str, Any] = {}
    for name, array in rows.items():
        field, _, key = name.partition(".")
        if key:
            fields.setdefault(field, {})[key] = array
        else:
            fields[field] = array
    return Episodes(**fields, metadata=metadata)


def _read_index(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path.parent}: is no dataset directory ({path.name} is missing)")
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: is not readable as JSON ({error})") from error
    found = index.get("format") if isinstance(index, dict) else None
    if found != FORMAT:
        raise ValueError(f"{path}: has format {found!r}; this version reads {FORMAT!r}")
    for name in ("metadata", "arrays"):
        if not isinstance(index.get(name), dict):
            raise ValueError(f"{path}: is damaged, it has no {name}")
    if not all(isinstance(described, dict) for described in index["arrays"].values()):
        raise ValueError(f"{path}: is damaged, it describes no arrays")
    return index


def _read_array(path: Path, described: dict[str, Any]) -> np.ndarray:
    if not path.is_file():
        raise ValueError(f"{path}: is missing")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path}: is truncated or no .npy file ({error})") from error
    found = _describe(array)
    for key, value in described.items():
        if found.get(key) != value:
            raise ValueError(f"{path}: {key} is {found.get(key)}, but was written as {value}")
    return array


def _describe(array: np.ndarray) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "sha256": hashlib.sha256(np.ascontiguousarray(array).data).hexdigest(),
    }
