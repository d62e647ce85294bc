"""The replicas of a dataset that may be worth building, and what its reads take in each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds import _native
from sds.geometry import Box, Hyperslab, ReplicaLayout
from sds.recommender.candidates.axis_orders import candidate_orders, inversions
from sds.recommender.candidates.chunk_shapes import ChunkCosts, WeightedRead, fit_chunk_shape
from sds.recommender.candidates.class_costs import (
    class_costs,
    predicted_costs,
    reads_in_segments,
    seconds_now,
    traced_reads,
    usable_patterns,
)
from sds.recommender.candidates.hot_regions import MAX_SPACE, costly_parts
from sds.recommender.candidates.read_classes import (
    ReadClass,
    ReadShape,
    classes_in_parts,
    collective_s,
    days_of,
    in_segments,
    newest_read_ns,
    regions_of,
)
from sds.recommender.candidates.replica_cost import size_bytes
from sds.recommender.candidates.segment_candidates import (
    ReadsInSegments,
    RecurringTiles,
    grown_box,
    most_read,
    recurring_in,
    tile_shapes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sds.analyzer import AccessPattern
    from sds.geometry import SegmentList
    from sds.recommender.candidates.class_costs import TracedReads
    from sds.recommender.candidates.cost_matrix import ReadCosts
    from sds.recommender.candidates.dataset_reads import DatasetReads, PortfolioSettings

# What decides between layouts: the rest of the reads is counted, but brings no candidates.
_MAX_DECISIVE = 32
_MAX_DECISIVE_OF_HIGH_RANK = 8
_MAX_RANK_OF_ALL = 5
_N_CHUNKED_ALONE = 3
# Parts of a dataset that are considered, how many layouts of each, and how many in all.
_N_PARTS = 4
_N_LAYOUTS_OF_PART = 3
_N_PARTIAL = 8
# The same of segments: classes of reads whose tiles are tried, lists of tiles, those of which also
# what is read most is considered alone, and candidates.
_N_TILED = 4
_N_LISTS = 4
_N_SHORTENED = 2
# Tiles are left out that would serve less of every costly class of reads.
_MIN_SHARE = 0.1
_N_OF_SEGMENTS = 12
# A file that is written anew has chunks of about as much at least, before filters.
_REWRITTEN_BYTES = 256 << 10
# A layout is left out where another is no larger and, in every read, no slower by more.
_TIE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCosts:
    """A dataset's reads and their times in the layouts there are and might be.

    Reads that were traced take what was measured of them, and in replicas what follows from it
    (`ReadCosts.as_traced`); others what is predicted of cold ones.

    Attributes
    ----------
    classes
        The reads, n of them, those that take longest first.
    now
        Seconds of each in the layouts that exist, shape (n,).
    is_measured
        Of which that is what traced reads took, shape (n,).
    layouts
        Replicas that might be built, m of them.
    min_reads
        Of each of segments how often its tiles had to be read; 0 of others.
    seconds
        Of each read in each replica, shape (n, m); infinite where it would not serve the read.
    compared_now, compared
        By what programs choose among the layouts that exist, and these replicas, shapes (n,) and
        (n, m): the least; infinite where the original is read, or a replica would not serve.
    now_cold, seconds_cold, now_warm, seconds_warm
        `now` and `seconds` as predicted of reads from cold cache, and where all that is read is in
        memory; of `seconds_cold` and `seconds_warm` those count that are finite in `seconds`.
    doubtful
        The layout by which a read is predicted fastest among those that would not serve it, and how
        many times as fast: by less than the models err.
    rewritten
        The chunks in which the dataset itself, written anew with its own filters, would be read
        fastest, and seconds of the reads a day then; None where no chunk shape fits them.
    fixed_s_per_day
        Measured time of the reads that no layout changes: irregular ones, and collective ones.
    n_calls, stated
        HDF5 reads seen, and whether any are a user's statement.
    """

    classes: tuple[ReadClass, ...]
    now: NDArray[np.float64]
    is_measured: NDArray[np.bool_]
    layouts: tuple[ReplicaLayout, ...]
    min_reads: tuple[int, ...]
    seconds: NDArray[np.float64]
    compared_now: NDArray[np.float64]
    compared: NDArray[np.float64]
    now_cold: NDArray[np.float64]
    seconds_cold: NDArray[np.float64]
    now_warm: NDArray[np.float64]
    seconds_warm: NDArray[np.float64]
    doubtful: tuple[ReplicaLayout, float] | None
    rewritten: tuple[tuple[int, ...], float] | None
    fixed_s_per_day: float
    n_calls: int
    stated: bool


ChunkShapes = dict[tuple[object, ...], tuple[int, ...] | None]
"""Chunk shapes fitted so far: many datasets are alike."""


def candidate_costs(
    dataset: DatasetReads, settings: PortfolioSettings, fitted: ChunkShapes
) -> CandidateCosts:
    """Return a dataset's reads with their times in every layout that may be worth building.

    Raises
    ------
    SdsValueError
        If a pattern is of a dataset of another extent or element size.
    """
    return _Enumeration(dataset, fitted).candidates(settings)


class _Enumeration:
    """Reads of one dataset in groups that differ in where they begin alone."""

    def __init__(self, dataset: DatasetReads, fitted: ChunkShapes) -> None:
        self.dataset = dataset
        self.array = dataset.array
        self.fitted = fitted
        self.patterns = usable_patterns(dataset)
        self.until_ns = newest_read_ns(self.patterns)
        found: dict[ReadShape, list[AccessPattern]] = {}
        for pattern in self.patterns:
            if not pattern.irregular:
                found.setdefault(ReadShape.of(pattern), []).append(pattern)
        self.groups = list(found.values())
        self.whole = [ReadClass.of(alike, until_ns=self.until_ns) for alike in self.groups]
        self.whole_s = seconds_now(dataset, self.whole)
        self.min_reads: dict[SegmentList, int] = {}

    def candidates(self, settings: PortfolioSettings) -> CandidateCosts:
        """Return the layouts worth comparing, and what reads take in each."""
        dataset, array = self.dataset, self.array
        parts = self._parts()
        boxes = list(dict.fromkeys((*regions_of(dataset.known_layouts, array.extent), *parts)))
        tiled = self._tiled()
        segments = reads_in_segments(dataset, tiled)
        found = [
            read
            for alike in self.groups
            for read in classes_in_parts(alike, boxes, segments, until_ns=self.until_ns)
        ]
        traced = traced_reads(dataset, found)
        now, _, is_measured = traced.now()
        per_day = np.array([read.per_day for read in found])
        slowest = np.argsort(-per_day * now, kind="stable")
        classes, traced = [found[i] for i in slowest], traced.in_order(slowest)
        now, is_measured, per_day = now[slowest], is_measured[slowest], per_day[slowest]
        whole = self._whole_layouts(classes, now)
        costs = traced.costs_in(whole, predicted_costs(dataset, classes, whole))
        rewritten = self._rewritten(whole, costs, classes, traced)
        gains = per_day[:, np.newaxis] * np.maximum(0.0, now[:, np.newaxis] - costs.replicas)
        layouts = [
            *whole,
            *self._layouts_of_parts(parts, whole, classes, gains),
            *self._layouts_of_segments(tiled, whole, classes, now),
        ]
        layouts = [x for x in dict.fromkeys(layouts) if x not in dataset.existing]
        cold = predicted_costs(dataset, classes, layouts)
        costs = traced.costs_in(layouts, cold)
        keep = _worth_comparing(
            np.minimum(costs.serving, now[:, np.newaxis]),
            now,
            per_day,
            [size_bytes(x, array) for x in layouts],
            whole_reads=lambda j: self._whole_reads(layouts[j], classes, costs.serving[:, j]),
            limits=(settings.n_candidates, _N_PARTIAL, _N_OF_SEGMENTS),
            sort=[
                2 if x.segments is not None else int(not x.holds_all(array.extent)) for x in layouts
            ],
            chunked=[x.chunk_shape is not None for x in layouts],
        )
        kept = tuple(layouts[j] for j in keep)
        return CandidateCosts(
            classes=tuple(classes),
            now=now,
            is_measured=is_measured,
            layouts=kept,
            min_reads=tuple(
                0 if x.segments is None else self.min_reads.get(x.segments, 0) for x in kept
            ),
            seconds=costs.serving[:, keep],
            compared_now=traced.existing.compared.min(axis=1, initial=np.inf),
            compared=costs.compared[:, keep],
            now_cold=traced.existing.seconds(),
            seconds_cold=cold.replicas[:, keep],
            now_warm=traced.existing.seconds_warm(),
            seconds_warm=costs.replicas_warm[:, keep],
            doubtful=_doubtful(layouts, costs, now, self._may_change(classes)),
            rewritten=rewritten,
            fixed_s_per_day=self._fixed_s(),
            n_calls=sum(p.n_calls for p in self.patterns),
            stated=any(p.stated for p in self.patterns),
        )

    def _rewritten(
        self,
        whole: Sequence[ReplicaLayout],
        costs: ReadCosts,
        classes: Sequence[ReadClass],
        traced: TracedReads,
    ) -> tuple[tuple[int, ...], float] | None:
        """Return the best chunks for all reads, and the time of these a day; None: there are none.

        Chunks as of a replica: HDF5 reads both alike. Small ones are joined, for a file has to
        find each of its chunks.
        """
        per_day, array = np.array([read.per_day for read in classes]), self.array
        found = [
            (float(per_day @ costs.replicas[:, j]), x.chunk_shape)
            for j, x in enumerate(whole)
            if x.chunk_shape is not None and x.filters == array.filters
        ]
        if not found:
            return None
        _, shape = min(found)
        shape = grown_box(shape, array.extent, _REWRITTEN_BYTES // array.element_size_bytes)
        layouts = [ReplicaLayout.whole(array.extent, chunk_shape=shape, filters=array.filters)]
        there = traced.costs_in(layouts, predicted_costs(self.dataset, classes, layouts))
        return shape, float(per_day @ there.replicas[:, 0])

    def _may_change(self, classes: Sequence[ReadClass]) -> NDArray[np.bool_]:
        """Return of which reads a replica may serve any: not of those in one run, shape (n,)."""
        array = self.array
        if array.chunks is not None:
            return np.ones(len(classes), dtype=np.bool_)
        slabs = [read.slab for read in classes]
        return np.array(
            [
                not _native.is_one_run(array.extent, s.start, s.stride, s.count, s.block)
                for s in slabs
            ],
            dtype=np.bool_,
        )

    def _fixed_s(self) -> float:
        """Return the measured time a day of reads that no layout changes."""
        return math.fsum(
            (p.elapsed_s if p.irregular else collective_s(p)) / days_of(p, self.until_ns)
            for p in self.patterns
        )

    def _whole_reads(
        self, layout: ReplicaLayout, classes: Sequence[ReadClass], serving: NDArray[np.float64]
    ) -> float:
        """Return the time a day of the logical reads that a replica would serve."""
        served = [replace(r, slab=r.logical) for r in np.array(classes)[np.isfinite(serving)]]
        costs = predicted_costs(self.dataset, served, [layout])  # what was measured is of calls
        return float(costs.replicas[:, 0] @ np.array([read.logical_per_day for read in served]))

    def _whole_layouts(
        self, classes: Sequence[ReadClass], now: NDArray[np.float64]
    ) -> list[ReplicaLayout]:
        """Return the replicas of the whole dataset to consider, least change first."""
        array = self.array
        if not classes or not array.extent:
            return []
        high = len(array.extent) > _MAX_RANK_OF_ALL
        decisive = classes[: _MAX_DECISIVE_OF_HIGH_RANK if high else _MAX_DECISIVE]
        layouts = [
            ReplicaLayout.whole(array.extent, order=order)
            for order in candidate_orders([read.slab for read in decisive], array.extent)
            if array.chunks is not None or inversions(order)
        ]
        reads = [
            WeightedRead(slab=read.slab, weight=read.per_day, now_s=float(seconds))
            for read, seconds in zip(decisive, now, strict=False)
        ]
        # Reads of one class in several places want one shape.
        alone = list(
            {(r.slab.stride, r.slab.count, r.slab.block): r for r in reversed(reads)}.values()
        )
        alone.reverse()
        for filters in ((), array.filters) if array.filters else ((),):
            costs = ChunkCosts.of(
                self.dataset.models[0],
                array,
                decode_s_per_byte=array.decode_s_per_byte if filters else 0.0,
                stored_share=(array.stored_bytes or 0) / max(1, array.size_bytes)
                if filters
                else 1.0,
            )
            for chosen in (reads, *([read] for read in alone[:_N_CHUNKED_ALONE])):
                shape = self._chunk_shape(chosen, costs)
                if shape is not None:
                    layouts.append(
                        ReplicaLayout.whole(array.extent, chunk_shape=shape, filters=filters)
                    )
        return list(dict.fromkeys(layouts))

    def _chunk_shape(
        self, reads: Sequence[WeightedRead], costs: ChunkCosts
    ) -> tuple[int, ...] | None:
        """Return the chunk shape that fits reads; their weights to a power of two."""
        most = max((read.weight * read.now_s for read in reads), default=0.0)
        rounded = []
        for read in reads:
            share = read.weight * read.now_s / most if most > 0 else 0.0
            if share > 1e-3:
                rounded.append(replace(read, weight=2.0 ** round(math.log2(share)) / read.now_s))
        array = self.array
        slabs = tuple((r.slab.stride, r.slab.count, r.slab.block, r.weight) for r in rounded)
        key = (array.extent, array.element_size_bytes, costs, slabs)
        if key not in self.fitted:
            self.fitted[key] = fit_chunk_shape(
                rounded, array.extent, array.element_size_bytes, costs=costs
            )
        return self.fitted[key]

    def _parts(self) -> list[Box]:
        """Return parts of the dataset where much of the time goes, of all reads together."""
        boxes, weights = [], []
        for alike, seconds in zip(self.groups, self.whole_s, strict=True):
            for pattern in alike:
                if pattern.stated:  # a typical read, which may lie anywhere
                    continue
                free = (pattern.n_calls - pattern.n_collective) / pattern.n_calls
                for place in pattern.places:
                    boxes.append(place.box)
                    weights.append(seconds * free * place.n_calls / days_of(pattern, self.until_ns))
        return costly_parts(boxes, weights, self.array.extent, limit=_N_PARTS)

    def _layouts_of_parts(
        self,
        parts: Sequence[Box],
        whole: Sequence[ReplicaLayout],
        classes: Sequence[ReadClass],
        gains: NDArray[np.float64],
    ) -> list[ReplicaLayout]:
        """Return replicas of parts: as they are stored, and in the layouts best for their reads."""
        layouts: list[ReplicaLayout] = []
        for part in parts:
            gain = gains[[part in read.inside for read in classes]].sum(axis=0)
            best = np.argsort(-gain, kind="stable")[:_N_LAYOUTS_OF_PART]
            for layout in (ReplicaLayout.whole(self.array.extent), *(whole[j] for j in best)):
                chunks = layout.chunk_shape
                if chunks is not None:
                    lengths = [part.extent[a] for a in layout.order]
                    chunks = tuple(min(c, n) for c, n in zip(chunks, lengths, strict=True))
                layouts.append(replace(layout, chunk_shape=chunks, region=part))
        return layouts

    def _tiled(self) -> list[RecurringTiles]:
        """Return what recurs in the dataset in tiles that suit its costliest reads."""
        trail, array = self.dataset.trail, self.array
        if trail is None or not self.groups or trail.extent != array.extent:
            return []
        costly = [
            (alike, read, float(seconds))
            for alike, read, seconds in zip(self.groups, self.whole, self.whole_s, strict=True)
            if read.per_day > 0
        ]
        costly.sort(key=lambda item: -item[1].per_day * item[2])
        del costly[_N_TILED:]

        now = np.array([seconds for *_, seconds in costly])

        def worth(shapes: Sequence[tuple[int, ...]]) -> list[tuple[float, RecurringTiles]]:
            """Return what recurs in tiles of some shapes, and the seconds a day that each saves."""
            most = MAX_SPACE * math.prod(array.extent)
            in_shapes = [recurring_in(trail, shape, most_elements=most) for shape in shapes]
            recurring = [each for each in in_shapes if each is not None]
            segments = ReadsInSegments(trail, (), recurring)
            reads = [segments.of_class(alike) for alike, *_ in costly]
            found = []
            for each in recurring:
                shares = [segments.share(some, each.segments) for some in reads]
                if max((s.share for s in shares), default=0.0) < _MIN_SHARE:
                    continue
                held = [
                    in_segments(read, [Box.whole(array.extent)], [share])[0]
                    for (_, read, _), share in zip(costly, shares, strict=True)
                ]
                orders = {tuple(range(len(array.extent)))}
                orders |= {_longest_last(read.slab) for _, read, _ in costly}
                gains = self._gains(each.segments, sorted(orders), held, now)
                found.append((float(gains.max()), each))
            return found

        shapes = tile_shapes(
            [read.slab for _, read, _ in costly], array.extent, array.element_size_bytes
        )
        found = worth(shapes)
        if found:
            costs = ChunkCosts.of(
                self.dataset.models[1], array, decode_s_per_byte=0.0, stored_share=1.0
            )
            reads = [WeightedRead(slab=r.slab, weight=r.per_day, now_s=s) for _, r, s in costly]
            fitted = self._chunk_shape(reads, costs)
            if fitted is not None and fitted not in shapes:
                found += worth([fitted])
        found = sorted((item for item in found if item[0] > 0), key=lambda item: -item[0])
        best = [each for _, each in found[:_N_LISTS]]
        best += [fewer for each in best[:_N_SHORTENED] for fewer in most_read(trail, each)]
        grouped = [each.grouped(trail, array.element_size_bytes) for each in best]
        for segments, n in grouped:
            self.min_reads.setdefault(segments, n)
        return grouped

    def _gains(
        self,
        segments: SegmentList,
        orders: Sequence[tuple[int, ...]],
        held: Sequence[ReadClass],
        now: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return what tiles in each axis order save a day of reads that they hold."""
        layouts = [
            ReplicaLayout.of_tiles(segments, self.array.extent, order=order) for order in orders
        ]
        there = class_costs(self.dataset, held, layouts).replicas
        per_day = np.array([read.per_day for read in held])
        gains: NDArray[np.float64] = per_day @ np.maximum(0.0, now[:, np.newaxis] - there)
        return gains

    def _layouts_of_segments(
        self,
        tiled: Sequence[RecurringTiles],
        whole: Sequence[ReplicaLayout],
        classes: Sequence[ReadClass],
        now: NDArray[np.float64],
    ) -> list[ReplicaLayout]:
        """Return replicas of segments: as they are stored, and in the orders best for reads."""
        extent = self.array.extent
        orders = [layout.order for layout in whole if layout.chunk_shape is None]
        layouts: list[ReplicaLayout] = []
        for segments, _ in tiled:
            layouts.append(ReplicaLayout.of_tiles(segments, extent))
            held = [i for i, read in enumerate(classes) if segments in read.inside]
            if held and orders:
                gain = self._gains(segments, orders, [classes[i] for i in held], now[held])
                best = np.argsort(-gain, kind="stable")[:_N_LAYOUTS_OF_PART]
                layouts += [replace(layouts[-1], order=orders[j]) for j in best]
        return layouts


def _longest_last(slab: Hyperslab) -> tuple[int, ...]:
    """Return the axis order in which a read's longest axes are the fastest."""
    return tuple(sorted(range(slab.rank), key=lambda axis: slab.shape[axis]))


def _doubtful(
    layouts: Sequence[ReplicaLayout],
    costs: ReadCosts,
    now: NDArray[np.float64],
    may_change: NDArray[np.bool_],
) -> tuple[ReplicaLayout, float] | None:
    """Return the layout that is predicted faster by most without serving, and by which factor."""
    if not costs.replicas.size:
        return None
    would_serve = np.isfinite(costs.serving) | ~may_change[:, np.newaxis]
    there = np.where(would_serve, np.inf, costs.replicas)
    factors = now[:, np.newaxis] / there
    _, j = np.unravel_index(int(np.argmax(factors)), factors.shape)
    return layouts[int(j)], float(factors.max())


def _worth_comparing(
    best: NDArray[np.float64],
    now: NDArray[np.float64],
    weights: NDArray[np.float64],
    sizes: Sequence[int],
    *,
    whole_reads: Callable[[int], float],
    limits: tuple[int, ...],
    sort: Sequence[int],
    chunked: Sequence[bool],
) -> list[int]:
    """Return the candidates that no other replaces, at most a number of each sort.

    Parameters
    ----------
    best
        Seconds of each read with one candidate added, shape (n, m).
    now
        Without any, shape (n,).
    whole_reads
        Time of the logical reads in a candidate. Among equals the least decides, then the least
        change.
    """
    n = len(sizes)
    gains = weights @ (now[:, np.newaxis] - best)  # exactly 0 where no read is faster
    left = [int(j) for j in np.lexsort((np.arange(n), -gains)) if gains[j] > 0]

    def replaces(j: int, k: int) -> bool:
        # What the engine reads is not given up for chunks that HDF5 decodes as fast.
        if sizes[j] > sizes[k] or chunked[j] > chunked[k]:
            return False
        return bool((best[:, j] <= best[:, k] * (1.0 + _TIE)).all())

    kept: list[int] = []
    room = list(limits)
    while left:
        first = left[0]
        if room[sort[first]] == 0:
            left.remove(first)
            continue
        equals = [j for j in left if j == first or (replaces(j, first) and replaces(first, j))]
        logical = [whole_reads(j) for j in equals] if len(equals) > 1 else [0.0]
        least = min(logical) * (1.0 + _TIE)
        chosen = min(j for j, s in zip(equals, logical, strict=True) if s <= least)
        kept.append(chosen)
        room[sort[chosen]] -= 1
        left = [j for j in left if j not in equals and not replaces(chosen, j)]
    return sorted(kept)
