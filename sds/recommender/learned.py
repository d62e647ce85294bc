"""A model learned from the reads of a calibration: trees that correct or replace an equation.

Plain arrays and NumPy alone: what was fitted is stored with the calibration and predicts without
the library that fitted it (`sds.recommender.learning`). Redirect tables keep equations; this is
for advice. Far outside what it was fitted to nothing learned holds, and its baseline predicts.
"""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sds.errors import SdsValueError
from sds.recommender.measures import MEASURES, MeasureTable
from sds.recommender.model import (
    CacheState,
    CostModel,
    HeldoutError,
    ModelKind,
    Prediction,
    Via,
    interval_log_of,
    prediction_of,
    worse_of,
)

if TYPE_CHECKING:
    from sds.geometry import BlockFeatures

VERSION = 1
"""Of the arrays: another number is another meaning, and is not read."""

LEARNED = "learned"
"""Its name where models are listed."""

# So much beyond the least and greatest that it was fitted to, a measure may be.
FACTOR_OUTSIDE = 4.0
_FAR = math.log(FACTOR_OUTSIDE)
# No read takes longer, by seconds or by factors, than exp of that; nor so little.
_MOST_LOG = 100.0


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Decision trees, one behind the other, and where they were fitted.

    Attributes
    ----------
    roots
        Index of each tree's first node, shape (n_trees,).
    feature, threshold, right, value
        Per node, shape (n_nodes,): which measure decides (-1: none, a leaf); up to which value the
        next node follows; which node follows beyond; what a leaf says.
    low, high
        Least and greatest logarithm of each measure that it was fitted to, shape (n_measures,).
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]

    def encoded(self) -> str:
        """Return the arrays, compressed, as text."""
        file = io.BytesIO()
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        np.savez_compressed(file, version=np.int32(VERSION), measures=np.array(MEASURES), **arrays)
        return base64.b64encode(file.getvalue()).decode("ascii")

    @classmethod
    def decoded(cls, text: str) -> Self:
        """Return the arrays that `encoded` wrote.

        Raises
        ------
        SdsValueError
            If they are of another version, of other measures, or damaged.
        """
        try:
            version, trees = cls._loaded(base64.b64decode(text, validate=True))
        # Each of three formats, one in the other, has errors of its own.
        except Exception as e:
            raise SdsValueError(
                f"the stored learned model is damaged ({e}): run sds calibrate again"
            ) from e
        if trees is None:
            raise SdsValueError(
                f"a learned model of version {version} was stored by another version of "
                f"SDS, this one reads {VERSION}: run sds calibrate again"
            )
        trees.check()
        return trees

    @classmethod
    def _loaded(cls, content: bytes) -> tuple[int, Self | None]:
        """Return the version, and the arrays if it and the measures are this version's."""
        with np.load(io.BytesIO(content)) as file:
            version = int(file["version"])
            if version != VERSION or tuple(file["measures"]) != MEASURES:
                return version, None
            return version, cls(**{name: _array(file[name], name) for name in _ARRAYS})

    def check(self) -> None:
        """Raise SdsValueError unless every walk from a root ends at a leaf within the arrays."""
        n = self.feature.size
        inner = np.flatnonzero(self.feature >= 0)
        shapes = {a.shape for a in (self.feature, self.threshold, self.right, self.value)}
        measured = {self.low.shape, self.high.shape}
        sound = (
            shapes == {(n,)}
            and measured == {(len(MEASURES),)}
            and self.roots.ndim == 1
            and len(self.roots) > 0
            and bool(((self.roots >= 0) & (self.roots < n)).all())
            and bool(((self.feature >= -1) & (self.feature < len(MEASURES) + 1)).all())
            and bool((inner + 1 < n).all())
            # Both ways lead on, so that no walk goes round in circles.
            and bool((self.right[inner] > inner).all())
            and bool((self.right[inner] < n).all())
            and bool((np.abs(self.value) <= _MOST_LOG).all())
            and bool((np.isfinite(self.low) & np.isfinite(self.high)).all())
        )
        if not sound:
            raise SdsValueError(
                "the stored learned model is damaged (its trees do not hang together): "
                "run sds calibrate again"
            )

    def mean(self, known: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return what the trees say on average, shape (n,), of rows of what is known."""
        at = np.broadcast_to(self.roots, (len(known), len(self.roots)))
        rows = np.arange(len(known))[:, np.newaxis]
        while True:
            deciding = self.feature[at]
            inner = deciding >= 0
            if not inner.any():
                break
            goes_on = known[rows, deciding] <= self.threshold[at]
            at = np.where(inner, np.where(goes_on, at + 1, self.right[at]), at)
        mean: NDArray[np.float64] = self.value[at].astype(np.float64).mean(axis=1)
        return mean

    def outside(self, logs: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return which rows are far from all that the trees were fitted to, shape (n,)."""
        beyond = (logs < self.low - _FAR) | (logs > self.high + _FAR)
        return np.asarray(beyond.any(axis=1), dtype=np.bool_)


_ARRAYS: dict[str, type[np.generic]] = {
    "roots": np.int32,
    "feature": np.int16,
    "threshold": np.float32,
    "right": np.int32,
    "value": np.float32,
    "low": np.float32,
    "high": np.float32,
}


def _array(found: NDArray[Any], name: str) -> NDArray[Any]:
    kind = _ARRAYS[name]
    if not np.can_cast(found.dtype, kind, "equiv"):
        raise ValueError(f"{name} is of {found.dtype}, not {np.dtype(kind)}")
    return found.astype(kind)


@lru_cache(maxsize=32)
def _decoded(text: str) -> Trees:
    return Trees.decoded(text)


def logs_of(measures: MeasureTable) -> NDArray[np.float32]:
    """Return log(1 + measure) of each operation, shape (n, n_measures)."""
    return np.log1p(measures.columns.T).astype(np.float32)


def known_of(logs: NDArray[np.float32], baseline_s: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return what trees decide by, shape (n, n_measures + 1): the baseline's prediction last."""
    return np.column_stack([logs, np.log(baseline_s).astype(np.float32)])


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedModel:
    """Trees fitted to the reads of a calibration, and how far to trust them.

    Attributes
    ----------
    baseline
        The equation with the least held-out error. It predicts what is outside.
    corrects
        Whether the trees say by which factor reads take longer than the baseline predicts; else
        they say how long.
    arrays
        The trees (`Trees.encoded`).
    n
        Reads fitted.
    heldout, heldout_layouts
        Error on patterns, and on layouts, left out; the baseline was fitted to the others as well.
    """

    baseline: CostModel
    corrects: bool
    arrays: str
    n: int
    heldout: HeldoutError | None = None
    heldout_layouts: HeldoutError | None = None

    @property
    def name(self) -> str:
        """``learned``."""
        return LEARNED

    @property
    def kind(self) -> ModelKind:
        """The baseline's equation."""
        return self.baseline.kind

    @property
    def calibrated(self) -> bool:
        """Whether it was fitted to reads of this file system: always."""
        return True

    @property
    def via(self) -> Via:
        """How reads are made."""
        return self.baseline.via

    @property
    def cache(self) -> CacheState:
        """From what cache state."""
        return self.baseline.cache

    @property
    def log_error(self) -> float:
        """Standard deviation of log(predicted / measured), from the held-out error."""
        worse = worse_of(self.heldout, self.heldout_layouts)
        return self.baseline.log_error if worse is None else worse.rms

    @property
    def ratio_error(self) -> float:
        """Standard deviation of the logarithm of the ratio of two predictions."""
        if self.heldout is not None and self.heldout.ratio_rms is not None:
            return self.heldout.ratio_rms
        return math.sqrt(2.0) * self.log_error

    @property
    def interval_log(self) -> float:
        """Logarithm of the factor, up or down, that 19 of 20 held-out reads are within."""
        return interval_log_of(self.heldout, self.heldout_layouts)

    def check(self) -> None:
        """Raise SdsValueError where this version cannot read the arrays; it names the remedy."""
        _decoded(self.arrays)

    def predict_many(self, measures: MeasureTable) -> NDArray[np.float64]:
        """Return the predicted times of operations, shape (n,); the baseline's of those outside."""
        trees = _decoded(self.arrays)
        logs = logs_of(measures)
        baseline = self.baseline.predict_many(measures)
        said = np.exp(trees.mean(known_of(logs, baseline)))
        return np.where(trees.outside(logs), baseline, said * baseline if self.corrects else said)

    def seconds(self, features: BlockFeatures, *, processes_per_ost: float = 1.0) -> float:
        """Return the predicted time of one read."""
        return float(self.predict_many(MeasureTable.of_reads([features], [processes_per_ost]))[0])

    def predict(self, features: BlockFeatures, *, processes_per_ost: float = 1.0) -> Prediction:
        """Return the predicted time of one read with its interval.

        Outside what was learned, time and interval are the baseline's.
        """
        measures = MeasureTable.of_reads([features], [processes_per_ost])
        if _decoded(self.arrays).outside(logs_of(measures))[0]:
            return self.baseline.predict(features, processes_per_ost=processes_per_ost)
        seconds = float(self.predict_many(measures)[0])
        return prediction_of(seconds, interval_log=self.interval_log, calibrated=True)

    def summary(self) -> str:
        """Return what it is and its held-out error as text for people."""
        from sds.recommender.summary import summary_of_learned  # noqa: PLC0415 - seldom wanted

        return summary_of_learned(self)
