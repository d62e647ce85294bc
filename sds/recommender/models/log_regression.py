"""Least squares of log seconds with coefficients that are not negative.

Seconds range over six decades, and what is predicted are ratios; with no negative coefficient no
prediction is negative and more work never takes less time. Columns that follow from others are
left out, and named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import nnls
from statsmodels.regression.linear_model import OLS

from sds.recommender.models.cost_model import CostModel, FitDiagnostics
from sds.recommender.models.regression import (
    EquationFitter,
    dependent_columns,
    design_matrix,
    diagnostics_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sds.recommender.models.feature_matrix import FeatureMatrix

_ITERATIONS = 50
_CONVERGED = 1e-9
# Share of the time that a term is taken for at the beginning, where terms depend on coefficients.
_START_SHARE = 0.02


@dataclass(frozen=True, kw_only=True)
class LogFitter(EquationFitter):
    """Fits an equation to log seconds: a sum of terms, some of them the least of several."""

    @property
    def weighting(self) -> str:
        """``log``."""
        return "log"

    def slopes(
        self,
        terms: NDArray[np.float64],
        features: FeatureMatrix,  # noqa: ARG002 - of equations that are not linear
        coefficients: NDArray[np.float64],  # noqa: ARG002
    ) -> NDArray[np.float64]:
        """Return the derivatives of the seconds by each coefficient, shape (n, n_terms).

        Times the coefficients they are the seconds.
        """
        return terms

    def solve(
        self, features: FeatureMatrix, seconds: NDArray[np.float64]
    ) -> tuple[CostModel, NDArray[np.float64]]:
        """Return the fitted model without diagnostics, and its predictions before the floor."""
        self.check_number(len(seconds))
        names = [self.kind.terms[i] for i in self.fitted_terms]
        terms = design_matrix(features, self.kind, self.gap)
        dependent = dependent_columns(terms[:, self.fitted_terms], names)
        fitted = np.array([t in names and t not in dependent for t in self.kind.terms])

        def slopes_of(coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.where(fitted, self.slopes(terms, features, coefficients), 0.0)

        # Alone, a term would explain the median read in which it occurs.
        alone = np.array(
            [np.median((seconds / c)[c > 0]) if c.any() else 0.0 for c in _positive(terms, fitted)]
        )
        coefficients = positive_log_fit(slopes_of, seconds, start=_START_SHARE * alone)
        model = CostModel(
            kind=self.kind,
            gap=self.gap,
            coefficients=tuple(coefficients.tolist()),
            floor_s=float(seconds.min()),
            calibrated=True,
            dropped_terms=tuple(t for t, f in zip(self.kind.terms, fitted, strict=True) if not f),
        )
        return model, slopes_of(coefficients) @ coefficients

    def diagnose(
        self, model: CostModel, features: FeatureMatrix, seconds: NDArray[np.float64]
    ) -> FitDiagnostics:
        """Return what statsmodels says of the regression on the derivatives at the solution.

        R^2 is that of log seconds. Terms with a coefficient of 0 are left out.
        """
        coefficients = np.array(model.coefficients)
        terms = design_matrix(features, self.kind, self.gap)
        slopes = self.slopes(terms, features, coefficients)
        fitted = slopes @ coefficients
        used = (coefficients > 0) & (slopes.max(axis=0) > 0)
        relative = slopes[:, used] / fitted[:, np.newaxis]
        rest = np.log(seconds / fitted)
        scale = np.abs(relative).max(axis=0)
        results = OLS(relative @ coefficients[used] + rest, relative / scale).fit(method="qr")
        diagnostics = diagnostics_of(
            results,
            scale,
            terms=[t for t, u in zip(self.kind.terms, used, strict=True) if u],
            weighting=self.weighting,
            residuals_s=seconds - fitted,
        )
        log = np.log(seconds)
        spread = float(np.sum((log - log.mean()) ** 2))
        if spread == 0.0:
            return replace(diagnostics, r_squared=None, r_squared_adjusted=None)
        unexplained = float(np.sum(rest**2)) / spread
        free = max(1, len(seconds) - int(used.sum()))
        return replace(
            diagnostics,
            r_squared=1.0 - unexplained,
            r_squared_adjusted=1.0 - unexplained * (len(seconds) - 1) / free,
        )


def positive_log_fit(
    slopes_of: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    seconds: NDArray[np.float64],
    *,
    start: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return coefficients, none negative, whose predictions are closest to log seconds.

    1. Least squares of the relative error, which counts reads predicted too fast too little.
    2. From there Gauss and Newton's method for the logarithm, each step a non-negative least
       squares problem, halved until it is no worse.

    Parameters
    ----------
    slopes_of
        Derivatives of the seconds at some coefficients, shape (n, k), none negative; times the
        coefficients they are the seconds. The first column is positive.
    seconds
        Shape (n,), positive.
    start
        Coefficients at which the first derivatives are taken, shape (k,).
    """

    def error(coefficients: NDArray[np.float64]) -> float:
        predicted = slopes_of(coefficients) @ coefficients
        if not (predicted > 0).all():
            return np.inf
        return float(np.sum(np.log(predicted / seconds) ** 2))

    slopes = slopes_of(start)
    found = _nnls(slopes / seconds[:, np.newaxis], np.ones_like(seconds))
    if not (slopes @ found > 0).all():
        found[0] = max(found[0], float(seconds.min()) / float(slopes[:, 0].min()))
    least = error(found)
    for _ in range(_ITERATIONS):
        slopes = slopes_of(found)
        predicted = slopes @ found
        wanted = np.clip(1.0 + np.log(seconds / predicted), 0.0, None)
        step = _nnls(slopes / predicted[:, np.newaxis], wanted)
        part = 1.0
        while part > _CONVERGED and error(found + part * (step - found)) >= least:
            part /= 2
        if part <= _CONVERGED:
            break
        found = found + part * (step - found)
        before, least = least, error(found)
        if before - least <= _CONVERGED * before:
            break
    return found


def _nnls(matrix: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the non-negative least squares solution; columns are scaled to like size."""
    scale = matrix.max(axis=0)
    scale[scale == 0] = 1.0
    found, _ = nnls(matrix / scale, wanted)
    solution: NDArray[np.float64] = np.maximum(found, 0.0) / scale
    return solution


def _positive(terms: NDArray[np.float64], fitted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the columns of the terms fitted, as rows; zeros of the others."""
    rows: NDArray[np.float64] = np.where(fitted, terms, 0.0).T
    return rows
