"""Summaries over seeds: means, interquartile means and bootstrap intervals.

Resampling is over the first axis (seeds) only, so that what belongs to one seed stays together.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import scipy.stats

Statistic = Callable[..., np.ndarray]
_RESAMPLES = 10_000


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A statistic with its bootstrap interval, whose ends are NaN where there is none."""

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        spec = spec or ".3g"
        interval = "" if np.isnan(self.low) else f" [{self.low:{spec}}, {self.high:{spec}}]"
        return f"{self.value:{spec}}{interval}"


def iqm(values: np.ndarray, axis: int | None = None) -> np.ndarray:
    """Interquartile mean: the mean without the lowest and highest quarter of the values."""
    return scipy.stats.trim_mean(values, 0.25, axis=axis)


def bootstrap(
    values: np.ndarray,
    statistic: Statistic = np.mean,
    confidence: float = 0.95,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Percentile bootstrap over seeds.

    Args:
      values: `f[S, …]`, one row per seed.
      statistic: `f(values, axis=…)` that reduces the given axes, as `np.mean` or `iqm`.
      confidence: probability mass of the interval, between 0 and 1.
      resamples: number of bootstrap samples.
      seed: of the resampling; equal seeds give equal intervals.

    Raises:
      ValueError: fewer than two seeds, or a value that is not finite.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 0 or len(values) < 2:
        raise ValueError(f"values must hold at least two seeds, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("values must be finite; a diverged seed cannot be averaged")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    rows = values.reshape(len(values), -1)
    index = np.random.default_rng(seed).integers(len(rows), size=(resamples, len(rows)))
    samples = statistic(rows[index].reshape(resamples, -1), axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return Estimate(float(statistic(rows.reshape(-1), axis=0)), float(low), float(high))


def paired_difference(
    ours: np.ndarray,
    theirs: np.ndarray,
    confidence: float = 0.95,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Mean of `ours − theirs` with its paired bootstrap interval; row i of both is seed i.

    Raises:
      ValueError: the shapes differ, or as `bootstrap`.
    """
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if ours.shape != theirs.shape:
        raise ValueError(
            f"ours and theirs must have the same seeds, got shapes {ours.shape}, {theirs.shape}"
        )
    return bootstrap(ours - theirs, confidence=confidence, resamples=resamples, seed=seed)


def paired_t(ours: np.ndarray, theirs: np.ndarray, confidence: float = 0.95) -> Estimate:
    """Mean of `ours − theirs` with Student's interval, for few seeds; row i of both is seed i.

    Raises:
      ValueError: the shapes differ, or there are fewer than two seeds.
    """
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if ours.shape != theirs.shape or ours.ndim != 1 or len(ours) < 2:
        raise ValueError(
            "ours and theirs must hold the same seeds, at least two, got shapes "
            f"{ours.shape}, {theirs.shape}"
        )
    return student(ours - theirs, confidence)


def student(values: np.ndarray, confidence: float = 0.95) -> Estimate:
    """Mean with Student's interval, for few seeds: their bootstrap is no wider than their range.

    Args:
      values: `f[S]`, S at least 2.
    """
    half = scipy.stats.t.ppf((1 + confidence) / 2, len(values) - 1) * scipy.stats.sem(values)
    mean = float(np.mean(values))
    return Estimate(mean, mean - float(half), mean + float(half))


INTERVALS = "95 % intervals over seeds: bootstrap, Student's below five seeds"
"""What `mean_text` gives, for the notes of tables."""

FEW = 5
"""Seeds below which a bootstrap says too little."""


def mean_text(values: Sequence[float]) -> str:
    """Mean over seeds with its interval, where there are at least two; see `INTERVALS`."""
    if len(values) < 2:
        return f"{values[0]:.4g}"
    array = np.asarray(values, dtype=np.float64)
    return f"{student(array) if len(array) < FEW else bootstrap(array):.4g}"


def middle_text(values: Sequence[float]) -> str:
    """Interquartile mean over seeds with its interval; empty for few, where it is the mean."""
    return f"{bootstrap(np.asarray(values), iqm):.4g}" if len(values) >= FEW else ""
