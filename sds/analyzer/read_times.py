"""Times of traced reads of one kind, apart for each of what served them.

Traces count the reads of a record by powers of two of their time, so that the times of the reads in
the middle are known to within a factor of two, and better where fastest and slowest are close.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from sds.analyzer.read_records import ReadRecords

BY_HDF5 = 0
"""The original, through HDF5."""
BY_ENGINE = -1
"""The original, by SDS's engine."""
# Of a dataset whose replicas were built anew again and again.
_MOST_REPLICAS = 16
_NORMAL_95 = 1.96  # of the normal distribution, for an interval that holds in 19 of 20 cases
_FEWEST_OF_INTERVAL = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTimes:
    """Times of reads that the original or one replica served.

    Attributes
    ----------
    served_by
        `BY_HDF5`, `BY_ENGINE`, or a replica's id.
    n
        HDF5 reads.
    total_s, least_s, most_s
        Sum, fastest and slowest, seconds.
    histogram
        Pairs (b, how many reads took 2^b to 2^(b+1) ns), by b.
    last_ns
        When the newest of them began, ns since 1970; 0 where all were counted by an older SDS.
    """

    served_by: int
    n: int
    total_s: float
    least_s: float
    most_s: float
    histogram: tuple[tuple[int, int], ...]
    last_ns: int = 0

    @property
    def is_of_original(self) -> bool:
        """True where the original was read."""
        return self.served_by in {BY_HDF5, BY_ENGINE}

    @property
    def mean_s(self) -> float:
        """Mean, seconds."""
        return self.total_s / self.n

    @property
    def median_s(self) -> float:
        """Median, seconds, as if the logarithms of a bucket's times were evenly spread."""
        before = 0
        for number, (_, n) in enumerate(self.histogram):
            low, high = self.ends_of_bucket(number)
            if 2 * (before + n) == self.n:  # half of all: it lies between this bucket and the next
                return math.sqrt(high * self.ends_of_bucket(number + 1)[0])
            if 2 * (before + n) > self.n:
                return low * math.pow(high / low, (self.n / 2 - before) / n) if low > 0 else high
            before += n
        return self.mean_s

    @property
    def median_interval_s(self) -> tuple[float, float]:
        """Interval that holds the median of such reads in 19 of 20 cases, seconds.

        Of independent reads, by order statistics: the ranks within 1.96 standard deviations of the
        number that is below the median, sqrt(n)/2 (Conover 1999, section 3.2), each at the far end
        of its bucket. From the fastest to the slowest of fewer than 6, which holds it less often.
        """
        reach = _NORMAL_95 * math.sqrt(self.n) / 2
        if self.n < _FEWEST_OF_INTERVAL:
            return self.least_s, self.most_s
        first, last = self.n / 2 - reach, self.n / 2 + reach
        low, high = self.least_s, self.most_s
        before = 0
        for number, (_, n) in enumerate(self.histogram):
            if before < first:
                low = self.ends_of_bucket(number)[0]
            if before <= last:
                high = self.ends_of_bucket(number)[1]
            before += n
        return low, high

    def ends_of_bucket(self, number: int) -> tuple[float, float]:
        """Return the least and the largest time that a bucket may hold."""
        bucket = self.histogram[number][0]
        low = max(math.ldexp(1e-9, bucket), self.least_s)
        return low, max(low, min(math.ldexp(1e-9, bucket + 1), self.most_s))


def times_of(records: ReadRecords, index: NDArray[np.int64]) -> tuple[ReadTimes, ...]:
    """Return the times of some records, those of collective reads left out: ranks wait in them.

    Parameters
    ----------
    index
        Numbers of records, shape (k,).
    """
    return _times_by(records, records.served_by, index)


def left_alone_times(records: ReadRecords, index: NDArray[np.int64]) -> tuple[ReadTimes, ...]:
    """Return the same of those that replicas in shadow left alone, by these replicas."""
    return _times_by(records, records.left_by, index[records.left_by[index] > 0])


def _times_by(
    records: ReadRecords, keys: NDArray[np.int64], index: NDArray[np.int64]
) -> tuple[ReadTimes, ...]:
    """Return the times of some records, apart for each key."""
    found = []
    index = index[~records.collective[index] & (records.elapsed_ns[index] > 0)]
    for key in np.unique(keys[index]).tolist():
        of_one = index[keys[index] == key]
        counts = records.latency[of_one].sum(axis=0, dtype=np.int64)
        found.append(
            ReadTimes(
                served_by=key,
                n=int(records.n_calls[of_one].sum()),
                total_s=float(records.elapsed_ns[of_one].sum()) * 1e-9,
                least_s=float(records.elapsed_min_ns[of_one].min()) * 1e-9,
                most_s=float(records.elapsed_max_ns[of_one].max()) * 1e-9,
                histogram=tuple((int(b), int(counts[b])) for b in np.flatnonzero(counts)),
                last_ns=int(records.last_start_ns[of_one].max()),
            )
        )
    return tuple(found)


def joined_times(times: Iterable[ReadTimes]) -> tuple[ReadTimes, ...]:
    """Return times with those of what served alike made one, of the newest replicas alone."""
    groups: dict[int, list[ReadTimes]] = defaultdict(list)
    for each in times:
        groups[each.served_by].append(each)
    kept = sorted(key for key in groups if key > 0)[-_MOST_REPLICAS:]
    return tuple(added_times(groups[key]) for key in (BY_ENGINE, BY_HDF5, *kept) if key in groups)


def added_times(times: Sequence[ReadTimes]) -> ReadTimes:
    """Return the times of several groups of reads as of one, which the first's layout served."""
    if len(times) == 1:
        return times[0]
    histogram: Counter[int] = Counter()
    for each in times:
        histogram.update(dict(each.histogram))
    return ReadTimes(
        served_by=times[0].served_by,
        n=sum(each.n for each in times),
        total_s=math.fsum(each.total_s for each in times),
        least_s=min(each.least_s for each in times),
        most_s=max(each.most_s for each in times),
        histogram=tuple(sorted(histogram.items())),
        last_ns=max(each.last_ns for each in times),
    )
