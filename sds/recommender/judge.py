"""Judges ranked layouts: which passes every gate, which is advised, and why, in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sds.analyzer import AccessPattern
from sds.recommender.recommendation import (
    NoiseGates,
    PatternCost,
    RankedLayout,
    Recommendation,
)
from sds.recommender.tables import UNCALIBRATED_MARGIN, serving_margin
from sds.wording import counted, factor_text, factors_apart, shares_apart, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sds.recommender.model import ReadModel


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternNow:
    """A pattern with its time per call in the layouts that exist.

    `predictable` is False where no layout changes it: irregular selections, and patterns too
    small to decide anything.
    """

    pattern: AccessPattern
    now_s: float
    predictable: bool

    @property
    def total_now_s(self) -> float:
        """Predicted time of all its calls."""
        return self.now_s * self.pattern.n_calls


def confidence_of(speedup: float, models: tuple[ReadModel, ReadModel]) -> float:
    """Return the probability that a predicted speed-up is one.

    The errors of the two predictions are taken to be normal in the logarithm and independent,
    with the spread that each model has on held-out patterns. What is 1.0 is as likely slower.
    """
    spread = math.hypot(models[0].log_error, models[1].log_error)
    if speedup <= 0 or spread == 0:
        return 1.0 if speedup > 1 else 0.0
    return 0.5 * (1.0 + math.erf(math.log(speedup) / (spread * math.sqrt(2.0))))


def decide(
    ranked: Sequence[RankedLayout],
    reads: Sequence[PatternNow],
    *,
    gates: NoiseGates,
    models: tuple[ReadModel, ReadModel],
    n_candidates: int,
    doubtful: Mapping[tuple[int, ...], float],
) -> Recommendation:
    """Return the ranked layouts with the first that passes the gates, or "leave it", advised.

    `n_candidates` layouts are returned at most, besides "leave it". `doubtful` has, by axis order,
    how many times as fast at most a read is predicted that would stay with the layouts that exist,
    because that is less than the `serving_margin`.
    """
    now_s = sum(read.total_now_s for read in reads)
    margin = serving_margin(*models)
    objections = [
        _objection(c, reads, gates, no_gain=_no_gain(doubtful.get(c.order or (), 1.0), margin))
        for c in ranked
    ]
    judged = [replace(c, reason=_reason(c, o)) for c, o in zip(ranked, objections, strict=True)]
    passing = next((c for c, o in zip(judged, objections, strict=True) if o is None), None)
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
        reason="leave it: "
        + _why_leave(judged, reads, objections, no_gain=_most_doubtful(doubtful, margin))
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
        interval_original=math.exp(models[0].interval_log),
        interval_replica=math.exp(models[1].interval_log),
    )


def _objection(
    candidate: RankedLayout, reads: Sequence[PatternNow], gates: NoiseGates, *, no_gain: str
) -> str | None:
    """Return the first gate that a layout fails, in words; None where it passes all."""
    n_calls = sum(read.pattern.n_calls for read in reads)
    stated = any(read.pattern.stated for read in reads)
    sure, needed = shares_apart(candidate.confidence, gates.min_confidence)
    checks = (
        (candidate.benefit_s > 0, no_gain),
        (
            stated or n_calls >= gates.min_calls,
            f"only {counted(n_calls, 'read')} seen, fewer than {gates.min_calls}",
        ),
        (
            candidate.predicted_s_now >= gates.min_total_s,
            (
                f"all reads take {time_text(candidate.predicted_s_now)}, less than "
                f"{time_text(gates.min_total_s)}"
            ),
        ),
        (
            candidate.benefit_s >= gates.min_saving_s,
            (
                f"it would save {time_text(candidate.benefit_s)}, less than "
                f"{time_text(gates.min_saving_s)}"
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
                f"cannot tell from no gain (confidence {sure}, needed {needed}): "
                "measure with sds calibrate"
            ),
        ),
    )
    return next((words for passed, words in checks if not passed), None)


def _no_gain(factor: float, margin: float) -> str:
    """Return why a layout would serve no read, where none is predicted over `factor` as fast."""
    if factor < UNCALIBRATED_MARGIN:  # the least margin that there is
        return "no read would be faster"
    predicted, needed = factors_apart(factor, margin)
    return (
        f"reads are predicted at most {predicted} times as fast, which the error of the "
        f"models cannot tell from no gain (needed {needed}): measure with "
        "sds calibrate, while the machine has nothing else to do"
    )


def _most_doubtful(doubtful: Mapping[tuple[int, ...], float], margin: float) -> str:
    """Return why no layout at all would serve a read."""
    order = max(doubtful, key=lambda order: doubtful[order], default=())
    factor = doubtful.get(order, 1.0)
    where = f"with order {','.join(map(str, order))} " if factor >= UNCALIBRATED_MARGIN else ""
    return where + _no_gain(factor, margin)


def _reason(candidate: RankedLayout, objection: str | None) -> str:
    """Return what a layout does, or why it is not advised, in one sentence."""
    name = _order_text(candidate)
    if objection is not None:
        return f"{name}: {objection}"
    served = [p for p in candidate.patterns if p.served_by_replica]
    most = max(served, key=lambda p: p.seconds_now - p.seconds_then)
    text = (
        f"{name}: {most.pattern} from {time_text(most.seconds_now)} to "
        f"{time_text(most.seconds_then)} ({counted(most.n_reads, 'read')}, "
        f"{factor_text(most.seconds_now / most.seconds_then)} times as fast)"
    )
    if len(served) > 1:
        text += f", and {len(served) - 1} more of {len(candidate.patterns)} patterns faster"
    return text


def _why_leave(
    judged: Sequence[RankedLayout],
    reads: Sequence[PatternNow],
    objections: Sequence[str | None],
    *,
    no_gain: str,
) -> str:
    """Return why no layout is advised."""
    if not reads:
        return "no reads are known; trace some with sds run, or state a pattern"
    if not judged:
        return "the dataset has no other axis order"
    if not any(read.predictable for read in reads):
        return "only points or irregular regions are read, which no axis order serves better"
    if judged[0].benefit_s <= 0:
        return no_gain
    return f"{objections[0]} (best other layout: {_order_text(judged[0])})"


def _rivals(
    best: RankedLayout, others: Sequence[RankedLayout], models: tuple[ReadModel, ReadModel]
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
