"""Residual model: randomised trees over the ratio of measured times to the best equation's.

Equations say how time grows; what they leave over recurs in the reads of a calibration: planes
through a sieve buffer, gaps that are read along. Extremely randomised trees (scikit-learn) learn it
from some hundred reads without tuning: splits are drawn and leaves averaged, so that one disturbed
read moves little.

A catalog keeps the reads, not the trees: they are fitted again when a model first predicts, with
the same seed and so to the same trees. Far outside the reads they know nothing, and the equation
alone predicts. Redirect tables carry equations; the residual model serves advice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sds.errors import SdsValueError
from sds.recommender.models.cost_model import (
    LEARNED,
    CacheState,
    CostModel,
    HeldoutError,
    ModelKind,
    Prediction,
    ReadModel,
    Via,
)
from sds.recommender.models.cross_validation import Fitter
from sds.recommender.models.feature_matrix import FeatureMatrix

if TYPE_CHECKING:
    from sklearn.tree._tree import Tree

    from sds.geometry import BlockFeatures
    from sds.recommender.models.samples import Samples

# Fewer teach nothing that an equation does not say: each leaf needs a few, of several patterns.
MIN_READS = 60
MIN_PATTERNS = 12
_N_TREES = 48
_SMALLEST_LEAF = 2
_SHARE_OF_FEATURES = 0.7

FACTOR_OUTSIDE = 4.0
"""How far beyond the range that trees were fitted to a feature may lie."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ResidualForest(ReadModel):
    """An equation corrected by trees, and how far to trust both.

    Attributes
    ----------
    baseline
        The corrected equation.
    features, measured_s
        Reads that the trees are fitted to, n of them, and their times, shape (n,).
    heldout, heldout_layouts
        Error on patterns, and on layouts, left out; the baseline was fitted to the others as well.
    seed
        Of the trees' splits.
    """

    baseline: CostModel
    features: FeatureMatrix = field(repr=False)
    measured_s: NDArray[np.float64] = field(repr=False)
    heldout: HeldoutError | None = None
    heldout_layouts: HeldoutError | None = None
    seed: int = 0

    calibrated: ClassVar[bool] = True
    name: ClassVar[str] = LEARNED

    @property
    def equation(self) -> CostModel:
        """The corrected equation."""
        return self.baseline

    @property
    def kind(self) -> ModelKind:
        """The baseline's equation."""
        return self.baseline.kind

    @property
    def via(self) -> Via:
        """How reads are made."""
        return self.baseline.via

    @property
    def cache(self) -> CacheState:
        """From what cache state."""
        return self.baseline.cache

    @cached_property
    def _trees(self) -> tuple[Tree, ...]:
        """The fitted trees of scikit-learn (`DecisionTreeRegressor.tree_`)."""
        from sklearn.ensemble import ExtraTreesRegressor  # noqa: PLC0415 - half a second

        predicted = self.baseline.predict_many(self.features)
        forest = ExtraTreesRegressor(
            n_estimators=_N_TREES,
            min_samples_leaf=_SMALLEST_LEAF,
            max_features=_SHARE_OF_FEATURES,
            random_state=self.seed,
        ).fit(_inputs(self.features, predicted), np.log(self.measured_s / predicted))
        return tuple(one.tree_ for one in forest.estimators_)

    @cached_property
    def _range(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Least and greatest logarithm of each feature that a read may have."""
        logs, far = _logs(self.features), math.log(FACTOR_OUTSIDE)
        return logs.min(axis=0) - far, logs.max(axis=0) + far

    def outside(self, features: FeatureMatrix) -> NDArray[np.bool_]:
        """Return which reads are far from all that the trees were fitted to, shape (n,)."""
        logs = _logs(features)
        low, high = self._range
        return np.asarray(((logs < low) | (logs > high)).any(axis=1), dtype=np.bool_)

    def predict_many(self, features: FeatureMatrix) -> NDArray[np.float64]:
        """Return the predicted times of operations, shape (n,); the baseline's of those outside."""
        baseline = self.baseline.predict_many(features)
        inputs = _inputs(features, baseline)
        residuals = [tree.predict(inputs)[:, 0] for tree in self._trees]
        corrected = baseline * np.exp(np.mean(residuals, axis=0))
        return np.where(self.outside(features), baseline, corrected)

    def seconds(self, features: BlockFeatures, *, processes_per_ost: float = 1.0) -> float:
        """Return the predicted time of one read."""
        one = FeatureMatrix.of_reads([features], [processes_per_ost])
        return float(self.predict_many(one)[0])

    def predict(self, features: BlockFeatures, *, processes_per_ost: float = 1.0) -> Prediction:
        """Return the predicted time of one read with its interval, the baseline's outside."""
        if self.outside(FeatureMatrix.of_reads([features], [processes_per_ost]))[0]:
            return self.baseline.predict(features, processes_per_ost=processes_per_ost)
        return super().predict(features, processes_per_ost=processes_per_ost)

    def summary(self) -> str:
        """Return the equation and the held-out error as text for people."""
        from sds.recommender.models.model_summary import (  # noqa: PLC0415 - text, seldom wanted
            summary_of_residuals,
        )

        return summary_of_residuals(self)


def _logs(features: FeatureMatrix) -> NDArray[np.float32]:
    """Return log(1 + feature) of each operation, shape (n, n_features)."""
    return np.log1p(features.columns.T).astype(np.float32)


def _inputs(features: FeatureMatrix, baseline_s: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return what trees decide by, shape (n, n_features + 1): the baseline's prediction last."""
    return np.column_stack([_logs(features), np.log(baseline_s).astype(np.float32)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualFitter(Fitter[ResidualForest]):
    """Fit an equation, then trees to its residuals."""

    baseline: Fitter[CostModel]
    n_folds: ClassVar[int | None] = 10

    @property
    def name(self) -> str:
        """As the model's."""
        return LEARNED

    def solve(
        self, features: FeatureMatrix, seconds: NDArray[np.float64]
    ) -> tuple[ResidualForest, NDArray[np.float64]]:
        """Return the fitted model, and its predictions of what it was fitted to."""
        equation, _ = self.baseline.solve(features, seconds)
        model = ResidualForest(baseline=equation, features=features, measured_s=seconds)
        return model, model.predict_many(features)

    def fit(
        self,
        samples: Samples,
        *,
        via: Via = Via.HDF5,
        cache: CacheState = CacheState.UNKNOWN,
        features: FeatureMatrix | None = None,
    ) -> ResidualForest:
        """Return the fitted model, without a held-out error.

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
        table = samples.feature_matrix() if features is None else features
        model, _ = self.solve(table, np.array(samples.seconds, dtype=np.float64))
        return replace(model, baseline=replace(model.baseline, via=via, cache=cache))
