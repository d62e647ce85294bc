"""A fitted model as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sds.recommender.models.cost_model import CostModel, FitDiagnostics


def summary_of(model: CostModel) -> str:
    """Return coefficients with intervals and p-values, the fit, residuals and held-out error."""
    gap = f", block gap {model.gap}" if model.kind.has_gap else ""
    lines = [f"{model.name}: {model.kind}{gap}, {model.via}, {model.cache} cache"]
    diagnostics = model.diagnostics
    if diagnostics is None:
        lines.append("built in: coefficients chosen, not fitted")
        lines += [
            f"{term:>20} {c:>12.4g}"
            for term, c in zip(model.kind.terms, model.coefficients, strict=True)
        ]
    else:
        lines += _fit_lines(model, diagnostics)
    if model.dropped_terms:
        lines.append(f"not determined by these reads: {', '.join(model.dropped_terms)}")
    lines += _heldout_lines(model)
    return "\n".join(lines)


def _fit_lines(model: CostModel, d: FitDiagnostics) -> list[str]:
    lines = [
        f"{d.n} reads fitted; weighting: {d.weighting}",
        f"R^2 {_number(d.r_squared)}, adjusted {_number(d.r_squared_adjusted)} (in sample)",
        f"{'term':>20} {'coefficient':>12} {'95 % from':>12} {'to':>12} {'p':>10}",
    ]
    fitted = {
        term: (low, high, p)
        for term, low, high, p in zip(
            d.terms, d.confidence_low, d.confidence_high, d.p_values, strict=True
        )
    }
    for term, c in zip(model.kind.terms, model.coefficients, strict=True):
        if term not in fitted:
            # A zero that was not estimated: no interval to give, and no number to wonder about.
            lines.append(
                f"{term:>20} {'not fitted' if term in model.dropped_terms else 'held at 0'}"
            )
            continue
        low, high, p = fitted[term]
        lines.append(
            f"{term:>20} {c:>12.4g} {_number(low):>12} {_number(high):>12} {_number(p):>10}"
        )
    residuals = np.percentile(np.array(d.residuals_s), [0, 25, 50, 75, 100])
    lines.append(
        "residuals, s: "
        + ", ".join(
            f"{name} {value:.3g}"
            for name, value in zip(
                ("least", "25 %", "median", "75 %", "greatest"), residuals, strict=True
            )
        )
    )
    return lines


def _heldout_lines(model: CostModel) -> list[str]:
    lines = []
    for h in (model.heldout, model.heldout_layouts):
        if h is None:
            continue
        ratio = "" if h.ratio_rms is None else f", of ratios of layouts {h.ratio_rms:.3g} rms"
        lines += [
            (
                f"held out ({h.n_patterns} {h.left_out}), |log(predicted / measured)|: median "
                f"{h.median:.3g}, 95 % {h.p95:.3g}, rms {h.rms:.3g}{ratio}"
            ),
            f"held-out R^2 {_number(h.r_squared)}, rank correlation {h.rank_correlation:.4g}",
        ]
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
