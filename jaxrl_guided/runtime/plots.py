"""Pictures of results as PNG: learning curves with intervals."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from jaxrl_guided.runtime import files
from jaxrl_guided.runtime.stats import bootstrap

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
    figure.tight_layout()
    figure.savefig(path, dpi=_DPI)
