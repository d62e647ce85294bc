"""Ranks every layout, and leaving things as they are, by the time that each would save."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from sds.analyzer import AccessPattern, PatternKind
from sds.errors import SdsValueError
from sds.geometry import check_order, count_chunks
from sds.recommender.cost import (
    StoredArray,
    decode_seconds,
    layout_in_replica,
    seconds_as_stored,
    seconds_in,
)
from sds.recommender.judge import PatternNow, confidence_of, decide
from sds.recommender.layouts import HDF5_CHUNK_S, build_seconds
from sds.recommender.orders import candidate_orders, inversions
from sds.recommender.recommendation import (
    NoiseGates,
    PatternCost,
    RankedLayout,
    Recommendation,
)
from sds.recommender.tables import models_for_advice, serving_margin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.geometry import Hyperslab
    from sds.recommender.model import ReadModel


# Predicted totals closer than this are equal: then the layout that changes least goes first.
_TIE = 0.01
# Patterns beyond these, by time now, are too small to decide between layouts.
_MAX_PATTERNS = 32
_DAY_S = 86400.0


def rank_layouts(
    patterns: Sequence[AccessPattern],
    *,
    array: StoredArray,
    models: tuple[ReadModel, ReadModel] | None = None,
    existing_orders: Sequence[tuple[int, ...]] = (),
    target: str | None = None,
    gates: NoiseGates | None = None,
    build_bytes_per_s: float = 250e6,
    n_candidates: int = 8,
) -> Recommendation:
    """Return the layouts of a dataset ranked by the time that a replica of each would save.

    Parameters
    ----------
    patterns
        How it is read: found in traces, stated, or both.
    array
        How it is stored.
    models
        Of the original through HDF5 and of a replica through the engine. None: the built-in
        ones, see `models_for_advice`.
    existing_orders
        Axis orders of replicas that serve it already.
    target
        ``FILE:/path``, for the command of each candidate.
    gates
        What must be exceeded before anything is advised.
    build_bytes_per_s
        Bytes of the dataset reorganized per second.
    n_candidates
        How many layouts to return besides "leave it".

    Raises
    ------
    SdsValueError
        If a pattern is of a dataset of another extent or element size, or an argument is not
        positive.
    LayoutError
        If an existing order is no permutation.

    Notes
    -----
    For each axis order, each pattern's time is the least over the layouts then available: the
    original, the replicas that exist, and this one where it would serve, that is where it is
    predicted cheaper by more than the `serving_margin`. Layouts are ranked by the time of all
    HDF5 reads; of those that are equal in it, first comes the one that serves the logical reads
    best (its pieces lie together), then the one that changes least. Reads of irregular
    selections are known by their bounding box only; they keep their measured time in every
    layout.
    """
    if build_bytes_per_s <= 0 or n_candidates <= 0:
        raise SdsValueError(
            "build_bytes_per_s and n_candidates must be positive, not "
            f"{build_bytes_per_s} and {n_candidates}"
        )
    rank = len(array.extent)
    models = models or models_for_advice(None)
    gates = gates or NoiseGates()
    existing = [check_order(order, rank) for order in existing_orders]
    reads = _reads_now(patterns, array=array, models=models, existing=existing)
    decisive = [read.pattern for read in reads if read.predictable]
    candidates, doubtful = [], {}
    for order in candidate_orders(decisive, array.extent):
        if order in existing or (array.chunks is None and not inversions(order)):
            continue
        layout, logical_s, doubtful[order] = _candidate(
            order,
            reads,
            array=array,
            models=models,
            target=target,
            build_bytes_per_s=build_bytes_per_s,
        )
        candidates.append((layout, logical_s))
    return decide(
        _by_benefit(candidates),
        reads,
        gates=gates,
        models=models,
        n_candidates=n_candidates,
        doubtful=doubtful,
    )


def _reads_now(
    patterns: Sequence[AccessPattern],
    *,
    array: StoredArray,
    models: tuple[ReadModel, ReadModel],
    existing: Sequence[tuple[int, ...]],
) -> list[PatternNow]:
    """Return the patterns with their predicted time in the layouts that exist, longest first."""
    reads = []
    for pattern in patterns:
        if (pattern.extent, pattern.element_size_bytes) != (
            array.extent,
            array.element_size_bytes,
        ):
            raise SdsValueError(
                f"a pattern of extent {pattern.extent}, {pattern.element_size_bytes} bytes an "
                f"element, is not of this dataset: {array.extent}, {array.element_size_bytes}"
            )
        if pattern.kind is PatternKind.EMPTY or pattern.n_calls == 0:
            continue
        if pattern.irregular:
            now = pattern.elapsed_s / pattern.n_calls
        else:
            n = pattern.n_concurrent
            now = seconds_as_stored(models[0], array, pattern.call, n_concurrent=n)
            now += decode_seconds(array, pattern.call)
            if array.chunks is not None and array.extent:
                now += HDF5_CHUNK_S * count_chunks(pattern.call, array.chunks)
            if array.chunks is None and not pattern.n_collective:
                # The connector has its engine read contiguous originals where that is faster.
                by_engine_s = seconds_as_stored(models[1], array, pattern.call, n_concurrent=n)
                now = min(now, by_engine_s)
            for order in existing:
                now = min(now, _seconds(models[1], array, pattern.call, order, n))
        reads.append(PatternNow(pattern=pattern, now_s=now, predictable=not pattern.irregular))
    reads.sort(key=lambda read: read.total_now_s, reverse=True)
    return [
        read if i < _MAX_PATTERNS else replace(read, predictable=False)
        for i, read in enumerate(reads)
    ]


def _seconds(
    model: ReadModel, array: StoredArray, slab: Hyperslab, order: tuple[int, ...], n_concurrent: int
) -> float:
    """Return the predicted time of one read from a contiguous replica."""
    layout = layout_in_replica(array, order)
    return seconds_in(model, array, slab, layout, n_concurrent=n_concurrent)


def _candidate(
    order: tuple[int, ...],
    reads: Sequence[PatternNow],
    *,
    array: StoredArray,
    models: tuple[ReadModel, ReadModel],
    target: str | None,
    build_bytes_per_s: float,
) -> tuple[RankedLayout, float, float]:
    """Return one order with what it would save, not yet judged.

    Beside it the time of the logical reads that it would serve, and how many times as fast at most
    one is predicted that it would not.
    """
    costs, per_day, served_now, served_then, n_served = [], 0.0, 0.0, 0.0, 0
    margin, logical_s, doubtful = serving_margin(*models), 0.0, 1.0
    days = _days_observed([read.pattern for read in reads])
    for read in reads:
        pattern, then_s = read.pattern, read.now_s
        if read.predictable:
            replica_s = _seconds(models[1], array, pattern.call, order, pattern.n_concurrent)
            if replica_s * margin < read.now_s:
                then_s = replica_s
                whole_s = _seconds(models[1], array, pattern.typical, order, pattern.n_concurrent)
                logical_s += pattern.n_reads * whole_s
            elif replica_s > 0:
                doubtful = max(doubtful, read.now_s / replica_s)
        now, then = read.total_now_s, then_s * pattern.n_calls
        costs.append(
            PatternCost(
                pattern=pattern.description,
                n_reads=pattern.n_reads,
                seconds_now=now,
                seconds_then=then,
                served_by_replica=then < now,
            )
        )
        if then < now:
            served_now, served_then = served_now + now, served_then + then
            n_served += pattern.n_reads
            per_day += (now - then) / (1.0 if pattern.stated else days)
    saving = served_now - served_then
    speedup = served_now / served_then if served_then > 0 else 1.0
    build_s = build_seconds(array, build_bytes_per_s)
    name = ",".join(map(str, order))
    layout = RankedLayout(
        order=order,
        predicted_s_now=sum(c.seconds_now for c in costs),
        predicted_s=sum(c.seconds_then for c in costs),
        benefit_s=saving,
        benefit_s_per_day=per_day,
        speedup=speedup,
        confidence=confidence_of(speedup, models),
        size_bytes=array.size_bytes,
        build_cost_s=build_s,
        break_even_reads=math.ceil(build_s * n_served / saving) if saving > 0 else None,
        advised=False,
        reason="",
        command=f"sds reorganize {shlex.quote(target or 'FILE:/DATASET')} --order {name}",
        patterns=tuple(costs),
    )
    return layout, logical_s, doubtful


def _days_observed(patterns: Sequence[AccessPattern]) -> float:
    """Return the days from the first traced read to the last, at least one."""
    traced = [p for p in patterns if not p.stated and p.first_ns > 0]
    if not traced:
        return 1.0
    span_ns = max(p.last_ns for p in traced) - min(p.first_ns for p in traced)
    return max(1.0, span_ns * 1e-9 / _DAY_S)


def _by_benefit(candidates: Sequence[tuple[RankedLayout, float]]) -> list[RankedLayout]:
    """Return the layouts, least predicted time first.

    Among equals the least time of logical reads decides, then the least change.
    """

    def change(candidate: tuple[RankedLayout, float]) -> tuple[int, tuple[int, ...]]:
        order = candidate[0].order or ()
        return inversions(order), order

    left = sorted(candidates, key=lambda c: (c[0].predicted_s, c[1], change(c)))
    ranked = []
    while left:
        first = left[0][0]
        margin_s = _TIE * sum(p.seconds_then for p in first.patterns if p.served_by_replica)
        equals = [c for c in left if c[0].predicted_s - first.predicted_s <= margin_s]
        least_s = min(logical_s for _, logical_s in equals) * (1.0 + _TIE)
        best = min((c for c in equals if c[1] <= least_s), key=change)
        ranked.append(best[0])
        left.remove(best)
    return ranked
