"""Savings of replicas: what they served and saved, as measured, against what building them took."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.analyzer.gains import ReplicaGain, replica_gain, summed_savings
from sds.catalog.records import ReplicaState
from sds.catalog.replica_records import ReplicaRecord
from sds.catalog.replicas import GONE_STATES
from sds.recommender.portfolio.evictions import measured_saving
from sds.text import DAY_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sds.analyzer import AccessPattern
    from sds.catalog.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSavings:
    """Time that one replica saved and cost.

    Attributes
    ----------
    gain
        Of its traced reads, as measured.
    saved_s_per_day
        What it saves of the reads of a day, as measured, seconds; None where nothing is known, and
        of one that is gone.
    paid_back_in_days
        After which it will have saved what its build took; 0 where it has. None where nothing is
        known of either, and where it never will have.
    """

    replica: ReplicaRecord
    gain: ReplicaGain
    saved_s_per_day: float | None
    paid_back_in_days: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """Time that all replicas of some datasets saved and cost, those that are gone among them.

    Attributes
    ----------
    saved_s, saved_low_s, saved_high_s
        Sum of what is known, seconds, and the interval that holds it in 19 of 20 cases; None where
        nothing is known.
    build_s
        Of all builds, seconds.
    gone_build_s, gone_saved_s
        Of it what was spent on replicas that are gone (reverted, removed, or of a source that
        changed), and what these had saved, None where nothing is known; below zero where they
        cost time.
    replicas
        All, oldest first, those too of which the build failed.
    """

    saved_s: float | None
    saved_low_s: float | None
    saved_high_s: float | None
    build_s: float
    gone_build_s: float
    gone_saved_s: float | None
    replicas: tuple[ReplicaSavings, ...]


def savings_of(store: Store, file: str | None, dataset: str | None) -> Savings:
    """Return what the replicas of one dataset, one file or all saved and cost.

    Sorted replicas are left out: queries leave no trace.
    """
    patterns: dict[tuple[str, str], list[AccessPattern]] = defaultdict(list)
    for known in store.patterns(file, dataset):
        patterns[known.file, known.dataset].append(known.pattern)
    records = store.replicas(file, dataset, states=frozenset(ReplicaState))
    there: dict[tuple[str, str], list[ReplicaRecord]] = defaultdict(list)
    for record in records:
        if record.state not in GONE_STATES:
            there[record.file, record.dataset].append(record)
    found = [
        _savings_of_one(
            record,
            patterns[record.file, record.dataset],
            days_there(there[record.file, record.dataset]),
        )
        for record in records
        if record.sort is None
    ]
    gone = [one for one in found if one.replica.state in GONE_STATES]
    saved_by_gone = [one.gain.saved_s for one in gone if one.gain.saved_s is not None]
    saved, low, high = summed_savings(
        (one.gain.saved_s, one.gain.saved_low_s, one.gain.saved_high_s)
        for one in found
        if one.gain.saved_s is not None
        and one.gain.saved_low_s is not None
        and one.gain.saved_high_s is not None
    ) or (None, None, None)
    return Savings(
        saved_s=saved,
        saved_low_s=low,
        saved_high_s=high,
        build_s=_build_s(found),
        gone_build_s=_build_s(gone),
        gone_saved_s=math.fsum(saved_by_gone) if saved_by_gone else None,
        replicas=tuple(found),
    )


def days_there(records: Iterable[ReplicaRecord]) -> dict[int, float]:
    """Return for how many days replicas have been there, by id."""
    now_ns = time.time_ns()
    return {one.id: max(0.0, (now_ns - one.created_ns) * 1e-9 / DAY_S) for one in records}


def _savings_of_one(
    record: ReplicaRecord, patterns: Sequence[AccessPattern], days: Mapping[int, float]
) -> ReplicaSavings:
    gain = replica_gain(patterns, record.id)
    is_known = gain.saved_s is not None and record.state not in GONE_STATES
    per_day = measured_saving(patterns, record.id, days_there=days) if is_known else None
    return ReplicaSavings(
        replica=record,
        gain=gain,
        saved_s_per_day=per_day,
        paid_back_in_days=_paid_back_in_days(record, gain.saved_s, per_day),
    )


def _paid_back_in_days(
    record: ReplicaRecord, saved_s: float | None, per_day: float | None
) -> float | None:
    if record.build_s is None or saved_s is None:
        return None
    missing_s = record.build_s - saved_s
    if missing_s <= 0:
        return 0.0
    return missing_s / per_day if per_day else None


def _build_s(found: Sequence[ReplicaSavings]) -> float:
    return math.fsum(one.replica.build_s or 0.0 for one in found)
