"""Judges models by the layouts they select for tests that they have not seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.stats import rankdata

from benchmarks.table1.protocol import KINDS, Draw
from benchmarks.table1.selection import Selection, selection_of
from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.models.cost_model import CostModel, HeldoutError
from sds.recommender.models.cross_validation import cross_validate, heldout_error
from sds.recommender.models.feature_matrix import FeatureRow
from sds.recommender.models.samples import Samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from benchmarks.table1.protocol import Experiment, Pattern
    from sds.recommender.models.regression import EquationFitter

# Lost by a selection that still counts as right.
WITHIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A pattern's times and what it asks of the storage; one per layout."""

    seconds: tuple[float, ...]
    operations: tuple[FeatureRow, ...]


class Predicts(Protocol):
    """A model fitted elsewhere, to none of the tests."""

    @property
    def name(self) -> str:
        """How it was fitted."""

    @property
    def ratio_error(self) -> float:
        """Standard deviation of the logarithm of the ratio of two predictions."""

    def times(self, pattern: Pattern) -> tuple[float, ...]:
        """Return the predicted seconds of a pattern in each layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJudgement:
    """How one model did on the tests of one seed.

    Attributes
    ----------
    name
        How it was fitted.
    model
        None where it could not be fitted, or was fitted elsewhere.
    refused
        Why not; else empty.
    selections
        One per test.
    error
        Of the predictions for the tests, all layouts.
    rank_correlation
        Spearman's over the layouts of one test, mean over the tests.
    """

    name: str
    model: CostModel | None
    refused: str = ""
    selections: tuple[Selection, ...] = ()
    error: HeldoutError | None = None
    rank_correlation: float = 0.0

    @property
    def n_exact(self) -> int:
        """Tests of which the fastest layout was selected."""
        return sum(s.advice.layout == s.best for s in self.selections)

    @property
    def n_within(self) -> int:
        """Tests that lost no more than `WITHIN` of the least time."""
        return sum(s.within(WITHIN) for s in self.selections)

    @property
    def n_refused(self) -> int:
        """Tests for which advice was refused."""
        return sum(s.advice.refused for s in self.selections)

    @property
    def worst_regret(self) -> float:
        """Largest share of time lost."""
        return max((s.regret for s in self.selections), default=float("nan"))

    def speedups(self, kinds: Sequence[int]) -> tuple[float, ...]:
        """Return mean speed-ups over the original layout, of lines, planes and cubes.

        kinds: of each test.
        """
        return tuple(
            float(
                np.mean([s.speedup for s, k in zip(self.selections, kinds, strict=True) if k == i])
            )
            for i in range(len(KINDS))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One seed: what was drawn, and how each model did."""

    draw: Draw
    models: tuple[ModelJudgement, ...]

    def of(self, name: str) -> ModelJudgement:
        """Return the model fitted in the way of some name."""
        return next(m for m in self.models if m.name == name)


def samples_of(
    patterns: Sequence[Pattern],
    experiment: Experiment,
    observe: Callable[[Pattern], Observed],
) -> Samples:
    """Return patterns, each read from every layout, as samples."""
    observed = [observe(pattern) for pattern in patterns]
    names = [experiment.layout_name(i) for i in range(len(experiment.orders))]
    return Samples(
        patterns=tuple(p.name for p in patterns for _ in names),
        layouts=tuple(name for _ in patterns for name in names),
        operations=tuple(o for found in observed for o in found.operations),
        seconds=tuple(s for found in observed for s in found.seconds),
    )


def judge(
    draw: Draw,
    experiment: Experiment,
    observe: Callable[[Pattern], Observed],
    fitters: Sequence[EquationFitter],
    *,
    min_confidence: float = 0.5,
    n_folds: int | None = 10,
    others: Sequence[Predicts] = (),
) -> Judgement:
    """Return how models fitted to the training patterns of a draw select layouts for its tests.

    Parameters
    ----------
    draw
        From `draw_tests`.
    experiment
        What is read.
    observe
        Times and features of a pattern.
    fitters
        How to fit.
    min_confidence
        Probability below which advice is refused: then the original layout counts as selected.
    n_folds
        Into how many parts the training patterns are dealt to find the error of ratios; None:
        each is left out alone.
    others
        Fitted elsewhere, to other patterns than the tests.
    """
    training = samples_of(draw.training, experiment, observe)
    tests = samples_of(draw.tests, experiment, observe)
    measured = np.array(tests.seconds)
    training_features, test_features = training.feature_matrix(), tests.feature_matrix()
    judged = []
    for fitter in fitters:
        try:
            model = fitter.fit(training, features=training_features)
            heldout = cross_validate(fitter, training, features=training_features, n_folds=n_folds)
        except (RankDeficientError, SdsValueError) as error:
            judged.append(ModelJudgement(name=fitter.name, model=None, refused=str(error)))
            continue
        model = replace(model, heldout=heldout)
        judged.append(
            _judged(
                fitter.name,
                model,
                tests,
                measured,
                model.predict_many(test_features),
                ratio_error=model.ratio_error,
                min_confidence=min_confidence,
                n_layouts=len(experiment.orders),
            )
        )
    judged += [
        _judged(
            other.name,
            None,
            tests,
            measured,
            np.array([other.times(pattern) for pattern in draw.tests]).ravel(),
            ratio_error=other.ratio_error,
            min_confidence=min_confidence,
            n_layouts=len(experiment.orders),
        )
        for other in others
    ]
    return Judgement(draw=draw, models=tuple(judged))


def _judged(
    name: str,
    model: CostModel | None,
    tests: Samples,
    measured: NDArray[np.float64],
    predicted: NDArray[np.float64],
    *,
    ratio_error: float,
    min_confidence: float,
    n_layouts: int,
) -> ModelJudgement:
    """Return how one model did, from its predictions for the tests."""
    by_test = zip(
        tests.patterns[::n_layouts],
        measured.reshape(-1, n_layouts),
        predicted.reshape(-1, n_layouts),
        strict=True,
    )
    selections, correlations = [], []
    for pattern, took, expected in by_test:
        selections.append(
            selection_of(
                pattern,
                measured_s=took.tolist(),
                predicted_s=expected.tolist(),
                ratio_error=ratio_error,
                min_confidence=min_confidence,
            )
        )
        if np.ptp(took) > 0:
            ranks = rankdata(took), rankdata(expected)
            correlations.append(float(np.corrcoef(ranks)[0, 1]) if np.ptp(expected) > 0 else 0.0)
    return ModelJudgement(
        name=name,
        model=model,
        selections=tuple(selections),
        error=heldout_error(predicted, measured, n_groups=len(selections), patterns=tests.patterns),
        rank_correlation=float(np.mean(correlations)) if correlations else 0.0,
    )
