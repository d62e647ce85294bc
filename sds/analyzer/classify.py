"""Group logical reads into access patterns: reads of one shape and orientation, counted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from sds.analyzer.logical_reads import Int64, LogicalReads, Sections, logical_reads
from sds.analyzer.patterns import AccessPattern, PatternKind, classify
from sds.analyzer.read_records import join_records
from sds.analyzer.read_times import joined_times, left_alone_times, times_of
from sds.analyzer.regions import Place, joined_places, places_of
from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sds.analyzer.read_records import JoinedRecords, ReadRecords

# Throughput of less than this is latency, which says nothing of contiguous reads.
_OBSERVABLE_BYTES = 1 << 20


def find_patterns(
    records: Iterable[ReadRecords],
    *,
    contiguous_bytes_per_s: float | None = None,
    contiguous_start_s: float = 0.0,
    max_pause_s: float = 1.0,
) -> list[AccessPattern]:
    """Return the patterns in which a dataset is read, those that lose most time first.

    Parameters
    ----------
    records
        Of one dataset, one entry per process (or several, as they come in).
    contiguous_bytes_per_s, contiguous_start_s
        Time of a contiguous read: start + bytes / rate. Time lost is counted from it.
        None: the best rate observed, see `best_observed_rate`; where a dataset is only ever read
        slowly that hides the loss, so give a model's where there is one.
    max_pause_s
        See `logical_reads`.

    Notes
    -----
    Reads are of one pattern where they agree in kind, in the axes along which they extend, in
    the axes that they span, in the steps, and, on the axes that they do not span, in the number
    of indices up to a power of two; of the HDF5 reads behind them the same holds. Reads that
    select nothing count as no pattern.
    """
    batches = [r for r in records if len(r)]
    rate = contiguous_bytes_per_s
    if rate is None:
        rate = best_observed_rate(batches)
    found = [
        pattern
        for joined in join_records(batches)
        for pattern in _patterns_of(
            joined, rate=rate, start_s=contiguous_start_s, max_pause_s=max_pause_s
        )
    ]
    return combine_patterns(found)


def best_observed_rate(batches: Sequence[ReadRecords]) -> float:
    """Return the highest mean throughput of any record, bytes per second; inf if none is timed.

    Records that moved less than 1 MiB are left out: they measure latency. Where all are that
    small, the mean of all counts.
    """
    moved = [b.n_elements * b.n_calls * b.element_size_bytes for b in batches]
    if not moved:
        return float("inf")
    n_bytes = np.concatenate(moved).astype(np.float64)
    seconds = np.concatenate([b.elapsed_ns for b in batches]) * 1e-9
    large = (n_bytes >= _OBSERVABLE_BYTES) & (seconds > 0)
    if np.any(large):
        return float(np.max(n_bytes[large] / seconds[large]))
    total_s = float(seconds.sum())
    return float(n_bytes.sum()) / total_s if total_s > 0 and n_bytes.sum() > 0 else float("inf")


def combine_patterns(patterns: Iterable[AccessPattern]) -> list[AccessPattern]:
    """Return patterns with those of the same shape and orientation made one.

    Sorted by time lost, then by time, then by bytes, the greatest first. Patterns found in
    batches (as a trace comes in) combine to what all records at once would have given, except
    that the typical selection is that of the batch with the most reads, and that places may be
    wider.
    """
    groups: dict[str, list[AccessPattern]] = defaultdict(list)
    for pattern in patterns:
        groups[pattern.shape_key].append(pattern)
    combined = [m[0] if len(m) == 1 else _merge(m) for m in groups.values()]
    return sorted(combined, key=attrgetter("time_lost_s", "elapsed_s", "bytes_read"), reverse=True)


def merge_patterns(a: AccessPattern, b: AccessPattern) -> AccessPattern:
    """Return one pattern for two of the same `shape_key`: counts, bytes and times summed.

    Raises
    ------
    SdsValueError
        If they differ in shape.
    """
    if a.shape_key != b.shape_key:
        raise SdsValueError(
            f"{a.description} and {b.description} are different patterns: "
            "merge those of equal shape_key"
        )
    return _merge((a, b))


def _merge(members: Sequence[AccessPattern]) -> AccessPattern:
    """Return one pattern for several of the same key."""
    lead = max(members, key=attrgetter("n_reads"))
    seen = [m for m in members if m.first_ns > 0]
    return replace(
        lead,
        n_reads=sum(m.n_reads for m in members),
        n_calls=sum(m.n_calls for m in members),
        bytes_read=sum(m.bytes_read for m in members),
        elapsed_s=sum(m.elapsed_s for m in members),
        time_lost_s=sum(m.time_lost_s for m in members),
        first_ns=min((m.first_ns for m in seen), default=0),
        last_ns=max(m.last_ns for m in members),
        longest_pause_ns=_longest_pause(seen),
        processes=tuple(sorted({p for m in members for p in m.processes})),
        n_concurrent=_concurrent(members),
        n_redirected=sum(m.n_redirected for m in members),
        times=joined_times(each for m in members for each in m.times),
        left_alone=joined_times(each for m in members for each in m.left_alone),
        n_collective=sum(m.n_collective for m in members),
        places=joined_places((place for m in members for place in m.places), lead.extent),
    )


def _longest_pause(members: Sequence[AccessPattern]) -> int:
    """Return the longest time without a read of any pattern, or within one of them, ns."""
    apart = longest_gap(
        np.array([m.first_ns for m in members], dtype=np.int64),
        np.array([m.last_ns for m in members], dtype=np.int64),
    )
    return max((apart, *(m.most_pause_ns for m in members)))


def longest_gap(begin_ns: Int64, end_ns: Int64) -> int:
    """Return the longest time that none of some intervals covers, from the first to the last, ns.

    Parameters
    ----------
    begin_ns, end_ns
        Of each interval; shape (n,). 0 where there is none.
    """
    order = np.argsort(begin_ns)
    covered_ns = np.maximum.accumulate(end_ns[order])
    return max(0, int(np.max(begin_ns[order][1:] - covered_ns[:-1], initial=0)))


def _concurrent(members: Sequence[AccessPattern]) -> int:
    """Return the most processes that were reading at one time, between first and last read."""
    most = max(m.n_concurrent for m in members)
    spans: dict[tuple[str, ...], tuple[int, int, int]] = {}
    for member in members:
        if not member.processes:
            continue
        first, last, n = spans.get(member.processes, (member.first_ns, member.last_ns, 1))
        spans[member.processes] = (
            min(first, member.first_ns),
            max(last, member.last_ns),
            max(n, member.n_concurrent),
        )
    return max(most, _most_at_once(spans.values()))


def _most_at_once(spans: Iterable[tuple[int, int, int]]) -> int:
    """Return the largest number of concurrent readers, given readers per interval of time."""
    # At one instant those that begin count before those that end: a lone read has no length.
    events = sorted(event for first, last, n in spans for event in ((first, 0, n), (last, 1, -n)))
    most = reading = 0
    for _, _, change in events:
        reading += change
        most = max(most, reading)
    return most


def _patterns_of(
    joined: JoinedRecords, *, rate: float, start_s: float, max_pause_s: float
) -> list[AccessPattern]:
    """Return the patterns of some processes' records."""
    reads = logical_reads(joined.records, max_pause_s=max_pause_s)
    found = (
        _pattern(joined, reads, rows, rate=rate, start_s=start_s)
        for rows in _equal_shapes(reads, joined.records.extent)
    )
    return [
        pattern
        for pattern in found
        if pattern.kind is not PatternKind.EMPTY and pattern.n_elements > 0
    ]


def _equal_shapes(reads: LogicalReads, extent: tuple[int, ...]) -> list[Int64]:
    """Return the row numbers of each group of reads with one pattern key, in order of time."""
    selected, requested = reads.selection.selected, reads.call.selected
    whole = np.array(extent, dtype=np.int64)
    steps = np.where(reads.selection.adjacent, 1, reads.selection.stride)
    # Blocks that repeat with holes are chunks, whatever their step (see classify).
    chunked = ~reads.selection.adjacent & (reads.selection.block > 1)
    columns = (
        _bit_length(selected),
        _bit_length(requested),
        selected > 1,
        selected == whole,
        requested == whole,
        chunked,
        steps,
        reads.irregular[:, np.newaxis],
    )
    key = np.concatenate([c.astype(np.int64) for c in columns], axis=1)
    _, inverse = np.unique(key, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    by_group = np.argsort(inverse, kind="stable")
    bounds = np.flatnonzero(np.diff(inverse[by_group])) + 1
    return list(np.split(by_group, bounds))


def _bit_length(values: Int64) -> Int64:
    """Return the number of bits of each value, as int.bit_length."""
    # frexp gives the exponent of the float; above 2**53 rounding may carry into the next bit.
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)


def _pattern(
    joined: JoinedRecords, reads: LogicalReads, rows: Int64, *, rate: float, start_s: float
) -> AccessPattern:
    """Return the pattern of rows that agree in shape.

    Time is lost by what the reads of a process took beyond as many contiguous ones of as many
    bytes.
    """
    batch = joined.records
    numbers, process = np.unique(joined.process_of_thread[reads.thread[rows]], return_inverse=True)
    process = process.reshape(-1)

    def by_process(values: Int64) -> Int64:
        sums = np.zeros(len(numbers), dtype=np.int64)
        np.add.at(sums, process, values[rows])
        return sums

    # The record with the most reads of the process with the most reads speaks for the others.
    n_reads, n_calls, bytes_read = map(by_process, (reads.n_reads, reads.n_calls, reads.bytes_read))
    elapsed_s = by_process(reads.elapsed_ns) * 1e-9
    leading = rows[process == np.argmax(n_reads)]
    typical = int(leading[np.argmax(reads.n_reads[leading])])
    first_ns = np.full(len(numbers), np.iinfo(np.int64).max)
    last_ns = np.zeros(len(numbers), dtype=np.int64)
    np.minimum.at(first_ns, process, reads.start_ns[rows])
    np.maximum.at(last_ns, process, reads.last_start_ns[rows])
    slab = reads.selection.slab(typical)
    irregular = bool(reads.irregular[typical])
    shape = classify(slab, batch.extent, irregular=irregular)
    return AccessPattern(
        kind=shape.kind,
        axes=shape.axes,
        spanned_axes=shape.spanned_axes,
        steps=shape.steps,
        extent=batch.extent,
        element_size_bytes=batch.element_size_bytes,
        typical=slab,
        call=reads.call.slab(typical),
        n_reads=int(n_reads.sum()),
        n_calls=int(n_calls.sum()),
        n_elements=int(reads.n_elements[typical]),
        bytes_read=int(bytes_read.sum()),
        elapsed_s=float(elapsed_s.sum()),
        time_lost_s=float(np.maximum(0.0, elapsed_s - n_calls * start_s - bytes_read / rate).sum()),
        first_ns=min((first for first in first_ns.tolist() if first > 0), default=0),
        last_ns=int(last_ns.max()),
        longest_pause_ns=longest_gap(reads.start_ns[rows], reads.last_start_ns[rows]),
        processes=tuple(sorted(joined.processes[i] for i in numbers.tolist())),
        n_concurrent=_most_at_once(
            (first, last, 1)
            for first, last in zip(first_ns.tolist(), last_ns.tolist(), strict=True)
        ),
        n_redirected=int(reads.n_redirected[rows].sum()),
        times=times_of(batch, reads.members_of(rows)),
        left_alone=left_alone_times(batch, reads.members_of(rows)),
        n_collective=int(reads.n_collective[rows].sum()),
        irregular=irregular,
        places=_places(reads.sections.rows(rows), batch.extent),
    )


def _places(sections: Sections, extent: tuple[int, ...]) -> tuple[Place, ...]:
    """Return where the reads of some groups lie."""
    used = sections.n_calls > 0
    return places_of(sections.low[used], sections.high[used], sections.n_calls[used], extent)
