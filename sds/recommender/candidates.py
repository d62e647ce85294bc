"""The replicas of a dataset that may be worth building, and what its reads take in each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds.analyzer import PatternKind, stated_pattern
from sds.errors import SdsValueError
from sds.geometry import Box, Hyperslab
from sds.recommender.chunk_shapes import ChunkCosts, WeightedRead, fit_chunk_shape
from sds.recommender.kinds import (
    ReadKind,
    ReadShape,
    days_observed,
    days_of,
    in_segments,
    kinds_in_parts,
    regions_of,
)
from sds.recommender.layouts import ReplicaShape, read_seconds, size_bytes
from sds.recommender.model import ReadModel
from sds.recommender.orders import candidate_orders, inversions
from sds.recommender.parts import MAX_SPACE, costly_parts
from sds.recommender.segments import (
    ReadsInSegments,
    Recurring,
    most_read,
    recurring_in,
    tile_shapes,
)
from sds.recommender.tables import models_for_advice, serving_margin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sds.analyzer import AccessPattern
    from sds.recommender.cost import StoredArray
    from sds.recommender.portfolio import DatasetReads, PortfolioSettings

# What decides between layouts: the rest of the reads is counted, but brings no candidates.
_MAX_DECISIVE = 32
_MAX_DECISIVE_OF_HIGH_RANK = 8
_MAX_RANK_OF_ALL = 5
_N_CHUNKED_ALONE = 3
# Parts of a dataset that are considered, how many layouts of each, and how many in all.
_N_PARTS = 4
_N_LAYOUTS_OF_PART = 3
_N_PARTIAL = 8
# The same of segments: kinds of reads whose tiles are tried, lists of tiles, those of which also
# what is read most is considered alone, and candidates.
_N_TILED = 4
_N_LISTS = 4
_N_SHORTENED = 2
# Tiles are left out that would serve less of every costly kind of reads.
_MIN_SHARE = 0.1
_N_OF_SEGMENTS = 12
# A layout is left out where another is no larger and, in every read, no slower by more.
_TIE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadsInLayouts:
    """A dataset's reads and their predicted times in the layouts there are and might be.

    Attributes
    ----------
    kinds
        The reads, n of them, those that take longest first.
    now
        Seconds of each in the layouts that exist, shape (n,).
    shapes
        Replicas that might be built, m of them.
    seconds
        Of each read in each replica, shape (n, m); infinite where the replica would not serve it.
    models
        That the times are from.
    fixed_s_per_day
        Time of the reads that no layout changes: irregular ones, and collective ones.
    n_calls, stated, days
        HDF5 reads seen, whether any are a user's statement, and the days observed.
    """

    kinds: tuple[ReadKind, ...]
    now: NDArray[np.float64]
    shapes: tuple[ReplicaShape, ...]
    seconds: NDArray[np.float64]
    models: tuple[ReadModel, ReadModel]
    fixed_s_per_day: float
    n_calls: int
    stated: bool
    days: float

    @property
    def per_day(self) -> NDArray[np.float64]:
        """Reads of each kind a day."""
        return np.array([kind.per_day for kind in self.kinds])

    @property
    def observed(self) -> NDArray[np.float64]:
        """Reads of each kind in all."""
        return np.array([kind.observed for kind in self.kinds])


class Predictor:
    """Predicted times, each asked of the model once: many datasets are alike."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[object, ...], float] = {}
        self._shapes: dict[tuple[object, ...], tuple[int, ...] | None] = {}

    def seconds(
        self,
        shape: ReplicaShape | None,
        array: StoredArray,
        kind: ReadKind,
        models: tuple[ReadModel, ReadModel],
    ) -> float:
        """Return the time of one read; shape None: from the original through HDF5."""
        slab = kind.slab
        read = (slab.stride, slab.count, slab.block, kind.n_concurrent)
        stored: object = shape
        if shape is not None and shape.segments is not None:
            # How a read lies to the tiles decides, not which of them there are.
            tile = shape.segments.tile_shape
            stored = (shape.order, tile, tuple(np.mod(slab.start, tile).tolist()))
        key = (stored, array, read, models[0], models[1])
        if key not in self._seconds:
            self._seconds[key] = read_seconds(
                shape, array, slab, models, n_concurrent=kind.n_concurrent
            )
        return self._seconds[key]

    def chunk_shape(
        self, reads: Sequence[WeightedRead], array: StoredArray, costs: ChunkCosts
    ) -> tuple[int, ...] | None:
        """Return the chunk shape that fits reads; their weights to a power of two."""
        most = max((read.weight * read.now_s for read in reads), default=0.0)
        rounded = []
        for read in reads:
            share = read.weight * read.now_s / most if most > 0 else 0.0
            if share > 1e-3:
                rounded.append(replace(read, weight=2.0 ** round(math.log2(share)) / read.now_s))
        slabs = tuple((r.slab.stride, r.slab.count, r.slab.block, r.weight) for r in rounded)
        key = (array.extent, array.element_size_bytes, costs, slabs)
        if key not in self._shapes:
            self._shapes[key] = fit_chunk_shape(
                rounded, array.extent, array.element_size_bytes, costs=costs
            )
        return self._shapes[key]


def reads_in_layouts(
    dataset: DatasetReads, settings: PortfolioSettings, predictor: Predictor
) -> ReadsInLayouts:
    """Return a dataset's reads with their times in every layout that may be worth building.

    Raises
    ------
    SdsValueError
        If a pattern is of a dataset of another extent or element size.
    """
    models = dataset.models or models_for_advice(None)
    array = dataset.array
    patterns = usable_patterns(dataset)
    days = days_observed(patterns)
    fixed_s = 0.0
    groups: dict[ReadShape, list[AccessPattern]] = {}
    for pattern in patterns:
        if pattern.irregular:
            fixed_s += pattern.elapsed_s / days_of(pattern, days)
        else:
            groups.setdefault(ReadShape.of(pattern), []).append(pattern)
    for alike in groups.values():
        collective = sum(p.n_collective / days_of(p, days) for p in alike)
        if collective:
            kind = ReadKind.of(alike, days=days)
            fixed_s += collective * predictor.seconds(None, array, kind, models)
    parts = _parts(dataset, list(groups.values()), predictor, days=days)
    boxes = list(dict.fromkeys((*regions_of(dataset.existing), *parts)))
    tiled = _tiled(dataset, list(groups.values()), predictor, days=days)
    segments = ReadsInSegments(dataset.trail, (*dataset.existing, *tiled))
    kinds = [
        (kind, seconds_now(dataset, kind, predictor)[0])
        for alike in groups.values()
        for kind in kinds_in_parts(alike, boxes, segments, days=days)
    ]
    kinds.sort(key=lambda item: -item[0].per_day * item[1])
    now = np.array([seconds for _, seconds in kinds])
    read = tuple(kind for kind, _ in kinds)
    shapes = _shapes(dataset, read, now, models, predictor)
    whole = shapes
    shapes = whole + _partial_shapes(dataset, parts, whole, kinds, predictor)
    shapes += _shapes_of_segments(dataset, tiled, whole, kinds, predictor)
    seconds = np.full((len(read), len(shapes)), np.inf)
    margin = serving_margin(*models)
    for j, shape in enumerate(shapes):
        for i, kind in enumerate(read):
            if not kind.is_served_by(shape):
                continue
            there = predictor.seconds(shape, array, kind, models)
            if there * margin < now[i]:
                seconds[i, j] = there
    weights = np.array([kind.per_day for kind in read])

    def whole_reads(j: int) -> float:
        """Return the time of logical reads in a candidate."""
        return sum(
            kind.logical_per_day
            * predictor.seconds(shapes[j], array, replace(kind, slab=kind.logical), models)
            for i, kind in enumerate(read)
            if math.isfinite(seconds[i, j])
        )

    keep = _worth_comparing(
        np.minimum(seconds, now[:, None]) if shapes else seconds,
        now @ weights if read else 0.0,
        weights,
        [size_bytes(s, array) for s in shapes],
        whole_reads=whole_reads,
        n_most=(settings.n_candidates, _N_PARTIAL, _N_OF_SEGMENTS),
        sort=[0 if not s.is_partial else 1 if s.segments is None else 2 for s in shapes],
    )
    return ReadsInLayouts(
        kinds=read,
        now=now,
        shapes=tuple(shapes[j] for j in keep),
        seconds=seconds[:, keep],
        models=models,
        fixed_s_per_day=fixed_s,
        n_calls=sum(p.n_calls for p in patterns),
        stated=any(p.stated for p in patterns),
        days=days,
    )


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


def seconds_now(
    dataset: DatasetReads, kind: ReadKind, predictor: Predictor
) -> tuple[float, ReplicaShape | None]:
    """Return the time of a read in the layouts that exist, and which serves it.

    None: the original. A replica serves where it is predicted faster by the `serving_margin`.
    """
    models = dataset.models or models_for_advice(None)
    array = dataset.array
    times = [predictor.seconds(None, array, kind, models)]
    if array.chunks is None and array.extent:
        # The connector has its engine read contiguous originals where that is faster.
        as_it_is = ReplicaShape(order=tuple(range(len(array.extent))))
        times.append(predictor.seconds(as_it_is, array, kind, models))
    original_s = min(times)
    replicas = [
        (predictor.seconds(shape, array, kind, models), shape)
        for shape in dataset.existing
        if kind.is_served_by(shape)
    ]
    replica_s, shape = min(replicas, key=lambda r: r[0], default=(math.inf, None))
    if replica_s * serving_margin(*models) < original_s:
        return replica_s, shape
    return original_s, None


def _shapes(
    dataset: DatasetReads,
    kinds: Sequence[ReadKind],
    now: NDArray[np.float64],
    models: tuple[ReadModel, ReadModel],
    predictor: Predictor,
) -> list[ReplicaShape]:
    """Return the replicas to consider, least change first."""
    array = dataset.array
    if not kinds or not array.extent:
        return []
    high = len(array.extent) > _MAX_RANK_OF_ALL
    decisive = kinds[: _MAX_DECISIVE_OF_HIGH_RANK if high else _MAX_DECISIVE]
    slabs = [kind.slab for kind in decisive]
    same = tuple(range(len(array.extent)))
    shapes = [
        ReplicaShape(order=order)
        for order in candidate_orders_of(slabs, array.extent)
        if array.chunks is not None or inversions(order)
    ]
    reads = [
        WeightedRead(slab=kind.slab, weight=kind.per_day, now_s=float(seconds))
        for kind, seconds in zip(decisive, now, strict=False)
    ]
    # Reads of one kind in several places ask for one shape.
    alone = list({(r.slab.stride, r.slab.count, r.slab.block): r for r in reversed(reads)}.values())
    alone.reverse()
    for filtered in (False, True) if array.stored_bytes is not None else (False,):
        costs = ChunkCosts.of(
            models[0],
            array,
            decode_s_per_byte=array.decode_s_per_byte if filtered else 0.0,
            stored_share=(array.stored_bytes or 0) / max(1, array.size_bytes) if filtered else 1.0,
        )
        for chosen in (reads, *([read] for read in alone[:_N_CHUNKED_ALONE])):
            chunk_shape = predictor.chunk_shape(chosen, array, costs)
            if chunk_shape is not None:
                shapes.append(ReplicaShape(order=same, chunk_shape=chunk_shape, filtered=filtered))
    return [s for s in dict.fromkeys(shapes) if s not in dataset.existing]


def _parts(
    dataset: DatasetReads,
    groups: Sequence[Sequence[AccessPattern]],
    predictor: Predictor,
    *,
    days: float,
) -> list[Box]:
    """Return parts of a dataset where much of the time goes, of all reads together."""
    boxes, weights = [], []
    for alike in groups:
        kind = ReadKind.of(alike, days=days)
        seconds, _ = seconds_now(dataset, kind, predictor)
        for pattern in alike:
            if pattern.stated:  # a typical read, which may lie anywhere
                continue
            free = (pattern.n_calls - pattern.n_collective) / pattern.n_calls
            for place in pattern.places:
                boxes.append(place.box)
                weights.append(seconds * free * place.n_calls / days_of(pattern, days))
    return costly_parts(boxes, weights, dataset.array.extent, n_most=_N_PARTS)


def _partial_shapes(
    dataset: DatasetReads,
    parts: Sequence[Box],
    whole: Sequence[ReplicaShape],
    kinds: Sequence[tuple[ReadKind, float]],
    predictor: Predictor,
) -> list[ReplicaShape]:
    """Return replicas of parts: as they are stored, and in the layouts best for their reads."""
    models = dataset.models or models_for_advice(None)
    array = dataset.array
    shapes: list[ReplicaShape] = []
    for part in parts:
        held = [(kind, seconds) for kind, seconds in kinds if part in kind.inside]

        def gain(shape: ReplicaShape, held: Sequence[tuple[ReadKind, float]] = held) -> float:
            """Return what a layout saves of the reads that lie in the part."""
            return _gain(shape, held, array, models, predictor)

        best = sorted(whole, key=lambda shape: -gain(shape))[:_N_LAYOUTS_OF_PART]
        as_it_is = ReplicaShape(order=tuple(range(len(array.extent))))
        for shape in (as_it_is, *best):
            chunks = shape.chunk_shape
            if chunks is not None:
                lengths = [part.extent[a] for a in shape.order]
                chunks = tuple(min(c, n) for c, n in zip(chunks, lengths, strict=True))
            shapes.append(replace(shape, chunk_shape=chunks, region=part))
    return [s for s in dict.fromkeys(shapes) if s not in dataset.existing]


def _tiled(
    dataset: DatasetReads,
    groups: Sequence[Sequence[AccessPattern]],
    predictor: Predictor,
    *,
    days: float,
) -> list[ReplicaShape]:
    """Return what recurs in a dataset in tiles that suit its costliest reads, as it is stored."""
    trail, array = dataset.trail, dataset.array
    if trail is None or not groups or trail.extent != array.extent:
        return []
    models = dataset.models or models_for_advice(None)
    kinds = [(alike, ReadKind.of(alike, days=days)) for alike in groups]
    costly = [
        (alike, kind, seconds_now(dataset, kind, predictor)[0])
        for alike, kind in kinds
        if kind.per_day > 0
    ]
    costly.sort(key=lambda item: -item[1].per_day * item[2])
    del costly[_N_TILED:]

    def worth(shapes: Sequence[tuple[int, ...]]) -> list[tuple[float, Recurring]]:
        """Return what recurs in tiles of some shapes, each with the seconds that it saves a day."""
        most = MAX_SPACE * math.prod(array.extent)
        in_shapes = [recurring_in(trail, shape, most_elements=most) for shape in shapes]
        recurring = [each for each in in_shapes if each is not None]
        as_stored = [_as_stored(array, each) for each in recurring]
        segments = ReadsInSegments(trail, as_stored)
        reads = [segments.of_kind(alike) for alike, *_ in costly]
        found = []
        for each, shape in zip(recurring, as_stored, strict=True):
            shares = [segments.share(some, shape) for some in reads]
            if max((s.share for s in shares), default=0.0) < _MIN_SHARE:
                continue
            held = [
                (kinds_held, seconds)
                for (_, kind, seconds), share in zip(costly, shares, strict=True)
                for kinds_held in in_segments(kind, [Box.whole(array.extent)], [share])
            ]
            orders = {shape.order, *(_longest_last(kind.slab) for _, kind, _ in costly)}
            gains = [
                _gain(replace(shape, order=order), held, array, models, predictor)
                for order in orders
            ]
            found.append((max(gains), each))
        return found

    shapes = tile_shapes([k.slab for _, k, _ in costly], array.extent, array.element_size_bytes)
    found = worth(shapes)
    if found:
        costs = ChunkCosts.of(models[1], array, decode_s_per_byte=0.0, stored_share=1.0)
        reads = [WeightedRead(slab=k.slab, weight=k.per_day, now_s=s) for _, k, s in costly]
        fitted = predictor.chunk_shape(reads, array, costs)
        if fitted is not None and fitted not in shapes:
            found += worth([fitted])
    found = sorted((item for item in found if item[0] > 0), key=lambda item: -item[0])
    best = [each for _, each in found[:_N_LISTS]]
    best += [fewer for each in best[:_N_SHORTENED] for fewer in most_read(trail, each)]
    return [_as_stored(array, each.grouped(trail, array.element_size_bytes)) for each in best]


def _as_stored(array: StoredArray, recurring: Recurring) -> ReplicaShape:
    """Return a replica of what recurs in a dataset, in the axis order of that."""
    return ReplicaShape(
        order=tuple(range(len(array.extent))),
        segments=recurring.segments,
        min_reads=recurring.min_reads,
    )


def _longest_last(slab: Hyperslab) -> tuple[int, ...]:
    """Return the axis order in which a read's longest axes are the fastest."""
    return tuple(sorted(range(slab.rank), key=lambda axis: slab.shape[axis]))


def _shapes_of_segments(
    dataset: DatasetReads,
    tiled: Sequence[ReplicaShape],
    whole: Sequence[ReplicaShape],
    kinds: Sequence[tuple[ReadKind, float]],
    predictor: Predictor,
) -> list[ReplicaShape]:
    """Return replicas of segments: as they are stored, and in the orders best for their reads."""
    models = dataset.models or models_for_advice(None)
    shapes: list[ReplicaShape] = []
    for one in tiled:
        held = [(kind, seconds) for kind, seconds in kinds if kind.is_served_by(one)]

        def gain(shape: ReplicaShape, held: Sequence[tuple[ReadKind, float]] = held) -> float:
            """Return what an order saves of the reads that the tiles serve."""
            return _gain(shape, held, dataset.array, models, predictor)

        orders = [replace(one, order=shape.order) for shape in whole if shape.chunk_shape is None]
        orders.sort(key=lambda shape: -gain(shape))
        shapes += [one, *orders[:_N_LAYOUTS_OF_PART]]
    return [s for s in dict.fromkeys(shapes) if s not in dataset.existing]


def _gain(
    shape: ReplicaShape,
    held: Sequence[tuple[ReadKind, float]],
    array: StoredArray,
    models: tuple[ReadModel, ReadModel],
    predictor: Predictor,
) -> float:
    """Return what a layout saves a day of reads that take so long now."""
    return sum(
        kind.per_day * max(0.0, seconds - predictor.seconds(shape, array, kind, models))
        for kind, seconds in held
    )


def candidate_orders_of(
    slabs: Sequence[Hyperslab], extent: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """Return the axis orders that reads of these selections can profit from."""
    patterns = [stated_pattern(slab, extent=extent, element_size_bytes=1) for slab in slabs]
    return candidate_orders(patterns, extent)


def _worth_comparing(
    best: NDArray[np.float64],
    now_s: float,
    weights: NDArray[np.float64],
    sizes: Sequence[int],
    *,
    whole_reads: Callable[[int], float],
    n_most: tuple[int, ...],
    sort: Sequence[int],
) -> list[int]:
    """Return the candidates that no other replaces, of each sort at most so many.

    Parameters
    ----------
    best
        Seconds of each read with one candidate added, shape (n, m).
    now_s
        Of all reads without any.
    whole_reads
        Time of the logical reads in a candidate. Among equals the least decides, then the least
        change.
    """
    n = len(sizes)
    gains = np.array([now_s - float(best[:, j] @ weights) for j in range(n)])
    left = [int(j) for j in np.lexsort((np.arange(n), -gains)) if gains[j] > 0]

    def replaces(j: int, k: int) -> bool:
        return sizes[j] <= sizes[k] and bool((best[:, j] <= best[:, k] * (1.0 + _TIE)).all())

    kept: list[int] = []
    room = list(n_most)
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
