"""Pictures of results as PNG: learning curves with intervals and bar charts."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from jaxrl_guided.runtime import files
from jaxrl_guided.runtime.stats import Estimate, bootstrap

_SIZE_INCHES = (6.4, 4.0)
_DPI = 150
_RESAMPLES = 1000


def learning_curves(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    path: files.PathLike,
    title: str,
    ylabel: str,
    xlabel: str = "environment steps",
) -> None:
    """Draws the mean over seeds of each curve with its 95 % bootstrap band.

    Args:
      curves: name to (steps `f[T]`, values `f[S, T]`); one seed is drawn without a band.
      path: PNG file to write.
      title: above the picture.
      ylabel: meaning and unit of the values.
      xlabel: meaning of the steps.
    """
    figure = Figure(figsize=_SIZE_INCHES)
    axes = figure.subplots()
    for name, (steps, values) in curves.items():
        values = np.atleast_2d(values)
        axes.plot(steps, values.mean(axis=0), label=name)
        if len(values) > 1:
            bands = [bootstrap(column, resamples=_RESAMPLES) for column in values.T]
            axes.fill_between(
                steps, [band.low for band in bands], [band.high for band in bands], alpha=0.2
            )
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.legend(frameon=False)
    _save(figure, path)


def bar_chart(
    groups: Sequence[str],
    bars: Mapping[str, Sequence[Estimate]],
    path: files.PathLike,
    title: str,
    ylabel: str,
) -> None:
    """Draws one cluster of bars per group, with intervals.

    Args:
      groups: names below the clusters.
      bars: name to one estimate per group.
      path: PNG file to write.
      title: above the picture.
      ylabel: meaning and unit of the values.
    """
    figure = Figure(figsize=_SIZE_INCHES)
    axes = figure.subplots()
    width = 0.8 / len(bars)
    places = np.arange(len(groups))
    for i, (name, estimates) in enumerate(bars.items()):
        heights = [e.value for e in estimates]
        errors = [[e.value - e.low for e in estimates], [e.high - e.value for e in estimates]]
        offset = (i - (len(bars) - 1) / 2) * width
        axes.bar(places + offset, heights, width, yerr=errors, capsize=3, label=name)
    axes.set(title=title, ylabel=ylabel)
    axes.set_xticks(places, groups)
    axes.legend(frameon=False)
    _save(figure, path)


def _save(figure: Figure, path: files.PathLike) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=_DPI)
