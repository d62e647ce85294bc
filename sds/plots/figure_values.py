"""Values of each figure: the command line prints them, REST sends them, `draw` draws them.

Their fields are part of the REST interface and of ``--json``. Pure: held-out reads in, figures out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from sds.errors import SdsValueError
from sds.plots import Kind
from sds.plots.heldout_reads import (
    Evidence,
    Provenance,
    equation_of,
    measurement_of,
    provenance_of,
)
from sds.recommender.models.cost_model import SIGMAS_95, CacheState, GapKind, Via
from sds.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.calibration.results import Calibration
    from sds.recommender.models.cost_model import CostModel


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPoint:
    """Observed and predicted time of one read.

    Attributes
    ----------
    group
        Kind of pattern: the first word of its name.
    low_s, high_s
        95 % prediction interval.
    """

    pattern: str
    group: str
    layout: str
    observed_s: float
    predicted_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedData:
    """Predicted against observed times.

    Attributes
    ----------
    interval_factor
        The 95 % prediction interval reaches from predicted / factor to predicted x factor.
    n_near, n_not_near
        Reads predicted within 20 % of the observed time, and the others.
    n_outside_interval
        Reads whose observed time is outside the interval.
    median_log_error, p95_log_error
        Median and 95th percentile of abs(log(predicted / observed)).
    """

    about: Provenance
    interval_factor: float
    n_near: int
    n_not_near: int
    n_outside_interval: int
    median_log_error: float
    p95_log_error: float
    points: tuple[PredictedPoint, ...]

    def __post_init__(self) -> None:
        _check(self.about, "reads", self.points)
        for p in self.points:
            _check_positive(p.pattern, (p.observed_s, p.predicted_s, self.interval_factor))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualPoint:
    """Residual of one read.

    Attributes
    ----------
    log_ratio
        Natural logarithm of observed over predicted time: positive where it took longer.
    """

    pattern: str
    group: str
    layout: str
    predicted_s: float
    log_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternResiduals:
    """The residuals of one pattern, all layouts.

    Attributes
    ----------
    least, quartile_low, median, quartile_high, greatest
        Of log_ratio.
    """

    pattern: str
    group: str
    n_reads: int
    least: float
    quartile_low: float
    median: float
    quartile_high: float
    greatest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualData:
    """Residuals of predictions: log ratios of observed to predicted time.

    Attributes
    ----------
    interval_log
        95 % of log ratios are expected within plus and minus this.
    points
        In the order of the reads.
    patterns
        In the order in which they were first read.
    """

    about: Provenance
    interval_log: float
    points: tuple[ResidualPoint, ...]
    patterns: tuple[PatternResiduals, ...]

    def __post_init__(self) -> None:
        _check(self.about, "reads", self.points)
        _check(self.about, "patterns", self.patterns)
        factor = _exp(self.interval_log)
        for p in self.points:
            _check_positive(p.pattern, (p.predicted_s, _exp(p.log_ratio), factor))
        for r in self.patterns:
            logs = (r.least, r.quartile_low, r.median, r.quartile_high, r.greatest)
            _check_positive(r.pattern, tuple(map(_exp, logs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Speed-up of a pattern in a layout over the original one, observed and predicted.

    Attributes
    ----------
    n_pairs
        Reads from the original and the layout that were compared: the first with the first, and
        so on, which were made alike.
    observed_speedup, predicted_speedup
        Medians over the pairs.
    observed_low, observed_high
        Least and greatest of the pairs.
    predicted_low, predicted_high
        95 % prediction interval, by the error of ratios of layouts on reads not seen.
    """

    pattern: str
    group: str
    layout: str
    n_pairs: int
    observed_speedup: float
    observed_low: float
    observed_high: float
    predicted_speedup: float
    predicted_low: float
    predicted_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupData:
    """Speed-ups over the original layout, by pattern and layout.

    Attributes
    ----------
    original_layout
        That others are compared with.
    interval_factor
        The 95 % interval of a predicted speed-up reaches from it / factor to it x factor.
    speedups
        In the order in which patterns and layouts were first read.
    """

    about: Provenance
    original_layout: str
    interval_factor: float
    speedups: tuple[Speedup, ...]

    def __post_init__(self) -> None:
        _check(self.about, "speed-ups", self.speedups)
        for s in self.speedups:
            _check_positive(s.pattern, (s.observed_low, s.observed_speedup, s.observed_high))
            _check_positive(s.pattern, (s.predicted_low, s.predicted_speedup, s.predicted_high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """One term of a model.

    Attributes
    ----------
    unit
        Of the coefficient.
    coefficient
        None where the term was dropped.
    low, high
        95 % confidence interval; None where it is not defined.
    p_value
        Of the hypothesis that the coefficient is 0; None where it is not defined.
    dropped
        Whether the reads could not determine it, or it was left out.
    """

    term: str
    unit: str
    coefficient: float | None
    low: float | None
    high: float | None
    p_value: float | None
    dropped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CoefficientData:
    """The terms of a fitted model.

    Attributes
    ----------
    weighting
        ``none``, ``relative`` or ``log``; None where the model is built in.
    n_reads
        That it was fitted to.
    r_squared, r_squared_adjusted
        In sample, of the fit as weighted.
    """

    about: Provenance
    weighting: str | None
    n_reads: int
    r_squared: float | None
    r_squared_adjusted: float | None
    terms: tuple[Coefficient, ...]

    def __post_init__(self) -> None:
        _check(self.about, "terms", self.terms)


def _check(about: Provenance, what: str, rows: Sequence[object]) -> None:
    """Refuse a figure of nothing."""
    if not rows:
        raise SdsValueError(f"{about.subject}: there are no {what} to show; measure some first")


def _check_positive(name: str, values: Sequence[float]) -> None:
    """Refuse what has no place on a logarithmic axis."""
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise SdsValueError(f"{name}: {value} cannot be shown; leave it out")


def _exp(log: float) -> float:
    """Return the exponential, infinite where it is too large a number."""
    return math.exp(log) if log < 700 else math.inf


FigureData: TypeAlias = PredictedData | ResidualData | SpeedupData | CoefficientData

DATA_OF: dict[Kind, type[FigureData]] = {
    Kind.PREDICTED: PredictedData,
    Kind.RESIDUALS: ResidualData,
    Kind.SPEEDUPS: SpeedupData,
    Kind.COEFFICIENTS: CoefficientData,
}


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
        name, equation = equation_of(measurement, model)
        return coefficient_data(equation, provenance_of(calibration, measurement, name, equation))
    evidence = Evidence.of_measurement(calibration, measurement, model=model)
    if kind is Kind.PREDICTED:
        return predicted_data(evidence)
    if kind is Kind.RESIDUALS:
        return residual_data(evidence)
    return speedup_data(evidence)


def predicted_data(evidence: Evidence) -> PredictedData:
    """Return predicted against observed times, with prediction intervals."""
    factor = math.exp(evidence.interval_log)
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
        interval_log=evidence.interval_log,
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


def _indices(names: Sequence[_Name]) -> dict[_Name, list[int]]:
    """Return where each name occurs, names in the order of their first occurrence."""
    found: dict[_Name, list[int]] = defaultdict(list)
    for i, name in enumerate(names):
        found[name].append(i)
    return found


_UNITS = {
    "1": "",
    "1 shuffle": "",
    "requests": "request",
    "bytes_touched": "B",
    "BD": "block",
    "P": "process/OST",
    "Nproc": "process",
    "Nagg": "aggregator",
    "Size/Nagg": "B",
    "runs_most": "run",
    "first_visits": "visit",
    "trips_most": "trip",
    "step_bytes": "B",
    "ost_bytes": "B",
    "seeks": "seek",
    "blocks": "block",
    "sieve_requests": "request",
    "sieve_jumps": "jump",
    "sieve_bytes": "B",
}
_GAP_UNITS = {GapKind.COUNT: "gap", GapKind.DISTANCE: "block", GapKind.PAPER: "element"}


def unit_of(term: str, gap: GapKind) -> str:
    """Return the unit of a term's coefficient, e.g. ``s/block``; terms without one are ``s``."""
    per = [_unit(factor, gap) for factor in term.split("*")]
    named = [unit for unit in per if unit]
    if not named:
        return "s"
    below = "\N{MIDDLE DOT}".join(named)
    return f"s/({below})" if len(named) > 1 or "/" in below else f"s/{below}"


def _unit(factor: str, gap: GapKind) -> str:
    if factor == "BG":
        return _GAP_UNITS[gap]
    # A term of a kind that has no entry is counted in itself.
    return _UNITS.get(factor, factor)


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
