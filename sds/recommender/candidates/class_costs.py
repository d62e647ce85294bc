"""Times of classes of reads in the layouts of their dataset: traced, and predicted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sds.analyzer import PatternKind, ReadTrail
from sds.errors import SdsValueError
from sds.geometry import Hyperslab, ReplicaLayout
from sds.recommender.candidates.cost_matrix import ReadCosts, read_costs
from sds.recommender.candidates.first_touches import (
    OriginalWarmth,
    granule_of_array,
    granule_of_replica,
    new_shares,
    share_begun_cold,
)
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
    begun_cold
        Share of the reads that found nothing in memory and had to wait for the device; nan: not
        known, shape (n,).
    slabs, trail, element_bytes
        One read of each, the newest reads of the dataset, and the size of its elements.
    """

    original_s: NDArray[np.float64]
    is_measured: NDArray[np.bool_]
    layouts: tuple[ReplicaLayout, ...]
    n_existing: int
    replicas_s: NDArray[np.float64]
    predicted: ReadCosts
    factor: NDArray[np.float64]
    begun_cold: NDArray[np.float64]
    slabs: tuple[Hyperslab, ...]
    trail: ReadTrail | None
    element_bytes: int

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
            begun_cold=self.begun_cold[index],
            slabs=tuple(self.slabs[i] for i in index),
            trail=self.trail,
            element_bytes=self.element_bytes,
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
        shares = _cold_shares(layouts, self.begun_cold, self.slabs, self.trail, self.element_bytes)
        return predicted.as_traced(self.original_s, measured_s, self.factor, shares)

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
    slabs = tuple(read.slab for read in classes)
    begun_cold = _begun_cold(dataset, classes, predicted)
    shares = _cold_shares(
        layouts, begun_cold, slabs, dataset.trail, dataset.array.element_size_bytes
    )
    as_traced = predicted.as_traced(original_s, cold_share=shares)
    return TracedReads(
        original_s=original_s,
        is_measured=is_measured,
        layouts=layouts,
        n_existing=len(dataset.existing),
        replicas_s=replicas_s,
        predicted=predicted,
        factor=_factor(replicas_s / as_traced.replicas, n_reads),
        begun_cold=begun_cold,
        slabs=slabs,
        trail=dataset.trail,
        element_bytes=dataset.array.element_size_bytes,
    )


def _begun_cold(
    dataset: DatasetReads, classes: Sequence[ReadClass], predicted: ReadCosts
) -> NDArray[np.float64]:
    """Return `TracedReads.begun_cold`."""
    found = np.full(len(classes), np.nan)
    for i, read in enumerate(classes):
        cold_s = float(predicted.original[i])
        # What is new is worked out only where it matters.
        if np.isfinite(share_begun_cold(read.of_original, cold_s, 1.0)):
            granule = granule_of_array(dataset.array)
            all_slabs = [each.slab for each in classes]
            new = new_shares(dataset.trail, [read.slab], [granule], all_slabs)[0, 0]
            found[i] = share_begun_cold(read.of_original, cold_s, new)
    return found


def _cold_shares(
    layouts: Sequence[ReplicaLayout],
    begun_cold: NDArray[np.float64],
    slabs: Sequence[Hyperslab],
    trail: ReadTrail | None,
    element_bytes: int,
) -> NDArray[np.float64]:
    """Return the shares of reads that are cold in replicas, shape (n, m); nan: not known."""
    shares = np.full((len(slabs), len(layouts)), np.nan)
    of_granule: dict[tuple[int, ...], NDArray[np.float64]] = {}
    rows = np.flatnonzero(np.isfinite(begun_cold)).tolist()
    some = [slabs[i] for i in rows]
    for j, layout in enumerate(layouts) if rows else ():
        granule = granule_of_replica(layout, element_bytes)
        if granule not in of_granule:
            of_granule[granule] = new_shares(trail, some, [granule])[:, 0]
        shares[rows, j] = begun_cold[rows] * of_granule[granule]
    return shares


def original_warmth(
    dataset: DatasetReads, traced: TracedReads, now: TimesNow, per_day: NDArray[np.float64]
) -> OriginalWarmth | None:
    """Return how reads of the original warm each other; None where nothing tells that they do."""
    begun_cold = traced.begun_cold[np.isfinite(traced.begun_cold)]
    if dataset.trail is None or not len(begun_cold):
        return None
    return OriginalWarmth(
        trail=dataset.trail,
        granule=granule_of_array(dataset.array),
        slabs=traced.slabs,
        reads_original=now.served_by < 0,
        begun_cold=float(begun_cold.mean()),
        cold_s=traced.predicted.original,
        warm_s=traced.predicted.original_warm,
        per_day=per_day,
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
