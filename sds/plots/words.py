"""Figures' numbers in words, for pictures and the command line alike."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sds.wording import counted

if TYPE_CHECKING:
    from sds.plots.values import Coefficient, CoefficientData


# What a one stands for where terms are listed.
_CONSTANTS = {"1": "constant", "1 shuffle": "constant of the shuffle"}


def coefficient_cells(row: Coefficient) -> tuple[str, str, str, str, str]:
    """Return term, unit, coefficient, interval and p-value of a row, as text."""
    row = replace(row, term=_CONSTANTS.get(row.term, row.term))
    if row.coefficient is None:
        return row.term, row.unit, "dropped", "", ""
    if row.coefficient == 0.0 and row.low is None:
        # Least squares without negative coefficients ended there: nothing was estimated.
        return row.term, row.unit, "held at 0", "", ""
    interval = "-" if row.low is None or row.high is None else f"{row.low:.3g} to {row.high:.3g}"
    if row.p_value is None:
        p_value = "-"
    else:
        p_value = "<0.001" if row.p_value < 0.001 else f"{row.p_value:.3f}"
    return row.term, row.unit, f"{row.coefficient:.4g}", interval, p_value


def fit_sentence(data: CoefficientData) -> str:
    """Return what coefficients were fitted to and how well, in one sentence."""
    if data.weighting is None:
        return "Coefficients chosen, not fitted."
    squares = [
        f"{name} {value:.4g}"
        for name, value in (
            ("R\N{SUPERSCRIPT TWO}", data.r_squared),
            ("adjusted", data.r_squared_adjusted),
        )
        if value is not None
    ]
    return f"Fitted to {counted(data.n_reads, 'read')}, weighting: {data.weighting}; in sample " + (
        ", ".join(squares) + "." if squares else "R\N{SUPERSCRIPT TWO} is not defined."
    )
