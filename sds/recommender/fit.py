"""Regression of measured reads on their features: Liu 2014, Eq. 3, 4 and 6, by least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from statsmodels.regression.linear_model import OLS, WLS

from sds import _native
from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.heldout import cross_validate
from sds.recommender.model import (
    CacheState,
    CostModel,
    FitDiagnostics,
    GapKind,
    HeldoutError,
    ModelKind,
    Via,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from statsmodels.regression.linear_model import RegressionResults

    from sds.recommender.measures import MeasureTable
    from sds.recommender.samples import Samples

# Part of a column that the columns before it do not explain; less is rounding.
_INDEPENDENT = 1e-8


def design_matrix(measures: MeasureTable, kind: ModelKind, gap: GapKind) -> NDArray[np.float64]:
    """Return the terms of an equation per operation, shape (n, n_terms), intercept first."""
    return _native.terms(kind.code, gap.code, measures.columns)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitter:
    """One way of fitting: an equation, a block gap, a weighting.

    Attributes
    ----------
    kind, gap
        The equation, and which block gap stands for BG in it.
    relative
        Whether to weigh each read by 1 / seconds**2, so that relative errors count: seconds
        range over six decades, and unweighted the slowest few decide. The paper does not.
    without_processes
        Whether to leave out P and its products, which needs saying where all reads were made
        with as many processes per OST.
    """

    kind: ModelKind
    gap: GapKind = GapKind.DISTANCE
    relative: bool = False
    without_processes: bool = False

    @property
    def name(self) -> str:
        """E.g. ``eq4, block gap distance, relative``."""
        parts = [str(self.kind)]
        if self.kind.has_gap:
            parts.append(f"block gap {self.gap}")
        if self.relative:
            parts.append("relative")
        if self.without_processes and self.kind.needs_processes:
            parts.append("without P")
        return ", ".join(parts)

    @property
    def kept(self) -> list[int]:
        """Indices of the terms that are fitted."""
        terms = self.kind.terms
        drop = self.without_processes
        return [i for i, term in enumerate(terms) if not (drop and "P" in term.split("*"))]

    def fit(
        self,
        samples: Samples,
        *,
        via: Via = Via.HDF5,
        cache: CacheState = CacheState.UNKNOWN,
        measures: MeasureTable | None = None,
    ) -> CostModel:
        """Return the fitted model, without a held-out error.

        Raises
        ------
        RankDeficientError
            If columns do not vary, or follow from others. They are named.
        SdsValueError
            If there are fewer samples than terms and two more.
        """
        table = samples.measures() if measures is None else measures
        seconds = np.array(samples.seconds, dtype=np.float64)
        results, scale = self._regress(design_matrix(table, self.kind, self.gap), seconds)
        model, fitted = self._model(results, scale, table, seconds)
        terms = [self.kind.terms[i] for i in self.kept]
        return replace(
            model,
            via=via,
            cache=cache,
            diagnostics=diagnostics_of(
                results,
                scale,
                terms=terms,
                weighting="relative" if self.relative else "none",
                residuals_s=seconds - fitted,
            ),
        )

    def solve(
        self, measures: MeasureTable, seconds: NDArray[np.float64]
    ) -> tuple[CostModel, NDArray[np.float64]]:
        """Return the fitted model without diagnostics, and its predictions before the floor."""
        results, scale = self._regress(design_matrix(measures, self.kind, self.gap), seconds)
        return self._model(results, scale, measures, seconds)

    def _model(
        self,
        results: RegressionResults,
        scale: NDArray[np.float64],
        measures: MeasureTable,
        seconds: NDArray[np.float64],
    ) -> tuple[CostModel, NDArray[np.float64]]:
        raw = np.zeros(len(self.kind.terms))
        raw[self.kept] = np.asarray(results.params) / scale
        model = CostModel(
            kind=self.kind,
            gap=self.gap,
            coefficients=tuple(raw.tolist()),
            floor_s=float(seconds.min()),
            calibrated=True,
            dropped_terms=tuple(t for i, t in enumerate(self.kind.terms) if i not in self.kept),
        )
        return model, design_matrix(measures, self.kind, self.gap) @ raw

    def _regress(
        self, full: NDArray[np.float64], seconds: NDArray[np.float64]
    ) -> tuple[RegressionResults, NDArray[np.float64]]:
        """Return statsmodels' results for columns divided by the scale, and the scale."""
        kept = self.kept
        names = [self.kind.terms[i] for i in kept]
        matrix = full[:, kept]
        if len(seconds) < len(kept) + 2:
            raise SdsValueError(
                f"{len(seconds)} reads are too few to fit the {len(kept)} terms of {self.name}: "
                f"measure at least {len(kept) + 2}"
            )
        dependent = dependent_columns(matrix, names)
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

    def heldout(self, samples: Samples, *, by: str = "patterns") -> HeldoutError:
        """Return the error on each pattern (or layout) by a fit to the others."""
        return cross_validate(self, samples, by=by)


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


def log_diagnostics_of(
    slopes: NDArray[np.float64],
    coefficients: NDArray[np.float64],
    *,
    terms: Sequence[str],
    fitted: NDArray[np.float64],
    seconds: NDArray[np.float64],
) -> FitDiagnostics:
    """Return what statsmodels says of a fit to log seconds: of the regression on its derivatives.

    R^2 is that of log seconds.

    Parameters
    ----------
    slopes
        Derivatives of the fitted seconds by the coefficients that are not 0, shape (n, k).
    coefficients, terms
        These, and what they are called; k of each.
    fitted, seconds
        Shape (n,).
    """
    relative = slopes / fitted[:, np.newaxis]
    rest = np.log(seconds / fitted)
    scale = np.abs(relative).max(axis=0)
    results = OLS(relative @ coefficients + rest, relative / scale).fit(method="qr")
    diagnostics = diagnostics_of(
        results, scale, terms=terms, weighting="log", residuals_s=seconds - fitted
    )
    log = np.log(seconds)
    spread = float(np.sum((log - log.mean()) ** 2))
    if spread == 0.0:
        return replace(diagnostics, r_squared=None, r_squared_adjusted=None)
    unexplained = float(np.sum(rest**2)) / spread
    free = max(1, len(seconds) - len(coefficients))
    return replace(
        diagnostics,
        r_squared=1.0 - unexplained,
        r_squared_adjusted=1.0 - unexplained * (len(seconds) - 1) / free,
    )


def _defined(value: float) -> float | None:
    """Return a statistic, or None where a perfect or constant fit leaves it undefined."""
    return float(value) if math.isfinite(value) else None


def fit_additive(
    samples: Samples,
    *,
    gap: GapKind,
    without_processes: bool = False,
    via: Via = Via.HDF5,
    cache: CacheState = CacheState.UNKNOWN,
) -> CostModel:
    """Return Liu 2014, Eq. 4, fitted; Eq. 3 where asked to leave out P.

    Raises
    ------
    RankDeficientError
        If columns do not vary independently; they are named.
    """
    kind = ModelKind.EQ3 if without_processes else ModelKind.EQ4
    return _fit_with_heldout(Fitter(kind=kind, gap=gap), samples, via=via, cache=cache)


def fit_multiplicative(
    samples: Samples,
    *,
    gap: GapKind,
    without_processes: bool = False,
    via: Via = Via.HDF5,
    cache: CacheState = CacheState.UNKNOWN,
) -> CostModel:
    """Return Liu 2014, Eq. 6, fitted: all products of BD, BG and P; of BD and BG where asked.

    Raises
    ------
    RankDeficientError
        If columns do not vary independently; they are named.
    """
    fitter = Fitter(kind=ModelKind.EQ6, gap=gap, without_processes=without_processes)
    return _fit_with_heldout(fitter, samples, via=via, cache=cache)


def _fit_with_heldout(
    fitter: Fitter, samples: Samples, *, via: Via, cache: CacheState
) -> CostModel:
    """Return a fitted model with its held-out error; without one where there is one pattern."""
    model = fitter.fit(samples, via=via, cache=cache)
    if len(set(samples.patterns)) < 2:
        return model
    return replace(model, heldout=fitter.heldout(samples))
