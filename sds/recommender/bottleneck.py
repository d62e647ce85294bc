"""Fits the bottleneck model: an operation takes as long as its slowest part.

Clients send requests one after another, servers take those of all clients, disks position and
transfer; the three overlap, so that the time is nearly the greatest of theirs, not their sum
(native/include/sds/cost.h, SDS_MODEL_BOTTLENECK). Fitted is the logarithm of the time: seconds
range over six decades, and what is to be predicted is ratios. All coefficients are positive by
construction, so that no prediction is negative and more work never takes less time.

1. Columns that follow from others are left out, and named.
2. The logarithms of the coefficients are found by Levenberg and Marquardt's method, from several
   starts of which each takes another part for the slowest; the best end is kept.
3. Coefficients that no read depends on are 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares
from statsmodels.regression.linear_model import OLS

from sds.errors import SdsValueError
from sds.recommender.fit import dependent_columns, design_matrix, diagnostics_of
from sds.recommender.heldout import cross_validate
from sds.recommender.model import CacheState, CostModel, GapKind, HeldoutError, ModelKind, Via

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.recommender.measures import MeasureTable
    from sds.recommender.samples import Samples

# Terms of clients, servers and disks; the first term is constant. Of disks: blocks, and seeks.
PARTS: tuple[tuple[int, ...], ...] = ((1, 2), (3, 4), (5, 6, 7))
_BLOCKS = 6
_SEEKS = [5, 7]
_POWER = 4.0
# A coefficient that changes no prediction by more than this share is 0.
_NEGLIGIBLE = 1e-6
# What the other parts are taken for, where one is taken for the slowest.
_START_SHARE = 0.03
_MAX_EVALUATIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BottleneckFitter:
    """The one way of fitting the bottleneck model.

    robust: whether reads far from the fit count less (soft L1 loss), to find those that something
    else disturbed.
    """

    robust: bool = False
    kind: ModelKind = ModelKind.BOTTLENECK
    gap: GapKind = GapKind.DISTANCE

    @property
    def name(self) -> str:
        """``bottleneck``."""
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
        distance = measures["disk_distance"]
        coefficients = _positive_fit(matrix, distance, np.log(seconds), kept, robust=self.robust)
        model = CostModel(
            kind=self.kind,
            gap=self.gap,
            coefficients=tuple(coefficients.tolist()),
            floor_s=float(coefficients[0]),
            calibrated=True,
            dropped_terms=tuple(dropped),
        )
        return model, _predicted(matrix, distance, coefficients)[0]

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
        slopes = _predicted(matrix, table["disk_distance"], coefficients)[1]
        slopes /= fitted[:, np.newaxis]
        # No gap may be worth a seek, nor every gap: then nothing depends on that coefficient.
        used = (coefficients > 0) & (slopes.max(axis=0) > 0)
        slopes = slopes[:, used]
        rest = np.log(seconds / fitted)
        scale = np.abs(slopes).max(axis=0)
        results = OLS(slopes @ coefficients[used] + rest, slopes / scale).fit(method="qr")
        terms = [t for t, u in zip(self.kind.terms, used, strict=True) if u]
        diagnostics = diagnostics_of(
            results, scale, terms=terms, weighting="log", residuals_s=seconds - fitted
        )
        log = np.log(seconds)
        spread = float(np.sum((log - log.mean()) ** 2))
        free = len(seconds) - int(used.sum())
        unexplained = float(np.sum(rest**2)) / spread if spread > 0 else None
        return replace(
            model,
            via=via,
            cache=cache,
            diagnostics=replace(
                diagnostics,
                r_squared=None if unexplained is None else 1.0 - unexplained,
                r_squared_adjusted=None
                if unexplained is None
                else 1.0 - unexplained * (len(seconds) - 1) / free,
            ),
        )

    def heldout(self, samples: Samples, *, by: str = "patterns") -> HeldoutError:
        """Return the error on each pattern (or layout) by a fit to the others."""
        return cross_validate(self, samples, by=by)


def _predicted(
    matrix: NDArray[np.float64],
    distance: NDArray[np.float64],
    coefficients: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return predictions, shape (n,), and their derivatives by each coefficient, shape (n, 8)."""
    work = matrix * coefficients
    seeks = work[:, _SEEKS].sum(axis=1)
    reading = coefficients[_BLOCKS] * distance
    read_through = reading < seeks
    parts = np.stack([work[:, list(part)].sum(axis=1) for part in PARTS])
    parts[-1] = work[:, _BLOCKS] + np.where(read_through, reading, seeks)
    greatest = np.maximum(parts.max(axis=0), np.finfo(np.float64).tiny)
    norm = greatest * ((parts / greatest) ** _POWER).sum(axis=0) ** (1.0 / _POWER)
    slopes = matrix.copy()
    slopes[:, _BLOCKS] += np.where(read_through, distance, 0.0)
    slopes[np.ix_(read_through, _SEEKS)] = 0.0
    for part, seconds in zip(PARTS, parts, strict=True):
        slopes[:, list(part)] *= ((seconds / norm) ** (_POWER - 1.0))[:, np.newaxis]
    return work[:, 0] + norm, slopes


def _positive_fit(
    matrix: NDArray[np.float64],
    distance: NDArray[np.float64],
    log_seconds: NDArray[np.float64],
    kept: NDArray[np.bool_],
    *,
    robust: bool,
) -> NDArray[np.float64]:
    """Return the coefficients, none negative, that fit log seconds best; 0 where not kept."""
    varies = kept & (matrix.max(axis=0) > 0)
    columns = np.flatnonzero(varies)
    used = matrix[:, columns]

    def coefficients_of(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = np.zeros(matrix.shape[1])
        whole[columns] = np.exp(np.clip(logs, -200.0, 200.0))
        return whole

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(_predicted(matrix, distance, coefficients_of(logs))[0]) - log_seconds

    def jacobian(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = coefficients_of(logs)
        seconds, slopes = _predicted(matrix, distance, whole)
        return (slopes * whole / seconds[:, np.newaxis])[:, columns]

    # Alone, a term would explain the median read.
    with np.errstate(divide="ignore"):
        alone = np.array(
            [np.median((log_seconds - np.log(column))[column > 0]) for column in used.T]
        )
    alone[columns == 0] = log_seconds.min()
    best_cost, best = np.inf, np.zeros(matrix.shape[1])
    for slowest in (range(matrix.shape[1]), *PARTS):
        share = np.where(np.isin(columns, list(slowest)), 0.5, _START_SHARE)
        found = least_squares(
            residuals,
            alone + np.log(share),
            jac=jacobian,
            method="trf" if robust else "lm",
            loss="soft_l1" if robust else "linear",
            f_scale=0.1 if robust else 1.0,
            max_nfev=_MAX_EVALUATIONS,
        )
        if found.cost < best_cost * (1.0 - 1e-6):
            best_cost, best = float(found.cost), coefficients_of(found.x)
    seconds, _ = _predicted(matrix, distance, best)
    share_of = (matrix * best / seconds[:, np.newaxis]).max(axis=0)
    best[share_of < _NEGLIGIBLE] = 0.0
    return best
