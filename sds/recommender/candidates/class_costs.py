"""Times of classes of reads in the layouts of their dataset: traced, and predicted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sds.analyzer import PatternKind
from sds.errors import SdsValueError
from sds.geometry import ReplicaLayout
from sds.recommender.candidates.cost_matrix import ReadCosts, read_costs
from sds.recommender.candidates.segment_candidates import ReadsInSegments, RecurringTiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer import AccessPattern
    from sds.recommender.candidates.dataset_reads import DatasetReads
    from sds.recommender.candidates.read_classes import ReadClass


def usable_patterns(dataset: DatasetReads) -> list[AccessPattern]:
    """Return the patterns that read anything."""
    array = dataset.array
    for pattern in dataset.patterns:
        if (pattern.extent, pattern.element_size_bytes) != (
            array.extent,
            array.element_size_bytes,
        ):
            raise SdsValueError(
                f"a pattern of extent {pattern.extent}, {pattern.element_size_bytes} bytes an "
                f"element, is not of {dataset.target}: {array.extent}, {array.element_size_bytes}"
            )
    return [p for p in dataset.patterns if p.kind is not PatternKind.EMPTY and p.n_calls > 0]


def class_costs(
    dataset: DatasetReads, classes: Sequence[ReadClass], layouts: Sequence[ReplicaLayout]
) -> ReadCosts:
    """Return what classes of reads take in replicas, as cold or warm as they were traced.

    Infinite where a replica does not hold them.
    """
    traced = traced_reads(dataset, classes)
    return traced.costs_in(layouts, predicted_costs(dataset, classes, layouts))


# Reads that are taken to have been as predicted beside those that were measured.
_N_READS_AS_PREDICTED = 4


class TimesNow(NamedTuple):
    """Times of n classes of reads in the layouts that exist.

    Attributes
    ----------
    seconds
        Of each, shape (n,).
    served_by
        Which of the replicas serves it, shape (n,); -1: the original is read.
    is_measured
        Whether its time was traced, shape (n,); others are predicted.
    """

    seconds: NDArray[np.float64]
    served_by: NDArray[np.int64]
    is_measured: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedReads:
    """Times of n classes of reads, as they were traced.

    Attributes
    ----------
    original_s
        Mean seconds of each from the original, shape (n,); nan: not known.
    is_measured
        Of which that was measured, shape (n,). Of others it follows from what was measured of a
        replica.
    layouts, n_existing
        Replicas of which something is known: those that exist first, and how many these are.
    replicas_s
        Mean seconds of each from these, shape (n, number of layouts); nan: not known.
    predicted
        Times in these.
    factor
        By which what was measured of replicas exceeds what follows from the original's times and
        the models, as far as it is known, shape (n,).
    """

    original_s: NDArray[np.float64]
    is_measured: NDArray[np.bool_]
    layouts: tuple[ReplicaLayout, ...]
    n_existing: int
    replicas_s: NDArray[np.float64]
    predicted: ReadCosts
    factor: NDArray[np.float64]

    def in_order(self, index: NDArray[np.intp]) -> TracedReads:
        """Return the same of some classes, in another order."""
        return TracedReads(
            original_s=self.original_s[index],
            is_measured=self.is_measured[index],
            layouts=self.layouts,
            n_existing=self.n_existing,
            replicas_s=self.replicas_s[index],
            predicted=self.predicted.in_order(index),
            factor=self.factor[index],
        )

    @property
    def existing(self) -> ReadCosts:
        """Predicted times in the replicas that exist."""
        return self.predicted.in_some(self.n_existing)

    def costs_in(self, layouts: Sequence[ReplicaLayout], predicted: ReadCosts) -> ReadCosts:
        """Return what the reads take in replicas of which the predicted times are given."""
        measured_s = np.full(predicted.replicas.shape, np.nan)
        for j, layout in enumerate(layouts):
            if layout in self.layouts:
                measured_s[:, j] = self.replicas_s[:, self.layouts.index(layout)]
        return predicted.as_traced(self.original_s, measured_s, self.factor)

    def now(self) -> TimesNow:
        """Return what each takes in the layouts that exist."""
        costs = self.costs_in(self.layouts[: self.n_existing], self.existing)
        by = costs.chosen()
        served = np.flatnonzero(by >= 0)
        is_measured = self.is_measured.copy()
        is_measured[served] = np.isfinite(self.replicas_s[served, by[served]])
        return TimesNow(seconds=costs.seconds(), served_by=by, is_measured=is_measured)


def traced_reads(dataset: DatasetReads, classes: Sequence[ReadClass]) -> TracedReads:
    """Return what is known of the times of classes of reads.

    Where the original was not read, what it would take follows from the first replica that was.
    """
    layouts = dataset.known_layouts
    predicted = predicted_costs(dataset, classes, layouts)
    original_s = np.array([read.measured_s for read in classes])
    is_measured = np.isfinite(original_s)
    replicas_s, n_reads = np.full((2, *predicted.replicas.shape), np.nan)
    for j, layout in enumerate(layouts):
        for i, read in enumerate(classes):
            times = read.times_in(dataset.replica_ids.get(layout, ()))
            if times is not None and np.isfinite(predicted.replicas[i, j]):  # parts hold some
                replicas_s[i, j], n_reads[i, j] = times.mean_s, times.n
        unknown = ~np.isfinite(original_s)
        original_s[unknown] = predicted.original_as(j, replicas_s[:, j])[unknown]
    return TracedReads(
        original_s=original_s,
        is_measured=is_measured,
        layouts=layouts,
        n_existing=len(dataset.existing),
        replicas_s=replicas_s,
        predicted=predicted,
        factor=_factor(replicas_s / predicted.as_traced(original_s).replicas, n_reads),
    )


def _factor(ratios: NDArray[np.float64], n_reads: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of ratios of measured to predicted times, shape (n,).

    Of logarithms, weighted by reads, as if a few more had taken what is predicted.

    Parameters
    ----------
    ratios, n_reads
        Of each read in each replica, shape (n, m); nan: none was measured.
    """
    known = np.isfinite(ratios)
    weights = np.where(known, n_reads, 0.0)
    logs = np.log(np.where(known, ratios, 1.0))
    mean: NDArray[np.float64] = (weights * logs).sum(axis=1) / (
        weights.sum(axis=1) + _N_READS_AS_PREDICTED
    )
    return np.exp(mean)


def predicted_costs(
    dataset: DatasetReads, classes: Sequence[ReadClass], layouts: Sequence[ReplicaLayout]
) -> ReadCosts:
    """Return what classes of reads are predicted to take in replicas, from cold cache."""
    extent = dataset.array.extent
    # What a read takes of tiles depends on their shape, not on which of them there are.
    alike = [x if x.segments is None else (x.order, x.segments.tile_shape) for x in layouts]
    first = {key: i for i, key in reversed(list(enumerate(alike)))}
    priced = sorted(first.values())
    costs = read_costs(
        dataset.array,
        dataset.models,
        [read.slab for read in classes],
        [read.n_concurrent for read in classes],
        [layouts[i] for i in priced],
        parameters=dataset.parameters,
    )
    columns = [priced.index(first[key]) for key in alike]
    held = np.array(
        [[read.is_held_by(x, extent) for x in layouts] for read in classes], dtype=np.bool_
    ).reshape(len(classes), len(layouts))
    warm = costs.replicas_warm[:, columns]
    # From memory tiles are not predicted: they take no longer than the original, in more runs.
    of_tiles = np.array([x.segments is not None for x in layouts], dtype=np.bool_)
    warm = np.where(of_tiles, np.minimum(warm, costs.original_warm[:, np.newaxis]), warm)
    return replace(
        costs,
        replicas=np.where(held, costs.replicas[:, columns], np.inf),
        compared=np.where(held, costs.compared[:, columns], np.inf),
        replicas_warm=np.where(held, warm, np.inf),
    )


def seconds_now(dataset: DatasetReads, classes: Sequence[ReadClass]) -> NDArray[np.float64]:
    """Return the time of reads in the layouts that exist, shape (n,)."""
    return traced_reads(dataset, classes).now().seconds


def reads_in_segments(
    dataset: DatasetReads, candidates: Sequence[RecurringTiles] = ()
) -> ReadsInSegments:
    """Return which reads of a dataset segments serve: those it has, and candidates."""
    existing = [layout.segments for layout in dataset.known_layouts]
    return ReadsInSegments(dataset.trail, existing, (*dataset.hypothetical_tiles, *candidates))
