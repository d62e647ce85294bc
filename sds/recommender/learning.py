"""Fits the learned model: randomised trees over logarithms of what a read touches.

Equations say how time grows; what they leave over, in reads of a calibration, is the same again
and again: of planes through a sieve buffer, of holes that are read along. Extremely randomised
trees (scikit-learn) learn it from some hundred reads without tuning: each split is drawn, what
they say is averaged, so that one disturbed read moves little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from sds.errors import SdsValueError
from sds.recommender.heldout import Fits, cross_validate
from sds.recommender.learned import LEARNED, LearnedModel, Trees, known_of, logs_of
from sds.recommender.model import CacheState, GapKind, ModelKind, Via

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.recommender.measures import MeasureTable
    from sds.recommender.samples import Samples

# Fewer teach nothing that an equation does not say: each leaf wants a few, of several patterns.
MIN_READS = 60
MIN_PATTERNS = 12
_N_TREES = 48
_SMALLEST_LEAF = 2
_SHARE_OF_MEASURES = 0.7

N_FOLDS = 10
"""Into how many parts patterns are dealt, each held out whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedFitter:
    """One way of learning.

    Attributes
    ----------
    baseline
        How the equation is fitted that is corrected, and that predicts what is outside.
    corrects
        Whether trees learn the logarithm of measured over baseline; else of measured.
    seed
        Of the trees' splits: the same gives the same model.
    """

    baseline: Fits
    corrects: bool = True
    seed: int = 0

    @property
    def kind(self) -> ModelKind:
        """The baseline's equation."""
        return self.baseline.kind

    @property
    def gap(self) -> GapKind:
        """The baseline's block gap."""
        return self.baseline.gap

    @property
    def name(self) -> str:
        """As the model's."""
        return LEARNED

    def solve(
        self, measures: MeasureTable, seconds: NDArray[np.float64]
    ) -> tuple[LearnedModel, NDArray[np.float64]]:
        """Return the fitted model, and its predictions of what it was fitted to."""
        equation, _ = self.baseline.solve(measures, seconds)
        logs = logs_of(measures)
        predicted = equation.predict_many(measures)
        wanted = np.log(seconds / predicted) if self.corrects else np.log(seconds)
        forest = ExtraTreesRegressor(
            n_estimators=_N_TREES,
            min_samples_leaf=_SMALLEST_LEAF,
            max_features=_SHARE_OF_MEASURES,
            random_state=self.seed,
        ).fit(known_of(logs, predicted), wanted)
        model = LearnedModel(
            baseline=equation,
            corrects=self.corrects,
            arrays=_trees_of(forest, logs).encoded(),
            n=len(seconds),
        )
        return model, model.predict_many(measures)

    def fit(
        self,
        samples: Samples,
        *,
        via: Via = Via.HDF5,
        cache: CacheState = CacheState.UNKNOWN,
        measures: MeasureTable | None = None,
    ) -> LearnedModel:
        """Return the fitted model, with its errors on patterns and on layouts left out.

        Raises
        ------
        SdsValueError
            If there are too few reads, or too few patterns, to learn from.
        """
        n_patterns = len(set(samples.patterns))
        if len(samples) < MIN_READS or n_patterns < MIN_PATTERNS:
            raise SdsValueError(
                f"{len(samples)} reads of {n_patterns} patterns are too few to learn from, "
                f"{MIN_READS} of {MIN_PATTERNS} are needed: equations predict; give the "
                "calibration a larger budget"
            )
        table = samples.measures() if measures is None else measures
        model, _ = self.solve(table, np.array(samples.seconds, dtype=np.float64))
        by_layouts = len(set(samples.layouts)) > 1
        return replace(
            model,
            baseline=replace(model.baseline, via=via, cache=cache),
            heldout=cross_validate(self, samples, measures=table, n_folds=N_FOLDS),
            heldout_layouts=cross_validate(self, samples, by="layouts", measures=table)
            if by_layouts
            else None,
        )


def _trees_of(forest: ExtraTreesRegressor, logs: NDArray[np.float32]) -> Trees:
    """Return a fitted forest as arrays: the left branch of a node is the node behind it."""
    roots, features, thresholds, rights, values = [], [], [], [], []
    n = 0
    for estimator in forest.estimators_:
        tree = estimator.tree_
        inner = tree.children_left >= 0
        if not (tree.children_left[inner] == np.flatnonzero(inner) + 1).all():
            raise SdsValueError(
                "this version of scikit-learn stores trees in another order: models cannot be "
                "learned with it; use one that SDS was tested with"
            )
        roots.append(n)
        features.append(np.where(inner, tree.feature, -1))
        thresholds.append(np.where(inner, tree.threshold, 0.0))
        rights.append(np.where(inner, tree.children_right + n, 0))
        values.append(tree.value[:, 0, 0])
        n += tree.node_count
    return Trees(
        roots=np.array(roots, dtype=np.int32),
        feature=np.concatenate(features).astype(np.int16),
        threshold=np.concatenate(thresholds).astype(np.float32),
        right=np.concatenate(rights).astype(np.int32),
        value=np.concatenate(values).astype(np.float32),
        low=logs.min(axis=0),
        high=logs.max(axis=0),
    )
