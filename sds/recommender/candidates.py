"""The replicas of a dataset that may be worth building, and what its reads take in each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sds.analyzer import PatternKind, stated_pattern
from sds.errors import SdsValueError
from sds.geometry import Hyperslab
from sds.recommender.chunk_shapes import ChunkCosts, WeightedRead, fit_chunk_shape
from sds.recommender.layouts import ReplicaShape, read_seconds, size_bytes
from sds.recommender.model import CostModel
from sds.recommender.orders import candidate_orders, inversions
from sds.recommender.tables import models_for_advice, serving_margin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sds.analyzer import AccessPattern
    from sds.recommender.cost import StoredArray
    from sds.recommender.portfolio import DatasetReads, PortfolioSettings

_DAY_S = 86400.0
# What decides between layouts: the rest of the reads is counted, but brings no candidates.
_MAX_DECISIVE = 32
_MAX_DECISIVE_OF_HIGH_RANK = 8
_MAX_RANK_OF_ALL = 5
_N_CHUNKED_ALONE = 3
# A layout is left out where another is no larger and, in every read, no slower by more.
_TIE = 0.05


class ReadShape(NamedTuple):
    """What decides the cost of a read, but for where it begins."""

    steps: tuple[int, ...]
    counts: tuple[int, ...]
    blocks: tuple[int, ...]
    n_concurrent: int

    @classmethod
    def of(cls, pattern: AccessPattern) -> ReadShape:
        """Return that of a pattern's HDF5 reads."""
        call = pattern.call
        return cls(call.stride, call.count, call.block, pattern.n_concurrent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadKind:
    """Reads of a dataset that differ in where they begin alone.

    Attributes
    ----------
    slab
        That of the pattern that is read most.
    logical, logical_per_day
        What several such reads together ask for, and how often: of layouts that are as good for
        each read, the one is better in which this lies together.
    description
        Of that pattern, in words.
    n_concurrent
        Processes that read at one time.
    per_day, observed
        HDF5 reads that a replica may serve, a day and in all that was observed.
    """

    slab: Hyperslab
    logical: Hyperslab
    logical_per_day: float
    description: str
    n_concurrent: int
    per_day: float
    observed: float

    @classmethod
    def of(cls, alike: Sequence[AccessPattern], *, days: float) -> ReadKind:
        """Return what patterns are together that differ in where they begin alone.

        Parameters
        ----------
        days
            That traces were taken for.

        Notes
        -----
        Collective reads are left out: programs read those from the original, whatever there is
        (docs/reference/connector.md).
        """
        most = max(alike, key=lambda p: p.n_calls)
        free = [p.n_calls - p.n_collective for p in alike]
        per_day = sum(n / days_of(p, days) for n, p in zip(free, alike, strict=True))
        return cls(
            slab=most.call,
            logical=most.typical,
            logical_per_day=per_day * most.n_reads / most.n_calls,
            description=most.description,
            n_concurrent=most.n_concurrent,
            per_day=per_day,
            observed=float(sum(free)),
        )


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
    models: tuple[CostModel, CostModel]
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
        models: tuple[CostModel, CostModel],
    ) -> float:
        """Return the time of one read; shape None: from the original through HDF5."""
        slab = kind.slab
        read = (slab.stride, slab.count, slab.block, kind.n_concurrent)
        key = (shape, array, read, models[0], models[1])
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
    kinds, fixed_s = [], 0.0
    groups: dict[ReadShape, list[AccessPattern]] = {}
    for pattern in patterns:
        if pattern.irregular:
            fixed_s += pattern.elapsed_s / days_of(pattern, days)
        else:
            groups.setdefault(ReadShape.of(pattern), []).append(pattern)
    for alike in groups.values():
        kind = ReadKind.of(alike, days=days)
        collective = sum(p.n_collective / days_of(p, days) for p in alike)
        if collective:
            fixed_s += collective * predictor.seconds(None, array, kind, models)
        if kind.observed > 0:
            kinds.append((kind, seconds_now(dataset, kind, predictor)[0]))
    kinds.sort(key=lambda item: -item[0].per_day * item[1])
    now = np.array([seconds for _, seconds in kinds])
    read = tuple(kind for kind, _ in kinds)
    shapes = tuple(_shapes(dataset, read, now, models, predictor))
    seconds = np.full((len(read), len(shapes)), np.inf)
    margin = serving_margin(*models)
    for j, shape in enumerate(shapes):
        for i, kind in enumerate(read):
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
        n_most=settings.n_candidates,
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


def days_observed(patterns: Sequence[AccessPattern]) -> float:
    """Return the days from the first traced read to the last, at least one."""
    traced = [p for p in patterns if not p.stated and p.first_ns > 0]
    if not traced:
        return 1.0
    span_ns = max(p.last_ns for p in traced) - min(p.first_ns for p in traced)
    return max(1.0, span_ns * 1e-9 / _DAY_S)


def days_of(pattern: AccessPattern, days: float) -> float:
    """Return the days that a pattern's reads are of: stated ones are of one."""
    return 1.0 if pattern.stated else days


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
        (predictor.seconds(shape, array, kind, models), shape) for shape in dataset.existing
    ]
    replica_s, shape = min(replicas, key=lambda r: r[0], default=(math.inf, None))
    if replica_s * serving_margin(*models) < original_s:
        return replica_s, shape
    return original_s, None


def _shapes(
    dataset: DatasetReads,
    kinds: Sequence[ReadKind],
    now: NDArray[np.float64],
    models: tuple[CostModel, CostModel],
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
    for filtered in (False, True) if array.stored_bytes is not None else (False,):
        costs = ChunkCosts.of(
            models[0],
            array,
            decode_s_per_byte=array.decode_s_per_byte if filtered else 0.0,
            stored_share=(array.stored_bytes or 0) / max(1, array.size_bytes) if filtered else 1.0,
        )
        for chosen in (reads, *([read] for read in reads[:_N_CHUNKED_ALONE])):
            chunk_shape = predictor.chunk_shape(chosen, array, costs)
            if chunk_shape is not None:
                shapes.append(ReplicaShape(order=same, chunk_shape=chunk_shape, filtered=filtered))
    return [s for s in dict.fromkeys(shapes) if s not in dataset.existing]


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
    n_most: int,
) -> list[int]:
    """Return the candidates that no other replaces, at most so many.

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
    while left and len(kept) < n_most:
        first = left[0]
        equals = [j for j in left if j == first or (replaces(j, first) and replaces(first, j))]
        logical = [whole_reads(j) for j in equals] if len(equals) > 1 else [0.0]
        least = min(logical) * (1.0 + _TIE)
        chosen = min(j for j, s in zip(equals, logical, strict=True) if s <= least)
        kept.append(chosen)
        left = [j for j in left if j not in equals and not replaces(chosen, j)]
    return sorted(kept)
