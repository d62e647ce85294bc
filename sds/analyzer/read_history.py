"""Read history: positions of the newest reads of a dataset, in order of time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sds.analyzer.logical_reads import Int64, Slabs, first_selections
from sds.analyzer.read_records import SELECT_ALL, SELECT_HYPERSLAB, join_records
from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sds.analyzer.read_records import JoinedRecords, ReadRecords
    from sds.geometry import Hyperslab

MAX_TRAIL_READS = 1 << 12
"""Newest reads that are kept of one dataset: some 50 KB in the catalog, and a day of zooming."""

MAX_TURNS = 1 << 10
"""Reads of one record in a row. More of them walk through a dataset, and say of no place that it is
read again: they are kept as one entry, with their number."""

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadTrail:
    """The newest HDF5 reads of a dataset, n entries in order of time.

    Irregular reads, reads of points and collective ones are left out: nothing that is cut in tiles
    serves them.

    Attributes
    ----------
    extent
        Of the dataset, rank r >= 1.
    processes
        Keys of the processes that read, sorted.
    process
        Which of them, shape (n,).
    time_ns
        Start of the read, nanoseconds since the epoch, shape (n,), ascending.
    n_reads
        1; of a walk that is kept as one entry all its reads, shape (n,).
    selection
        What was read, shapes (n, r); of a walk its first read.
    """

    extent: tuple[int, ...]
    processes: tuple[str, ...]
    process: Int64
    time_ns: Int64
    n_reads: Int64
    selection: Slabs

    def __post_init__(self) -> None:
        n, rank = len(self.time_ns), len(self.extent)
        slabs = self.selection
        shapes = [part.shape for part in (slabs.start, slabs.stride, slabs.count, slabs.block)]
        if shapes != [(n, rank)] * 4 or rank == 0:
            raise SdsValueError(
                f"selections of shapes {shapes} for {n} reads of {rank} axes: give one row per "
                "read, one column per axis"
            )
        if self.process.shape != (n,) or self.n_reads.shape != (n,):
            raise SdsValueError(f"{n} reads, but not as many processes and numbers of reads")
        if n and not 0 <= int(self.process.min()) <= int(self.process.max()) < len(self.processes):
            raise SdsValueError(f"a read of a process that is none of {len(self.processes)}")

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def last_ns(self) -> int:
        """Start of the newest read, nanoseconds since the epoch; 0 where there is none."""
        return int(self.time_ns.max(initial=0))

    def slab(self, row: int) -> Hyperslab:
        """Return the selection of one entry."""
        return self.selection.slab(row)

    def rows(self, index: Int64) -> ReadTrail:
        """Return some of the entries, in the order given; processes without any are left out."""
        used, process = np.unique(self.process[index], return_inverse=True)
        return replace(
            self,
            processes=tuple(self.processes[i] for i in used.tolist()),
            process=process.reshape(-1),
            time_ns=self.time_ns[index],
            n_reads=self.n_reads[index],
            selection=self.selection.rows(index),
        )


def trail_of(
    batches: Iterable[ReadRecords], extent: tuple[int, ...], *, max_reads: int = MAX_TRAIL_READS
) -> ReadTrail | None:
    """Return the newest reads of a dataset; None where there is none that a trail keeps.

    Parameters
    ----------
    batches
        Of one dataset, in any order. Those of another extent are left out.
    extent
        Of the dataset as it is now.
    max_reads
        Entries kept.

    Notes
    -----
    The work is bounded by the records, not by the reads in their loops: a record is only expanded
    where one of its reads may be among the newest. What is kept of all batches is what is kept of
    the trails of each (`join_trails`).
    """
    mine = [batch for batch in batches if extent and batch.extent == extent and len(batch)]
    trails = [
        trail for joined in join_records(mine) for trail in _of_batch(joined, max_reads=max_reads)
    ]
    return join_trails(trails, max_reads=max_reads) if trails else None


def join_trails(trails: Sequence[ReadTrail], *, max_reads: int = MAX_TRAIL_READS) -> ReadTrail:
    """Return the newest reads of several trails of one dataset, at least one.

    Raises
    ------
    SdsValueError
        If there is none, or their extents differ.
    """
    extents = {trail.extent for trail in trails}
    if len(extents) != 1:
        raise SdsValueError(f"trails of extents {sorted(extents)}: join those of one dataset")
    names = tuple(sorted({name for trail in trails for name in trail.processes}))
    number = {name: i for i, name in enumerate(names)}
    process = [
        np.array([number[name] for name in trail.processes], dtype=np.int64)[trail.process]
        for trail in trails
    ]
    joined = ReadTrail(
        extent=trails[0].extent,
        processes=names,
        process=np.concatenate(process),
        time_ns=np.concatenate([trail.time_ns for trail in trails]),
        n_reads=np.concatenate([trail.n_reads for trail in trails]),
        selection=Slabs.joined([trail.selection for trail in trails]),
    )
    order = _by_time(joined)
    return joined.rows(order[max(0, len(order) - max_reads) :])


def _by_time(trail: ReadTrail) -> Int64:
    """Return the order of time; of reads at one instant one that no batch changes."""
    slabs = trail.selection
    parts = [slabs.start, slabs.stride, slabs.count, slabs.block]
    columns = [column for part in parts for column in part.T]
    order: Int64 = np.lexsort((*columns, trail.n_reads, trail.process, trail.time_ns))
    return order


def _of_batch(joined: JoinedRecords, *, max_reads: int) -> list[ReadTrail]:
    """Return the newest reads of some processes, in a list; empty where there is none."""
    records = joined.records
    first = first_selections(records)
    kept = (
        np.isin(records.selection_kind, (SELECT_ALL, SELECT_HYPERSLAB))
        & ~records.collective
        & np.all(first.selected > 0, axis=1)
    )
    last_ns = _last_ns(records)
    index = np.flatnonzero(kept)
    # A record whose last read is older than those of a trail's length of others adds nothing.
    index = index[np.argsort(-last_ns[index], kind="stable")]
    index = index[: _with_equals(last_ns[index], max_reads)]
    rows = np.where(records.n_calls[index] > MAX_TURNS, 1, records.n_calls[index])
    newest: list[ReadTrail] = []
    done = 0
    while done < len(index):
        full = bool(newest) and len(newest[0]) == max_reads
        if full and last_ns[index[done]] < newest[0].time_ns[0]:
            break
        ends = np.cumsum(rows[done:])
        n = max(1, int(np.searchsorted(ends, _ROWS_AT_ONCE, side="right")))
        more = _expanded(joined, first, index[done : done + n])
        newest = [join_trails([*newest, more], max_reads=max_reads)]
        done += n
    return newest


def _with_equals(descending: Int64, n: int) -> int:
    """Return how many values to take for the first n, and all that equal the last of these."""
    if len(descending) <= n:
        return len(descending)
    return int(np.searchsorted(-descending, -descending[n - 1], side="right"))


def _turns_apart_ns(records: ReadRecords, turn: Int64) -> Int64:
    """Return how long after its record's first read a read began, evenly; at least 1 ns each."""
    gaps = np.maximum(1, records.n_calls - 1)
    span = records.last_start_ns - records.start_ns
    # Not turn * span at once, which may be too large.
    return np.maximum(turn, span // gaps * turn + span % gaps * turn // gaps)


def _last_ns(records: ReadRecords) -> Int64:
    """Return when the last entry of each record is, shape (n,)."""
    is_walk = records.n_calls > MAX_TURNS
    last = records.start_ns + np.maximum(
        records.n_calls - 1, records.last_start_ns - records.start_ns
    )
    return np.where(is_walk, records.last_start_ns, last)


def _expanded(joined: JoinedRecords, first: Slabs, index: Int64) -> ReadTrail:
    """Return the reads of some records one by one, walks as one entry each."""
    records = joined.records
    chosen = records.rows(index)
    is_walk = chosen.n_calls > MAX_TURNS
    n = np.where(is_walk, 1, chosen.n_calls)
    row = np.repeat(np.arange(len(index)), n)
    turn: Int64 = np.arange(len(row)) - np.repeat(np.cumsum(n) - n, n)
    each = chosen.rows(row)
    start = first.start[index][row]
    left = turn
    for loop in reversed(range(each.repeat.shape[1])):
        turns = each.repeat[:, loop]
        start = start + (left % turns)[:, np.newaxis] * each.advance[:, loop]
        left = left // turns
    time_ns = each.start_ns + _turns_apart_ns(each, turn)
    slabs = first.rows(index).rows(row)
    return ReadTrail(
        extent=records.extent,
        processes=joined.processes,
        process=joined.process_of_thread[each.thread],
        time_ns=np.where(is_walk[row], each.last_start_ns, time_ns),
        n_reads=np.where(is_walk[row], each.n_calls, 1),
        selection=replace(slabs, start=start),
    )
