"""Error of a way of fitting on what it has not seen: patterns or layouts left out in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata
from sklearn.model_selection import GroupKFold, LeaveOneGroupOut

from sds.errors import SdsValueError
from sds.log_errors import pair_rms
from sds.recommender.models.cost_model import CacheState, CostModel, HeldoutError, Via

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sds.recommender.models.feature_matrix import FeatureMatrix
    from sds.recommender.models.samples import Samples


class Fitter(ABC):
    """One way of getting from measured reads to a model.

    Subclasses say how a model is solved for, and fitted with all that is reported of it; what a
    fit errs by on reads that it has not seen is the same for all of them.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Equation, block gap and weighting, in words."""

    @abstractmethod
    def solve(
        self, features: FeatureMatrix, seconds: NDArray[np.float64]
    ) -> tuple[CostModel, NDArray[np.float64]]:
        """Return the fitted model without diagnostics, and its predictions before the floor."""

    @abstractmethod
    def fit(
        self,
        samples: Samples,
        *,
        via: Via = Via.HDF5,
        cache: CacheState = CacheState.UNKNOWN,
        features: FeatureMatrix | None = None,
    ) -> CostModel:
        """Return the fitted model with its diagnostics, without a held-out error."""

    def evaluate(
        self,
        samples: Samples,
        *,
        via: Via = Via.HDF5,
        cache: CacheState = CacheState.UNKNOWN,
        features: FeatureMatrix | None = None,
    ) -> CostModel:
        """Return the fitted model with its errors on patterns, and on layouts, left out.

        Errors as of `fit` and `cross_validate`. Without several layouts none is left out.
        """
        table = samples.feature_matrix() if features is None else features
        model = self.fit(samples, via=via, cache=cache, features=table)
        layouts = None
        if len(set(samples.layouts)) > 1:
            layouts = cross_validate(self, samples, by="layouts", features=table)
        patterns = cross_validate(self, samples, features=table)
        return replace(model, heldout=patterns, heldout_layouts=layouts)


def cross_validate(
    fitter: Fitter,
    samples: Samples,
    *,
    by: str = "patterns",
    features: FeatureMatrix | None = None,
    n_folds: int | None = None,
) -> HeldoutError:
    """Return the error on each pattern (or layout) by a fit to the others.

    Parameters
    ----------
    fitter
        How to fit.
    samples
        Measured reads.
    by
        What is left out together: ``patterns`` or ``layouts``.
    features
        Of the samples, where they are at hand.
    n_folds
        Into how many parts patterns are dealt, each left out whole; None: each pattern alone.

    Raises
    ------
    RankDeficientError, SdsValueError
        If a fit to the others is not possible; if there is nothing to leave out.
    """
    table = samples.feature_matrix() if features is None else features
    predicted = predict_heldout(fitter, samples, by=by, features=table, n_folds=n_folds)
    return heldout_error(
        predicted,
        np.array(samples.seconds, dtype=np.float64),
        n_groups=len(set(samples.groups(by))),
        patterns=paired_names(samples),
        left_out=by,
    )


def predict_heldout(
    fitter: Fitter,
    samples: Samples,
    *,
    by: str = "patterns",
    features: FeatureMatrix | None = None,
    n_folds: int | None = None,
) -> NDArray[np.float64]:
    """Return the time of each read, shape (n,), predicted by a fit that saw none of its group.

    Arguments and errors as `cross_validate`.
    """
    groups = samples.groups(by)
    n_groups = len(set(groups))
    if n_groups < 2:
        raise SdsValueError(
            f"the held-out error needs at least 2 {by}, not {n_groups}: measure reads of several "
            f"{'shapes' if by == 'patterns' else 'layouts'}"
        )
    table = samples.feature_matrix() if features is None else features
    seconds = np.array(samples.seconds, dtype=np.float64)
    predicted = np.empty_like(seconds)
    folds = LeaveOneGroupOut() if n_folds is None or n_folds >= n_groups else GroupKFold(n_folds)
    for rest, out in folds.split(seconds, groups=groups):
        model, _ = fitter.solve(table.take(rest), seconds[rest])
        predicted[out] = model.predict_many(table.take(out))
    return predicted


def heldout_error(
    predicted: NDArray[np.float64],
    measured: NDArray[np.float64],
    *,
    n_groups: int,
    patterns: Sequence[str] = (),
    left_out: str = "patterns",
) -> HeldoutError:
    """Return the error of predictions that did not see what they predict, shape (n,) each.

    patterns: name of each; those of one name were read from several layouts (`paired_names`).
    """
    log = np.log(predicted / measured)
    size = np.abs(log)
    ranks = rankdata(predicted), rankdata(measured)
    varies = np.ptp(ranks[0]) > 0 and np.ptp(ranks[1]) > 0
    spread = float(np.sum((measured - measured.mean()) ** 2))
    wrong = float(np.sum((measured - predicted) ** 2))
    return HeldoutError(
        median=float(np.median(size)),
        p95=float(np.percentile(size, 95.0)),
        rms=float(np.sqrt(np.mean(log**2))),
        rank_correlation=float(np.corrcoef(ranks)[0, 1]) if varies else 0.0,
        n_patterns=n_groups,
        r_squared=1.0 - wrong / spread if spread > 0 else None,
        ratio_rms=pair_rms(log, patterns) if patterns else None,
        left_out=left_out,
    )


def paired_names(samples: Samples) -> tuple[str, ...]:
    """Return a name per read that reads of one pattern by as many processes in all layouts share.

    Processes are known by their number per OST, in its order.
    """
    if not samples.layouts:
        return samples.patterns
    seen: dict[tuple[str, str], int] = {}
    names = [""] * len(samples)
    for i in sorted(range(len(samples)), key=lambda i: samples.p[i]):
        key = samples.patterns[i], samples.layouts[i]
        seen[key] = seen.get(key, -1) + 1
        names[i] = f"{samples.patterns[i]}, {seen[key]}"
    return tuple(names)
