"""How figures look: sizes, colours, markers, names that fit."""

from __future__ import annotations

from typing import Any

# One column of a journal; enlarged whole, letters are large enough for slides.
COLUMN_INCHES = 85 / 25.4
DOTS_PER_INCH = 300

# Told apart also without colour vision (Okabe and Ito), the pale yellow left out.
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
    """Return a name, its middle left out where it is longer than so many letters."""
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
