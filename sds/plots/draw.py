"""Draws figures of their data. The one module that imports matplotlib."""

from __future__ import annotations

import io
import math
import textwrap
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sds.plots.figure_values import (
    NEAR,
    CoefficientData,
    FigureData,
    PredictedData,
    ResidualData,
    Speedup,
    SpeedupData,
    coefficient_cells,
    fit_sentence,
)
from sds.plots.heldout_reads import Origin, Provenance
from sds.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray


# One column of a journal; enlarged whole, letters are large enough for slides.
COLUMN_INCHES = 85 / 25.4
DOTS_PER_INCH = 300

# Distinct also without colour vision (Okabe and Ito), the pale yellow left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
OTHER_COLOUR = "#999999"
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
OTHER_MARKER = "."
INTERVAL_COLOUR = "#E8E8E8"
NEAR_COLOUR = "#C4C4C4"
OBSERVED_COLOUR, PREDICTED_COLOUR = COLOURS[0], COLOURS[1]

FONT = "DejaVu Sans"  # comes with matplotlib: the same everywhere

# Names of settings are literals to type checkers, and others in each version of matplotlib.
RC: dict[Any, Any] = {
    "font.family": FONT,
    "font.size": 7,
    "axes.titlesize": 8,
    "axes.labelsize": 7,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "lines.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 100,
    "savefig.dpi": DOTS_PER_INCH,
    # Text stays text, and the same data give the same bytes.
    "svg.fonttype": "none",
    "svg.hashsalt": "sds",
    "text.parse_math": False,  # names of patterns are no formulas
}


def shortened(name: str, longest: int) -> str:
    """Return a name, its middle left out where it is longer than `longest` letters."""
    name = " ".join(name.split())
    if len(name) <= longest:
        return name
    end = (longest - 1) // 2
    return f"{name[: longest - 1 - end]}\N{HORIZONTAL ELLIPSIS}{name[-end:]}"


def assigned(names: list[str], values: tuple[str, ...], other: str) -> dict[str, str]:
    """Return a value for each different name, by frequency; the same for all that are too many."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    shown = ranked if len(ranked) <= len(values) else ranked[: len(values) - 1]
    given = {name: values[i] for i, name in enumerate(sorted(shown))}
    return {name: given.get(name, other) for name in sorted(ranked)}


_Key: TypeAlias = Line2D | Patch

# Patterns and bars that a page has room for; the others are in the data.
MOST_ROWS: Final = 40
MOST_BARS: Final = 32
_LONGEST_NAME = 46
_CAPTION_LETTERS_PER_INCH = 22.5
_ROW_INCHES = 0.13
_BAR_INCHES = 0.245
_LINE_INCHES = 0.13
_TITLE_INCHES = 0.19
_KEY_COLUMNS = 3
_TABLE_POINTS = 6.2


def draw(data: FigureData) -> Figure:
    """Return the figure of some data, one column (85 mm) wide."""
    with mpl.rc_context(RC):
        match data:
            case PredictedData():
                return _draw_predicted(data)
            case ResidualData():
                return _draw_residuals(data)
            case SpeedupData():
                return _draw_speedups(data)
            case CoefficientData():
                return _draw_coefficients(data)


def rendered(figure: Figure, form: str) -> bytes:
    """Return a figure as ``png`` or ``svg``: the same bytes for the same data."""
    # Neither a date nor the version of matplotlib.
    without = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[form]
    content = io.BytesIO()
    with mpl.rc_context(RC):
        figure.savefig(content, format=form, metadata=without)
    return content.getvalue()


def _figure(height_inches: float, *, width_inches: float = COLUMN_INCHES) -> Figure:
    figure = Figure(
        figsize=(width_inches, height_inches),
        layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.03),
    )
    FigureCanvasAgg(figure)
    return figure


def _panels(keys: Sequence[_Key], heights_inches: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """Return a figure with a legend above panels of some heights, and the panels."""
    legend_inches = _LINE_INCHES * math.ceil(len(keys) / _KEY_COLUMNS)
    # What titles, captions and labels of axes take besides.
    figure = _figure(0.8 + legend_inches + sum(heights_inches))
    room, *panels = figure.subplots(
        1 + len(heights_inches), 1, height_ratios=[legend_inches, *heights_inches]
    )
    room.set_axis_off()
    figure.legend(
        handles=list(keys),
        loc="upper left",
        bbox_to_anchor=(0.0, 1.0 - _TITLE_INCHES / figure.get_figheight()),
        ncols=_KEY_COLUMNS,
        handlelength=1.2,
        handletextpad=0.4,
        labelspacing=0.3,
        columnspacing=1.2,
        borderaxespad=0.0,
        borderpad=0.2,
    )
    return figure, panels


def _title(figure: Figure, text: str, about: Provenance) -> None:
    """Put the title; who sees simulated times is to know it."""
    simulated = " (simulated)" if about.origin is Origin.SIMULATED else ""
    figure.suptitle(text + simulated, fontsize=8, fontweight="bold", x=0.01, ha="left")


def _caption(figure: Figure, about: Provenance, *remarks: str) -> None:
    """Caption the figure: the reads, the model, and the data held out."""
    letters = round(_CAPTION_LETTERS_PER_INCH * figure.get_figwidth())
    lines = [
        line
        for part in (f"{about.subject}. Model: {about.model}.", *remarks)
        for line in textwrap.wrap(" ".join(part.split()), letters, max_lines=4)
    ]
    figure.supxlabel("\n".join(lines), fontsize=5.8, x=0.01, ha="left", color="#333333")


def _logarithmic(axis_of: Axes, which: str, low: float, high: float) -> None:
    """Scale one axis logarithmically, at least a factor of four wide, a tick per decade or more."""
    middle = math.sqrt(low) * math.sqrt(high)
    reach = max(2.0, math.sqrt(high / low) * 1.15)
    low, high = middle / reach, middle * reach
    narrow = high / low < 30.0
    axis = axis_of.xaxis if which == "x" else axis_of.yaxis
    (axis_of.set_xscale if which == "x" else axis_of.set_yscale)("log")
    (axis_of.set_xlim if which == "x" else axis_of.set_ylim)(low, high)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,), numticks=7))
    axis.set_major_formatter(FuncFormatter(_plain_number))
    axis.set_minor_formatter(NullFormatter())


def _plain_number(value: float, _: object = None) -> str:
    """Return 0.01, 1, 100 as such, and only what is longer with an exponent."""
    if value <= 0 or not math.isfinite(value):
        return ""
    if 1e-3 <= value < 1e5:
        return f"{value:g}"
    exponent = math.floor(math.log10(value) + 1e-9)
    mantissa = value / 10.0**exponent
    return f"1e{exponent}" if abs(mantissa - 1.0) < 1e-6 else f"{mantissa:g}e{exponent}"


def _keys(colours: dict[str, str], markers: dict[str, str]) -> list[_Key]:
    """Return what explains colours and markers."""
    keys: list[_Key] = []
    for colour in dict.fromkeys(colours.values()):
        name = next(g for g, c in colours.items() if c == colour)
        label = "other" if colour == OTHER_COLOUR else shortened(name, 12)
        keys.append(Patch(facecolor=colour, label=label))
    for marker in dict.fromkeys(markers.values()):
        name = next(n for n, m in markers.items() if m == marker)
        label = "other layouts" if marker == OTHER_MARKER else f"layout {shortened(name, 9)}"
        keys.append(
            Line2D(
                [], [], color="#444444", marker=marker, linestyle="", markersize=3.5, label=label
            )
        )
    return keys


def _points(
    axes: Axes,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    face: NDArray[np.str_],
    form: NDArray[np.str_],
) -> None:
    """Draw points in some colours and markers."""
    # The more there are, the smaller and the more transparent.
    area = float(np.clip(3000.0 / len(x), 4.0, 18.0))
    alpha = float(np.clip(300.0 / len(x), 0.35, 0.9))
    # Points of one kind must not hide another: an order that depends on nothing but their number.
    order = np.random.default_rng(len(x)).permutation(len(x))
    for marker in np.unique(form):
        chosen = order[form[order] == marker]
        axes.scatter(
            x[chosen],
            y[chosen],
            s=area,
            c=face[chosen].tolist(),
            marker=marker,
            alpha=alpha,
            linewidths=0,
            zorder=3,
        )


def _draw_predicted(data: PredictedData) -> Figure:
    observed = np.array([p.observed_s for p in data.points])
    predicted = np.array([p.predicted_s for p in data.points])
    colours = assigned([p.group for p in data.points], COLOURS, OTHER_COLOUR)
    markers = assigned([p.layout for p in data.points], MARKERS, OTHER_MARKER)
    factor = data.interval_factor
    keys: list[_Key] = [
        Line2D([], [], color="black", linewidth=0.6, label="equal"),
        Patch(facecolor=NEAR_COLOUR, label=f"within {NEAR * 100:.0f} %"),
        _interval_key(factor),
        *_keys(colours, markers),
    ]
    figure, (axes,) = _panels(keys, [COLUMN_INCHES - 0.4])
    origin = data.about.origin
    _title(figure, f"Predicted against {origin} times", data.about)
    low = float(min(observed.min(), predicted.min()))
    high = float(max(observed.max(), predicted.max()))
    for which in ("x", "y"):
        _logarithmic(axes, which, low, high)
    axes.set_aspect("equal", adjustable="box")
    ends = np.array(axes.get_xlim())
    axes.fill_between(
        ends, ends / factor, ends * factor, color=INTERVAL_COLOUR, linewidth=0, zorder=0
    )
    axes.fill_between(
        ends, ends * (1 - NEAR), ends * (1 + NEAR), color=NEAR_COLOUR, linewidth=0, zorder=1
    )
    axes.plot(ends, ends, color="black", linewidth=0.6, zorder=2)
    _points(
        axes,
        observed,
        predicted,
        np.array([colours[p.group] for p in data.points]),
        np.array([markers[p.layout] for p in data.points]),
    )
    axes.set_xlabel(f"{origin} time (s)")
    axes.set_ylabel("predicted time (s)")
    _caption(
        figure,
        data.about,
        _held_out(data.about),
        (
            f"{counted(len(data.points), 'read')}: {data.n_not_near} outside {NEAR * 100:.0f} %, "
            f"{data.n_outside_interval} outside the 95 % interval; abs log error: median "
            f"{data.median_log_error:.3g}, 95th percentile {data.p95_log_error:.3g}."
        ),
    )
    return figure


def _draw_residuals(data: ResidualData) -> Figure:
    rows = data.patterns
    largest = sorted(rows, key=lambda r: -max(abs(r.least), abs(r.greatest)))[:MOST_ROWS]
    chosen = {r.pattern for r in largest}
    kept = [r for r in rows if r.pattern in chosen]
    colours = assigned([p.group for p in data.points], COLOURS, OTHER_COLOUR)
    markers = assigned([p.layout for p in data.points], MARKERS, OTHER_MARKER)
    factor = math.exp(data.interval_log)
    keys = [_interval_key(factor), *_keys(colours, markers)]
    figure, (above, below) = _panels(keys, [2.1, 0.3 + _ROW_INCHES * max(3, len(kept))])
    origin = data.about.origin
    _title(figure, f"Residuals: {origin} over predicted", data.about)
    predicted = np.array([p.predicted_s for p in data.points])
    ratio = np.exp(np.array([p.log_ratio for p in data.points]))
    least = min(float(ratio.min()), 1.0 / factor)
    greatest = max(float(ratio.max()), factor)
    _logarithmic(above, "x", float(predicted.min()), float(predicted.max()))
    _logarithmic(above, "y", least, greatest)
    above.axhspan(1 / factor, factor, color=INTERVAL_COLOUR, linewidth=0, zorder=0)
    above.axhline(1.0, color="black", linewidth=0.6, zorder=2)
    _points(
        above,
        predicted,
        ratio,
        np.array([colours[p.group] for p in data.points]),
        np.array([markers[p.layout] for p in data.points]),
    )
    above.set_xlabel("predicted time (s)")
    above.set_ylabel(f"{origin} / predicted")
    _logarithmic(below, "x", least, greatest)
    below.axvspan(1 / factor, factor, color=INTERVAL_COLOUR, linewidth=0, zorder=0)
    below.axvline(1.0, color="black", linewidth=0.6, zorder=1)
    for place, row in enumerate(kept):
        colour = colours[row.group]
        below.plot(np.exp([row.least, row.greatest]), [place, place], color=colour, linewidth=0.7)
        below.plot(
            np.exp([row.quartile_low, row.quartile_high]),
            [place, place],
            color=colour,
            linewidth=2.6,
            solid_capstyle="butt",
        )
        below.plot(
            [math.exp(row.median)], [place], marker="|", color="black", markersize=4, zorder=4
        )
    below.set_yticks(range(len(kept)), [shortened(r.pattern, 28) for r in kept])
    below.set_ylim(len(kept) - 0.4, -0.6)
    below.tick_params(axis="y", length=0, labelsize=5.8)
    below.set_xlabel(f"{origin} / predicted, by pattern")
    _caption(
        figure,
        data.about,
        _held_out(data.about),
        (
            f"{counted(len(data.points), 'read')}. By pattern: mark at the median, bar between "
            "quartiles, line from least to greatest." + _shown(len(kept), len(rows))
        ),
    )
    return figure


def _draw_speedups(data: SpeedupData) -> Figure:
    of_pattern: dict[str, list[Speedup]] = {}
    for s in data.speedups:
        of_pattern.setdefault(s.pattern, []).append(s)
    layouts = sorted({s.layout for s in data.speedups})
    # Those with the largest effect have room; then from the fastest down.
    effects = sorted(
        of_pattern,
        key=lambda name: -max(abs(math.log(s.observed_speedup)) for s in of_pattern[name]),
    )
    kept = sorted(
        effects[: max(1, MOST_BARS // len(layouts))],
        key=lambda name: -max(s.observed_speedup for s in of_pattern[name]),
    )
    rows = [s for name in kept for s in of_pattern[name]]
    origin = data.about.origin
    keys = [Patch(facecolor=OBSERVED_COLOUR, label=str(origin))]
    keys.append(Patch(facecolor=PREDICTED_COLOUR, label="predicted"))
    figure, (axes,) = _panels(keys, [0.3 + _BAR_INCHES * len(rows)])
    _title(figure, "Speed-up by pattern and layout", data.about)
    ends = [e for s in rows for e in (s.observed_low, s.observed_high)]
    ends += [e for s in rows for e in (s.predicted_low, s.predicted_high)]
    _logarithmic(axes, "x", min(1.0, *ends), max(1.0, *ends))
    places = np.arange(len(rows), dtype=float)
    triples = (
        [(s.observed_low, s.observed_speedup, s.observed_high) for s in rows],
        [(s.predicted_low, s.predicted_speedup, s.predicted_high) for s in rows],
    )
    for values, shift, colour in zip(
        triples, (0.0, 0.26), (OBSERVED_COLOUR, PREDICTED_COLOUR), strict=True
    ):
        low, middle, high = np.array(values).T
        # Bars begin at 1: to the right is faster, to the left slower.
        axes.barh(
            places + shift,
            middle - 1.0,
            left=1.0,
            height=0.26,
            color=colour,
            xerr=[middle - low, high - middle],
            error_kw={"elinewidth": 0.6, "ecolor": "black", "capsize": 1.2, "capthick": 0.6},
        )
    for place, s in zip(places, rows, strict=True):
        name = shortened(s.pattern, _LONGEST_NAME)
        if len(layouts) > 1:
            name += f"  \N{RIGHTWARDS ARROW} {shortened(s.layout, 12)}"
        axes.annotate(
            name,
            (0.0, place - 0.17),
            xycoords=axes.get_yaxis_transform(),
            va="bottom",
            fontsize=5.8,
            # Over the line at 1, below the bars.
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.0},
            zorder=0.8,
        )
    axes.axvline(1.0, color="black", linewidth=0.6, zorder=0.6)
    axes.set_ylim(len(rows) - 0.4, -0.75)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    of = f" of layout {shortened(layouts[0], 16)}" if len(layouts) == 1 else ""
    axes.set_xlabel(f"speed-up{of} over layout {shortened(data.original_layout, 16)}")
    _caption(
        figure,
        data.about,
        _held_out(data.about),
        (
            f"Lines: {origin}, least and greatest of the reads compared; predicted, 95 % "
            f"interval ({_times_or_over(data.interval_factor)})."
            + _shown(len(kept), len(of_pattern))
        ),
    )
    return figure


def _draw_coefficients(data: CoefficientData) -> Figure:
    header = ("term", "unit", "coefficient", "95 % interval", "p")
    sides = ("left", "left", "right", "right", "right")
    rows = [header, *map(coefficient_cells, data.terms)]
    # As wide as its longest entries, and no narrower than a column.
    widths = [
        max(_text_inches(row[column], bold=not i) for i, row in enumerate(rows))
        for column in range(len(header))
    ]
    space = max(0.12, (COLUMN_INCHES - 0.1 - sum(widths)) / (len(widths) - 1))
    whole = sum(widths) + space * (len(widths) - 1)
    figure = _figure(0.75 + 0.17 * len(rows), width_inches=whole + 0.1)
    axes = figure.add_subplot()
    _title(figure, "Coefficients", data.about)
    axes.set_axis_off()
    axes.set_xlim(0, whole)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for y, row in enumerate(rows):
        dropped = y > 0 and data.terms[y - 1].dropped
        begin = 0.0
        for cell, side, width in zip(row, sides, widths, strict=True):
            axes.text(
                begin if side == "left" else begin + width,
                y,
                cell,
                ha=side,
                va="center",
                fontsize=_TABLE_POINTS,
                fontweight="normal" if y else "bold",
                color="#777777" if dropped else "black",
            )
            begin += width + space
    axes.axhline(0.5, color="black", linewidth=0.6)
    _caption(figure, data.about, fit_sentence(data))
    return figure


def _text_inches(text: str, *, bold: bool) -> float:
    """Return how wide a text of the table is."""
    if not text:
        return 0.0
    font = FontProperties(family=FONT, weight="bold" if bold else "normal")
    # Laid out without hinting, in points.
    path = TextPath((0.0, 0.0), text, size=_TABLE_POINTS, prop=font)
    return float(path.get_extents().x1) / 72.0


def _held_out(about: Provenance) -> str:
    return f"Predictions are held out: {about.held_out}."


def _shown(n: int, of: int) -> str:
    """Return what is to be said where a figure does not show everything."""
    return "" if n == of else f" Shown are the {n} of {of} patterns that are furthest from 1."


def _times_or_over(factor: float) -> str:
    return f"\N{MULTIPLICATION SIGN}/\N{DIVISION SIGN} {factor:.3g}"


def _interval_key(factor: float) -> _Key:
    return Patch(facecolor=INTERVAL_COLOUR, label=f"95 % interval ({_times_or_over(factor)})")
