"""Figures of what replicas gained: time per read with and without, and what they saved and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sds.plots.draw import COLOURS, RC, shortened
from sds.text import printable, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

_ORIGINAL, _REPLICA = COLOURS[1], COLOURS[0]
_WIDTH_INCHES = 6.5
_ROW_INCHES = 0.24
_LONGEST_LABEL = 52


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds with their 95 % interval."""

    seconds: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGain:
    """Median time of reads of one kind, of the original and of a replica."""

    label: str
    original: Estimate
    replica: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGainBar:
    """Seconds that one replica saved, with their 95 % interval, and that its build took."""

    label: str
    saved: Estimate
    build_s: float


def draw_read_gains(gains: Sequence[ReadGain]) -> Figure:
    """Draw time per read, logarithmic: a row for each kind, without a replica and with it."""
    with mpl.rc_context(RC):
        figure, axes = _rows([gain.label for gain in gains])
        at = np.arange(len(gains), dtype=float)
        for values, colour, marker, label in (
            ([gain.original for gain in gains], _ORIGINAL, "o", "original"),
            ([gain.replica for gain in gains], _REPLICA, "D", "replica"),
        ):
            axes.errorbar(
                [one.seconds for one in values], at, xerr=_reach(values), fmt=marker,
                color=colour, markersize=4, elinewidth=1, label=label,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=8))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: time_text(seconds)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("time per read: median and its 95 % interval")
        figure.legend(loc="outside upper right", ncols=2)
        return figure


def draw_replica_gains(bars: Sequence[ReplicaGainBar]) -> Figure:
    """Draw what replicas saved beside what their builds took, seconds: two bars for each."""
    with mpl.rc_context(RC):
        figure, axes = _rows([bar.label for bar in bars])
        at = np.arange(len(bars), dtype=float)
        saved = [bar.saved for bar in bars]
        axes.barh(
            at - 0.19, [one.seconds for one in saved], 0.36, xerr=_reach(saved), color=_REPLICA,
            error_kw={"elinewidth": 0.8}, label="saved, with its 95 % interval",
        )  # fmt: skip
        axes.barh(at + 0.19, [bar.build_s for bar in bars], 0.36, color=_ORIGINAL, label="build")
        axes.axvline(0, color="black", linewidth=0.6)
        axes.set_xlabel("seconds")
        figure.legend(loc="outside upper right", ncols=2)
        return figure


def _rows(labels: Sequence[str]) -> tuple[Figure, Axes]:
    """Return a figure with a labelled row for each of some things, the first at the top."""
    figure = Figure(figsize=(_WIDTH_INCHES, 0.9 + _ROW_INCHES * len(labels)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_yticks(
        range(len(labels)), [shortened(printable(one), _LONGEST_LABEL) for one in labels]
    )
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    return figure, axes


def _reach(values: Sequence[Estimate]) -> list[list[float]]:
    """Return how far intervals reach below and above, as matplotlib takes them."""
    return [
        [max(0.0, one.seconds - one.low) for one in values],
        [max(0.0, one.high - one.seconds) for one in values],
    ]
