"""What figures show, as values: their fields are part of the REST interface and of --json."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sds.errors import SdsValueError
from sds.plots.evidence import Provenance
from sds.plots.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPoint:
    """One read.

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
    """One read.

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
    """What predictions leave unexplained.

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
    """How many times as fast a pattern is read from a layout as from the original one.

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
