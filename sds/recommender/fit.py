"""Regression of measured reads on their features: Liu 2014, Eq. 3, 4 and 6, by least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata
from sklearn.model_selection import LeaveOneGroupOut
from statsmodels.regression.linear_model import OLS, WLS

from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.model import (
    CacheState,
    CostModel,
    FitDiagnostics,
    GapKind,
    HeldoutError,
    ModelKind,
    Via,
    predict_terms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from statsmodels.regression.linear_model import RegressionResults

    from sds.recommender.samples import Samples

# Part of a column that the columns before it do not explain; less is rounding.
_INDEPENDENT = 1e-8


def design_matrix(samples: Samples, kind: ModelKind, gap: GapKind) -> NDArray[np.float64]:
    """Return the terms of an equation per sample, shape (n, n_terms), intercept first.

    Each is what the native core predicts with that coefficient 1 and the others 0.
    """
    n_terms = len(kind.terms)
    units = [tuple(float(i == j) for j in range(n_terms)) for i in range(n_terms)]
    return np.array(
        [
            [
                predict_terms(
                    kind,
                    gap,
                    coefficients=unit,
                    floor_s=0.0,
                    features=features,
                    processes_per_ost=p,
                )
                for unit in units
            ]
            for features, p in zip(samples.features, samples.processes_per_ost, strict=True)
        ],
        dtype=np.float64,
    ).reshape(len(samples), n_terms)


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
        if self.kind is not ModelKind.REQUESTS:
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
        matrix: NDArray[np.float64] | None = None,
    ) -> CostModel:
        """Return the fitted model, without a held-out error.

        Raises
        ------
        RankDeficientError
            If columns do not vary, or follow from others. They are named.
        SdsValueError
            If there are fewer samples than terms and two more.
        """
        terms = [self.kind.terms[i] for i in self.kept]
        full = design_matrix(samples, self.kind, self.gap) if matrix is None else matrix
        seconds = np.array(samples.seconds, dtype=np.float64)
        results, scale = self._regress(full, seconds)
        raw = np.zeros(len(self.kind.terms))
        raw[self.kept] = np.asarray(results.params) / scale
        # A perfect fit has no error to divide by: its p-values are 0 or undefined.
        with np.errstate(divide="ignore", invalid="ignore"):
            interval = np.asarray(results.conf_int(alpha=0.05)) / scale[:, np.newaxis]
            p_values = np.asarray(results.pvalues)
            diagnostics = FitDiagnostics(
                n=len(samples),
                weighting="relative" if self.relative else "none",
                terms=tuple(terms),
                r_squared=_defined(results.rsquared),
                r_squared_adjusted=_defined(results.rsquared_adj),
                p_values=tuple(map(_defined, p_values)),
                confidence_low=tuple(map(_defined, interval[:, 0])),
                confidence_high=tuple(map(_defined, interval[:, 1])),
                residuals_s=tuple((seconds - full @ raw).tolist()),
            )
        return CostModel(
            kind=self.kind,
            gap=self.gap,
            coefficients=tuple(raw.tolist()),
            floor_s=float(seconds.min()),
            calibrated=True,
            via=via,
            cache=cache,
            dropped_terms=tuple(t for t in self.kind.terms if t not in terms),
            diagnostics=diagnostics,
        )

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

    def heldout(
        self, samples: Samples, *, matrix: NDArray[np.float64] | None = None
    ) -> HeldoutError:
        """Return the error on each pattern by a fit to the others.

        Raises
        ------
        RankDeficientError, SdsValueError
            If a fit to the others is not possible, see `fit`; if there is one pattern only.
        """
        full = design_matrix(samples, self.kind, self.gap) if matrix is None else matrix
        seconds = np.array(samples.seconds, dtype=np.float64)
        n_patterns = len(set(samples.patterns))
        if n_patterns < 2:
            raise SdsValueError(
                f"the held-out error needs at least 2 patterns, not {n_patterns}: "
                "measure reads of several shapes"
            )
        predicted = np.empty_like(seconds)
        for rest, out in LeaveOneGroupOut().split(full, groups=samples.patterns):
            results, scale = self._regress(full[rest], seconds[rest])
            raw = np.asarray(results.params) / scale
            predicted[out] = np.maximum(full[out][:, self.kept] @ raw, seconds[rest].min())
        return heldout_error(predicted, seconds, n_patterns=n_patterns)


def _defined(value: float) -> float | None:
    """Return a statistic, or None where a perfect or constant fit leaves it undefined."""
    return float(value) if math.isfinite(value) else None


def heldout_error(
    predicted: NDArray[np.float64], measured: NDArray[np.float64], *, n_patterns: int
) -> HeldoutError:
    """Return the error of predictions that did not see what they predict, shape (n,) each."""
    log = np.abs(np.log(predicted / measured))
    ranks = rankdata(predicted), rankdata(measured)
    varies = np.ptp(ranks[0]) > 0 and np.ptp(ranks[1]) > 0
    return HeldoutError(
        median=float(np.median(log)),
        p95=float(np.percentile(log, 95.0)),
        rms=float(np.sqrt(np.mean(log**2))),
        rank_correlation=float(np.corrcoef(ranks)[0, 1]) if varies else 0.0,
        n_patterns=n_patterns,
    )


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
    """Return a fitted model with its held-out error; without one where a fold cannot be fitted."""
    matrix = design_matrix(samples, fitter.kind, fitter.gap)
    model = fitter.fit(samples, via=via, cache=cache, matrix=matrix)
    if len(set(samples.patterns)) < 2:
        return model
    return replace(model, heldout=fitter.heldout(samples, matrix=matrix))
