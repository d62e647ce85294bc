"""Compares the three block gaps that Liu 2014 does not tell apart by the fit they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.models.cost_model import FitDiagnostics, GapKind, HeldoutError, ModelKind
from sds.recommender.models.cross_validation import cross_validate
from sds.recommender.models.regression import LinearFitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.recommender.models.samples import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class GapFit:
    """One equation fitted with one block gap.

    Attributes
    ----------
    gap, kind, relative
        What was fitted, and whether with relative weights.
    diagnostics, heldout
        The fit and its error on patterns left out; None where it could not be fitted.
    p_value
        Of the term BG alone.
    refused
        Why it could not be fitted; else empty.
    """

    gap: GapKind
    kind: ModelKind
    relative: bool
    diagnostics: FitDiagnostics | None = None
    heldout: HeldoutError | None = None
    p_value: float | None = None
    refused: str = ""


def compare_gaps(
    samples: Samples,
    *,
    kinds: Sequence[ModelKind] = (ModelKind.EQ3, ModelKind.EQ4, ModelKind.EQ6),
    relative: Sequence[bool] = (False, True),
) -> tuple[GapFit, ...]:
    """Return every equation fitted with every block gap, by equation and weighting.

    relative: whether to weigh by 1 / seconds**2; both by default.
    """
    features = samples.feature_matrix()
    fits = []
    for kind in kinds:
        for weighting in relative:
            for gap in GapKind:
                fitter = LinearFitter(kind=kind, gap=gap, relative=weighting)
                try:
                    model = fitter.fit(samples, features=features)
                    heldout = cross_validate(fitter, samples, features=features)
                except (RankDeficientError, SdsValueError) as error:
                    fits.append(GapFit(gap=gap, kind=kind, relative=weighting, refused=str(error)))
                    continue
                d = model.diagnostics
                fits.append(
                    GapFit(
                        gap=gap,
                        kind=kind,
                        relative=weighting,
                        diagnostics=d,
                        heldout=heldout,
                        p_value=None if d is None else d.p_values[d.terms.index("BG")],
                    )
                )
    return tuple(fits)


def gap_table(fits: Sequence[GapFit]) -> str:
    """Return the comparison as a Markdown table."""
    lines = [
        (
            "| equation | weights | block gap | R^2 | adjusted | p of BG | held-out R^2 "
            "| median, 95 % of abs log error | rms | rank correlation |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for fit in fits:
        begin = f"| {fit.kind} | {'relative' if fit.relative else 'none'} | {fit.gap} |"
        if fit.diagnostics is None or fit.heldout is None:
            lines.append(f"{begin} {fit.refused} | | | | | | |")
            continue
        d, h = fit.diagnostics, fit.heldout
        lines.append(
            f"{begin} {_number(d.r_squared)} | {_number(d.r_squared_adjusted)} | "
            f"{_number(fit.p_value)} | {_number(h.r_squared)} | {h.median:.3g}, {h.p95:.3g} | "
            f"{h.rms:.3g} | {h.rank_correlation:.3f} |"
        )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
