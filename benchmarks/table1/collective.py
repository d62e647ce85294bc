"""EquationFitter Liu 2014, Eq. 5: collective I/O as a phase of I/O and a phase of the shuffle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np
from sklearn.model_selection import GroupKFold
from statsmodels.regression.linear_model import WLS

from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.models.cost_model import (
    CacheState,
    CostModel,
    FitDiagnostics,
    GapKind,
    HeldoutError,
    ModelKind,
    Via,
)
from sds.recommender.models.cross_validation import heldout_error
from sds.recommender.models.regression import dependent_columns, design_matrix, diagnostics_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sds.recommender.models.feature_matrix import FeatureMatrix
    from sds.recommender.models.samples import Samples

# Terms of the I/O phase (F1) and of the shuffle (F2) in ModelKind.EQ5.
_IO, _SHUFFLE = slice(0, 4), slice(4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFit:
    """Eq. 5, fitted: F = F1 + F2.

    Attributes
    ----------
    model
        Predicts the whole time.
    io, shuffle
        The fits of the two phases.
    """

    model: CostModel
    io: FitDiagnostics
    shuffle: FitDiagnostics

    def phases(self, features: FeatureMatrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the predicted times of I/O and of the shuffle, shape (n,) each."""
        matrix = design_matrix(features, ModelKind.EQ5, self.model.gap)
        c = np.array(self.model.coefficients)
        return matrix[:, _IO] @ c[_IO], matrix[:, _SHUFFLE] @ c[_SHUFFLE]


def fit_collective(
    samples: Samples,
    *,
    io_s: Sequence[float],
    shuffle_s: Sequence[float],
    gap: GapKind = GapKind.DISTANCE,
    leave_out: Sequence[str] = (),
    relative: bool = False,
) -> CollectiveFit:
    """Return Eq. 5 fitted to the times of the phases.

    Parameters
    ----------
    samples
        Collective operations; their seconds are of both phases.
    io_s, shuffle_s
        Seconds of each phase, one per sample.
    gap
        Which block gap stands for BG.
    leave_out
        Terms not to fit, e.g. ``Nagg`` where all operations had as many aggregators: what does
        not vary is refused otherwise.
    relative
        Whether to weigh by 1 / seconds**2 of each phase, which must then be positive.

    Raises
    ------
    RankDeficientError
        If a term does not vary independently; it is named.
    SdsValueError
        If numbers differ, a time is no number, or the samples are too few.
    """
    terms = ModelKind.EQ5.terms
    unknown = [name for name in leave_out if name not in terms[1:4] + terms[5:]]
    if unknown:
        raise SdsValueError(
            f"{', '.join(unknown)}: not a term that can be left out; there are "
            f"{', '.join(terms[1:4] + terms[5:])}"
        )
    if not len(io_s) == len(shuffle_s) == len(samples):
        raise SdsValueError(
            f"{len(io_s)} times of I/O and {len(shuffle_s)} of shuffles for {len(samples)} "
            "samples: give one each"
        )
    features = samples.feature_matrix()
    matrix = design_matrix(features, ModelKind.EQ5, gap)
    coefficients = np.zeros(len(terms))
    fits = []
    for what, phase, times in (("I/O", _IO, io_s), ("shuffle", _SHUFFLE, shuffle_s)):
        seconds = np.array(times, dtype=np.float64)
        for i, value in enumerate(times):
            if not (math.isfinite(value) and (value > 0.0 or (value == 0.0 and not relative))):
                raise SdsValueError(
                    f"the {what} phase of sample {i} ({samples.patterns[i]}) took {value} s: "
                    "leave out operations whose times are not numbers of seconds"
                )
        kept = [i for i in range(8)[phase] if terms[i] not in leave_out]
        coefficients[kept], diagnostics = _fit_phase(
            matrix[:, kept], seconds, [terms[i] for i in kept], what, relative=relative
        )
        fits.append(diagnostics)
    model = CostModel(
        kind=ModelKind.EQ5,
        gap=gap,
        coefficients=tuple(coefficients.tolist()),
        floor_s=float(min(samples.seconds)),
        calibrated=True,
        via=Via.HDF5,
        cache=CacheState.COLD,
        dropped_terms=tuple(t for t in terms if t in leave_out),
        diagnostics=None,
    )
    return CollectiveFit(model=model, io=fits[0], shuffle=fits[1])


class FitChoices(TypedDict, total=False):
    """What of `fit_collective` may be chosen besides its samples and their times."""

    gap: GapKind
    leave_out: Sequence[str]
    relative: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveError:
    """Errors of Eq. 5 on patterns that it was not fitted to.

    Attributes
    ----------
    io, shuffle, whole
        Of each phase, and of both together.
    n_floored
        Predictions of a phase that were not above 0, and counted as the least time of that phase.
    """

    io: HeldoutError
    shuffle: HeldoutError
    whole: HeldoutError
    n_floored: int


def cross_validate_collective(
    samples: Samples,
    *,
    io_s: Sequence[float],
    shuffle_s: Sequence[float],
    n_folds: int = 10,
    **chosen: Unpack[FitChoices],
) -> CollectiveError:
    """Return the error of each phase on patterns left out, by fits to the others.

    Parameters and errors as `fit_collective`; times of both phases positive. n_folds: into how many
    parts patterns are dealt, each left out whole.
    """
    times = np.array([io_s, shuffle_s], dtype=np.float64)
    if times.shape != (2, len(samples)) or not (np.isfinite(times).all() and (times > 0.0).all()):
        raise SdsValueError(
            "errors are of logarithms: give a positive number of seconds for each phase of each "
            "sample"
        )
    n_patterns = len(set(samples.patterns))
    if n_patterns < 2:
        raise SdsValueError(
            f"the held-out error needs at least 2 patterns, not {n_patterns}: measure reads of "
            "several shapes"
        )
    features = samples.feature_matrix()
    predicted = np.empty_like(times)
    n_floored = 0
    for rest, out in GroupKFold(min(n_folds, n_patterns)).split(times[0], groups=samples.patterns):
        fit = fit_collective(
            samples.take(rest.tolist()),
            io_s=times[0, rest].tolist(),
            shuffle_s=times[1, rest].tolist(),
            **chosen,
        )
        least = times[:, rest].min(axis=1, keepdims=True)
        phases = np.array(fit.phases(features.take(out)))
        n_floored += int((phases <= 0.0).sum())
        predicted[:, out] = np.where(phases > 0.0, phases, least)
    errors = [
        heldout_error(p, t, n_groups=n_patterns, patterns=samples.patterns)
        for p, t in (
            (predicted[0], times[0]),
            (predicted[1], times[1]),
            (predicted.sum(axis=0), times.sum(axis=0)),
        )
    ]
    return CollectiveError(io=errors[0], shuffle=errors[1], whole=errors[2], n_floored=n_floored)


def _fit_phase(
    matrix: NDArray[np.float64],
    seconds: NDArray[np.float64],
    names: list[str],
    what: str,
    *,
    relative: bool,
) -> tuple[NDArray[np.float64], FitDiagnostics]:
    """Return coefficients of one phase by least squares, and how well they fit."""
    if len(seconds) < len(names) + 2:
        raise SdsValueError(
            f"{len(seconds)} operations are too few to fit the {len(names)} terms of the {what} "
            f"phase: measure at least {len(names) + 2}"
        )
    dependent = dependent_columns(matrix, names)
    if dependent:
        raise RankDeficientError(
            f"the {what} phase of eq5 cannot be fitted: {', '.join(dependent)} did not vary "
            "independently of the other columns; measure operations that differ in them, or "
            f"leave them out (leave_out={dependent})"
        )
    scale = np.abs(matrix).max(axis=0)
    weights = 1.0 / seconds**2 if relative else np.ones_like(seconds)
    results = WLS(seconds, matrix / scale, weights=weights).fit(method="qr")
    raw = np.asarray(results.params) / scale
    weighting = "relative" if relative else "none"
    return raw, diagnostics_of(
        results, scale, terms=names, weighting=weighting, residuals_s=seconds - matrix @ raw
    )
