"""Fits the service model: what a process waits for, servers send, and disks position and read.

F = c0 first visits + c1 runs + c2 trips + least(c5 later fetches, c6 distance between them)
    + c3 bytes sent in step + c4 bytes sent by a server
    + c6 blocks + least(c5 segments, c6 distance between them)

(native/include/sds/cost.h, SDS_MODEL_SERVICE; `sds.recommender.operation` says what is counted.)
Fitted is the logarithm of the time: seconds range over six decades, and what is to be predicted
is ratios. All coefficients are positive by construction, so that no prediction is negative and
more work never takes less time.

1. Columns that follow from others are left out, and named.
2. The logarithms of the coefficients are found by Levenberg and Marquardt's method, from several
   starts; the best end is kept.
3. Coefficients that no read depends on are 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

from sds.errors import SdsValueError
from sds.recommender.fit import dependent_columns, design_matrix, log_diagnostics_of
from sds.recommender.heldout import cross_validate
from sds.recommender.model import CacheState, CostModel, GapKind, HeldoutError, ModelKind, Via

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.recommender.measures import MeasureTable
    from sds.recommender.samples import Samples

# Coefficients of a seek, and of a block read or passed over.
_SEEK, _BLOCK = 5, 6
# Where gaps lie: between one process's fetches, and between the segments of all.
_GAPS = (("later_fetches", "fetch_distance"), ("disk_segments", "disk_distance"))
# A coefficient that changes no prediction by more than this share is 0.
_NEGLIGIBLE = 1e-6
# Shares of the time that a term is taken for at the beginning.
_START_SHARES = (0.2, 0.02, 0.001)
_MAX_EVALUATIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFitter:
    """The one way of fitting the service model."""

    kind: ModelKind = ModelKind.SERVICE
    gap: GapKind = GapKind.DISTANCE

    @property
    def name(self) -> str:
        """``service``."""
        return str(self.kind)

    def solve(
        self, measures: MeasureTable, seconds: NDArray[np.float64]
    ) -> tuple[CostModel, NDArray[np.float64]]:
        """Return the fitted model without diagnostics, and its predictions."""
        matrix = design_matrix(measures, self.kind, self.gap)
        if len(seconds) < len(self.kind.terms) + 2:
            raise SdsValueError(
                f"{len(seconds)} reads are too few to fit the {len(self.kind.terms)} terms of "
                f"{self.name}: measure at least {len(self.kind.terms) + 2}"
            )
        dropped = dependent_columns(matrix, self.kind.terms)
        kept = np.array([term not in dropped for term in self.kind.terms])
        gaps = _gaps(measures)
        coefficients = _positive_fit(matrix, gaps, np.log(seconds), kept)
        model = CostModel(
            kind=self.kind,
            gap=self.gap,
            coefficients=tuple(coefficients.tolist()),
            floor_s=float(coefficients[0]),
            calibrated=True,
            dropped_terms=tuple(dropped),
        )
        return model, _predicted(matrix, gaps, coefficients)[0]

    def fit(
        self,
        samples: Samples,
        *,
        via: Via = Via.HDF5,
        cache: CacheState = CacheState.UNKNOWN,
        measures: MeasureTable | None = None,
    ) -> CostModel:
        """Return the fitted model, without a held-out error.

        Notes
        -----
        Its p-values and intervals are those of statsmodels for the regression on the derivatives
        by the coefficients at the solution, as usual for least squares that are not linear.

        Raises
        ------
        SdsValueError
            If there are fewer samples than terms and two more.
        """
        table = samples.measures() if measures is None else measures
        seconds = np.array(samples.seconds, dtype=np.float64)
        model, fitted = self.solve(table, seconds)
        matrix = design_matrix(table, self.kind, self.gap)
        coefficients = np.array(model.coefficients)
        slopes = _predicted(matrix, _gaps(table), coefficients)[1]
        # No gap may be worth a seek, nor every gap: then nothing depends on that coefficient.
        used = (coefficients > 0) & (slopes.max(axis=0) > 0)
        diagnostics = log_diagnostics_of(
            slopes[:, used],
            coefficients[used],
            terms=[t for t, u in zip(self.kind.terms, used, strict=True) if u],
            fitted=fitted,
            seconds=seconds,
        )
        return replace(model, via=via, cache=cache, diagnostics=diagnostics)

    def heldout(self, samples: Samples, *, by: str = "patterns") -> HeldoutError:
        """Return the error on each pattern (or layout) by a fit to the others."""
        return cross_validate(self, samples, by=by)


def _gaps(measures: MeasureTable) -> NDArray[np.float64]:
    """Return the numbers of gaps and their distances, shape (2, 2, n)."""
    return np.array([[measures[n], measures[distance]] for n, distance in _GAPS])


def _predicted(
    matrix: NDArray[np.float64],
    gaps: NDArray[np.float64],
    coefficients: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return predictions, shape (n,), and their derivatives by each coefficient, shape (n, 7)."""
    slopes = matrix.copy()
    slopes[:, _SEEK] = 0.0
    for number, distance in gaps:
        sought = coefficients[_SEEK] * number < coefficients[_BLOCK] * distance
        slopes[:, _SEEK] += np.where(sought, number, 0.0)
        slopes[:, _BLOCK] += np.where(sought, 0.0, distance)
    return slopes @ coefficients, slopes


def _positive_fit(
    matrix: NDArray[np.float64],
    gaps: NDArray[np.float64],
    log_seconds: NDArray[np.float64],
    kept: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Return the coefficients, none negative, that fit log seconds best; 0 where not kept."""
    columns = np.flatnonzero(kept & (matrix.max(axis=0) > 0))
    tiny = np.finfo(np.float64).tiny

    def coefficients_of(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = np.zeros(matrix.shape[1])
        whole[columns] = np.exp(np.clip(logs, -200.0, 200.0))
        return whole

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        seconds = _predicted(matrix, gaps, coefficients_of(logs))[0]
        return np.log(np.maximum(seconds, tiny)) - log_seconds

    def jacobian(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = coefficients_of(logs)
        seconds, slopes = _predicted(matrix, gaps, whole)
        return (slopes * whole / np.maximum(seconds, tiny)[:, np.newaxis])[:, columns]

    # Alone, a term would explain the median read in which it occurs.
    alone = np.array(
        [
            np.median((log_seconds - np.log(np.maximum(column, tiny)))[column > 0])
            for column in matrix[:, columns].T
        ]
    )
    best_cost, best = np.inf, np.zeros(matrix.shape[1])
    for share in _START_SHARES:
        found = least_squares(
            residuals,
            alone + np.log(share),
            jac=jacobian,
            method="trf",
            max_nfev=_MAX_EVALUATIONS,
        )
        if found.cost < best_cost * (1.0 - 1e-6):
            best_cost, best = float(found.cost), coefficients_of(found.x)
    # A seek no gap was worth stays: it says from what distance on seeking would be.
    seconds, slopes = _predicted(matrix, gaps, best)
    share_of = (slopes * best / np.maximum(seconds, tiny)[:, np.newaxis]).max(axis=0)
    negligible = share_of < _NEGLIGIBLE
    negligible[_SEEK] = False
    best[negligible] = 0.0
    return best
