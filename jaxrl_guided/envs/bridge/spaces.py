"""gymnasium's spaces as named leaves, and what enters and leaves an environment.

JAX-free, for the workers; `env` makes the library's own spaces of the leaves.
"""

import dataclasses
import functools
from typing import Any, Literal, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces

_TOLERANCE = 1e-6
"""By how much an action may leave its bounds, relative to them: float32 rounds."""

Kind = Literal["box", "discrete", "multi_discrete"]


@dataclasses.dataclass(frozen=True, eq=False)
class Leaf:
    """An array in an observation, or an action.

    Attributes:
      path: names of the dictionaries that lead to it; empty for a space that is none.
      kind: `box`, `discrete` (an array of integers, all in one range) or `multi_discrete`.
      shape: of the array.
      dtype: that the library uses: `float32`, or what the space says where that is an integer of
        at most 32 bits, else `int32`.
      low, high: bounds, of `box` as the space has them, of others the first and last integers.
    """

    path: tuple[str, ...]
    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    low: np.ndarray
    high: np.ndarray

    @property
    def name(self) -> str:
        """The path as one word."""
        return "/".join(self.path)

    def fill(self, row: np.ndarray, value: Any) -> None:
        """Writes what an environment gave, counted from zero.

        Raises:
          ValueError: another shape, or numbers that are not finite, are not whole where the space
            says so, or lie outside of their type or of a discrete space.
        """
        array = np.asarray(value)
        if array.shape != self.shape:
            self._refuse(f"has shape {array.shape}, the space says {self.shape}")
        if self.kind != "box":
            if not ((self.low <= array) & (array <= self.high)).all():
                self._refuse(f"is {array!r}, the space says {self.low} to {self.high}")
            array = array - self.low
        with np.errstate(over="ignore", invalid="ignore"):
            row[...] = array
        if row.dtype.kind == "f":
            if not np.isfinite(row).all():
                self._refuse(f"is not finite in {self.dtype}: {array!r}")
        elif array.dtype != row.dtype and (row != array).any():
            self._refuse(f"does not fit into {self.dtype}: {array!r}")

    def _refuse(self, why: str) -> NoReturn:
        where = f"'{self.name}' " if self.path else ""
        raise ValueError(f"observation {where}{why}")

    def action(self, row: np.ndarray, dtype: Any) -> Any:
        """What the environment receives for an action counted from zero.

        Raises:
          ValueError: out of range, or not a number.
        """
        if self.kind == "discrete" and not self.shape:
            if not 0 <= (number := int(row)) <= self._last:
                raise ValueError(f"action {number} must lie in 0 to {self._last}")
            return (number + self.low).astype(dtype)
        lowest, highest = self._widened
        if not ((lowest <= row) & (row <= highest)).all():
            raise ValueError(f"action {row.tolist()} must lie in {lowest} to {highest}")
        if self.kind == "box":
            return np.clip(row, self.low, self.high).astype(dtype)
        return (row + self.low).astype(dtype)

    @functools.cached_property
    def _last(self) -> int:
        return int(self.high - self.low)

    @functools.cached_property
    def _widened(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds that actions are held against."""
        if self.kind != "box":
            return np.zeros_like(self.low), self.high - self.low
        low, high = (
            np.where(np.isfinite(bound), _TOLERANCE * (1 + np.abs(bound)), 0)
            for bound in (self.low, self.high)
        )
        return self.low - low, self.high + high


def leaves_of(space: gymnasium.Space[Any], path: tuple[str, ...] = ()) -> list[Leaf]:
    """The arrays of a space, dictionaries in the order of their names.

    Raises:
      ValueError: a space that is none of `Box`, `Discrete`, `MultiDiscrete` (of one axis, or of
        more where all entries have one range), `MultiBinary` (of one axis) and `Dict` of those.
    """
    if isinstance(space, spaces.Dict):
        return [leaf for name in sorted(space) for leaf in leaves_of(space[name], (*path, name))]
    if isinstance(space, spaces.Box):
        dtype = _box_dtype(space.dtype)
        return [Leaf(path, "box", space.shape, dtype, space.low, space.high)]
    if isinstance(space, spaces.Discrete):
        first = np.asarray(space.start)
        return [Leaf(path, "discrete", (), "int32", first, first + space.n - 1)]
    if isinstance(space, spaces.MultiDiscrete) and (len(space.shape) == 1 or _alike(space)):
        return [_many(path, np.asarray(space.start), np.asarray(space.nvec))]
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        (size,) = space.shape
        return [_many(path, np.zeros(size, np.int64), np.full(size, 2))]
    where = f" '{'/'.join(path)}'" if path else ""
    raise ValueError(f"space{where} {space} is none that a learner reads: {_KNOWN}")


_KNOWN = (
    "Box, Discrete, MultiDiscrete or MultiBinary of one axis, MultiDiscrete of more axes where all "
    "entries have one range, or a Dict of those"
)


def _alike(space: spaces.MultiDiscrete) -> bool:
    return len(np.unique(space.start)) == len(np.unique(space.nvec)) == 1


def _many(path: tuple[str, ...], first: np.ndarray, sizes: np.ndarray) -> Leaf:
    kind: Kind = "multi_discrete" if sizes.ndim == 1 else "discrete"
    return Leaf(path, kind, sizes.shape, "int32", first, first + sizes - 1)


def _box_dtype(dtype: Any) -> str:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return "float32"
    if kind.kind in "iub":
        return kind.name if kind.itemsize < 4 and kind.kind != "b" else "int32"
    raise ValueError(f"a Box of {kind} is none that a learner reads")


def value_at(observation: Any, path: tuple[str, ...]) -> Any:
    """The leaf of an observation.

    Raises:
      ValueError: it is not there.
    """
    for name in path:
        try:
            observation = observation[name]
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"observation has no '{'/'.join(path)}'") from error
    return observation
