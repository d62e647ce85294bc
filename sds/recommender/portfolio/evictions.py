"""Evictions: replicas go, so that another has room, that save least for what they take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.analyzer.gains import measured_gains
from sds.recommender.candidates.read_classes import days_observed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sds.analyzer import AccessPattern

TIMES_AS_MUCH = 2.0
"""Ratio of what a replica has to save, by prediction, to what those save that go for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldReplica:
    """A replica that may go.

    Attributes
    ----------
    size_bytes
        On disk.
    saves_s_per_day
        As measured; not negative.
    """

    id: int
    size_bytes: int
    saves_s_per_day: float


def measured_saving(patterns: Sequence[AccessPattern], replica_id: int) -> float | None:
    """Return what a replica saves of the patterns of its dataset, seconds a day.

    By how much faster it was measured, read by read (`sds.analyzer.gains.measured_gains`), for as
    many reads a day as there were of each pattern that it serves, before it was there as well: so
    that it can be compared with what is predicted of others. Never below zero.

    None where what it serves cannot be compared.
    """
    days = days_observed(patterns)
    saved = []
    for pattern in patterns:
        for gain in measured_gains(pattern):
            if gain.times.served_by != replica_id:
                continue
            if gain.saved_s is None:
                return None
            saved.append(gain.saved_s / gain.times.n * pattern.n_calls / days)
    return max(0.0, math.fsum(saved))


def room_for(
    size_bytes: int,
    *,
    saves_s_per_day: float,
    build_s: float,
    free_bytes: int,
    held: Iterable[HeldReplica],
    within_days: float,
) -> tuple[HeldReplica, ...] | None:
    """Return the replicas that are to go for a new one; () where there is room as it is.

    None where there is no room, or what would have to go is worth too much: the new one has to
    save `TIMES_AS_MUCH`, and the difference has to pay for its build.

    Parameters
    ----------
    size_bytes, saves_s_per_day, build_s
        Of the new one; the saving is that beside all that are held.
    free_bytes
        Of the budget; negative where it is exceeded.
    within_days
        In which the build is to be paid for.
    """
    going: list[HeldReplica] = []
    missing = size_bytes - free_bytes
    for one in sorted(held, key=lambda each: (each.saves_s_per_day / each.size_bytes, each.id)):
        if missing <= 0:
            break
        going.append(one)
        missing -= one.size_bytes
    if missing > 0:
        return None
    for one in sorted(going, key=lambda each: -each.saves_s_per_day):
        if missing + one.size_bytes <= 0:  # those after it were enough
            going.remove(one)
            missing += one.size_bytes
    lost = math.fsum(one.saves_s_per_day for one in going)
    pays = (saves_s_per_day - lost) * within_days >= build_s
    is_worth_it = saves_s_per_day >= TIMES_AS_MUCH * lost and pays
    return tuple(going) if not going or is_worth_it else None
