"""Features of an operation: the reads of several processes at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds import _native
from sds.errors import LayoutError
from sds.geometry.chunk_selection import ChunkGrid, extents_of_chunks, reads_of_chunks
from sds.geometry.dataspace import check_order
from sds.geometry.native_layout import budget_ns, check_addressable, components_arguments
from sds.geometry.process_reads import IoMode
from sds.geometry.storage_layout import ChunkedLayout, ContiguousLayout

if TYPE_CHECKING:
    from sds.geometry.process_reads import ProcessReads
    from sds.geometry.storage_layout import ArrayLayout, RaidLayout, Stripes

_MAX_DISKS_SHOWN = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFeatures:
    """Features of an operation, as docs/reference/semantics.md defines them; all exact.

    Attributes
    ----------
    n_processes
        That read something.
    processes_per_ost
        P: processes (independent) or aggregators (collective) per OST touched; 0.0 where nothing
        is read.
    block_depth, block_gap_count, block_gap_distance, block_gap_paper
        Independent: each the largest of one process. Collective: of the union of the reads;
        ``block_gap_paper`` is None where that is no hyperslab.
    osts_touched, disks_touched
        Distinct, over all processes.
    runs, bytes_useful, bytes_touched
        Independent: sums over the processes. Collective: of the union.
    runs_most, segments_most, bytes_touched_most
        Of the process with most; collective: of the union. Segments are unbroken successions of
        requests of the smallest size on one OST, fetched one after another.
    ost_bytes_touched
        Most bytes touched on one OST, summed over the processes.
    disk_blocks, disk_gap_count, disk_gap_distance, disk_segments
        What the processes touch on one disk, summed over them, where it is most; segments are
        unbroken successions of blocks (of a process: gaps + 1). Collective: of the union.
    disk_processes
        Most processes that touch one disk; collective: 1.
    """

    mode: IoMode
    n_processes: int
    processes_per_ost: float
    block_depth: int
    block_gap_count: int
    block_gap_distance: int
    block_gap_paper: int | None
    osts_touched: int
    disks_touched: int
    runs: int
    runs_most: int
    segments_most: int
    bytes_useful: int
    bytes_touched: int
    bytes_touched_most: int
    ost_bytes_touched: int
    disk_blocks: int
    disk_gap_count: int
    disk_gap_distance: int
    disk_segments: int
    disk_processes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OstLoads:
    """Blocks of an operation by OST, of the OSTs that it may touch.

    Attributes
    ----------
    ost
        Shape (n,), ascending numbers; of files whose OSTs are not known, the number of the stripe
        within one round.
    bytes_touched
        Shape (n,), summed over the processes.
    blocks, segments
        Shape (n, data disks): blocks, and unbroken successions of them, summed over processes.
    processes
        Shape (n, data disks): how many touch the disk.
    """

    ost: NDArray[np.int64]
    bytes_touched: NDArray[np.int64]
    blocks: NDArray[np.int64]
    segments: NDArray[np.int64]
    processes: NDArray[np.int64]


def operation_features(
    extent: tuple[int, ...],
    reads: ProcessReads,
    layout: ArrayLayout,
    stripes: Stripes,
    raid: RaidLayout,
    *,
    mode: IoMode = IoMode.INDEPENDENT,
    n_aggregators: int | None = None,
    budget_s: float | None = None,
) -> OperationFeatures:
    """Return the features of the reads of several processes together.

    Parameters
    ----------
    extent, reads
        The array as its readers know it; ``layout.order`` says how its axes are stored.
    layout, stripes, raid
        Where its bytes lie. Of a chunked layout the chunks that a process needs are read whole;
        runs are those of chunks, and ``block_gap_paper`` is None.
    n_aggregators
        Processes that do the I/O of a collective operation.
    budget_s
        Seconds after which to give up; None: no limit. Processes whose reads are translates of
        each other by whole stripes cost little more than one.

    Raises
    ------
    SelectionError
        If a read reaches outside the extent.
    LayoutError
        If the order is no permutation, the array's bytes do not fit in 64 bits, or
        ``n_aggregators`` is missing from a collective operation.
    SdsValueError
        If the budget is spent.

    Notes
    -----
    Source: Liu 2014, Sec. IV.
    """
    return operation_loads(
        extent, reads, layout, stripes, raid,
        mode=mode, n_aggregators=n_aggregators, budget_s=budget_s,
    )[0]  # fmt: skip


def operation_loads(
    extent: tuple[int, ...],
    reads: ProcessReads,
    layout: ArrayLayout,
    stripes: Stripes,
    raid: RaidLayout,
    *,
    mode: IoMode = IoMode.INDEPENDENT,
    n_aggregators: int | None = None,
    budget_s: float | None = None,
) -> tuple[OperationFeatures, OstLoads]:
    """Return `operation_features`, and the blocks on each OST and disk."""
    _check_aggregators(mode, n_aggregators)
    reads.check_within(extent)
    if layout.order is not None:
        order = check_order(layout.order, len(extent))
        reads = reads.permuted(order)
        extent = tuple(extent[axis] for axis in order)
    if isinstance(layout, ChunkedLayout):
        return _operation_on_chunks(
            extent, reads, layout, stripes, raid,
            mode=mode, n_aggregators=n_aggregators, budget_s=budget_s,
        )  # fmt: skip
    check_addressable(extent, layout)
    found = _native.operation_of_slabs(
        extent,
        layout.element_size_bytes,
        layout.data_offset_bytes,
        np.ascontiguousarray(reads.start),
        np.ascontiguousarray(reads.stride),
        np.ascontiguousarray(reads.count),
        np.ascontiguousarray(reads.block),
        mode is IoMode.COLLECTIVE,
        *components_arguments(stripes, raid),
        budget_ns(budget_s),
    )
    return _typed(*found, raid, mode, n_aggregators)


def _operation_on_chunks(
    extent: tuple[int, ...],
    reads: ProcessReads,
    layout: ChunkedLayout,
    stripes: Stripes,
    raid: RaidLayout,
    *,
    mode: IoMode,
    n_aggregators: int | None,
    budget_s: float | None,
) -> tuple[OperationFeatures, OstLoads]:
    """Return the features of the chunks that processes read; axes as stored."""
    grid = ChunkGrid.of(extent, layout)
    on_grid = reads_of_chunks(reads, grid)
    if on_grid is not None:
        of_chunks = operation_loads(
            grid.in_file, on_grid, grid.layout, stripes, raid,
            mode=mode, n_aggregators=n_aggregators, budget_s=budget_s,
        )  # fmt: skip
    else:
        of_chunks = operation_of_extents(
            *extents_of_chunks(reads, grid), stripes, raid,
            mode=mode, n_aggregators=n_aggregators, budget_s=budget_s,
        )  # fmt: skip
    features, loads = of_chunks
    elements = ContiguousLayout(element_size_bytes=layout.element_size_bytes)
    useful = operation_loads(
        extent, reads, elements, stripes, raid,
        mode=mode, n_aggregators=n_aggregators, budget_s=budget_s,
    )[0].bytes_useful  # fmt: skip
    return replace(features, bytes_useful=useful, block_gap_paper=None), loads


def operation_of_extents(
    first: NDArray[np.int64],
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    stripes: Stripes,
    raid: RaidLayout,
    *,
    mode: IoMode = IoMode.INDEPENDENT,
    n_aggregators: int | None = None,
    budget_s: float | None = None,
) -> tuple[OperationFeatures, OstLoads]:
    """Return the features of processes whose byte ranges are listed, process after process.

    Parameters
    ----------
    first
        Shape (processes + 1,): process i reads ranges ``first[i]`` to ``first[i + 1] - 1``.
    offsets, lengths
        Bytes; of each process sorted by offset and disjoint, no length zero.
    """
    _check_aggregators(mode, n_aggregators)
    found = _native.operation_of_extents(
        first,
        offsets,
        lengths,
        mode is IoMode.COLLECTIVE,
        *components_arguments(stripes, raid),
        budget_ns(budget_s),
    )
    return _typed(*found, raid, mode, n_aggregators)


def _check_aggregators(mode: IoMode, n_aggregators: int | None) -> None:
    if mode is IoMode.COLLECTIVE and (n_aggregators is None or n_aggregators < 1):
        message = f"a collective operation with {n_aggregators} aggregators; give at least 1"
        raise LayoutError(message)


def _loads(found: _native.OstLoads, raid: RaidLayout) -> OstLoads:
    """Return loads with a column for each disk; too many alike stay one."""

    def per_disk(values: NDArray[np.int64]) -> NDArray[np.int64]:
        alike = values.shape[1] == 1 and raid.data_disks <= _MAX_DISKS_SHOWN
        return np.repeat(values, raid.data_disks, axis=1) if alike else values

    return OstLoads(
        ost=found["ost"][:, 0],
        bytes_touched=found["bytes"][:, 0],
        blocks=per_disk(found["blocks"]),
        segments=per_disk(found["segments"]),
        processes=per_disk(found["processes"]),
    )


def _typed(
    found: _native.OperationFeatures,
    loads: _native.OstLoads,
    raid: RaidLayout,
    mode: IoMode,
    n_aggregators: int | None,
) -> tuple[OperationFeatures, OstLoads]:
    n_processes, osts = found["processes"], found["osts_touched"]
    n_readers = n_processes if mode is IoMode.INDEPENDENT else n_aggregators or 0
    features = OperationFeatures(
        mode=mode,
        n_processes=n_processes,
        processes_per_ost=n_readers / osts if osts else 0.0,
        **{name: count for name, count in found.items() if name != "processes"},
    )
    return features, _loads(loads, raid)
