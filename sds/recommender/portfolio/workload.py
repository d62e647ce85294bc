"""Workload of one dataset, and what it takes in each replica that might be built.

The choice of a portfolio knows no more of a dataset than this, so that reads of arrays and queries
of tables compete for one budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from sds.geometry import ReplicaLayout
from sds.geometry.least_memory import least_process_bytes
from sds.recommender.candidates.class_costs import usable_patterns
from sds.recommender.candidates.cost_matrix import read_costs
from sds.recommender.candidates.enumeration import CandidateCosts, candidate_costs
from sds.recommender.candidates.read_classes import days_of, newest_read_ns
from sds.recommender.candidates.replica_cost import (
    build_command,
    n_elements,
    replica_build_seconds,
    size_bytes,
)
from sds.recommender.models.cost_model import SIGMAS_95, UNCALIBRATED_MARGIN, serving_margin
from sds.recommender.portfolio.values import Basis, ModelNames, basis_of, saving_interval
from sds.text import factors_apart

if TYPE_CHECKING:
    from sds.geometry import Hyperslab
    from sds.recommender.candidates.dataset_reads import DatasetReads, PortfolioSettings
    from sds.recommender.candidates.enumeration import ChunkShapes
    from sds.recommender.portfolio.values import Saving

AS_NOW = -1
"""Index in place of a candidate's: the layouts that exist."""

TRACED_LOG_ERROR = 0.25
"""Standard deviation of log(time of a day to come / traced time): chosen, for reads repeat so."""

UNCALIBRATED = (
    "predictions are uncalibrated, taken to be wrong by more than a factor of 3 in one case of "
    "three: measure with sds calibrate"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A replica that might be built.

    Attributes
    ----------
    name, command
        In words, and what a user types to build it.
    min_reads
        Of segments how often their tiles had to be read; else 0.
    is_partial
        Whether it holds not all rows or elements.
    space
        Share of the dataset's bytes that it holds.
    model
        By which of the workload's two models it is predicted.
    """

    layout: ReplicaLayout
    name: str
    command: str
    size_bytes: int
    build_s: float
    min_reads: int
    is_partial: bool
    space: float
    model: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """Reads of a dataset or queries of a table, n of them, and m candidates that may serve them.

    Attributes
    ----------
    target
        ``FILE:/path``.
    unit
        What one of them is called.
    candidates
        Replicas that might be built.
    now
        Seconds of each as things are, shape (n,): measured where it was traced, else predicted.
    is_measured
        Which were, shape (n,).
    seconds
        Seconds in each candidate, shape (n, m); infinite where it would not serve.
    compared
        By what programs choose which layout serves each, of those that exist and of the
        candidates, shapes (n,) and (n, m): the least, infinite where the original would, or where
        a candidate would not; None: by `now` and `seconds`.
    cold, warm
        `now` and `seconds` as predicted of reads from cold cache, and where all that is read is in
        memory; None: not known.
    bounds
        `now` and `seconds` at both ends of what is not known of the data, shapes (2, n) and
        (2, n, m); None: nothing is left open.
    per_day, observed
        How often each is made a day, and was in all, shape (n,).
    descriptions
        Each in words.
    fixed_s_per_day
        Measured time of what no candidate changes.
    measured_s_per_day
        Time of all as it was traced; None where some are stated.
    rewritten
        Chunk shape in which the dataset itself would best be written anew, and seconds of all of
        them a day then; None where there is none.
    n_seen, stated
        How many were seen, and whether any are a user's statement.
    n_patterns
        Patterns or queries that these came from.
    calibrated, models
        Whether the file system was measured, and what predicted.
    log_errors, ratio_errors
        Of the two models (of things as they are, and of replicas): standard deviation of the
        logarithm of predicted over measured, and of the ratio of two predictions by one model.
    notes
        What was left out, and why.
    """

    target: str
    unit: Literal["read", "query"]
    candidates: tuple[Candidate, ...]
    now: NDArray[np.float64]
    is_measured: NDArray[np.bool_]
    seconds: NDArray[np.float64]
    compared: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    cold: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    warm: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    per_day: NDArray[np.float64]
    observed: NDArray[np.float64]
    descriptions: tuple[str, ...]
    fixed_s_per_day: float = 0.0
    measured_s_per_day: float | None = None
    rewritten: tuple[tuple[int, ...], float] | None = None
    n_seen: int = 0
    stated: bool
    n_patterns: int
    calibrated: bool
    models: ModelNames
    log_errors: tuple[float, float]
    ratio_errors: tuple[float, float]
    notes: tuple[str, ...]

    def served_by(
        self, candidates: tuple[int, ...]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the seconds of each with some candidates, and which serves it."""
        seconds = self.now.copy()
        by = np.full(len(seconds), AS_NOW, dtype=np.int64)
        now, there = (self.now, self.seconds) if self.compared is None else self.compared
        least = now.copy()
        for c in candidates:
            chosen = there[:, c] < least
            least[chosen] = there[chosen, c]
            seconds[chosen] = self.seconds[chosen, c]
            by[chosen] = c
        return seconds, by

    @property
    def basis(self) -> Basis:
        """Origin of `now`: measured, predicted, or some of both."""
        fixed = [True] if self.fixed_s_per_day else []
        return basis_of([*self.is_measured.tolist(), *fixed])

    def cold_s_per_day(self, by: NDArray[np.int64]) -> float | None:
        """Return the predicted seconds a day of reads from cold cache, each served as `by` says.

        None where that is not known. What no candidate changes is left out, for it is measured.
        """
        return self._s_per_day(self.cold, by)

    def warm_s_per_day(self, by: NDArray[np.int64]) -> float | None:
        """Return the same where all that is read is in memory."""
        return self._s_per_day(self.warm, by)

    def _s_per_day(
        self, times: tuple[NDArray[np.float64], NDArray[np.float64]] | None, by: NDArray[np.int64]
    ) -> float | None:
        if times is None:
            return None
        now, there = times
        return self._sum(now, there, by, np.arange(len(now)))

    def saving(self, before: NDArray[np.int64], after: NDArray[np.int64]) -> Saving:
        """Return what is saved a day, with its interval.

        Parameters
        ----------
        before, after
            The candidate that serves each, shape (n,); `AS_NOW`: none.
        """
        changed = np.flatnonzero(before != after)
        error = math.hypot(self.log_errors[1], self._spread(after, changed))
        sums = [self._sum(self.now, self.seconds, by, changed) for by in (before, after)]
        return saving_interval(sums[0], sums[1], (self.log_errors[0], error))

    def ratio_error(self, one: int, other: int) -> float:
        """Return the standard deviation of the logarithm of two candidates' predicted ratio.

        What is predicted by one model errs less in the ratio than what is predicted by two.
        """
        models = [0 if c == AS_NOW else self.candidates[c].model for c in (one, other)]
        if models[0] == models[1]:
            return self.ratio_errors[models[0]]
        error = math.hypot(*self.log_errors)
        if one != AS_NOW:
            return error
        served = np.flatnonzero(self.may_serve(other))
        return math.hypot(error, self._spread(np.full(len(self.now), other), served))

    def may_serve(self, candidate: int) -> NDArray[np.bool_]:
        """Return which of the workload a candidate could serve, shape (n,)."""
        return np.isfinite(self.seconds[:, candidate])

    def _spread(self, by: NDArray[np.int64], some: NDArray[np.intp]) -> float:
        """Return the standard deviation of the logarithm of a sum, by what is not known."""
        if self.bounds is None:
            return 0.0
        now, there = self.bounds
        least, most = (self._sum(now[end], there[end], by, some) for end in (0, 1))
        return math.log(most / least) / (2 * SIGMAS_95) if 0 < least < most else 0.0

    def _sum(
        self,
        now: NDArray[np.float64],
        there: NDArray[np.float64],
        by: NDArray[np.int64],
        some: NDArray[np.intp],
    ) -> float:
        """Return the seconds a day of some, each served as `by` says."""
        each = [now[i] if by[i] == AS_NOW else there[i, by[i]] for i in some.tolist()]
        return math.fsum(np.array(each) * self.per_day[some])


def read_workload(
    dataset: DatasetReads, settings: PortfolioSettings, fitted: ChunkShapes
) -> Workload:
    """Return the reads of an array in the replicas that may be worth building.

    Errors as of `candidate_costs`.
    """
    costs = candidate_costs(dataset, settings, fitted)
    models = dataset.models
    return Workload(
        target=dataset.target,
        unit="read",
        candidates=tuple(
            read_candidate(dataset, layout, min_reads=n)
            for layout, n in zip(costs.layouts, costs.min_reads, strict=True)
        ),
        now=costs.now,
        is_measured=costs.is_measured,
        seconds=costs.seconds,
        compared=(costs.compared_now, costs.compared),
        cold=(costs.now_cold, costs.seconds_cold),
        warm=(costs.now_warm, costs.seconds_warm),
        per_day=np.array([read.per_day for read in costs.classes]),
        observed=np.array([read.observed for read in costs.classes]),
        descriptions=tuple(read.description for read in costs.classes),
        fixed_s_per_day=costs.fixed_s_per_day,
        measured_s_per_day=_measured_s(dataset),
        rewritten=costs.rewritten,
        n_seen=costs.n_calls,
        stated=costs.stated,
        n_patterns=len(dataset.patterns),
        calibrated=all(model.calibrated for model in models),
        models=ModelNames.of(models),
        log_errors=(
            TRACED_LOG_ERROR if costs.is_measured.all() else models[0].log_error,
            models[1].log_error,
        ),
        ratio_errors=(models[0].ratio_error, models[1].ratio_error),
        notes=tuple(f"{dataset.target}: {words}" for words in _notes(dataset, costs)),
    )


def _measured_s(dataset: DatasetReads) -> float | None:
    """Return the measured time a day of traced reads; None without, or where some are stated."""
    patterns = usable_patterns(dataset)
    if not patterns or any(p.stated for p in patterns):
        return None
    until_ns = newest_read_ns(patterns)
    return sum(p.elapsed_s / days_of(p, until_ns) for p in patterns)


def read_candidate(
    dataset: DatasetReads, layout: ReplicaLayout, *, min_reads: int = 0
) -> Candidate:
    """Return a replica of an array as a candidate."""
    array = dataset.array

    def read_s(slab: Hyperslab) -> float:
        return float(read_costs(array, dataset.models, [slab], [1]).by_hdf5[0])

    return Candidate(
        layout=layout,
        name=layout.describe(array.extent),
        command=build_command(
            layout,
            array.extent,
            dataset.target,
            min_reads=min_reads,
            memory_bytes=least_process_bytes(layout, array.chunks, array.element_size_bytes),
        ),
        size_bytes=size_bytes(layout, array),
        build_s=replica_build_seconds(layout, array, read_s, dataset.build_rates),
        min_reads=min_reads,
        is_partial=not layout.holds_all(array.extent),
        space=n_elements(layout) / max(1, math.prod(array.extent)),
        model=int(layout.chunk_shape is None),
    )


def _notes(dataset: DatasetReads, costs: CandidateCosts) -> list[str]:
    """Return why there are no candidates, and which reads count without a prediction."""
    patterns = dataset.patterns
    notes = [_why_nothing(dataset, costs)] if not costs.layouts else []
    if any(p.irregular for p in patterns):
        notes.append(
            "reads of points and irregular regions count with their measured time in every "
            "layout; of them only the bounding box is known"
        )
    if any(p.n_collective for p in patterns):
        notes.append("collective MPI reads stay with the original in every layout")
    return notes


def _why_nothing(dataset: DatasetReads, costs: CandidateCosts) -> str:
    extent = dataset.array.extent
    if not extent:
        return "a scalar has one layout"
    if 0 in extent:
        return f"it is empty (extent {'x'.join(map(str, extent))}): nothing to lay out"
    if not dataset.patterns:
        return "no reads are known: trace some with sds run, or state a selection"
    if not costs.classes:
        return "only points, irregular regions or collective reads, which no layout serves better"
    if costs.doubtful is None or costs.doubtful[1] < UNCALIBRATED_MARGIN:  # the least that there is
        return "no layout would make its reads faster"
    layout, factor = costs.doubtful
    predicted, needed = factors_apart(factor, serving_margin(*dataset.models))
    return (
        f"with {layout.describe(extent)} reads are predicted at most {predicted} times as fast, "
        f"which the error of the models cannot tell from no gain (needed {needed}): measure with "
        "sds calibrate, while the machine has nothing else to do"
    )
