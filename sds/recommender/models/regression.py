"""Regression of measured reads on their features: Liu 2014, Eq. 3, 4 and 6, by least squares."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from statsmodels.regression.linear_model import OLS, WLS

from sds import _native
from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.models.cost_model import (
    CacheState,
    CostModel,
    FitDiagnostics,
    GapKind,
    ModelKind,
    Via,
)
from sds.recommender.models.cross_validation import Fitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from statsmodels.regression.linear_model import RegressionResults

    from sds.recommender.models.feature_matrix import FeatureMatrix
    from sds.recommender.models.samples import Samples

# Part of a column that the columns before it do not explain; less is rounding.
_INDEPENDENT = 1e-8


def design_matrix(features: FeatureMatrix, kind: ModelKind, gap: GapKind) -> NDArray[np.float64]:
    """Return the terms of an equation per operation, shape (n, n_terms), intercept first."""
    return _native.terms(kind.code, gap.code, features.columns)


def dependent_columns(matrix: NDArray[np.float64], names: Sequence[str]) -> list[str]:
    """Return the columns, but the first (ones), that those before them determine."""
    columns = matrix[:, 1:] - matrix[:, 1:].mean(axis=0)
    scale = np.abs(matrix[:, 1:]).max(axis=0, initial=0.0)
    dependent = []
    basis = np.zeros((len(matrix), 0))
    # Of columns whose greatest entry is 1.
    rounding = 64.0 * float(np.finfo(np.float64).eps) * math.sqrt(len(matrix))
    for j, name in enumerate(names[1:]):
        column = columns[:, j] / scale[j] if scale[j] > 0 else columns[:, j]
        before = float(np.linalg.norm(column))
        # Twice is enough: the second pass removes what rounding left of the first.
        for _ in range(2):
            column = column - basis @ (basis.T @ column)
        rest = float(np.linalg.norm(column))
        if rest <= _INDEPENDENT * before + rounding:
            dependent.append(name)
        else:
            basis = np.column_stack((basis, column / rest))
    return dependent


@dataclass(frozen=True, kw_only=True)
class EquationFitter(Fitter):
    """One way of fitting an equation.

    Attributes
    ----------
    kind, gap
        The equation, and which block gap stands for BG in it.
    without_processes
        Whether to leave out P and its products, which needs saying where all reads were made
        with as many processes per OST.
    """

    kind: ModelKind
    gap: GapKind = GapKind.DISTANCE
    without_processes: bool = False

    @property
    def name(self) -> str:
        """Name, e.g. ``eq4, block gap distance, relative``."""
        parts = [str(self.kind)]
        if self.kind.has_gap:
            parts.append(f"block gap {self.gap}")
        if self.weighting == "relative":
            parts.append(self.weighting)
        if self.without_processes and self.kind.needs_processes:
            parts.append("without P")
        return ", ".join(parts)

    @property
    @abstractmethod
    def weighting(self) -> str:
        """Weighting of the reads, as in `FitDiagnostics`."""

    @property
    def fitted_terms(self) -> list[int]:
        """Indices of the terms that are fitted."""
        terms = self.kind.terms
        drop = self.without_processes
        return [i for i, term in enumerate(terms) if not (drop and "P" in term.split("*"))]

    def check_number(self, n: int) -> None:
        """Raise SdsValueError unless there are two reads more than terms."""
        if n < len(self.fitted_terms) + 2:
            raise SdsValueError(
                f"{n} reads are too few to fit the {len(self.fitted_terms)} terms of {self.name}: "
                f"measure at least {len(self.fitted_terms) + 2}"
            )

    @abstractmethod
    def diagnose(
        self, model: CostModel, features: FeatureMatrix, seconds: NDArray[np.float64]
    ) -> FitDiagnostics:
        """Return how well a solution fits the reads that it was fitted to."""

    def fit(
        self,
        samples: Samples,
        *,
        via: Via = Via.HDF5,
        cache: CacheState = CacheState.UNKNOWN,
        features: FeatureMatrix | None = None,
    ) -> CostModel:
        """Return the fitted model with its diagnostics, without a held-out error.

        Errors as of `solve`.
        """
        table = samples.feature_matrix() if features is None else features
        seconds = np.array(samples.seconds, dtype=np.float64)
        model, _ = self.solve(table, seconds)
        diagnostics = self.diagnose(model, table, seconds)
        return replace(model, via=via, cache=cache, diagnostics=diagnostics)


@dataclass(frozen=True, kw_only=True)
class LinearFitter(EquationFitter):
    """Least squares of seconds: Eq. 3, 4 and 6, and requests and bytes.

    Attributes
    ----------
    relative
        Whether to weigh each read by 1 / seconds**2, so that relative errors count: seconds
        range over six decades, and unweighted the slowest few decide. The paper does not.
    """

    relative: bool = False

    @property
    def weighting(self) -> str:
        """``relative`` or ``none``."""
        return "relative" if self.relative else "none"

    def solve(
        self, features: FeatureMatrix, seconds: NDArray[np.float64]
    ) -> tuple[CostModel, NDArray[np.float64]]:
        """Return the fitted model without diagnostics, and its predictions before the floor.

        Raises
        ------
        RankDeficientError
            If columns do not vary, or follow from others. They are named.
        SdsValueError
            If there are fewer samples than terms and two more.
        """
        terms = design_matrix(features, self.kind, self.gap)
        results, scale = self._regress(terms, seconds)
        raw = np.zeros(len(self.kind.terms))
        raw[self.fitted_terms] = np.asarray(results.params) / scale
        model = CostModel(
            kind=self.kind,
            gap=self.gap,
            coefficients=tuple(raw.tolist()),
            floor_s=float(seconds.min()),
            calibrated=True,
            dropped_terms=tuple(
                t for i, t in enumerate(self.kind.terms) if i not in self.fitted_terms
            ),
        )
        return model, terms @ raw

    def diagnose(
        self, model: CostModel, features: FeatureMatrix, seconds: NDArray[np.float64]
    ) -> FitDiagnostics:
        """Return what statsmodels says of the regression."""
        terms = design_matrix(features, self.kind, self.gap)
        results, scale = self._regress(terms, seconds)
        return diagnostics_of(
            results,
            scale,
            terms=[self.kind.terms[i] for i in self.fitted_terms],
            weighting=self.weighting,
            residuals_s=seconds - terms @ np.array(model.coefficients),
        )

    def _regress(
        self, terms: NDArray[np.float64], seconds: NDArray[np.float64]
    ) -> tuple[RegressionResults, NDArray[np.float64]]:
        """Return statsmodels' results for columns divided by the scale, and the scale."""
        self.check_number(len(seconds))
        matrix = terms[:, self.fitted_terms]
        dependent = dependent_columns(matrix, [self.kind.terms[i] for i in self.fitted_terms])
        if dependent:
            hint = (
                "measure with several process counts, or fit without P"
                if any("P" in name.split("*") for name in dependent)
                else "measure reads that differ in them"
            )
            raise RankDeficientError(
                f"{self.name} cannot be fitted: {', '.join(dependent)} did not vary "
                f"independently of the other columns; {hint}"
            )
        # BG reaches 1e9 and BD*BG*P more: columns of like size keep the solution accurate.
        scale = np.abs(matrix).max(axis=0)
        scaled = matrix / scale
        model = WLS(seconds, scaled, weights=seconds**-2) if self.relative else OLS(seconds, scaled)
        return model.fit(method="qr"), scale


def diagnostics_of(
    results: RegressionResults,
    scale: NDArray[np.float64],
    *,
    terms: Sequence[str],
    weighting: str,
    residuals_s: NDArray[np.float64],
) -> FitDiagnostics:
    """Return what statsmodels says of a fit to columns that were divided by a scale."""
    # A perfect fit has no error to divide by: its p-values are 0 or undefined.
    with np.errstate(divide="ignore", invalid="ignore"):
        interval = np.asarray(results.conf_int(alpha=0.05)) / scale[:, np.newaxis]
        p_values = np.asarray(results.pvalues)
        return FitDiagnostics(
            n=int(results.nobs),
            weighting=weighting,
            terms=tuple(terms),
            r_squared=_defined(results.rsquared),
            r_squared_adjusted=_defined(results.rsquared_adj),
            p_values=tuple(map(_defined, p_values)),
            confidence_low=tuple(map(_defined, interval[:, 0])),
            confidence_high=tuple(map(_defined, interval[:, 1])),
            residuals_s=tuple(residuals_s.tolist()),
        )


def _defined(value: float) -> float | None:
    """Return a statistic, or None where a perfect or constant fit leaves it undefined."""
    return float(value) if math.isfinite(value) else None
