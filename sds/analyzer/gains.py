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
    compared
        The reads of the pattern that are compared with: through HDF5 for the engine's; for a
        replica's those that it left alone in shadow, else those of the original, in whichever way
        it was read. None where fewer than 3 were traced, and of HDF5's own.
    """

    times: ReadTimes
    compared: ReadTimes | None

    @property
    def compared_s(self) -> float | None:
        """Median of the reads that are compared with, seconds."""
        return None if self.compared is None else self.compared.median_s

    @property
    def saved_s(self) -> float | None:
        """Seconds saved: the number of reads times the difference of the medians."""
        if self.compared_s is None:
            return None
        return self.times.n * (self.compared_s - self.times.median_s)

    @property
    def saved_interval_s(self) -> tuple[float, float] | None:
        """Interval of `saved_s` that holds in 19 of 20 cases, seconds.

        From those of the two medians, as of independent ones, by adding squares (Zou and Donner
        2008).
        """
        if self.compared is None:
            return None
        n, saved = self.times.n, self.compared.median_s - self.times.median_s
        low, high = self.compared.median_interval_s
        least, most = self.times.median_interval_s
        below = math.hypot(self.compared.median_s - low, most - self.times.median_s)
        above = math.hypot(high - self.compared.median_s, self.times.median_s - least)
        return n * (saved - below), n * (saved + above)


def measured_gains(pattern: AccessPattern) -> tuple[MeasuredGain, ...]:
    """Return what each layout served of a pattern, the original first.

    Notes
    -----
    The first reads of a file find it on the device and later ones in memory, whatever serves them.
    Medians are of what is usual; means would give a layout what only came first or last.
    """
    by_hdf5 = _enough([each for each in pattern.times if each.served_by == BY_HDF5])
    original = _enough([each for each in pattern.times if each.is_of_original])
    compared = {BY_HDF5: None, BY_ENGINE: by_hdf5}
    compared |= {each.served_by: each for each in pattern.left_alone if _enough([each])}
    in_order = sorted(
        pattern.times, key=lambda each: (not each.is_of_original, abs(each.served_by))
    )
    return tuple(
        MeasuredGain(times=each, compared=compared.get(each.served_by, original))
        for each in in_order
    )


def n_chosen(pattern: AccessPattern, replica_id: int) -> int:
    """Return for how many reads of a pattern a replica was chosen, those left alone included."""
    times = (*pattern.times, *pattern.left_alone)
    return sum(each.n for each in times if each.served_by == replica_id)


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
    saved_low_s, saved_high_s
        Interval of `saved_s`, the sum of those of the patterns.
    last_ns
        When the newest read began that it served, ns since 1970; 0 where none is known.
    """

    n: int
    total_s: float
    n_compared: int
    saved_s: float | None
    saved_low_s: float | None
    saved_high_s: float | None
    last_ns: int

    @property
    def saved_s_per_read(self) -> float | None:
        """Seconds saved of each read that can be compared; None where none can."""
        return None if self.saved_s is None else self.saved_s / self.n_compared


def replica_gain(patterns: Iterable[AccessPattern], replica_id: int) -> ReplicaGain:
    """Return what a replica of a dataset served of its patterns."""
    gains = []
    last_ns = 0
    for pattern in patterns:
        for gain in measured_gains(pattern):
            if gain.times.served_by == replica_id:
                gains.append(gain)
                last_ns = max(last_ns, gain.times.last_ns or pattern.last_ns)
    saved, low, high = summed_savings(
        (gain.saved_s, *gain.saved_interval_s)
        for gain in gains
        if gain.saved_s is not None and gain.saved_interval_s is not None
    ) or (None, None, None)
    return ReplicaGain(
        n=sum(gain.times.n for gain in gains),
        total_s=math.fsum(gain.times.total_s for gain in gains),
        n_compared=sum(gain.times.n for gain in gains if gain.compared is not None),
        saved_s=saved,
        saved_low_s=low,
        saved_high_s=high,
        last_ns=last_ns,
    )


def summed_savings(
    savings: Iterable[tuple[float, float, float]],
) -> tuple[float, float, float] | None:
    """Return the sum of (seconds saved, low, high); None of none.

    Errors are taken not to cancel: several replicas are compared with the same reads.
    """
    each = tuple(savings)
    if not each:
        return None
    saved, low, high = (math.fsum(column) for column in zip(*each, strict=True))
    return saved, low, high


def _enough(times: list[ReadTimes]) -> ReadTimes | None:
    """Return all as one; None of too few."""
    return added_times(times) if sum(each.n for each in times) >= _FEWEST else None
