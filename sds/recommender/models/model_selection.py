"""Chooses between models by their error on patterns that they have not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.models.cost_model import (
    CacheState,
    CostModel,
    GapKind,
    ModelKind,
    Via,
    builtin_model,
)
from sds.recommender.models.cross_validation import heldout_error, paired_names
from sds.recommender.models.regression import EquationFitter, LinearFitter
from sds.recommender.models.samples import BUILTIN, CandidateFit, ModelChoice, Samples
from sds.recommender.models.service_model import ServiceFitter
from sds.recommender.models.sieve_model import SieveFitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.recommender.models.feature_matrix import FeatureMatrix


# An error that is so much of another is a lesser one.
BETTER = 0.95


def choose_model(
    samples: Samples,
    *,
    gaps: Sequence[GapKind] = tuple(GapKind),
    without_processes: bool = False,
    via: Via = Via.HDF5,
    cache: CacheState = CacheState.UNKNOWN,
) -> ModelChoice:
    """Return the model with the least held-out error, and all that were tried.

    Tried are the built-in model as it is, its terms fitted (``requests``), Eq. 3, 4 and 6 with
    each block gap, each by ordinary and by relative least squares, the service model, and of
    single reads the sieve model. The error is the root mean square of
    log(predicted / measured), leaving out one pattern at a time; where reads were made from several
    layouts, the greater of that and of leaving out one layout at a time.

    Parameters
    ----------
    samples
        Measured reads.
    gaps
        Block gaps to try.
    without_processes
        Whether to leave out Eq. 4 and the terms of Eq. 6 in P: for reads all made with as many
        processes.

    Raises
    ------
    RankDeficientError
        If P is wanted and did not vary.
    SdsValueError
        If there are fewer than two patterns.

    Notes
    -----
    A model by which more work takes less time is tried and listed, but never chosen: see
    `falling_terms`.
    """
    n_patterns = len(set(samples.patterns))
    if n_patterns < 2:
        raise SdsValueError(
            f"models are chosen by held-out patterns: measure at least 2, not {n_patterns}"
        )
    if not without_processes and len(set(samples.p)) < 2:
        raise RankDeficientError(
            "P did not vary (processes per OST: "
            f"{sorted(set(samples.p))}): measure with several process counts, "
            "or fit without P"
        )
    features = samples.feature_matrix()
    if not np.ptp(features.columns, axis=1).any():
        raise RankDeficientError(
            f"all {len(samples)} reads touch the same, so that nothing tells what their time "
            "depends on: measure reads of several shapes and sizes"
        )
    fits = [_builtin_candidate(samples, features, via=via, cache=cache)]
    fits += [
        _candidate(fitter, samples, features, via=via, cache=cache)
        for fitter in fitters_for(samples, gaps=gaps, without_processes=without_processes)
    ]
    ranked = sorted(fits, key=_preference)
    best = ranked[0].model
    if best is None or ranked[0].refused:
        raise SdsValueError(f"no model can be used: {ranked[0].refused}")
    # Also the built-in model, where it predicts best, is now one that was measured here.
    return ModelChoice(chosen=replace(best, calibrated=True), trials=tuple(ranked))


def _preference(fit: CandidateFit) -> tuple[bool, bool, float]:
    """Return what fits are sorted by: usable ones first, by their error; unfitted ones last."""
    model = fit.model
    return bool(fit.refused), model is None, 0.0 if model is None else model.log_error


def fitters_for(
    samples: Samples,
    *,
    gaps: Sequence[GapKind] = tuple(GapKind),
    without_processes: bool = False,
) -> list[EquationFitter]:
    """Return every way of fitting that `choose_model` tries for some samples."""
    fitters = fitters_of(gaps=gaps, without_processes=without_processes)
    if not samples.operations:
        # Of whole operations it is not known what HDF5 asks for.
        fitters.append(SieveFitter(without_processes=without_processes))
    return fitters


def fitters_of(
    *, gaps: Sequence[GapKind] = tuple(GapKind), without_processes: bool = False
) -> list[EquationFitter]:
    """Return every way of fitting independent reads that is tried."""
    fitters: list[EquationFitter] = []
    for kind in (ModelKind.REQUESTS, ModelKind.EQ3, ModelKind.EQ4, ModelKind.EQ6):
        if kind is ModelKind.EQ4 and without_processes:
            continue  # It is Eq. 3 then.
        fitters += [
            LinearFitter(kind=kind, gap=gap, relative=relative, without_processes=without_processes)
            for gap in (gaps if kind.has_gap else (GapKind.COUNT,))
            for relative in (False, True)
        ]
    return [*fitters, ServiceFitter()]


def _candidate(
    fitter: EquationFitter,
    samples: Samples,
    features: FeatureMatrix,
    *,
    via: Via,
    cache: CacheState,
) -> CandidateFit:
    """Return one way of fitting, tried."""
    try:
        model = fitter.evaluate(samples, via=via, cache=cache, features=features)
    except (RankDeficientError, SdsValueError) as error:
        return CandidateFit(name=fitter.name, model=None, refused=str(error))
    falling = falling_terms(model, lowest_p=min(samples.p))
    refused = (
        f"by it reads take less time the greater {' and '.join(falling)} gets" if falling else ""
    )
    return CandidateFit(name=fitter.name, model=model, refused=refused)


def falling_terms(model: CostModel, *, lowest_p: float) -> tuple[str, ...]:
    """Return the features that a model lets shorten a read somewhere.

    Such a model may fit best where reads were measured and yet predict nothing for a dataset ten
    times as large. For Eq. 6 the slopes in BD and BG must not be negative for any BD and BG and
    any P from the lowest measured on.
    """
    c = model.coefficients
    if model.kind is ModelKind.EQ6:
        # Slope in BD: (c1 + c5 P) + (c4 + c7 P) BG; both ends of P decide, being linear in it.
        both = (c[4] + c[7] * lowest_p, c[7])
        slopes = {
            "BD": (c[1] + c[5] * lowest_p, c[5], *both),
            "BG": (c[2] + c[6] * lowest_p, c[6], *both),
        }
        return tuple(name for name, ends in slopes.items() if min(ends) < 0)
    return tuple(term for term, slope in zip(model.kind.terms[1:], c[1:], strict=True) if slope < 0)


def _builtin_candidate(
    samples: Samples, features: FeatureMatrix, *, via: Via, cache: CacheState
) -> CandidateFit:
    """Return the built-in model with its error on all samples: it saw none of them."""
    model = builtin_model(via=via)
    error = heldout_error(
        model.predict_many(features),
        np.array(samples.seconds),
        n_groups=len(set(samples.patterns)),
        patterns=paired_names(samples),
    )
    return CandidateFit(name=BUILTIN, model=replace(model, cache=cache, heldout=error))
