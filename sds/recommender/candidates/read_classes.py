"""Classes of reads of a dataset: those that differ only in where they begin.

Classes differ in which parts of the dataset and which segments hold their reads, so that
each is served by a replica or is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sds.analyzer import Place, ReadTimes
from sds.analyzer.read_times import joined_times
from sds.geometry import Box, Hyperslab, SegmentList
from sds.text import DAY_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sds.analyzer import AccessPattern
    from sds.geometry import ReplicaLayout
    from sds.recommender.candidates.segment_candidates import (
        ReadPositions,
        ReadsInSegments,
        ServedShare,
    )

_NO_READ = 1e-9


class ReadShape(NamedTuple):
    """Shape of a read: all that decides its cost, but for where it begins."""

    steps: tuple[int, ...]
    counts: tuple[int, ...]
    blocks: tuple[int, ...]
    n_concurrent: int

    @classmethod
    def of(cls, pattern: AccessPattern) -> ReadShape:
        """Return the shape of a pattern's HDF5 reads."""
        call = pattern.call
        return cls(call.stride, call.count, call.block, pattern.n_concurrent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadClass:
    """Reads of a dataset that differ only in where they begin.

    Attributes
    ----------
    slab
        That of the pattern that is read most.
    logical, logical_per_day
        What several such reads together ask for, and how often: of layouts that are as good for
        each read, the one is better in which this lies together.
    description
        Of that pattern, in words.
    n_concurrent
        Processes that read at one time.
    per_day, observed
        HDF5 reads that a replica may serve, a day and in all that was observed.
    measured_s
        Mean seconds of such a read from the original, as traced; nan: none was.
    in_replicas
        Times of such reads that replicas served, one for each of these.
    inside
        Of the boxes and segments in question, those that hold these reads.
    """

    slab: Hyperslab
    logical: Hyperslab
    logical_per_day: float
    description: str
    n_concurrent: int
    per_day: float
    observed: float
    measured_s: float = math.nan
    in_replicas: tuple[ReadTimes, ...] = ()
    inside: frozenset[Box | SegmentList] = frozenset()

    @classmethod
    def of(cls, alike: Sequence[AccessPattern], *, until_ns: int) -> ReadClass:
        """Merge patterns that differ only in where they begin into one read class.

        Parameters
        ----------
        until_ns
            When the dataset was read last, as of `days_of`.

        Notes
        -----
        Collective reads are left out: programs read those from the original, whatever there is
        (docs/reference/connector.md).
        """
        most = max(alike, key=lambda p: p.n_calls)
        free = [p.n_calls - p.n_collective for p in alike]
        per_day = sum(n / days_of(p, until_ns) for n, p in zip(free, alike, strict=True))
        times = joined_times(each for pattern in alike for each in pattern.times)
        return cls(
            slab=most.call,
            logical=most.typical,
            logical_per_day=per_day * most.n_reads / most.n_calls,
            description=most.description,
            n_concurrent=most.n_concurrent,
            per_day=per_day,
            observed=float(sum(free)),
            measured_s=_mean_original_s(alike),
            in_replicas=tuple(each for each in times if not each.is_of_original),
        )

    def times_in(self, replica_ids: Sequence[int]) -> ReadTimes | None:
        """Return the times of such reads from the newest of some replicas that served any."""
        of_them = [each for each in self.in_replicas if each.served_by in replica_ids]
        return max(of_them, key=lambda each: each.served_by, default=None)

    def is_held_by(self, layout: ReplicaLayout, extent: tuple[int, ...]) -> bool:
        """Return whether a replica holds what these reads ask for of a dataset of an extent."""
        if layout.segments is not None:
            return layout.segments in self.inside
        return layout.region in self.inside or layout.holds_all(extent)


def collective_s(pattern: AccessPattern) -> float:
    """Return the seconds of a pattern's collective reads, waits for other ranks included."""
    if not pattern.n_collective:
        return 0.0
    n_apart = sum(each.n for each in pattern.times)
    if n_apart < pattern.n_calls - pattern.n_collective:  # some are of an older catalog
        return pattern.elapsed_s * pattern.n_collective / pattern.n_calls
    return max(0.0, pattern.elapsed_s - math.fsum(each.total_s for each in pattern.times))


def _mean_original_s(alike: Sequence[AccessPattern]) -> float:
    """Return the mean seconds of traced reads from the original; nan where there is none."""
    n, seconds = 0, 0.0
    for pattern in alike:
        of_original = [each for each in pattern.times if each.is_of_original]
        n += sum(each.n for each in of_original)
        seconds += sum(each.total_s for each in of_original)
        if not pattern.times and not pattern.n_redirected and not pattern.n_collective:
            # Of an older catalog: nothing is kept apart.
            n += pattern.n_calls if pattern.elapsed_s > 0 else 0
            seconds += pattern.elapsed_s
    return seconds / n if n and seconds else math.nan


@dataclass(slots=True)
class _Part:
    """Reads of one class that the same boxes hold."""

    per_day: float = 0.0
    observed: float = 0.0
    place: Place | None = None


def classes_in_parts(
    alike: Sequence[AccessPattern],
    boxes: Sequence[Box],
    segments: ReadsInSegments,
    *,
    until_ns: int,
) -> list[ReadClass]:
    """Return patterns that differ only in where they begin, split by what holds their reads.

    Parameters
    ----------
    alike
        At least one.
    boxes
        Parts of the dataset.
    segments
        Of the dataset.
    until_ns
        When the dataset was read last, as of `days_of`.
    """
    whole = ReadClass.of(alike, until_ns=until_ns)
    parts: dict[frozenset[Box], _Part] = {frozenset(): _Part()}
    for pattern in alike:
        n = pattern.n_calls - pattern.n_collective
        left = float(n)
        for place in pattern.places if boxes else ():
            inside = frozenset(box for box in boxes if box.covers(place.box))
            if not inside:
                continue
            observed = n * place.n_calls / pattern.n_calls
            part = parts.setdefault(inside, _Part())
            part.observed += observed
            part.per_day += observed / days_of(pattern, until_ns)
            if part.place is None or part.place.n_calls < place.n_calls:
                part.place = place
            left -= observed
        if left > _NO_READ * n:
            parts[frozenset()].observed += left
            parts[frozenset()].per_day += left / days_of(pattern, until_ns)
    classes = {
        inside: replace(
            whole,
            slab=_moved(whole.slab, part.place, inside),
            logical=_moved(whole.logical, part.place, inside),
            logical_per_day=whole.logical_per_day * part.per_day / whole.per_day,
            per_day=part.per_day,
            observed=part.observed,
            inside=inside,
        )
        for inside, part in parts.items()
        if part.observed > 0
    }
    if not segments:
        return list(classes.values())
    reads = segments.of_class(alike)
    around = _boxes_around(reads, [place for p in alike for place in p.places], boxes)
    return [
        each
        for inside, read in classes.items()
        for each in in_segments(
            read,
            [*inside, Box.whole(alike[0].extent)],
            segments.shares(reads.rows(np.flatnonzero([box_set == inside for box_set in around]))),
        )
    ]


def _boxes_around(
    reads: ReadPositions, places: Sequence[Place], boxes: Sequence[Box]
) -> list[frozenset[Box]]:
    """Return for each read the boxes that hold the place in which it counts, the smallest."""
    inside = [frozenset(box for box in boxes if box.covers(place.box)) for place in places]
    if not any(inside):
        return [frozenset()] * len(reads.served_by)
    low = np.array([place.box.start for place in places])
    size = np.array([place.box.extent for place in places])
    space = np.prod(size.astype(np.float64), axis=1)
    around = []
    for first, end in zip(reads.low, reads.high, strict=True):
        covers = np.all((low <= first) & (end <= low + size), axis=1)
        smallest = int(np.argmin(np.where(covers, space, np.inf)))
        around.append(inside[smallest] if covers[smallest] else frozenset())
    return around


def in_segments(
    read: ReadClass, within: Sequence[Box], shares: Sequence[ServedShare]
) -> list[ReadClass]:
    """Return reads of a class that lie within boxes, split by the segments that serve them."""
    found = []
    for held, share, start in shares:
        found.append(
            replace(
                read,
                slab=read.slab if start is None else _begun_at(read.slab, start, within),
                logical_per_day=read.logical_per_day * share,
                per_day=read.per_day * share,
                observed=read.observed * share,
                inside=read.inside | held,
            )
        )
    return found


def regions_of(layouts: Iterable[ReplicaLayout], extent: tuple[int, ...]) -> list[Box]:
    """Return the parts that some replicas hold, each once; whole ones are left out."""
    parts = (x.region for x in layouts if x.segments is None and not x.holds_all(extent))
    return list(dict.fromkeys(parts))


def _moved(slab: Hyperslab, place: Place | None, inside: Iterable[Box]) -> Hyperslab:
    """Return a selection at a place, cut where it would reach out of the boxes that hold that."""
    if place is None:
        return slab
    start, counts, blocks = list(slab.start), list(slab.count), list(slab.block)
    for a, stride in enumerate(slab.stride):
        low = max(box.start[a] for box in inside)
        high = min(box.start[a] + box.extent[a] for box in inside)
        blocks[a] = min(blocks[a], high - low)
        counts[a] = min(counts[a], (high - low - blocks[a]) // stride + 1)
        span = (counts[a] - 1) * stride + blocks[a]
        start[a] = min(place.box.start[a], high - span)
    return replace(slab, start=tuple(start), count=tuple(counts), block=tuple(blocks))


def _begun_at(slab: Hyperslab, start: Sequence[int], within: Sequence[Box]) -> Hyperslab:
    """Return a selection that begins elsewhere, as near as it can be within boxes."""
    begin = list(start)
    for a, (_, stride, count, block) in enumerate(slab.axes()):
        span = (count - 1) * stride + block
        high = min(box.start[a] + box.extent[a] for box in within)
        begin[a] = min(begin[a], high - span)
    return replace(slab, start=tuple(begin))


def newest_read_ns(patterns: Sequence[AccessPattern]) -> int:
    """Return when the newest traced read of some patterns began, ns since 1970; 0 without any."""
    return max((p.last_ns for p in patterns if not p.stated), default=0)


def days_of(pattern: AccessPattern, until_ns: int) -> float:
    """Return the days that a pattern's reads are of: those since its first, at least one.

    Its own: what began to be read a week ago is not read less often because the dataset has been
    read for a year. Stated reads are of one day.

    Parameters
    ----------
    until_ns
        When its dataset was read last (`newest_read_ns`): of a pattern that is not read any more
        the reads are of more days from day to day.
    """
    if pattern.stated or pattern.first_ns <= 0:
        return 1.0
    return max(1.0, (until_ns - pattern.first_ns) * 1e-9 / DAY_S)
