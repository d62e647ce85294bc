"""One picture of the demonstration's table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sds.demo.comparison import Row

# Told apart also without colour vision (Okabe and Ito).
_COLOURS = {"original": "#D55E00", "connector alone": "#999999", "with replica": "#0072B2"}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw time per read, logarithmic, a group of bars per row, the range as a line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    position = np.arange(len(rows), dtype=float)
    width = 0.27
    for column, (name, colour) in enumerate(_COLOURS.items()):
        spreads = [(row.original_s, row.connector_s, row.replica_s)[column] for row in rows]
        median = np.array([spread.median for spread in spreads])
        reach = np.array(
            [
                [spread.median - spread.low for spread in spreads],
                [spread.high - spread.median for spread in spreads],
            ]
        )
        axes.bar(
            position + (column - 1) * width,
            median,
            width,
            yerr=reach,
            label=name,
            color=colour,
            error_kw={"elinewidth": 1, "ecolor": "black"},
        )
    for place, row in zip(position, rows, strict=True):
        top = max(row.original_s.high, row.connector_s.high, row.replica_s.high)
        axes.annotate(
            f"{row.ratio.median:.3g}x",
            (place, top),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
        )
    axes.set_yscale("log")
    axes.margins(y=0.15)
    axes.set_xticks(position, [f"{row.kind}\n{row.selection}\n{row.state}" for row in rows])
    axes.set_ylabel("seconds per read")
    axes.set_title("The same programs, unmodified: original over replica above the bars")
    axes.legend()
    figure.savefig(path, dpi=150)
