"""A learned correction of what operations take in step: where processes queue, and drift apart.

`sds.recommender.steps` says what servers would need, were all processes in step throughout. They
are not: some wait, others overtake them. How much that changes is learned, from many operations:
gradient boosting (scikit-learn) of log(measured / in step) over logarithms of what is counted.

For the server's advice; redirect tables keep equations. Where an operation is far outside what
the model was fitted to, nothing learned holds, and its baseline predicts: the service model,
fitted to the same operations.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GroupKFold
from threadpoolctl import threadpool_limits

from sds.errors import SdsValueError
from sds.recommender.heldout import heldout_error
from sds.recommender.model import CostModel, HeldoutError
from sds.recommender.service import ServiceFitter
from sds.recommender.steps import StepMeasures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.recommender.measures import MeasureTable
    from sds.recommender.samples import Samples

# So much beyond the least and greatest that it was fitted to, a measure may be.
FACTOR_OUTSIDE = 4.0
# Fewer patterns teach nothing of queues.
MIN_PATTERNS = 50
# Added before taking logarithms: below, differences do not matter.
_LEAST_MEASURE, _LEAST_STEP = 1e-3, 1e-9
_N_BOOSTED = 3
_NAMES = tuple(f.name for f in fields(StepMeasures))
_STEP_S = _NAMES.index("step_s")
_SECONDS = tuple(i for i, name in enumerate(_NAMES) if name.endswith("_s") and i != _STEP_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedModel:
    """A fitted correction, its baseline, and how far to trust it.

    Attributes
    ----------
    baseline
        Predicts what is outside.
    boosted
        Their mean is the logarithm of the correction.
    low, high
        Of each step measure's logarithm: what it was fitted to.
    heldout
        Error on patterns left out; the baseline was fitted to the others as well.
    """

    baseline: CostModel
    boosted: tuple[HistGradientBoostingRegressor, ...]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    heldout: HeldoutError | None = None

    @property
    def name(self) -> str:
        """``stepped``."""
        return "stepped"

    @property
    def log_error(self) -> float:
        """Standard deviation of log(predicted / measured), from the held-out error."""
        return self.baseline.log_error if self.heldout is None else self.heldout.rms

    @property
    def ratio_error(self) -> float:
        """Standard deviation of the logarithm of the ratio of two predictions."""
        if self.heldout is None or self.heldout.ratio_rms is None:
            return float(np.sqrt(2.0)) * self.log_error
        return self.heldout.ratio_rms

    def outside(self, steps: Sequence[StepMeasures]) -> NDArray[np.bool_]:
        """Return which operations are far from all that the model was fitted to, shape (n,)."""
        logs = _logs_of(steps)
        far = float(np.log(FACTOR_OUTSIDE))
        beyond = (logs < self.low - far) | (logs > self.high + far)
        return np.asarray(beyond.any(axis=1), dtype=np.bool_)

    def predict_many(
        self, measures: MeasureTable, steps: Sequence[StepMeasures]
    ) -> NDArray[np.float64]:
        """Return the predicted times of operations, shape (n,); the baseline's of those outside."""
        if len(measures) != len(steps):
            raise SdsValueError(
                f"{len(measures)} operations were measured and {len(steps)} followed step by step"
            )
        if not steps:
            return np.empty(0)
        logs = _logs_of(steps)
        predicted = np.exp(logs[:, _STEP_S] + _corrections(self.boosted, measures, logs))
        outside = self.outside(steps)
        if outside.any():
            some = np.flatnonzero(outside)
            predicted[some] = self.baseline.predict_many(measures.take(some))
        return predicted


def fit_stepped(
    samples: Samples, steps: Sequence[StepMeasures], *, n_folds: int = 5, seed: int = 0
) -> SteppedModel:
    """Return the model fitted to operations, with its error on patterns left out.

    Parameters
    ----------
    samples
        Operations known whole, of at least `MIN_PATTERNS` patterns; hundreds are better.
    steps
        Of each sample (`measure_steps`).
    n_folds
        Into how many parts patterns are dealt, each left out whole.
    seed
        Of the boosting's random choices: the same gives the same model.

    Raises
    ------
    SdsValueError
        If there are too few patterns, or other numbers of steps than of samples.
    """
    n_patterns = len(set(samples.patterns))
    if n_patterns < MIN_PATTERNS:
        raise SdsValueError(
            f"{n_patterns} patterns are too few to learn where processes queue: give at least "
            f"{MIN_PATTERNS}, or fit the service model"
        )
    if len(steps) != len(samples) or not samples.operations:
        raise SdsValueError(
            f"{len(steps)} operations were followed step by step, of {len(samples.operations)} "
            f"known whole with {len(samples)} times: give both for each"
        )
    measures = samples.measures()
    seconds = np.array(samples.seconds)
    predicted = np.empty_like(seconds)
    folds = GroupKFold(min(n_folds, n_patterns))
    for rest, out in folds.split(seconds, groups=samples.patterns):
        fitted = _fit(measures.take(rest), [steps[i] for i in rest], seconds[rest], seed)
        predicted[out] = fitted.predict_many(measures.take(out), [steps[i] for i in out])
    heldout = heldout_error(predicted, seconds, n_groups=n_patterns, patterns=samples.patterns)
    return _fit(measures, steps, seconds, seed, heldout)


def _fit(
    measures: MeasureTable,
    steps: Sequence[StepMeasures],
    seconds: NDArray[np.float64],
    seed: int,
    heldout: HeldoutError | None = None,
) -> SteppedModel:
    baseline, _ = ServiceFitter().solve(measures, seconds)
    logs = _logs_of(steps)
    known = _known(measures, logs)
    rest = np.log(seconds) - logs[:, _STEP_S]
    # Of so few samples threads have little to share out, and wait for each other at every split:
    # where other programs run, most of the time.
    with threadpool_limits(1, user_api="openmp"):
        boosted = tuple(
            HistGradientBoostingRegressor(
                max_iter=500,
                learning_rate=0.05,
                max_leaf_nodes=15,
                min_samples_leaf=8,
                l2_regularization=1.0,
                max_features=0.5,
                random_state=seed + i,
            ).fit(known, rest)
            for i in range(_N_BOOSTED)
        )
    return SteppedModel(
        baseline=baseline,
        boosted=boosted,
        low=logs.min(axis=0),
        high=logs.max(axis=0),
        heldout=heldout,
    )


def _logs_of(steps: Sequence[StepMeasures]) -> NDArray[np.float64]:
    """Return logarithms, shape (n, number of step measures)."""
    rows = [[getattr(one, name) for name in _NAMES] for one in steps]
    return np.log(np.array(rows, dtype=np.float64).reshape(len(rows), len(_NAMES)) + _LEAST_STEP)


def _known(measures: MeasureTable, logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what the correction is learned from, shape (n, m): ratios to step_s as well."""
    ratios = logs[:, _SECONDS] - logs[:, [_STEP_S]]
    touched = np.log(measures.columns.T + _LEAST_MEASURE)
    return np.column_stack([logs, ratios, touched])


def _corrections(
    boosted: Sequence[HistGradientBoostingRegressor],
    measures: MeasureTable,
    logs: NDArray[np.float64],
) -> NDArray[np.float64]:
    known = _known(measures, logs)
    corrections: NDArray[np.float64] = np.mean([one.predict(known) for one in boosted], axis=0)
    return corrections
