"""Pictures of what reads touch, as PNG or SVG."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from sds.errors import PermissionDeniedError, SdsValueError
from sds.text import counted, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from sds.explain.explanation import Explanation

_KINDS = (".png", ".svg")
_WIDTH_INCHES = 10.0
_LEAST_HEIGHT_INCHES = 3.0
_DOTS_PER_INCH = 150
_MOST_COLUMNS = 1200
_MOST_ROWS = 64
_MOST_CELLS_WRITTEN = 128
_MOST_COLUMNS_WRITTEN = 16
_LIGHT = 0.6
_NOTHING = "white"  # cividis itself is grey in the middle
_WIDE_RANGE = 30


def draw_explanations(
    explanations: Sequence[Explanation], path: Path, *, labels: Sequence[str]
) -> None:
    """Draw which OSTs and disks a read touches, one panel for each layout.

    All panels share one scale of colours (cividis, which every kind of colour vision tells apart),
    logarithmic where numbers are far apart; what is not touched is white.

    Parameters
    ----------
    path
        Ends with .png or .svg.
    labels
        Of the panels.

    Raises
    ------
    SdsValueError
        If the path has another ending, or no layout has anything to draw.
    PermissionDeniedError
        If the file cannot be written.
    """
    if path.suffix.lower() not in _KINDS:
        message = f"{path} is to be drawn; let its name end with {' or '.join(_KINDS)}"
        raise SdsValueError(message)
    shown = [(e, label) for e, label in zip(explanations, labels, strict=True) if e.osts]
    if not shown:
        raise SdsValueError("there is nothing to draw: no layout tells which OSTs it touches")

    grids = [_grid_of(explanation) for explanation, _ in shown]
    heights = [min(3.2, 0.9 + 0.22 * grid.shape[0]) for grid in grids]
    figure = Figure(
        figsize=(_WIDTH_INCHES, max(_LEAST_HEIGHT_INCHES, sum(heights) + 0.5 + 0.5 * len(grids))),
        dpi=_DOTS_PER_INCH,
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(grids), 1, squeeze=False, height_ratios=heights)[:, 0]
    touched = np.concatenate([grid[grid > 0] for grid in grids])
    least, most = int(touched.min(initial=1 << 62)), int(touched.max(initial=1))
    is_wide = most >= _WIDE_RANGE * least
    colours = colormaps["cividis"].with_extremes(bad=_NOTHING)
    scale = LogNorm(vmin=1, vmax=most) if is_wide else Normalize(vmin=0, vmax=most)
    image = None
    for axes, grid, (explanation, label) in zip(panels, grids, shown, strict=True):
        image = axes.imshow(
            np.ma.masked_equal(grid, 0),
            aspect="auto",
            interpolation="nearest",
            origin="upper",
            cmap=colours,
            norm=scale,
            extent=(-0.5, len(explanation.osts) - 0.5, grid.shape[0] - 0.5, -0.5),
        )
        _label(axes, grid, explanation, label)
        _write_numbers(axes, grid, scale)
    first = shown[0][0]
    figure.suptitle(f"{Path(first.file).name}:{first.dataset}  {first.selection}", fontsize=11)
    if image is not None:
        bar = figure.colorbar(image, ax=list(panels), shrink=0.95, pad=0.01)
        bar.set_label("blocks per disk (white: none)", fontsize=9)
        if not is_wide:
            bar.locator = MaxNLocator(nbins=6, integer=True)
        bar.formatter = StrMethodFormatter("{x:,.0f}")
        bar.update_ticks()
    try:
        figure.savefig(path)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}"
        raise PermissionDeniedError(message) from error


def _grid_of(explanation: Explanation) -> NDArray[np.int64]:
    """Return blocks by disk (rows) and OST (columns), of the busiest where there are too many."""
    grid = np.array([load.disk_blocks for load in explanation.osts], dtype=np.int64).T
    for axis, most in ((0, _MOST_ROWS), (1, _MOST_COLUMNS)):
        each = math.ceil(grid.shape[axis] / most)
        if each > 1:
            grid = np.maximum.reduceat(grid, np.arange(0, grid.shape[axis], each), axis=axis)
    return grid


def _label(axes: Axes, grid: NDArray[np.int64], explanation: Explanation, label: str) -> None:
    axes.set_title(f"{label}:  {_summary(explanation)}", fontsize=9, loc="left")
    axes.set_ylabel("disk")
    axes.set_xlabel("OST")
    n_disks, rows = len(explanation.osts[0].disk_blocks), grid.shape[0]
    at = range(0, rows, _round_step(rows, 8))
    axes.set_yticks(at, [str(row * n_disks // rows) for row in at])
    numbers = [load.ost for load in explanation.osts]
    at = range(0, len(numbers), _round_step(len(numbers), 16))
    axes.set_xticks(at, [str(numbers[i]) for i in at])


def _round_step(n: int, most: int) -> int:
    """Return the least of 1, 2, 5, 10, 20 ... that makes at most `most` steps."""
    step = 1
    while step * most < n:
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    return step


def _write_numbers(axes: Axes, grid: NDArray[np.int64], scale: Normalize) -> None:
    """Write the number into each cell, where there are few."""
    if grid.size > _MOST_CELLS_WRITTEN or grid.shape[1] > _MOST_COLUMNS_WRITTEN:
        return
    for (row, column), value in np.ndenumerate(grid):
        is_light = value == 0 or np.asarray(scale(value)).item() > _LIGHT
        axes.text(
            column, row, f"{value:,}",
            ha="center", va="center", fontsize=7, color="black" if is_light else "white",
        )  # fmt: skip


def _summary(explanation: Explanation) -> str:
    """Return what the read takes on the busiest disk, and in time."""
    parts = [
        f"block depth {explanation.block_depth:,}",
        f"gaps {explanation.block_gap_count:,}",
        f"{explanation.osts_touched:,} of {counted(len(explanation.osts), 'OST')} hit",
    ]
    if explanation.predicted_s is not None:
        marked = "" if explanation.calibrated else " (uncalibrated)"
        parts.append(f"cold read predicted: {time_text(explanation.predicted_s)}{marked}")
    return ", ".join(parts)
