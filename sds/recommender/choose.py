"""Chooses between models by their error on patterns that they have not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.fit import Fitter, design_matrix, heldout_error
from sds.recommender.model import (
    CacheState,
    CostModel,
    GapKind,
    ModelKind,
    Via,
    builtin_model,
)
from sds.recommender.samples import ModelChoice, Samples, Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def choose_model(
    samples: Samples,
    *,
    gaps: Sequence[GapKind] = tuple(GapKind),
    without_processes: bool = False,
    via: Via = Via.HDF5,
    cache: CacheState = CacheState.UNKNOWN,
) -> ModelChoice:
    """Return the model with the least held-out error, and all that were tried.

    Tried are the built-in model as it is, its terms fitted (``requests``), and Eq. 3, 4 and 6
    with each block gap, each by ordinary and by relative least squares. The error is the root
    mean square of log(predicted / measured), leaving out one pattern at a time.

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
    if not without_processes and len(set(samples.processes_per_ost)) < 2:
        raise RankDeficientError(
            "P did not vary (processes per OST: "
            f"{sorted(set(samples.processes_per_ost))}): measure with several process counts, "
            "or fit without P"
        )
    trials = [_builtin_trial(samples, via=via, cache=cache)]
    for kind in ModelKind:
        if kind is ModelKind.EQ4 and without_processes:
            continue  # It is Eq. 3 then.
        for gap in (GapKind.COUNT,) if kind is ModelKind.REQUESTS else gaps:
            matrix = design_matrix(samples, kind, gap)
            for relative in (False, True):
                fitter = Fitter(
                    kind=kind, gap=gap, relative=relative, without_processes=without_processes
                )
                trials.append(_trial(fitter, samples, matrix, via=via, cache=cache))
    ranked = sorted(trials, key=_preference)
    best = ranked[0].model
    if best is None or ranked[0].refused:
        raise SdsValueError(f"no model can be used: {ranked[0].refused}")
    # Also the built-in model, where it predicts best, is now one that was measured here.
    return ModelChoice(chosen=replace(best, calibrated=True), trials=tuple(ranked))


def _preference(trial: Trial) -> tuple[bool, bool, float]:
    """Return what trials are sorted by: usable ones first, by their error; unfitted ones last."""
    heldout = trial.heldout
    return bool(trial.refused), heldout is None, heldout.rms if heldout is not None else 0.0


def _trial(
    fitter: Fitter,
    samples: Samples,
    matrix: NDArray[np.float64],
    *,
    via: Via,
    cache: CacheState,
) -> Trial:
    """Return one way of fitting, tried."""
    try:
        model = fitter.fit(samples, via=via, cache=cache, matrix=matrix)
        model = replace(model, heldout=fitter.heldout(samples, matrix=matrix))
    except (RankDeficientError, SdsValueError) as error:
        return Trial(name=fitter.name, model=None, refused=str(error))
    falling = falling_terms(model, lowest_p=min(samples.processes_per_ost))
    refused = (
        f"by it reads take less time the greater {' and '.join(falling)} gets" if falling else ""
    )
    return Trial(name=fitter.name, model=model, refused=refused)


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


def _builtin_trial(samples: Samples, *, via: Via, cache: CacheState) -> Trial:
    """Return the built-in model with its error on all samples: it saw none of them."""
    model = builtin_model(via=via)
    predicted = np.array(
        [
            model.seconds(features, processes_per_ost=p)
            for features, p in zip(samples.features, samples.processes_per_ost, strict=True)
        ]
    )
    patterns = len(set(samples.patterns))
    if patterns < 2:
        raise SdsValueError(
            f"models are chosen by held-out patterns: measure at least 2, not {patterns}"
        )
    error = heldout_error(predicted, np.array(samples.seconds), n_patterns=patterns)
    return Trial(name="builtin", model=replace(model, cache=cache, heldout=error))
