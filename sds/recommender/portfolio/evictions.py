"""Evictions: replicas go, so that another has room, that save least for what they take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.analyzer.gains import measured_gains, n_chosen
from sds.recommender.candidates.read_classes import days_of, newest_read_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


def measured_saving(
    patterns: Sequence[AccessPattern], replica_id: int, *, days_there: Mapping[int, float]
) -> float | None:
    """Return what a replica saves of the patterns of its dataset, seconds a day.

    By how much faster it was measured, read by read (`sds.analyzer.gains.measured_gains`), for as
    many reads a day as there were of each pattern that it serves, before it was there as well: so
    that it can be compared with what is predicted of others. Where several serve a pattern, as
    replicas of parts do, these reads are shared among them as they were chosen. Collective reads
    are left out, which no replica serves. Patterns whose reads cannot be compared are taken to gain
    as the others do. Never below zero; None where nothing that it serves can be compared.

    Parameters
    ----------
    days_there
        Days for which each replica of the dataset that is there has been there, by id.
    """
    until_ns = newest_read_ns(patterns)
    compared = served = saved = unknown = 0.0
    is_known = is_served = False
    for pattern in patterns:
        per_day = (pattern.n_calls - pattern.n_collective) / days_of(pattern, until_ns)
        per_day *= _share_of(pattern, replica_id, days_there)
        for gain in measured_gains(pattern):
            if gain.times.served_by != replica_id:
                continue
            is_served = True
            if gain.compared_s is None:
                unknown += per_day * gain.times.median_s
                continue
            is_known = True
            compared += per_day * gain.compared_s
            served += per_day * gain.times.median_s
            saved += per_day * (gain.compared_s - gain.times.median_s)
    if not is_known:
        return None if is_served else 0.0
    ratio = compared / served if served > 0 else 1.0
    return max(0.0, saved + unknown * (ratio - 1))


def _share_of(pattern: AccessPattern, replica_id: int, days_there: Mapping[int, float]) -> float:
    """Return the share of a pattern's reads that one of its replicas is chosen for.

    By reads a day since each is there: one that has been there for longer serves no more.
    """
    rates = {one: n_chosen(pattern, one) / max(1.0, days) for one, days in days_there.items()}
    total = math.fsum(rates.values())
    return rates[replica_id] / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Space under one budget.

    Attributes
    ----------
    free_bytes
        What is left of it; negative where it is exceeded.
    holds
        Ids of the replicas that may go and count in it; None: all.
    """

    free_bytes: int
    holds: frozenset[int] | None = None

    def held(self, replicas: Iterable[HeldReplica]) -> tuple[HeldReplica, ...]:
        """Return those of some replicas that count in it."""
        return tuple(one for one in replicas if self.holds is None or one.id in self.holds)


def room_for(
    size_bytes: int,
    *,
    saves_s_per_day: float,
    build_s: float,
    rooms: Sequence[Room],
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
    rooms
        All in which it has to fit. Replicas go for the smaller ones first.
    within_days
        In which the build is to be paid for.
    """
    left = tuple(held)
    going: list[HeldReplica] = []
    for room in sorted(rooms, key=lambda each: len(each.held(left))):
        freed = sum(one.size_bytes for one in room.held(going))
        missing = size_bytes - room.free_bytes - freed
        if missing > 0:
            more = _least(room.held(one for one in left if one not in going), missing)
            if more is None:
                return None
            going += more
    if not going:
        return ()
    lost = _lost(going)
    pays = (saves_s_per_day - lost) * within_days >= build_s
    return tuple(going) if saves_s_per_day >= TIMES_AS_MUCH * lost and pays else None


def _least(held: Sequence[HeldReplica], missing: int) -> tuple[HeldReplica, ...] | None:
    """Return those that free enough and save least, of the sets that are looked at."""
    sets = [_by_density(held, missing), *((one,) for one in held if one.size_bytes >= missing)]
    return min((one for one in sets if one is not None), key=_lost, default=None)


def _lost(going: Iterable[HeldReplica]) -> float:
    """Return what some replicas save a day."""
    return math.fsum(one.saves_s_per_day for one in going)


def _by_density(held: Sequence[HeldReplica], missing: int) -> tuple[HeldReplica, ...] | None:
    """Return those that save least for their bytes, no more than are needed; None: too few."""
    going: list[HeldReplica] = []
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
    return tuple(going)
