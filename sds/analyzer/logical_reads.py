"""Join HDF5 reads into logical reads: the selection a program wanted, however many calls it made.

A program that reads a plane line by line, or a library that cuts one read into pieces, asks many
times for what is one selection. The rule, in full: docs/reference/patterns.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sds.analyzer.read_records import SELECT_ALL, SELECT_HYPERSLAB, SELECT_NONE, ReadRecords
from sds.geometry import Hyperslab

if TYPE_CHECKING:
    from collections.abc import Sequence

Int64: TypeAlias = NDArray[np.int64]

# Boxes that say where the reads of one record lie, and of all records of a batch together.
_FEWEST_SECTIONS, _MOST_SECTIONS, _MOST_ROWS = 2, 8, 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slabs:
    """Regular selections, one per row, adjacent indices written as stride 1 and block 1.

    Attributes
    ----------
    start, stride, count, block
        Shape (n, rank).
    """

    start: Int64
    stride: Int64
    count: Int64
    block: Int64

    @property
    def selected(self) -> Int64:
        """Indices selected per axis, shape (n, rank)."""
        return self.count * self.block

    @property
    def adjacent(self) -> NDArray[np.bool_]:
        """True where the indices of an axis are adjacent, shape (n, rank)."""
        adjacent: NDArray[np.bool_] = (self.count <= 1) | (self.stride == self.block)
        return adjacent

    def rows(self, index: Int64) -> Slabs:
        """Return the slabs of some rows."""
        return Slabs(
            start=self.start[index],
            stride=self.stride[index],
            count=self.count[index],
            block=self.block[index],
        )

    def slab(self, row: int) -> Hyperslab:
        """Return one selection as a value."""
        return Hyperslab(
            start=tuple(self.start[row].tolist()),
            stride=tuple(self.stride[row].tolist()),
            count=tuple(self.count[row].tolist()),
            block=tuple(self.block[row].tolist()),
        )

    @staticmethod
    def joined(slabs: Sequence[Slabs]) -> Slabs:
        """Return the rows of several, one after the other."""
        return Slabs(
            start=np.concatenate([each.start for each in slabs]),
            stride=np.concatenate([each.stride for each in slabs]),
            count=np.concatenate([each.count for each in slabs]),
            block=np.concatenate([each.block for each in slabs]),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sections:
    """Boxes that hold the HDF5 reads of groups, k for each of m groups.

    Attributes
    ----------
    low, high
        First index of each box and the one after its last, shape (m, k, rank).
    n_calls
        Reads within each, shape (m, k); where 0 the box means nothing.
    """

    low: Int64
    high: Int64
    n_calls: Int64

    def rows(self, index: Int64) -> Sections:
        """Return those of some groups."""
        return Sections(low=self.low[index], high=self.high[index], n_calls=self.n_calls[index])

    def joined(self, first: Int64) -> Sections:
        """Return those of successive groups made one, each beginning at a row of `first`."""
        used = (self.n_calls > 0)[..., np.newaxis]
        low = np.where(used, self.low, np.iinfo(np.int64).max).min(axis=1)
        high = np.where(used, self.high, 0).max(axis=1)
        many = np.diff(np.append(first, len(low))) > 1
        joined = self.rows(first)
        low, high = np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)
        joined.low[many], joined.high[many] = low[many, np.newaxis], high[many, np.newaxis]
        total = np.add.reduceat(self.n_calls.sum(axis=1), first)
        joined.n_calls[many] = 0
        joined.n_calls[many, 0] = total[many]
        return joined


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogicalReads:
    """Logical reads of one dataset: m groups of equal ones, each of one thread.

    Attributes
    ----------
    selection
        A logical read in the middle of each group; the bounding box where irregular.
    call
        An HDF5 read in the middle of each group.
    irregular
        Shape (m,).
    n_reads, n_calls
        Logical reads and HDF5 reads, shape (m,).
    n_elements
        Elements of one logical read, shape (m,).
    bytes_read
        Selected bytes of the group, shape (m,).
    elapsed_ns, start_ns, last_start_ns
        Sum; first; last; shape (m,).
    n_redirected
        HDF5 reads that a replica served, shape (m,).
    n_collective
        HDF5 reads, shape (m,).
    members, n_members
        Numbers of the records, group by group, shape (n,); and how many each has, shape (m,).
    thread
        That read, shape (m,).
    sections
        Where the HDF5 reads of each group lie.
    """

    selection: Slabs
    call: Slabs
    irregular: NDArray[np.bool_]
    n_reads: Int64
    n_calls: Int64
    n_elements: Int64
    bytes_read: Int64
    elapsed_ns: Int64
    start_ns: Int64
    last_start_ns: Int64
    n_redirected: Int64
    n_collective: Int64
    members: Int64
    n_members: Int64
    thread: Int64
    sections: Sections

    def __len__(self) -> int:
        return len(self.n_reads)

    def members_of(self, rows: Int64) -> Int64:
        """Return the numbers of the records of some groups."""
        ends = np.cumsum(self.n_members)
        firsts = ends - self.n_members
        return np.concatenate([self.members[firsts[row] : ends[row]] for row in rows])


def logical_reads(records: ReadRecords, *, max_pause_s: float = 1.0) -> LogicalReads:
    """Return the logical reads that a process's HDF5 reads make up.

    Parameters
    ----------
    records
        What one process read of one dataset.
    max_pause_s
        Reads further apart in time than this, from the end of one to the start of the next, are
        separate.

    Notes
    -----
    A read and the next one of the same thread are pieces of one logical read where they select
    the same indices of all axes but one, of which both select adjacent indices and the second
    begins where the first ends; and where joining does not make a third axis along which the
    logical read extends. So points make a line, lines a plane, pieces of a cube along an axis
    that they already extend along make a longer cube; but whole planes read one after the other
    stay planes. Loops of a record are joined innermost first, up to the first that cannot be;
    in them the walk may also go backwards.
    """
    first = first_selections(records)
    regular = np.isin(records.selection_kind, (SELECT_ALL, SELECT_HYPERSLAB))
    joined, remaining = _fold_loops(records, first, regular, max_pause_s)
    reads = _grouped(records, first, joined, remaining, regular)
    return _join_neighbours(records, reads, max_pause_s)


def first_selections(records: ReadRecords) -> Slabs:
    """Return the first selection of each record with adjacent indices as stride 1, block 1."""
    kind = records.selection_kind[:, np.newaxis]
    extent = np.array(records.extent, dtype=np.int64)
    # Of what is no regular hyperslab only start and count mean something: the bounding box.
    regular = kind == SELECT_HYPERSLAB
    start = np.where(kind == SELECT_ALL, 0, records.start)
    stride = np.where(regular, records.stride, 1)
    count = np.where(kind == SELECT_ALL, extent, records.count)
    count = np.where(kind == SELECT_NONE, 0, count)
    block = np.where(regular, records.block, 1)
    adjacent = (count <= 1) | (stride == block)
    return Slabs(
        start=start,
        stride=np.where(adjacent, 1, stride),
        count=np.where(adjacent, count * block, count),
        block=np.where(adjacent, 1, block),
    )


def _mean_pause_s(records: ReadRecords) -> NDArray[np.float64]:
    """Return the mean time between the end of a read and the start of the next, shape (n,)."""
    n = records.n_calls
    span = (records.last_start_ns - records.start_ns).astype(np.float64)
    return (span / np.maximum(n - 1, 1) - records.elapsed_ns / np.maximum(n, 1)) * 1e-9


def _fold_loops(
    records: ReadRecords, first: Slabs, regular: NDArray[np.bool_], max_pause_s: float
) -> tuple[Slabs, Int64]:
    """Return the first logical read of each record, and the turns that loops still have."""
    start, count = first.start.copy(), first.count.copy()
    adjacent = first.adjacent
    remaining = records.repeat.copy()
    row = np.arange(len(records))
    open_ = regular & np.all(first.selected > 0, axis=1) & (_mean_pause_s(records) <= max_pause_s)
    if not records.extent:
        return first, remaining
    for loop in reversed(range(records.repeat.shape[1])):
        turns = records.repeat[:, loop]
        advance = records.advance[:, loop, :]
        axis = np.argmax(advance != 0, axis=1)
        size = count[row, axis]
        step = advance[row, axis]
        n_axes = np.count_nonzero(count * first.block > 1, axis=1)
        fold = (
            open_
            & (turns > 1)
            & (np.count_nonzero(advance, axis=1) == 1)
            & adjacent[row, axis]
            & (np.abs(step) == size)
            & ((size > 1) | (n_axes <= 1))
        )
        at = row[fold], axis[fold]
        start[at] += np.minimum(step * (turns - 1), 0)[fold]
        count[at] = (size * turns)[fold]
        remaining[fold, loop] = 1
        open_ &= fold | (turns == 1)
    return Slabs(start=start, stride=first.stride, count=count, block=first.block), remaining


def _middle(first: Slabs, advance: Int64, turns: Int64) -> Slabs:
    """Return the selection half way through the loops."""
    shift = np.sum(advance * (turns // 2)[:, :, np.newaxis], axis=1, dtype=np.int64)
    return Slabs(
        start=first.start + shift, stride=first.stride, count=first.count, block=first.block
    )


def _grouped(
    records: ReadRecords,
    first: Slabs,
    joined: Slabs,
    remaining: Int64,
    regular: NDArray[np.bool_],
) -> LogicalReads:
    """Return one group of logical reads per record."""
    n_calls = records.n_calls
    n_reads = np.prod(remaining, axis=1, dtype=np.int64)
    return LogicalReads(
        selection=_middle(joined, records.advance, remaining),
        call=_middle(first, records.advance, records.repeat),
        irregular=~regular & (records.selection_kind != SELECT_NONE),
        n_reads=n_reads,
        n_calls=n_calls,
        n_elements=records.n_elements * (n_calls // n_reads),
        bytes_read=records.n_elements * n_calls * records.element_size_bytes,
        elapsed_ns=records.elapsed_ns,
        start_ns=records.start_ns,
        last_start_ns=records.last_start_ns,
        n_redirected=np.where(records.served_by > 0, n_calls, 0),
        n_collective=np.where(records.collective, n_calls, 0),
        members=np.arange(len(records)),
        n_members=np.ones(len(records), dtype=np.int64),
        thread=records.thread,
        sections=_sections(records, first),
    )


def _sections(records: ReadRecords, first: Slabs) -> Sections:
    """Return the boxes of the reads of each record: its longest loop in a few sections.

    Two reads anywhere in a dataset are a loop of two turns in a trace, so short ones are
    compared read by read.
    """
    n = len(records)
    most = max(_FEWEST_SECTIONS, min(_MOST_SECTIONS, _MOST_ROWS // max(1, n)))
    turns = np.maximum(records.repeat, 1)
    way = records.advance * (turns - 1)[:, :, np.newaxis]
    extent = np.array(records.extent, dtype=np.int64)
    end = first.start + (first.count - 1) * first.stride + first.block
    row, bounds = np.arange(n), np.zeros((n, most + 1), dtype=np.int64)
    step = np.zeros_like(first.start)
    if way.size:
        longest = (np.abs(way) / np.maximum(extent, 1)).max(axis=2).argmax(axis=1)
        step = records.advance[row, longest]
        way[row, longest] = 0
        bounds = turns[row, longest][:, np.newaxis] * np.arange(most + 1) // most
    else:
        bounds[:, 1:] = 1
    ends = np.stack([bounds[:, :-1], np.maximum(bounds[:, 1:] - 1, bounds[:, :-1])])
    moved = ends[..., np.newaxis] * step[:, np.newaxis, :]
    low = (first.start + np.minimum(way, 0).sum(axis=1))[:, np.newaxis] + moved.min(axis=0)
    high = (end + np.maximum(way, 0).sum(axis=1))[:, np.newaxis] + moved.max(axis=0)
    low = np.clip(low, 0, extent)
    n_turns = np.diff(bounds, axis=1)
    each = records.n_calls // np.maximum(1, bounds[:, -1])
    return Sections(low=low, high=np.clip(high, low, extent), n_calls=n_turns * each[:, np.newaxis])


def _join_neighbours(records: ReadRecords, reads: LogicalReads, max_pause_s: float) -> LogicalReads:
    """Return the reads with successive records that abut made one."""
    if len(reads) < 2 or not records.extent:
        return reads
    order = np.lexsort((records.start_ns, records.thread))
    ordered = _rows(reads, order)
    follows, axis = _abutting(ordered, max_pause_s)
    # A run of joins keeps one axis: a second axis would need the rows of a plane to be whole.
    follows[1:] &= ~follows[:-1] | (axis[1:] == axis[:-1])
    leader = np.concatenate(([True], ~follows))
    group = np.cumsum(leader) - 1
    if group[-1] + 1 == len(ordered):
        return ordered
    return _merged(ordered, np.flatnonzero(leader), np.concatenate(([0], axis)), group)


def _abutting(reads: LogicalReads, max_pause_s: float) -> tuple[NDArray[np.bool_], Int64]:
    """Return whether each read continues the one before it, and along which axis, shape (m - 1,).

    Only single logical reads are joined; the groups of a loop are many.
    """
    slabs = reads.selection
    parts = (slabs.start, slabs.stride, slabs.count, slabs.block)
    differs = np.any(np.stack([part[1:] != part[:-1] for part in parts]), axis=0)
    axis = np.argmax(differs, axis=1)
    here = np.arange(len(axis))
    end_ns = reads.last_start_ns + reads.elapsed_ns // reads.n_calls
    size = slabs.selected
    n_axes = np.count_nonzero(size > 1, axis=1)
    single = (reads.n_reads == 1) & ~reads.irregular & np.all(size > 0, axis=1)
    longer = (size[here, axis] > 1) | (size[here + 1, axis] > 1)
    follows = (
        (np.count_nonzero(differs, axis=1) == 1)
        & single[1:]
        & single[:-1]
        & (reads.thread[1:] == reads.thread[:-1])
        & slabs.adjacent[here, axis]
        & slabs.adjacent[here + 1, axis]
        & (slabs.start[here + 1, axis] == slabs.start[here, axis] + size[here, axis])
        & (longer | (n_axes[:-1] <= 1))
        & (reads.start_ns[1:] - end_ns[:-1] <= max_pause_s * 1e9)
    )
    return follows, axis


def _rows(reads: LogicalReads, index: Int64) -> LogicalReads:
    """Return some of the groups, each of one record."""
    return LogicalReads(
        selection=reads.selection.rows(index),
        call=reads.call.rows(index),
        irregular=reads.irregular[index],
        n_reads=reads.n_reads[index],
        n_calls=reads.n_calls[index],
        n_elements=reads.n_elements[index],
        bytes_read=reads.bytes_read[index],
        elapsed_ns=reads.elapsed_ns[index],
        start_ns=reads.start_ns[index],
        last_start_ns=reads.last_start_ns[index],
        n_redirected=reads.n_redirected[index],
        n_collective=reads.n_collective[index],
        members=reads.members[index],
        n_members=reads.n_members[index],
        thread=reads.thread[index],
        sections=reads.sections.rows(index),
    )


def _merged(reads: LogicalReads, first: Int64, axis: Int64, group: Int64) -> LogicalReads:
    """Return one read per group of successive ones; `axis` is where each continues the last."""
    n = len(first)
    last = np.concatenate((first[1:], [len(group)])) - 1
    members = last - first + 1
    selection = reads.selection.rows(first)
    count = selection.count.copy()
    many = np.flatnonzero(members > 1)
    along = axis[first[many] + 1]
    end = reads.selection.start[last[many], along] + reads.selection.selected[last[many], along]
    count[many, along] = end - selection.start[many, along]

    def total(values: Int64) -> Int64:
        sums = np.zeros(n, dtype=np.int64)
        np.add.at(sums, group, values)
        return sums

    return LogicalReads(
        selection=Slabs(
            start=selection.start, stride=selection.stride, count=count, block=selection.block
        ),
        call=reads.call.rows(first + members // 2),
        irregular=reads.irregular[first],
        n_reads=reads.n_reads[first],
        n_calls=total(reads.n_calls),
        n_elements=total(reads.n_elements),
        bytes_read=total(reads.bytes_read),
        elapsed_ns=total(reads.elapsed_ns),
        start_ns=reads.start_ns[first],
        last_start_ns=reads.last_start_ns[last],
        n_redirected=total(reads.n_redirected),
        n_collective=total(reads.n_collective),
        members=reads.members,
        n_members=total(reads.n_members),
        thread=reads.thread[first],
        sections=reads.sections.joined(first),
    )
