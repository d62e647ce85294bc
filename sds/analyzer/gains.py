"""Time that engine and replicas saved, by what traced reads took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.analyzer.read_times import BY_ENGINE, BY_HDF5, ReadTimes, added_times

if TYPE_CHECKING:
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
        engine's, from the original, in whichever way, for a replica's. None where fewer than 3
        were traced, and of HDF5's own.
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
    in_order = sorted(
        pattern.times, key=lambda each: (not each.is_of_original, abs(each.served_by))
    )
    return tuple(
        MeasuredGain(times=each, compared_s=compared.get(each.served_by, original))
        for each in in_order
    )


def _median_s(times: list[ReadTimes]) -> float | None:
    """Return the median of all; None of too few."""
    if sum(each.n for each in times) < _FEWEST:
        return None
    return added_times(times).median_s
