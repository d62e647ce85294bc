"""Chunks that reads need, and their byte ranges; exact, without opening any file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import LayoutError, UnsupportedError
from sds.geometry.dataspace import check_order
from sds.geometry.process_reads import ProcessReads
from sds.geometry.storage_layout import ContiguousLayout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.geometry.dataspace import Hyperslab
    from sds.geometry.storage_layout import ChunkedLayout

MAX_CHUNKS = 1 << 24
"""Largest number of chunks of a replica, and of those of a source that one read takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkGrid:
    """The chunks of an array as elements of an array of chunks.

    Attributes
    ----------
    shape
        Chunks per axis of the array.
    chunk_shape
        Elements per axis of a chunk.
    order
        Grid axis ``order[i]`` is axis i of the grid as it lies in the file, in C order.
    layout
        Of that grid: its elements are chunks.
    """

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    order: tuple[int, ...]
    layout: ContiguousLayout

    @classmethod
    def of(cls, extent: tuple[int, ...], layout: ChunkedLayout) -> ChunkGrid:
        """Return the grid of an array; extent in stored axes.

        Raises
        ------
        LayoutError
            If chunks and array differ in their number of axes.
        """
        if len(layout.chunk_shape) != len(extent):
            message = (
                f"chunk shape {layout.chunk_shape} for an array of extent {extent}; "
                "give one length per axis"
            )
            raise LayoutError(message)
        axes = tuple(range(len(extent))) if layout.chunk_order is None else layout.chunk_order
        return cls(
            shape=tuple(-(-n // c) for n, c in zip(extent, layout.chunk_shape, strict=True)),
            chunk_shape=layout.chunk_shape,
            order=check_order(axes, len(extent)),
            layout=ContiguousLayout(
                element_size_bytes=layout.chunk_bytes, data_offset_bytes=layout.data_offset_bytes
            ),
        )

    @property
    def in_file(self) -> tuple[int, ...]:
        """Chunks per axis as they lie in the file."""
        return tuple(self.shape[axis] for axis in self.order)


def chunks_on_axis(
    start: int, stride: int, count: int, block: int, chunk: int
) -> NDArray[np.int64]:
    """Return the indices of the chunks that a selection touches on one axis, ascending."""
    if count == 0 or block == 0:
        return np.empty(0, dtype=np.int64)
    last = start + (count - 1) * stride + block - 1
    if stride - block < chunk or count == 1:
        return np.arange(start // chunk, last // chunk + 1)  # no hole holds a whole chunk
    starts = start + stride * np.arange(count)
    # Holes are at least a chunk long: no two blocks share one.
    return integers_of_ranges(starts // chunk, (starts + block - 1) // chunk)


def integers_of_ranges(firsts: NDArray[np.int64], lasts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return all integers of several ranges, ends included."""
    lengths = lasts - firsts + 1
    ends = np.cumsum(lengths)
    return np.repeat(firsts - (ends - lengths), lengths) + np.arange(lengths.sum())


def count_chunks(slab: Hyperslab, chunk_shape: tuple[int, ...]) -> int:
    """Return how many chunks a selection touches."""
    return math.prod(
        len(chunks_on_axis(*axis, chunk))
        for axis, chunk in zip(slab.axes(), chunk_shape, strict=True)
    )


def reads_of_chunks(reads: ProcessReads, grid: ChunkGrid) -> ProcessReads | None:
    """Return the chunks that each process needs, as selections of the grid as it lies in the file.

    None where those of any process are no hyperslab: steps longer than a chunk, and no multiple of
    it, skip chunks unevenly.
    """
    axes = []
    for axis in grid.order:
        found = _regular_on_axis(
            reads.start[:, axis],
            reads.stride[:, axis],
            reads.count[:, axis],
            reads.block[:, axis],
            grid.chunk_shape[axis],
        )
        if found is None:
            return None
        axes.append(found)
    start, stride, count, block = (np.stack(columns, axis=1) for columns in zip(*axes, strict=True))
    return ProcessReads(start=start, stride=stride, count=count, block=block)


def _regular_on_axis(
    start: NDArray[np.int64],
    stride: NDArray[np.int64],
    count: NDArray[np.int64],
    block: NDArray[np.int64],
    chunk: int,
) -> tuple[NDArray[np.int64], ...] | None:
    """Return (start, stride, count, block) of the chunks of every process on one axis."""
    empty = (count == 0) | (block == 0)
    first = start // chunk
    last = (start + (count - 1) * stride + block - 1) // chunk
    dense = (count == 1) | (stride - block < chunk)
    stepping = ~dense & ~empty
    whole = stride % chunk == 0
    steps = np.where(stepping, stride // chunk, 1)
    counts = np.where(stepping, count, last - first + 1)
    blocks = np.where(stepping, (start % chunk + block - 1) // chunk + 1, 1)
    for process in np.flatnonzero(stepping & ~whole).tolist():
        starts = start[process] + stride[process] * np.arange(count[process])
        firsts, lasts = starts // chunk, (starts + block[process] - 1) // chunk
        if (np.diff(firsts) != firsts[1] - firsts[0]).any():
            return None
        if (lasts - firsts != lasts[0] - firsts[0]).any():
            return None
        steps[process] = firsts[1] - firsts[0]
    return np.where(empty, 0, first), steps, np.where(empty, 0, counts), np.where(empty, 1, blocks)


def extents_of_chunks(
    reads: ProcessReads, grid: ChunkGrid
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the file ranges of the chunks that each process needs, one process after the other.

    Returns
    -------
    For each process, and the end, the first of its ranges; offsets and lengths in bytes, of each
    process sorted, those that touch joined.

    Raises
    ------
    UnsupportedError
        If there are more than 2**24 chunks.
    """
    chunk_bytes = grid.layout.element_size_bytes
    first, offsets, lengths = [0], [], []
    n_all = 0
    for slab in reads:
        on_axes = [
            chunks_on_axis(*slab.axes()[axis], grid.chunk_shape[axis]) for axis in grid.order
        ]
        n_all += math.prod(map(len, on_axes))
        if n_all > MAX_CHUNKS:
            message = f"the reads need more than {MAX_CHUNKS} chunks, unevenly; read fewer at once"
            raise UnsupportedError(message)
        numbers = np.zeros(1, dtype=np.int64)
        for indices, length in zip(on_axes, grid.in_file, strict=True):
            numbers = (numbers[:, None] * length + indices).ravel()
        begins = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        offsets.append(numbers[begins])
        lengths.append(np.diff(begins, append=len(numbers)))
        first.append(first[-1] + len(begins))
    return (
        np.array(first, dtype=np.int64),
        np.concatenate(offsets) * chunk_bytes + grid.layout.data_offset_bytes,
        np.concatenate(lengths) * chunk_bytes,
    )
