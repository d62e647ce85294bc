"""Savings of replicas: what they served and saved, as measured, against what building them took."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from sds.analyzer.gains import replica_gain, summed_savings
from sds.catalog.records import ReplicaState
from sds.catalog.replicas import GONE_STATES
from sds.recommender.portfolio.evictions import measured_saving
from sds.server.operations.replica_reports import ReplicaSavings, Savings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer import AccessPattern
    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.store import Store


def savings_of(store: Store, file: str | None, dataset: str | None) -> Savings:
    """Return what the replicas of one dataset, one file or all saved and cost.

    Sorted replicas are left out: queries leave no trace.
    """
    patterns: dict[tuple[str, str], list[AccessPattern]] = defaultdict(list)
    for known in store.patterns(file, dataset):
        patterns[known.file, known.dataset].append(known.pattern)
    records = store.replicas(file, dataset, states=frozenset(ReplicaState))
    each = [
        _savings_of_one(record, patterns[record.file, record.dataset])
        for record in records
        if record.sort is None
    ]
    found = [one for one in each if one.gain.n or one.replica.build_s is not None]
    gone = [one for one in found if one.replica.state in GONE_STATES]
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
        gone_saved_s=math.fsum(one.gain.saved_s or 0.0 for one in gone),
        replicas=tuple(found),
    )


def _savings_of_one(record: ReplicaRecord, patterns: Sequence[AccessPattern]) -> ReplicaSavings:
    gain = replica_gain(patterns, record.id)
    is_known = gain.saved_s is not None and record.state not in GONE_STATES
    per_day = measured_saving(patterns, record.id) if is_known else None
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
