"""What each figure shows, as values: the command line prints them, REST sends them.

Pure: evidence in, figure data out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sds.errors import SdsValueError
from sds.plots.evidence import (
    Evidence,
    Tried,
    equation_of,
    measurement_of,
    provenance_of,
    trial_of,
)
from sds.plots.kinds import Kind
from sds.plots.units import unit_of
from sds.plots.values import (
    Coefficient,
    CoefficientData,
    PatternResiduals,
    PredictedData,
    PredictedPoint,
    ResidualData,
    ResidualPoint,
    Speedup,
    SpeedupData,
)
from sds.recommender.model import SIGMAS_95, CacheState, Via

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.plots.evidence import Provenance
    from sds.plots.values import FigureData
    from sds.recommender.calibration import Calibration
    from sds.recommender.model import CostModel

_Name = TypeVar("_Name")

# A prediction that is no further than this from the observed time counts as right.
NEAR = 0.2


def figure_data(
    kind: Kind,
    calibration: Calibration,
    *,
    via: Via = Via.HDF5,
    cache: CacheState | None = None,
    model: str | None = None,
) -> FigureData:
    """Return what a figure shows of a calibration.

    Parameters
    ----------
    kind
        Which figure.
    calibration
        What was measured.
    via, cache
        Which reads; cache None: cold, or warm where there are no cold ones.
    model
        Name of a model that was tried; None: the best, of coefficients the best equation.

    Raises
    ------
    NotFoundError
        If that was not measured or tried; it says what was.
    SdsValueError
        If there is nothing to show.
    """
    measurement = measurement_of(calibration, via=via, cache=cache)
    if kind is Kind.COEFFICIENTS:
        trial = trial_of(measurement, model)
        tried = Tried(name=trial.name, model=trial.model, refused=trial.refused)
        return coefficient_data(equation_of(trial), provenance_of(calibration, measurement, tried))
    evidence = Evidence.of_measurement(calibration, measurement, model=model)
    if kind is Kind.PREDICTED:
        return predicted_data(evidence)
    if kind is Kind.RESIDUALS:
        return residual_data(evidence)
    return speedup_data(evidence)


def predicted_data(evidence: Evidence) -> PredictedData:
    """Return predicted against observed times, with prediction intervals."""
    factor = math.exp(_interval_log(evidence))
    observed, predicted = np.array(evidence.observed_s), np.array(evidence.predicted_s)
    low, high = predicted / factor, predicted * factor
    # Rounding must not decide where the bounds are those of the read itself.
    slack = 1e-12 * observed
    near = np.abs(predicted - observed) <= NEAR * observed + slack
    outside = (observed < low - slack) | (observed > high + slack)
    error = np.abs(np.log(predicted / observed))
    return PredictedData(
        about=evidence.about,
        interval_factor=factor,
        n_near=int(near.sum()),
        n_not_near=int((~near).sum()),
        n_outside_interval=int(outside.sum()),
        median_log_error=float(np.median(error)),
        p95_log_error=float(np.percentile(error, 95.0)),
        points=tuple(
            PredictedPoint(
                pattern=pattern,
                group=group_of(pattern),
                layout=evidence.layouts[i],
                observed_s=evidence.observed_s[i],
                predicted_s=evidence.predicted_s[i],
                low_s=float(low[i]),
                high_s=float(high[i]),
            )
            for i, pattern in enumerate(evidence.patterns)
        ),
    )


def residual_data(evidence: Evidence) -> ResidualData:
    """Return the logarithms of observed over predicted times, by read and by pattern."""
    log = np.log(np.array(evidence.observed_s) / np.array(evidence.predicted_s))
    patterns = []
    for pattern, own in _indices(evidence.patterns).items():
        least, low, median, high, greatest = np.percentile(log[own], [0, 25, 50, 75, 100])
        patterns.append(
            PatternResiduals(
                pattern=pattern,
                group=group_of(pattern),
                n_reads=len(own),
                least=float(least),
                quartile_low=float(low),
                median=float(median),
                quartile_high=float(high),
                greatest=float(greatest),
            )
        )
    return ResidualData(
        about=evidence.about,
        interval_log=_interval_log(evidence),
        points=tuple(
            ResidualPoint(
                pattern=pattern,
                group=group_of(pattern),
                layout=evidence.layouts[i],
                predicted_s=evidence.predicted_s[i],
                log_ratio=float(log[i]),
            )
            for i, pattern in enumerate(evidence.patterns)
        ),
        patterns=tuple(patterns),
    )


def speedup_data(evidence: Evidence, *, original: str | None = None) -> SpeedupData:
    """Return how many times as fast each layout is as the original, observed and predicted.

    original: name of a layout; None: the first in order of name.

    Raises
    ------
    SdsValueError
        If no pattern was read from the original and another layout.
    """
    names = sorted(set(evidence.layouts))
    first = names[0] if original is None else original
    if first not in names:
        raise SdsValueError(f"no read is from layout {first!r}; there are {', '.join(names)}")
    observed, predicted = np.array(evidence.observed_s), np.array(evidence.predicted_s)
    found = _indices(tuple(zip(evidence.patterns, evidence.layouts, strict=True)))
    pairs = []
    for pattern in dict.fromkeys(evidence.patterns):
        before = found.get((pattern, first), [])
        for layout in names:
            after = found.get((pattern, layout), [])
            n = min(len(before), len(after))
            if layout != first and n > 0:
                ratios = observed[before[:n]] / observed[after[:n]]
                expected = predicted[before[:n]] / predicted[after[:n]]
                pairs.append((pattern, layout, ratios, float(np.median(expected))))
    if not pairs:
        raise SdsValueError(
            f"{evidence.about.subject}: no pattern was read from layout {first} and from another "
            "one, so that there is no speed-up to show; measure patterns in two layouts"
        )
    error = evidence.ratio_error
    if error is None:
        logs = [math.log(expected / float(np.median(ratios))) for *_, ratios, expected in pairs]
        error = math.sqrt(sum(log * log for log in logs) / len(logs))
    factor = math.exp(SIGMAS_95 * error)
    return SpeedupData(
        about=evidence.about,
        original_layout=first,
        interval_factor=factor,
        speedups=tuple(
            Speedup(
                pattern=pattern,
                group=group_of(pattern),
                layout=layout,
                n_pairs=len(ratios),
                observed_speedup=float(np.median(ratios)),
                observed_low=float(ratios.min()),
                observed_high=float(ratios.max()),
                predicted_speedup=expected,
                predicted_low=expected / factor,
                predicted_high=expected * factor,
            )
            for pattern, layout, ratios, expected in pairs
        ),
    )


def coefficient_data(model: CostModel, about: Provenance) -> CoefficientData:
    """Return the terms of a model with their confidence intervals and p-values."""
    d = model.diagnostics
    fitted = {}
    if d is not None:
        fitted = {
            term: figures
            for term, *figures in zip(
                d.terms, d.confidence_low, d.confidence_high, d.p_values, strict=True
            )
        }
    rows = []
    for term, coefficient in zip(model.kind.terms, model.coefficients, strict=True):
        low, high, p_value = fitted.get(term, (None, None, None))
        dropped = term in model.dropped_terms
        rows.append(
            Coefficient(
                term=term,
                unit=unit_of(term, model.gap),
                coefficient=None if dropped else coefficient,
                low=low,
                high=high,
                p_value=p_value,
                dropped=dropped,
            )
        )
    return CoefficientData(
        # Unlike predictions, coefficients are those of the fit to everything.
        about=replace(about, held_out="nothing"),
        weighting=None if d is None else d.weighting,
        n_reads=0 if d is None else d.n,
        r_squared=None if d is None else d.r_squared,
        r_squared_adjusted=None if d is None else d.r_squared_adjusted,
        terms=tuple(rows),
    )


def group_of(pattern: str) -> str:
    """Return the kind of a pattern: the first word of its name."""
    return pattern.split(maxsplit=1)[0].rstrip(",;:") if pattern.strip() else "unnamed"


def _interval_log(evidence: Evidence) -> float:
    """Return the logarithm of the factor that predictions are said to be within."""
    if evidence.interval_log is None:
        return SIGMAS_95 * evidence.log_error
    return evidence.interval_log


def _indices(names: Sequence[_Name]) -> dict[_Name, list[int]]:
    """Return where each name occurs, names in the order of their first occurrence."""
    found: dict[_Name, list[int]] = defaultdict(list)
    for i, name in enumerate(names):
        found[name].append(i)
    return found
