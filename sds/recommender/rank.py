"""Ranks every layout, and leaving things as they are, by the time that each would save."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sds.analyzer import AccessPattern, PatternKind
from sds.errors import SdsValueError
from sds.geometry import BlockFeatures, check_order
from sds.recommender.cost import (
    StoredArray,
    features_as_stored,
    features_in_replica,
    predict_read,
)
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

    from sds.recommender.model import CostModel

# Predicted totals closer than this are equal: then the layout that changes least goes first.
_TIE = 0.01
# Patterns beyond these, by time now, are too small to decide between layouts.
_MAX_PATTERNS = 32
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A pattern with its predicted time per HDF5 read in the layouts that exist."""

    pattern: AccessPattern
    now_s: float
    predictable: bool

    @property
    def total_now_s(self) -> float:
        return self.now_s * self.pattern.n_calls


def rank_layouts(
    patterns: Sequence[AccessPattern],
    *,
    array: StoredArray,
    models: tuple[CostModel, CostModel] | None = None,
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
    candidates = []
    for order in candidate_orders(decisive, array.extent):
        if order in existing or (array.chunks is None and not inversions(order)):
            continue
        candidates.append(
            _candidate(
                order,
                reads,
                array=array,
                models=models,
                target=target,
                build_bytes_per_s=build_bytes_per_s,
            )
        )
    ranked = _by_benefit(candidates)
    return _decide(ranked, reads, gates=gates, models=models, n_candidates=n_candidates)


def _reads_now(
    patterns: Sequence[AccessPattern],
    *,
    array: StoredArray,
    models: tuple[CostModel, CostModel],
    existing: Sequence[tuple[int, ...]],
) -> list[_Read]:
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
            now = _seconds(models[0], array, features_as_stored(array, pattern.call), pattern)
            for order in existing:
                features = features_in_replica(array, pattern.call, order)
                now = min(now, _seconds(models[1], array, features, pattern))
        reads.append(_Read(pattern=pattern, now_s=now, predictable=not pattern.irregular))
    reads.sort(key=lambda read: read.total_now_s, reverse=True)
    return [
        read if i < _MAX_PATTERNS else replace(read, predictable=False)
        for i, read in enumerate(reads)
    ]


def _seconds(
    model: CostModel, array: StoredArray, features: BlockFeatures, pattern: AccessPattern
) -> float:
    """Return the predicted time of one HDF5 read of a pattern."""
    return predict_read(model, array, features, n_concurrent=pattern.n_concurrent).seconds


def _candidate(
    order: tuple[int, ...],
    reads: Sequence[_Read],
    *,
    array: StoredArray,
    models: tuple[CostModel, CostModel],
    target: str | None,
    build_bytes_per_s: float,
) -> tuple[RankedLayout, float]:
    """Return one order with what it would save, not yet judged, and its time of logical reads."""
    costs, per_day, served_now, served_then, n_served = [], 0.0, 0.0, 0.0, 0
    margin, logical_s = serving_margin(*models), 0.0
    days = _days_observed([read.pattern for read in reads])
    for read in reads:
        pattern, then_s = read.pattern, read.now_s
        if read.predictable:
            features = features_in_replica(array, pattern.call, order)
            replica_s = _seconds(models[1], array, features, pattern)
            if replica_s * margin < read.now_s:
                then_s = replica_s
                features = features_in_replica(array, pattern.typical, order)
                logical_s += pattern.n_reads * _seconds(models[1], array, features, pattern)
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
    build_s = array.size_bytes / build_bytes_per_s
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
    return layout, logical_s


def confidence_of(speedup: float, models: tuple[CostModel, CostModel]) -> float:
    """Return the probability that a predicted speed-up is one.

    The errors of the two predictions are taken to be normal in the logarithm and independent,
    with the spread that each model has on held-out patterns. What is 1.0 is as likely slower.
    """
    spread = math.hypot(models[0].log_error, models[1].log_error)
    if speedup <= 0 or spread == 0:
        return 1.0 if speedup > 1 else 0.0
    return 0.5 * (1.0 + math.erf(math.log(speedup) / (spread * math.sqrt(2.0))))


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


def _decide(
    ranked: Sequence[RankedLayout],
    reads: Sequence[_Read],
    *,
    gates: NoiseGates,
    models: tuple[CostModel, CostModel],
    n_candidates: int,
) -> Recommendation:
    """Return the ranked layouts with the first that passes the gates, or "leave it", advised."""
    now_s = sum(read.total_now_s for read in reads)
    judged = [replace(c, reason=_reason(c, _objection(c, reads, gates))) for c in ranked]
    passing = next((c for c in judged if not _objection(c, reads, gates)), None)
    leave = RankedLayout(
        order=None,
        predicted_s_now=now_s,
        predicted_s=now_s,
        benefit_s=0.0,
        benefit_s_per_day=0.0,
        speedup=1.0,
        confidence=1.0,
        size_bytes=0,
        build_cost_s=0.0,
        break_even_reads=None,
        advised=passing is None,
        reason="leave it: " + _why_leave(judged, reads, gates)
        if passing is None
        else "leave it: keeps every read as it is",
        command=None,
        patterns=tuple(
            PatternCost(
                pattern=read.pattern.description,
                n_reads=read.pattern.n_reads,
                seconds_now=read.total_now_s,
                seconds_then=read.total_now_s,
                served_by_replica=False,
            )
            for read in reads
        ),
    )
    if passing is None:
        candidates = (leave, *judged[:n_candidates])
        reason = leave.reason
    else:
        others = [c for c in judged if c is not passing]
        reason = passing.reason + _rivals(passing, others, models)
        passing = replace(passing, advised=True, reason=reason)
        useful = [c for c in others if c.benefit_s > 0][: n_candidates - 1]
        useless = [c for c in others if c.benefit_s <= 0][: n_candidates - 1 - len(useful)]
        candidates = (passing, *useful, leave, *useless)
    calibrated = models[0].calibrated and models[1].calibrated
    return Recommendation(
        candidates=candidates,
        calibrated=calibrated,
        model_original=models[0].name,
        model_replica=models[1].name,
        reason=reason if calibrated else reason + " (uncalibrated)",
        n_reads=sum(read.pattern.n_reads for read in reads),
    )


def _objection(candidate: RankedLayout, reads: Sequence[_Read], gates: NoiseGates) -> str | None:
    """Return the first gate that a layout fails, in words; None where it passes all."""
    n_reads = sum(read.pattern.n_reads for read in reads)
    stated = any(read.pattern.stated for read in reads)
    checks = (
        (candidate.benefit_s > 0, "no read would be faster"),
        (
            stated or n_reads >= gates.min_reads,
            f"only {n_reads} reads were seen, fewer than {gates.min_reads}",
        ),
        (
            candidate.predicted_s_now >= gates.min_total_s,
            (
                f"all reads take {seconds_text(candidate.predicted_s_now)}, less than "
                f"{seconds_text(gates.min_total_s)}"
            ),
        ),
        (
            candidate.benefit_s >= gates.min_saving_s,
            (
                f"it would save {seconds_text(candidate.benefit_s)}, less than "
                f"{seconds_text(gates.min_saving_s)}"
            ),
        ),
        (
            candidate.speedup >= gates.min_speedup,
            f"it would be {candidate.speedup:.2f} times as fast, gates ask for {gates.min_speedup}",
        ),
        (
            candidate.confidence >= gates.min_confidence,
            (
                f"predicted {candidate.speedup:.1f} times as fast, which the error of the models "
                f"cannot tell from no gain (confidence {candidate.confidence:.0%}, needed "
                f"{gates.min_confidence:.0%}): measure with sds calibrate"
            ),
        ),
    )
    return next((words for passed, words in checks if not passed), None)


def _reason(candidate: RankedLayout, objection: str | None) -> str:
    """Return what a layout does, or why it is not advised, in one sentence."""
    name = _order_text(candidate)
    if objection is not None:
        return f"{name}: {objection}"
    served = [p for p in candidate.patterns if p.served_by_replica]
    most = max(served, key=lambda p: p.seconds_now - p.seconds_then)
    text = (
        f"{name}: {most.pattern} from {seconds_text(most.seconds_now)} to "
        f"{seconds_text(most.seconds_then)} ({most.n_reads} reads, "
        f"{most.seconds_now / most.seconds_then:.3g} times as fast)"
    )
    if len(served) > 1:
        text += f", and {len(served) - 1} more of {len(candidate.patterns)} patterns faster"
    return text


def _why_leave(judged: Sequence[RankedLayout], reads: Sequence[_Read], gates: NoiseGates) -> str:
    """Return why no layout is advised."""
    if not reads:
        return "no reads are known; trace some with sds run, or state a pattern"
    if not judged:
        return "the dataset has no other axis order"
    if not any(read.predictable for read in reads):
        return "only points or irregular regions are read, which no axis order serves better"
    best = judged[0]
    where = f" (best other layout: {_order_text(best)})" if best.benefit_s > 0 else ""
    return f"{_objection(best, reads, gates)}{where}"


def _rivals(
    best: RankedLayout, others: Sequence[RankedLayout], models: tuple[CostModel, CostModel]
) -> str:
    """Return which layouts the model cannot tell from the advised one, in words."""
    spread = math.sqrt(2.0) * models[1].log_error
    limit = best.predicted_s * math.exp(1.28 * spread)
    alike = [c for c in others if c.benefit_s > 0 and c.predicted_s <= limit]
    if not alike:
        return ""
    names = "; ".join(_order_text(c) for c in alike[:3])
    more = f" and {len(alike) - 3} more" if len(alike) > 3 else ""
    return f". Not to be told from it by prediction: {names}{more}"


def _order_text(candidate: RankedLayout) -> str:
    return f"order {','.join(map(str, candidate.order or ()))}"


def seconds_text(seconds: float) -> str:
    """Return a time for people: ``3.2 ms``, ``12 s``."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
