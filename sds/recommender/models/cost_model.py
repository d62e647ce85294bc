"""Cost models as values: coefficients of an equation, and how well it fits.

The prediction itself exists once, in the native core (native/include/sds/cost.h).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sds import _native
from sds.errors import SdsValueError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sds.geometry import BlockFeatures
    from sds.recommender.models.feature_matrix import FeatureMatrix

# A model without a fit is taken to be wrong by this factor, up or down, in one case of three.
# Chosen, not measured: devices differ by more than that, layouts worth building by far more.
UNCALIBRATED_LOG_ERROR = math.log(3.0)
# Uncalibrated, a replica must be predicted cheaper by this factor before it serves a read.
UNCALIBRATED_MARGIN = 1.25
# Standard deviations that 95 % of a normal distribution lie within.
SIGMAS_95 = 1.96


class ModelKind(StrEnum):
    """Equation of a cost model (sds_model_kind).

    ``eq3`` is the paper's best case (concurrent processes act as one), ``eq4`` its worst, ``eq5``
    collective I/O, ``eq6`` all interactions; ``service`` the time that clients wait, servers
    send and disks read, ``sieve`` what HDF5 asks for through its sieve buffer.
    """

    REQUESTS = "requests"
    EQ3 = "eq3"
    EQ4 = "eq4"
    EQ5 = "eq5"
    EQ6 = "eq6"
    SERVICE = "service"
    SIEVE = "sieve"

    @property
    def code(self) -> int:
        """The number of sds_model_kind."""
        return _CODES[self]

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the terms, intercept first, in the order of the coefficients."""
        return _TERMS[self]

    @property
    def needs_processes(self) -> bool:
        """True if P, processes per OST, is among the terms."""
        return any("P" in term.split("*") for term in self.terms)

    @property
    def has_gap(self) -> bool:
        """True if one of the three block gaps is among the terms."""
        return "BG" in self.terms


_CODES: dict[ModelKind, int] = {
    ModelKind.REQUESTS: 0,
    ModelKind.EQ3: 3,
    ModelKind.EQ4: 4,
    ModelKind.EQ5: 5,
    ModelKind.EQ6: 6,
    ModelKind.SERVICE: 16,
    ModelKind.SIEVE: 17,
}
_TERMS: dict[ModelKind, tuple[str, ...]] = {
    ModelKind.REQUESTS: ("1", "requests", "bytes_touched"),
    ModelKind.EQ3: ("1", "BD", "BG"),
    ModelKind.EQ4: ("1", "BD", "BG", "P"),
    ModelKind.EQ5: ("1", "BD", "BG", "P", "1 shuffle", "Nproc", "Nagg", "Size/Nagg"),
    ModelKind.EQ6: ("1", "BD", "BG", "P", "BD*BG", "BD*P", "BG*P", "BD*BG*P"),
    ModelKind.SERVICE: (
        "first_visits",
        "runs_most",
        "trips_most",
        "step_bytes",
        "ost_bytes",
        "seeks",
        "blocks",
    ),
    ModelKind.SIEVE: (
        "1",
        "sieve_requests",
        "sieve_jumps",
        "sieve_bytes",
        "runs_most",
        "P*sieve_requests",
        "P*sieve_jumps",
        "P*sieve_bytes",
    ),
}


class GapKind(StrEnum):
    """Block gap, one of the three of docs/reference/semantics.md (sds_gap_kind)."""

    COUNT = "count"
    DISTANCE = "distance"
    PAPER = "paper"

    @property
    def code(self) -> int:
        """The number of sds_gap_kind."""
        return {"count": 0, "distance": 1, "paper": 2}[self.value]


class Via(StrEnum):
    """Way of reading the bytes: a model holds for one way only."""

    HDF5 = "hdf5"
    ENGINE = "engine"


class CacheState(StrEnum):
    """State of the page cache for the file when a read begins."""

    COLD = "cold"
    WARM = "warm"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitDiagnostics:
    """Goodness of fit of a regression on the reads that it was fitted to.

    Attributes
    ----------
    n
        Reads fitted.
    weighting
        ``none`` (ordinary least squares, of seconds), ``relative`` (weights 1 / seconds**2) or
        ``log`` (least squares of log seconds, coefficients >= 0).
    terms
        Names of the terms fitted, in the order of the figures below.
    r_squared, r_squared_adjusted
        Of the fit as weighted.
    p_values, confidence_low, confidence_high
        Per term fitted, 95 %, raw units; None where a perfect fit leaves them undefined.
    residuals_s
        Measured minus fitted, shape (n,), seconds, before the floor.
    """

    n: int
    weighting: str
    terms: tuple[str, ...]
    r_squared: float | None
    r_squared_adjusted: float | None
    p_values: tuple[float | None, ...]
    confidence_low: tuple[float | None, ...]
    confidence_high: tuple[float | None, ...]
    residuals_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldoutError:
    """Error on patterns that a fit had not seen, |log(predicted / measured)|.

    Attributes
    ----------
    median, p95, rms
        Median, 95th percentile and root mean square over all held-out reads.
    rank_correlation
        Spearman's, predicted against measured, over all held-out reads.
    n_patterns
        Patterns (or layouts), each left out once.
    r_squared
        Of seconds, 1 - squared errors / squared deviations from the mean: a few slow reads
        dominate it. None where all took as long, and in models stored before it was kept.
    ratio_rms
        Root mean square error of the logarithm of the ratio of two layouts' times, over all pairs
        of layouts of one pattern: what is wrong by one factor in both cancels out. None where no
        pattern was read from two layouts.
    left_out
        What was held out together: ``patterns`` or ``layouts``.
    """

    median: float
    p95: float
    rms: float
    rank_correlation: float
    n_patterns: int
    r_squared: float | None = None
    ratio_rms: float | None = None
    left_out: str = "patterns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted time of a read, with the interval that holds in 19 of 20 held-out cases."""

    seconds: float
    low: float
    high: float
    calibrated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Coefficients of one model, and how far to trust them.

    Attributes
    ----------
    kind, gap
        The equation, and the block gap that it was fitted with.
    coefficients
        Seconds per unit of each term of `kind`, shape (n_terms,).
    floor_s
        No prediction is below this.
    calibrated
        Whether it was chosen by measuring this file system.
    via, cache
        How reads are made, and from what cache state.
    dropped_terms
        Terms of the equation that the reads could not determine; their coefficients are 0.
    diagnostics, heldout
        None where the model is built in. Held out were patterns.
    heldout_layouts
        Error on layouts left out; None where all reads were from one, or none were held out.
    """

    kind: ModelKind
    gap: GapKind
    coefficients: tuple[float, ...]
    floor_s: float
    calibrated: bool
    via: Via = Via.HDF5
    cache: CacheState = CacheState.UNKNOWN
    dropped_terms: tuple[str, ...] = ()
    diagnostics: FitDiagnostics | None = None
    heldout: HeldoutError | None = None
    heldout_layouts: HeldoutError | None = None

    def __post_init__(self) -> None:
        if len(self.coefficients) != len(self.kind.terms):
            raise SdsValueError(
                f"a model {self.kind} has {len(self.kind.terms)} coefficients "
                f"({', '.join(self.kind.terms)}), not {len(self.coefficients)}"
            )
        if not all(map(math.isfinite, (*self.coefficients, self.floor_s))) or self.floor_s < 0:
            raise SdsValueError(
                f"coefficients must be finite and the floor >= 0, not {self.coefficients} and "
                f"{self.floor_s} s"
            )

    @property
    def name(self) -> str:
        """``builtin``, or the fitted equation."""
        return str(self.kind) if self.calibrated else "builtin"

    def seconds(self, features: BlockFeatures, *, processes_per_ost: float = 1.0) -> float:
        """Return the predicted time of one read, never below the floor.

        Raises
        ------
        SdsValueError
            If P is no number or negative.
        """
        if not (math.isfinite(processes_per_ost) and processes_per_ost >= 0.0):
            raise SdsValueError(
                f"{processes_per_ost} processes per OST: give a number that is not negative"
            )
        return float(
            _native.predict(
                self.kind.code,
                self.gap.code,
                self.coefficients,
                self.floor_s,
                features.native(),
                processes_per_ost,
            )
        )

    def predict_many(self, features: FeatureMatrix) -> NDArray[np.float64]:
        """Return the predicted times of operations, shape (n,), none below the floor.

        Over a million a second.
        """
        return _native.predict_many(
            self.kind.code, self.gap.code, self.coefficients, self.floor_s, features.columns
        )

    @property
    def _errors(self) -> list[HeldoutError]:
        both = self.heldout, self.heldout_layouts
        return [error for error in both if error is not None]

    @property
    def worst_heldout(self) -> HeldoutError | None:
        """The greater held-out error: what is advised on may be new in pattern and in layout."""
        return max(self._errors, key=lambda error: error.rms, default=None)

    @property
    def log_error(self) -> float:
        """Standard deviation of log(predicted / measured), from the held-out error."""
        worst = self.worst_heldout
        return UNCALIBRATED_LOG_ERROR if worst is None else worst.rms

    @property
    def interval_log(self) -> float:
        """Logarithm of the factor, up or down, that 19 of 20 held-out reads are within."""
        unknown = SIGMAS_95 * UNCALIBRATED_LOG_ERROR
        return max((error.p95 for error in self._errors), default=unknown)

    @property
    def ratio_error(self) -> float:
        """Standard deviation of the logarithm of the ratio of two predictions.

        Of layouts of one pattern by this model; independent errors where that is not known.
        """
        if self.heldout is not None and self.heldout.ratio_rms is not None:
            return self.heldout.ratio_rms
        return math.sqrt(2.0) * self.log_error

    def predict(self, features: BlockFeatures, *, processes_per_ost: float = 1.0) -> Prediction:
        """Return the predicted time of one read, its interval as wide up as down in the log."""
        seconds = self.seconds(features, processes_per_ost=processes_per_ost)
        factor = math.exp(self.interval_log)
        return Prediction(
            seconds=seconds,
            low=seconds / factor,
            high=seconds * factor,
            calibrated=self.calibrated,
        )


def builtin_model(*, via: Via = Via.HDF5) -> CostModel:
    """Return the model that serves until a file system is calibrated."""
    kind, gap, coefficients, floor_s = _native.builtin_model()
    kinds = {k.code: k for k in ModelKind}
    gaps = {g.code: g for g in GapKind}
    model = kinds[int(kind)]
    return CostModel(
        kind=model,
        gap=gaps[int(gap)],
        coefficients=tuple(float(c) for c in coefficients)[: len(model.terms)],
        floor_s=float(floor_s),
        calibrated=False,
        via=via,
    )


def builtin_models() -> tuple[CostModel, CostModel]:
    """Return the models of the original through HDF5 and of a replica through the engine."""
    return builtin_model(via=Via.HDF5), builtin_model(via=Via.ENGINE)


def serving_margin(original: CostModel, replica: CostModel) -> float:
    """Return by which factor a replica must be predicted cheaper before it serves a read.

    One standard deviation of the error of the two predictions' ratio on held-out patterns;
    `UNCALIBRATED_MARGIN` where nothing is calibrated, and at least that.
    """
    if not (original.calibrated and replica.calibrated):
        return UNCALIBRATED_MARGIN
    error = math.hypot(original.log_error, replica.log_error)
    return max(UNCALIBRATED_MARGIN, math.exp(error))
