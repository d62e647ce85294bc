"""Chooses between models by their error on patterns that they have not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.fit import Fitter
from sds.recommender.heldout import Fits, cross_validate, heldout_error, paired_names
from sds.recommender.learning import LearnedFitter
from sds.recommender.model import (
    CacheState,
    CostModel,
    GapKind,
    ModelKind,
    Via,
    builtin_model,
)
from sds.recommender.samples import Lesson, ModelChoice, Samples, Trial
from sds.recommender.service import ServiceFitter
from sds.recommender.sieve import SieveFitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.recommender.learned import LearnedModel
    from sds.recommender.measures import MeasureTable


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
    measures = samples.measures()
    if not np.ptp(measures.columns, axis=1).any():
        raise RankDeficientError(
            f"all {len(samples)} reads touch the same, so that nothing tells what their time "
            "depends on: measure reads of several shapes and sizes"
        )
    trials = [_builtin_trial(samples, measures, via=via, cache=cache)]
    trials += [
        _trial(fitter, samples, measures, via=via, cache=cache)
        for fitter in fitters_for(samples, gaps=gaps, without_processes=without_processes)
    ]
    ranked = sorted(trials, key=_preference)
    best = ranked[0].model
    if best is None or ranked[0].refused:
        raise SdsValueError(f"no model can be used: {ranked[0].refused}")
    # Also the built-in model, where it predicts best, is now one that was measured here.
    return ModelChoice(chosen=replace(best, calibrated=True), trials=tuple(ranked))


def _preference(trial: Trial) -> tuple[bool, bool, float]:
    """Return what trials are sorted by: usable ones first, by their error; unfitted ones last."""
    model = trial.model
    return bool(trial.refused), model is None, 0.0 if model is None else model.log_error


def learn_model(
    samples: Samples, choice: ModelChoice, *, without_processes: bool, via: Via, cache: CacheState
) -> Lesson:
    """Return what trees learn from reads, and whether it predicts better than every equation.

    Tried are trees that correct the best equation, and trees that replace it. They are used where
    their error, the greater of that on patterns and that on layouts left out, is less than 0.95 of
    that of the chosen equation: what is not plainly better stays simple.
    """
    best = _best_equation(samples, choice, without_processes=without_processes)
    if best is None:
        return Lesson(model=None, refused="no equation could be fitted that it could begin with")
    equation, fitter = best
    measures = samples.measures()
    try:
        models = [
            LearnedFitter(baseline=fitter, corrects=corrects).fit(
                samples, via=via, cache=cache, measures=measures
            )
            for corrects in (True, False)
        ]
    except (RankDeficientError, SdsValueError) as error:
        return Lesson(model=None, refused=str(error))
    model = replace(min(models, key=lambda m: m.log_error), baseline=equation)
    if model.log_error > BETTER * choice.chosen.log_error:
        return Lesson(
            model=model,
            refused=f"{choice.chosen.name} predicts what it has not seen as well "
            f"(error {choice.chosen.log_error:.3g}, learned {model.log_error:.3g})",
        )
    return Lesson(model=model)


def learned_fitter(
    model: LearnedModel, choice: ModelChoice, samples: Samples, *, without_processes: bool
) -> LearnedFitter:
    """Return how a learned model was fitted to the samples that a choice was made by."""
    best = _best_equation(samples, choice, without_processes=without_processes)
    if best is None:
        raise SdsValueError(
            f"this version of SDS does not fit what {model.name} begins with: calibrate again"
        )
    return LearnedFitter(baseline=best[1], corrects=model.corrects)


def _best_equation(
    samples: Samples, choice: ModelChoice, *, without_processes: bool
) -> tuple[CostModel, Fits] | None:
    """Return the fitted equation with the least held-out error, and how to fit it."""
    fitters = {
        fitter.name: fitter for fitter in fitters_for(samples, without_processes=without_processes)
    }
    for trial in choice.trials:
        if trial.model is not None and not trial.refused and trial.name in fitters:
            return trial.model, fitters[trial.name]
    return None


def fitters_for(
    samples: Samples,
    *,
    gaps: Sequence[GapKind] = tuple(GapKind),
    without_processes: bool = False,
) -> list[Fits]:
    """Return every way of fitting that `choose_model` tries for some samples."""
    fitters = fitters_of(gaps=gaps, without_processes=without_processes)
    if not samples.operations:
        # Of whole operations it is not known what HDF5 asks for.
        fitters.append(SieveFitter(without_processes=without_processes))
    return fitters


def fitters_of(
    *, gaps: Sequence[GapKind] = tuple(GapKind), without_processes: bool = False
) -> list[Fits]:
    """Return every way of fitting independent reads that is tried."""
    fitters: list[Fits] = []
    for kind in (ModelKind.REQUESTS, ModelKind.EQ3, ModelKind.EQ4, ModelKind.EQ6):
        if kind is ModelKind.EQ4 and without_processes:
            continue  # It is Eq. 3 then.
        fitters += [
            Fitter(kind=kind, gap=gap, relative=relative, without_processes=without_processes)
            for gap in (gaps if kind.has_gap else (GapKind.COUNT,))
            for relative in (False, True)
        ]
    return [*fitters, ServiceFitter()]


def _trial(
    fitter: Fits,
    samples: Samples,
    measures: MeasureTable,
    *,
    via: Via,
    cache: CacheState,
) -> Trial:
    """Return one way of fitting, tried."""
    try:
        model = fitter.fit(samples, via=via, cache=cache, measures=measures)
        heldout = cross_validate(fitter, samples, measures=measures)
        layouts = (
            cross_validate(fitter, samples, by="layouts", measures=measures)
            if len(set(samples.layouts)) > 1
            else None
        )
    except (RankDeficientError, SdsValueError) as error:
        return Trial(name=fitter.name, model=None, refused=str(error))
    model = replace(model, heldout=heldout, heldout_layouts=layouts)
    falling = falling_terms(model, lowest_p=min(samples.p))
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


def _builtin_trial(
    samples: Samples, measures: MeasureTable, *, via: Via, cache: CacheState
) -> Trial:
    """Return the built-in model with its error on all samples: it saw none of them."""
    model = builtin_model(via=via)
    error = heldout_error(
        model.predict_many(measures),
        np.array(samples.seconds),
        n_groups=len(set(samples.patterns)),
        patterns=paired_names(samples),
    )
    return Trial(name="builtin", model=replace(model, cache=cache, heldout=error))
