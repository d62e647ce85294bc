"""Features of one read: Liu 2014's block depth and block gap, runs, bytes and OSTs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sds import _native
from sds.errors import SelectionError
from sds.geometry.chunk_selection import ChunkGrid, extents_of_chunks, reads_of_chunks
from sds.geometry.dataspace import check_order
from sds.geometry.native_layout import (
    budget_ns,
    check_addressable,
    plain_stripes,
    storage_arguments,
)
from sds.geometry.operation_features import operation_features, operation_of_extents
from sds.geometry.process_reads import ProcessReads
from sds.geometry.storage_layout import ChunkedLayout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.geometry.dataspace import Hyperslab
    from sds.geometry.operation_features import OperationFeatures
    from sds.geometry.storage_layout import ArrayLayout, RaidLayout, Stripes


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureBounds:
    """(low, high) of the features that a time budget left open; the true value lies between."""

    block_depth: tuple[int, int]
    block_gap_count: tuple[int, int]
    block_gap_distance: tuple[int, int]
    bytes_touched: tuple[int, int]
    osts_touched: tuple[int, int]
    disks_touched: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFeatures:
    """Features of one read, as docs/reference/semantics.md defines them.

    Where ``exact`` is False the six features of ``bounds`` hold their high bound.

    Attributes
    ----------
    runs
        Maximal contiguous byte ranges of the file that hold selected elements.
    block_depth
        Most blocks on one disk.
    block_gap_count, block_gap_distance
        On one disk, at most: holes between touched blocks, and untouched blocks in them.
    block_gap_paper
        Liu's shortcut, in elements; None where no regular selection is read.
    bytes_useful, bytes_touched
        Selected, and in requests of the smallest size.
    osts_touched, disks_touched
        How many.
    bounds
        None where exact.
    sieve_requests, sieve_jumps, sieve_bytes
        What HDF5 reads of the file for the same selection, through its buffer of 64 KiB: requests,
        those that do not go on where the one before ended, and bytes. 0 requests: not counted.
    """

    runs: int
    block_depth: int
    block_gap_count: int
    block_gap_distance: int
    block_gap_paper: int | None
    bytes_useful: int
    bytes_touched: int
    osts_touched: int
    disks_touched: int
    exact: bool
    bounds: FeatureBounds | None = None
    sieve_requests: int = 0
    sieve_jumps: int = 0
    sieve_bytes: int = 0

    def native(self) -> _native.Features:
        """Return the features as the core's cost models take them."""

        def bounded(name: str) -> tuple[int, int]:
            if self.bounds is not None:
                low, high = getattr(self.bounds, name)
                return int(low), int(high)
            value = int(getattr(self, name))
            return value, value

        return {
            "runs": self.runs,
            "bytes_useful": self.bytes_useful,
            "block_depth": bounded("block_depth"),
            "block_gap_count": bounded("block_gap_count"),
            "block_gap_distance": bounded("block_gap_distance"),
            "bytes_touched": bounded("bytes_touched"),
            "osts_touched": bounded("osts_touched"),
            "disks_touched": bounded("disks_touched"),
            "sieve": (self.sieve_requests, self.sieve_jumps, self.sieve_bytes),
            "exact": self.exact,
            "block_gap_paper": self.block_gap_paper or 0,
        }


def block_features(
    extent: tuple[int, ...],
    slab: Hyperslab,
    layout: ArrayLayout,
    stripes: Stripes,
    raid: RaidLayout,
    *,
    budget_s: float | None = None,
) -> BlockFeatures:
    """Return the features of reading a selection of an array.

    Parameters
    ----------
    extent, slab
        The array as its readers know it; ``layout.order`` says how its axes are stored.
    layout, stripes, raid
        Where its bytes lie. Of a chunked layout the features are those of the chunks that are
        needed, which are read whole, but for ``bytes_useful``.
    budget_s
        Seconds after which bounds are returned instead of exact values; None: no limit. Of a file
        in several components there are no bounds: SdsValueError is raised instead.

    Raises
    ------
    SelectionError
        If the slab reaches outside the extent.
    LayoutError
        If the order is no permutation, or the array's bytes do not fit in 64 bits.

    Notes
    -----
    Source: Liu 2014, Sec. IV; the three readings of its block gap have names of their own.
    """
    slab.check_within(extent)
    whole = plain_stripes(stripes)
    if isinstance(layout, ChunkedLayout):
        return _features_of_chunks(extent, slab, layout, stripes, raid, budget_s=budget_s)
    if whole is None:
        reads = ProcessReads.of([slab])
        return _of_one_process(
            operation_features(extent, reads, layout, stripes, raid, budget_s=budget_s)
        )
    if layout.order is not None:
        order = check_order(layout.order, len(extent))
        slab = slab.permuted(order)
        extent = tuple(extent[axis] for axis in order)
    check_addressable(extent, layout)
    found = _native.features(
        extent,
        layout.element_size_bytes,
        layout.data_offset_bytes,
        slab.start,
        slab.stride,
        slab.count,
        slab.block,
        *storage_arguments(whole, raid),
        budget_ns(budget_s),
    )
    return _typed(found, found["block_gap_paper"])


def _features_of_chunks(
    extent: tuple[int, ...],
    slab: Hyperslab,
    layout: ChunkedLayout,
    stripes: Stripes,
    raid: RaidLayout,
    *,
    budget_s: float | None,
) -> BlockFeatures:
    """Return the features of the chunks that a selection needs."""
    useful = slab.n_elements * layout.element_size_bytes
    if layout.order is not None:
        order = check_order(layout.order, len(extent))
        slab = slab.permuted(order)
        extent = tuple(extent[axis] for axis in order)
    grid = ChunkGrid.of(extent, layout)
    reads = ProcessReads.of([slab])
    on_grid = reads_of_chunks(reads, grid)
    if on_grid is not None:
        features = block_features(
            grid.in_file, on_grid[0], grid.layout, stripes, raid, budget_s=budget_s
        )
    else:
        _, offsets, lengths = extents_of_chunks(reads, grid)
        features = extent_features(offsets, lengths, stripes, raid, budget_s=budget_s)
    return replace(features, bytes_useful=useful, block_gap_paper=None)


def extent_features(
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    stripes: Stripes,
    raid: RaidLayout,
    *,
    budget_s: float | None = None,
) -> BlockFeatures:
    """Return the features of reading a list of byte ranges of a file.

    Parameters
    ----------
    offsets, lengths
        Ranges in bytes, shape (n,), sorted by offset and disjoint, no length zero.
    stripes, raid, budget_s
        As for `block_features`.

    Raises
    ------
    SelectionError
        If the ranges are out of order, overlap or are empty.
    """
    if offsets.shape != lengths.shape:
        message = f"{offsets.shape} offsets and {lengths.shape} lengths; give one length per offset"
        raise SelectionError(message)
    ordered = bool(((offsets[:-1] + lengths[:-1]) <= offsets[1:]).all())
    if not ordered or bool((lengths <= 0).any()) or bool((offsets < 0).any()):
        message = "ranges must be sorted by offset, disjoint and not empty; sort and merge them"
        raise SelectionError(message)
    whole = plain_stripes(stripes)
    if whole is None:
        first = np.array([0, len(offsets)])
        listed = operation_of_extents(first, offsets, lengths, stripes, raid, budget_s=budget_s)
        return _of_one_process(listed[0])
    found = _native.features_of_extents(
        offsets, lengths, *storage_arguments(whole, raid), budget_ns(budget_s)
    )
    return _typed(found, None)


def _typed(found: _native.ExtentFeatures, block_gap_paper: int | None) -> BlockFeatures:
    exact = found["exact"]
    bounds = FeatureBounds(
        block_depth=found["block_depth"],
        block_gap_count=found["block_gap_count"],
        block_gap_distance=found["block_gap_distance"],
        bytes_touched=found["bytes_touched"],
        osts_touched=found["osts_touched"],
        disks_touched=found["disks_touched"],
    )
    return BlockFeatures(
        runs=found["runs"],
        block_depth=bounds.block_depth[1],
        block_gap_count=bounds.block_gap_count[1],
        block_gap_distance=bounds.block_gap_distance[1],
        block_gap_paper=block_gap_paper,
        bytes_useful=found["bytes_useful"],
        bytes_touched=bounds.bytes_touched[1],
        osts_touched=bounds.osts_touched[1],
        disks_touched=bounds.disks_touched[1],
        exact=exact,
        bounds=None if exact else bounds,
        sieve_requests=found["sieve"][0],
        sieve_jumps=found["sieve"][1],
        sieve_bytes=found["sieve"][2],
    )


def _of_one_process(found: OperationFeatures) -> BlockFeatures:
    return BlockFeatures(
        runs=found.runs,
        block_depth=found.block_depth,
        block_gap_count=found.block_gap_count,
        block_gap_distance=found.block_gap_distance,
        block_gap_paper=found.block_gap_paper,
        bytes_useful=found.bytes_useful,
        bytes_touched=found.bytes_touched,
        osts_touched=found.osts_touched,
        disks_touched=found.disks_touched,
        exact=True,
    )
