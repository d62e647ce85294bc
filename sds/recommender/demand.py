"""What is asked of one dataset, and what it takes in each replica that might be built.

The choice of a portfolio knows no more of a dataset than this, so that reads of arrays and queries
of tables compete for one budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sds.recommender.candidates import ReadsInLayouts
from sds.recommender.layouts import copied, ratio_error, replica_build_seconds, size_bytes
from sds.recommender.portfolio import (
    DatasetReads,
    ModelNames,
    PortfolioSettings,
    saving_interval,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.recommender.portfolio import ReplicaKind, Saving

AS_NOW = -1
"""In the place of a candidate: what there is without one."""


class Demand(Protocol):
    """Questions, n of them, that are reads or queries, and m candidates that may serve them."""

    @property
    def target(self) -> str:
        """``FILE:/path``."""

    @property
    def unit(self) -> str:
        """What one of them is called: ``read``, ``query``."""

    @property
    def shapes(self) -> tuple[ReplicaKind, ...]:
        """The candidates."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each candidate."""

    @property
    def build_s(self) -> tuple[float, ...]:
        """Seconds to build each candidate."""

    @property
    def now(self) -> NDArray[np.float64]:
        """Seconds of each question as things are, shape (n,)."""

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Seconds in each candidate, shape (n, m); infinite where it would not serve."""

    @property
    def per_day(self) -> NDArray[np.float64]:
        """How often each is asked a day, shape (n,)."""

    @property
    def observed(self) -> NDArray[np.float64]:
        """How often each was asked in all, shape (n,)."""

    @property
    def descriptions(self) -> tuple[str, ...]:
        """Each in words."""

    @property
    def fixed_s_per_day(self) -> float:
        """Time of what no candidate changes."""

    @property
    def n_seen(self) -> int:
        """How many were seen."""

    @property
    def stated(self) -> bool:
        """Whether they are a user's statement."""

    @property
    def n_patterns(self) -> int:
        """Patterns or queries that these came from."""

    @property
    def calibrated(self) -> bool:
        """Whether the file system was measured."""

    @property
    def models(self) -> ModelNames:
        """What predicted."""

    def saving(self, before: NDArray[np.int64], after: NDArray[np.int64]) -> Saving:
        """Return what is saved a day, with its interval.

        Parameters
        ----------
        before, after
            The candidate that serves each question, shape (n,); `AS_NOW`: none.
        """

    def ratio_error(self, one: int, other: int) -> float:
        """Return the standard deviation of the logarithm of two candidates' predicted ratio."""

    def may_serve(self, candidate: int) -> NDArray[np.bool_]:
        """Return which questions a candidate could serve, shape (n,)."""

    def space_share(self, candidate: int) -> float:
        """Return how much of the dataset a candidate holds, from 0 to 1."""

    def notes(self) -> list[str]:
        """Return what was left out, and why."""


def served_by(
    demand: Demand, candidates: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the least seconds of each question with some candidates, and which serves it."""
    best = demand.now.copy()
    by = np.full(len(best), AS_NOW, dtype=np.int64)
    for c in candidates:
        faster = demand.seconds[:, c] < best
        best[faster] = demand.seconds[faster, c]
        by[faster] = c
    return best, by


@dataclass(frozen=True, slots=True)
class ReadDemand:
    """Reads of an array."""

    dataset: DatasetReads
    reads: ReadsInLayouts
    settings: PortfolioSettings

    unit = "read"

    @property
    def target(self) -> str:
        """``FILE:/path``."""
        return self.dataset.target

    @property
    def shapes(self) -> tuple[ReplicaKind, ...]:
        """Replicas that might be built."""
        return self.reads.shapes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Their bytes."""
        return tuple(size_bytes(shape, self.dataset.array) for shape in self.reads.shapes)

    @property
    def build_s(self) -> tuple[float, ...]:
        """Seconds to build each."""
        return tuple(
            replica_build_seconds(
                shape, self.dataset.array, self.reads.models, self.settings.build_bytes_per_s
            )
            for shape in self.reads.shapes
        )

    @property
    def now(self) -> NDArray[np.float64]:
        """Seconds of each read as things are."""
        return self.reads.now

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Seconds of each read in each replica."""
        return self.reads.seconds

    @property
    def per_day(self) -> NDArray[np.float64]:
        """Reads of each kind a day."""
        return self.reads.per_day

    @property
    def observed(self) -> NDArray[np.float64]:
        """Reads of each kind in all."""
        return self.reads.observed

    @property
    def descriptions(self) -> tuple[str, ...]:
        """Their patterns in words."""
        return tuple(kind.description for kind in self.reads.kinds)

    @property
    def fixed_s_per_day(self) -> float:
        """Time of irregular and of collective reads."""
        return self.reads.fixed_s_per_day

    @property
    def n_seen(self) -> int:
        """HDF5 reads."""
        return self.reads.n_calls

    @property
    def stated(self) -> bool:
        """Whether any are a user's statement."""
        return self.reads.stated

    @property
    def n_patterns(self) -> int:
        """Patterns."""
        return len(self.dataset.patterns)

    @property
    def calibrated(self) -> bool:
        """Whether the models were fitted to the file system."""
        return all(model.calibrated for model in self.reads.models)

    @property
    def models(self) -> ModelNames:
        """What predicted."""
        return ModelNames.of(self.reads.models)

    def saving(self, before: NDArray[np.int64], after: NDArray[np.int64]) -> Saving:
        """Return what is saved a day; errors as of `saving_interval`."""
        changed = np.flatnonzero(before != after)
        sums = []
        for by in (before, after):
            each = [
                self.now[i] if by[i] == AS_NOW else self.seconds[i, by[i]] for i in changed.tolist()
            ]
            sums.append(math.fsum(np.array(each) * self.per_day[changed]))
        errors = self.reads.models[0].log_error, self.reads.models[1].log_error
        return saving_interval(sums[0], sums[1], errors)

    def ratio_error(self, one: int, other: int) -> float:
        """Return the error of two layouts' ratio; see `sds.recommender.layouts.ratio_error`."""
        of_one, of_other = (None if c == AS_NOW else self.reads.shapes[c] for c in (one, other))
        return ratio_error(of_one, of_other, self.reads.models)

    def may_serve(self, candidate: int) -> NDArray[np.bool_]:
        """Return which reads lie in what a replica holds, and are faster there."""
        held = [kind.is_served_by(self.reads.shapes[candidate]) for kind in self.reads.kinds]
        return np.array(held, dtype=np.bool_) & np.isfinite(self.seconds[:, candidate])

    def space_share(self, candidate: int) -> float:
        """Return how much of the elements a replica holds."""
        array = self.dataset.array
        return copied(self.reads.shapes[candidate], array).size_bytes / array.size_bytes

    def notes(self) -> list[str]:
        """Return why there are no candidates, and which reads count without a prediction."""
        patterns = self.dataset.patterns
        notes = [self._why_nothing()] if not self.reads.shapes else []
        if any(p.irregular for p in patterns):
            notes.append(
                "reads of points and irregular regions count with their measured time in every "
                "layout; of them only the bounding box is known"
            )
        if any(p.n_collective for p in patterns):
            notes.append("collective MPI reads stay with the original in every layout")
        if self.reads.kinds and not self.calibrated:
            notes.append(
                "predictions are uncalibrated, taken to be wrong by more than a factor of 3 in one "
                "case of three: measure with sds calibrate"
            )
        return [f"{self.target}: {words}" for words in notes]

    def _why_nothing(self) -> str:
        extent = self.dataset.array.extent
        if not extent:
            return "a scalar has one layout"
        if 0 in extent:
            return f"it is empty (extent {'x'.join(map(str, extent))}): nothing to lay out"
        if not self.dataset.patterns:
            return "no reads are known: trace some with sds run, or state a selection"
        if not self.reads.kinds:
            return (
                "only points, irregular regions or collective reads, which no layout serves better"
            )
        return "no layout would make its reads faster"
