"""Pictures of results as PNG: learning curves with intervals."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from jaxrl_guided.runtime import files
from jaxrl_guided.runtime.stats import FEW, bootstrap

_LEGEND = "mean, 95 % interval\n(few seeds: each of them)"
_SIZE_INCHES = (9.0, 4.0)
_PANEL_INCHES = (3.4, 2.6)
_COLUMNS = 3
_DPI = 150
_RESAMPLES = 1000


class Panel(NamedTuple):
    """A picture among others: curves and levels as in `learning_curves`."""

    curves: Mapping[str, tuple[np.ndarray, np.ndarray]]
    levels: Mapping[str, float]


def learning_curves(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    path: files.PathLike,
    title: str,
    ylabel: str,
    xlabel: str = "environment steps",
    names: Sequence[str] = (),
    levels: Mapping[str, float] | None = None,
) -> None:
    """Draws the mean over seeds of each curve with its 95 % bootstrap band, or with few seeds each.

    Args:
      curves: name to (steps `f[T]`, values `f[S, T]`); one seed is drawn without a band.
      path: PNG file to write.
      title: above the picture.
      ylabel: meaning and unit of the values.
      xlabel: meaning of the steps.
      names: all curves that pictures of this kind may have; each keeps its colour from one picture
        to the next. By default what this picture shows.
      levels: name to a value that does not depend on the steps, drawn as a dashed line.
    """
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    _draw(axes, Panel(curves, levels or {}), names)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    figure.legend(frameon=False, loc="outside right upper", title=_LEGEND)
    figure.savefig(path, dpi=_DPI)


def panels(pictures: Mapping[str, Panel], path: files.PathLike, ylabel: str = "return") -> None:
    """Draws several pictures, by title, side by side in one PNG file; see `learning_curves`."""
    rows = -(-len(pictures) // _COLUMNS)
    size = (_PANEL_INCHES[0] * _COLUMNS, _PANEL_INCHES[1] * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, _COLUMNS, squeeze=False).flat
    for axes, (title, panel) in zip(grid, pictures.items(), strict=False):
        _draw(axes, panel, ())
        axes.set_title(title, fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(3))
    for axes in list(grid)[len(pictures) :]:
        axes.axis("off")
    figure.supxlabel("environment steps")
    figure.supylabel(ylabel)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside upper right", ncols=len(labels))
    figure.savefig(path, dpi=_DPI)


def _draw(axes: Axes, panel: Panel, names: Sequence[str]) -> None:
    """Curves and levels of one picture."""
    curves, levels = panel.curves, panel.levels
    order = list(names or (*curves, *levels))
    for name, (steps, values) in curves.items():
        values = np.atleast_2d(values)
        colour = f"C{order.index(name)}"
        marker = "o" if len(steps) == 1 else ""  # a line of one point is not seen
        mean, label = values.mean(axis=0), _label(name, len(values))
        axes.plot(steps, mean, color=colour, label=label, marker=marker)
        if 1 < len(values) < FEW:
            axes.plot(steps, values.T, color=colour, alpha=0.35, linewidth=0.8)
        elif len(values) > 1:
            bands = [bootstrap(column, resamples=_RESAMPLES) for column in values.T]
            low, high = [band.low for band in bands], [band.high for band in bands]
            axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    for name, value in levels.items():
        axes.axhline(value, color=f"C{order.index(name)}", linestyle="--", linewidth=1, label=name)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _label(name: str, seeds: int) -> str:
    return f"{name} ({seeds} seed{'s' if seeds > 1 else ''})"


def picture(figure: Figure) -> Image.Image:
    """The figure's pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
