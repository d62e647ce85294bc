"""Fits the sieve model: what reads through HDF5 cost by the requests that HDF5 really makes.

HDF5 reads a contiguous dataset through a buffer of 64 KiB: a plane of rows 4 KiB apart is one
sequential scan, however many runs it is made of, and a request per run would overrate it tenfold
(native/include/sds/cost.h, SDS_MODEL_SIEVE). Fitted is the logarithm of the time, with
coefficients that are not negative, so that more work never takes less time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import nnls

from sds.errors import SdsValueError
from sds.recommender.fit import design_matrix, log_diagnostics_of
from sds.recommender.model import CacheState, CostModel, GapKind, ModelKind, Via

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.recommender.measures import MeasureTable
    from sds.recommender.samples import Samples

_ITERATIONS = 50
_CONVERGED = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class SieveFitter:
    """The one way of fitting the sieve model.

    Attributes
    ----------
    without_processes
        Whether to leave out the products with P.
    """

    without_processes: bool = False
    kind: ModelKind = ModelKind.SIEVE
    gap: GapKind = GapKind.COUNT

    @property
    def name(self) -> str:
        """``sieve``."""
        return f"{self.kind}, without P" if self.without_processes else str(self.kind)

    @property
    def _kept(self) -> NDArray[np.bool_]:
        return np.array(
            [not (self.without_processes and "P" in t.split("*")) for t in self.kind.terms]
        )

    def solve(
        self, measures: MeasureTable, seconds: NDArray[np.float64]
    ) -> tuple[CostModel, NDArray[np.float64]]:
        """Return the fitted model without diagnostics, and its predictions."""
        matrix = design_matrix(measures, self.kind, self.gap)
        kept = self._kept & (matrix.max(axis=0) > 0)
        if len(seconds) < kept.sum() + 2:
            raise SdsValueError(
                f"{len(seconds)} reads are too few to fit the {kept.sum()} terms of {self.name}: "
                f"measure at least {kept.sum() + 2}"
            )
        coefficients = np.zeros(matrix.shape[1])
        coefficients[kept] = positive_log_fit(matrix[:, kept], seconds)
        model = CostModel(
            kind=self.kind,
            gap=self.gap,
            coefficients=tuple(coefficients.tolist()),
            floor_s=float(seconds.min()),
            calibrated=True,
            dropped_terms=tuple(t for t, k in zip(self.kind.terms, kept, strict=True) if not k),
        )
        return model, matrix @ coefficients

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
        p-values and intervals are those of the regression on the terms that are not 0, weighted by
        the predictions: what least squares of log seconds amounts to at the solution.

        Raises
        ------
        SdsValueError
            If there are fewer samples than terms and two more.
        """
        table = samples.measures() if measures is None else measures
        seconds = np.array(samples.seconds, dtype=np.float64)
        model, fitted = self.solve(table, seconds)
        coefficients = np.array(model.coefficients)
        used = coefficients > 0
        diagnostics = log_diagnostics_of(
            design_matrix(table, self.kind, self.gap)[:, used],
            coefficients[used],
            terms=[t for t, u in zip(self.kind.terms, used, strict=True) if u],
            fitted=fitted,
            seconds=seconds,
        )
        return replace(model, via=via, cache=cache, diagnostics=diagnostics)


def positive_log_fit(
    matrix: NDArray[np.float64], seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return coefficients, none negative, whose predictions are closest to log seconds.

    1. Least squares of the relative error, which counts reads predicted too fast too little.
    2. From there Gauss and Newton's method for the logarithm, each step a non-negative least
       squares problem, halved until it is no worse.

    Parameters
    ----------
    matrix
        Terms per read, shape (n, k), none negative; the first column positive.
    seconds
        Shape (n,), positive.
    """
    scale = matrix.max(axis=0)
    scaled = matrix / scale
    found, _ = nnls(scaled / seconds[:, np.newaxis], np.ones_like(seconds))
    found = np.maximum(found, 0.0)
    if not (scaled @ found > 0).all():
        found[0] = max(found[0], float(seconds.min()) / float(scaled[:, 0].min()))

    def error(coefficients: NDArray[np.float64]) -> float:
        predicted = scaled @ coefficients
        if not (predicted > 0).all():
            return np.inf
        return float(np.sum(np.log(predicted / seconds) ** 2))

    least = error(found)
    for _ in range(_ITERATIONS):
        predicted = scaled @ found
        wanted = 1.0 + np.log(seconds / predicted)
        step, _ = nnls(scaled / predicted[:, np.newaxis], np.clip(wanted, 0.0, None))
        part = 1.0
        while part > _CONVERGED and error(found + part * (step - found)) >= least:
            part /= 2
        if part <= _CONVERGED:
            break
        found = found + part * (step - found)
        before, least = least, error(found)
        if before - least <= _CONVERGED * before:
            break
    coefficients: NDArray[np.float64] = found / scale
    return coefficients
