"""Time that engine and replicas saved, by what traced reads took."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.analyzer.read_times import BY_ENGINE, BY_HDF5, ReadTimes, added_times

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sds.analyzer.patterns import AccessPattern


# Of fewer, the first, which finds the file on the device, would speak for all.
_FEWEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGain:
    """Reads of a pattern that one layout served, and what that saved.

    Attributes
    ----------
    times
        Of these reads.
    compared_s
        Median seconds of the reads of the pattern that are compared with: through HDF5 for the
        engine's; for a replica's those that it left alone in shadow, else those of the original, in
        whichever way it was read. None where fewer than 3 were traced, and of HDF5's own.
    """

    times: ReadTimes
    compared_s: float | None

    @property
    def saved_s(self) -> float | None:
        """Seconds saved: the number of reads times the difference of the medians."""
        if self.compared_s is None:
            return None
        return self.times.n * (self.compared_s - self.times.median_s)


def measured_gains(pattern: AccessPattern) -> tuple[MeasuredGain, ...]:
    """Return what each layout served of a pattern, the original first.

    Notes
    -----
    The first reads of a file find it on the device and later ones in memory, whatever serves them.
    Medians are of what is usual; means would give a layout what only came first or last.
    """
    by_hdf5 = _median_s([each for each in pattern.times if each.served_by == BY_HDF5])
    original = _median_s([each for each in pattern.times if each.is_of_original])
    compared = {BY_HDF5: None, BY_ENGINE: by_hdf5}
    compared |= {
        each.served_by: median_s
        for each in pattern.left_alone
        if (median_s := _median_s([each])) is not None
    }
    in_order = sorted(
        pattern.times, key=lambda each: (not each.is_of_original, abs(each.served_by))
    )
    return tuple(
        MeasuredGain(times=each, compared_s=compared.get(each.served_by, original))
        for each in in_order
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGain:
    """Reads that one replica served, of all patterns, and what that saved.

    Attributes
    ----------
    n, total_s
        HDF5 reads, and the time that they took.
    n_compared, saved_s
        Of them those whose pattern was also read from the original, and the seconds saved by them:
        below zero where they took longer. None where nothing can be compared.
    last_ns
        When the newest read began that it served, ns since 1970; 0 where none is known.
    """

    n: int
    total_s: float
    n_compared: int
    saved_s: float | None
    last_ns: int


def replica_gain(patterns: Iterable[AccessPattern], replica_id: int) -> ReplicaGain:
    """Return what a replica of a dataset served of its patterns."""
    gains = []
    last_ns = 0
    for pattern in patterns:
        for gain in measured_gains(pattern):
            if gain.times.served_by == replica_id:
                gains.append(gain)
                last_ns = max(last_ns, gain.times.last_ns or pattern.last_ns)
    compared = [gain for gain in gains if gain.saved_s is not None]
    return ReplicaGain(
        n=sum(gain.times.n for gain in gains),
        total_s=math.fsum(gain.times.total_s for gain in gains),
        n_compared=sum(gain.times.n for gain in compared),
        saved_s=math.fsum(gain.saved_s or 0.0 for gain in compared) if compared else None,
        last_ns=last_ns,
    )


def _median_s(times: list[ReadTimes]) -> float | None:
    """Return the median of all; None of too few."""
    if sum(each.n for each in times) < _FEWEST:
        return None
    return added_times(times).median_s
