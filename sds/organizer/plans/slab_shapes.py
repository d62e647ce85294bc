"""Choose the shape of the slabs in which a source is copied. Pure.

The shape decides the speed. Where the replica is contiguous, what a slab holds is contiguous in
the source along the last axes, in the replica along the last axes of the new order; it grows from
one element (one chunk, where the source is chunked, so that each chunk is decoded once) along
whichever side has the shorter runs, until both are long enough for the disk or the memory is used.
Where the replica is chunked, slabs are made of whole chunks of the replica, so that each is written
once; they grow until the source is read in long runs or, where that is chunked too, until as few of
its chunks as the memory allows are decoded more than once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sds.geometry.storage_layout import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Runs at least this long keep a disk streaming: reads wait for it, buffered writes do not
# (measured: 1 MiB reads and 64 KiB writes lose nothing against a sequential copy).
_READ_RUN_BYTES = 1 * MIB
_WRITE_RUN_BYTES = 64 * 1024
_GOOD_READ_RUN_BYTES = 256 * 1024
_GOOD_WRITE_RUN_BYTES = 8 * 1024
# Tried in this order, then the whole budget.
_SLAB_BYTES = (32 * MIB, 64 * MIB, 128 * MIB)
# Reads wait for the disk, writes go through the page cache: a read run is worth more.
_READ_RUNS_PER_WRITE_RUN = 8


def smallest_good_shape(
    extent: tuple[int, ...],
    order: tuple[int, ...],
    element_size_bytes: int,
    *,
    unit: tuple[int, ...],
    budget_bytes: int,
    writes_whole_chunks: bool = False,
) -> tuple[tuple[int, ...], bool]:
    """Return the smallest slab shape whose runs are long enough, and whether they are.

    Small slabs overlap better, and show progress.
    """
    shape = unit
    has_good_runs = False
    for cap_bytes in (*_SLAB_BYTES, budget_bytes):
        shape = slab_shape(
            extent,
            order,
            element_size_bytes,
            unit=unit,
            budget_bytes=min(cap_bytes, budget_bytes),
            writes_whole_chunks=writes_whole_chunks,
        )
        read_run = run_bytes(shape, extent, range(len(extent)), element_size_bytes)
        write_run = run_bytes(shape, extent, order, element_size_bytes)
        good_writes = writes_whole_chunks or write_run >= _GOOD_WRITE_RUN_BYTES
        has_good_runs = read_run >= _GOOD_READ_RUN_BYTES and good_writes
        if has_good_runs or cap_bytes >= budget_bytes:
            break
    return shape, has_good_runs


def slab_shape(
    extent: tuple[int, ...],
    order: tuple[int, ...],
    element_size_bytes: int,
    *,
    unit: tuple[int, ...],
    budget_bytes: int,
    writes_whole_chunks: bool = False,
) -> tuple[int, ...]:
    """Return the shape of the slabs, in the axes of the source, by the lengths of runs.

    Parameters
    ----------
    unit
        Smallest shape; every axis of the result is a multiple of it, or the whole axis.
    budget_bytes
        A slab is at most this large; at least one unit.
    writes_whole_chunks
        Whether the length of runs in the replica does not matter.
    """
    shape = list(unit)
    source_axes = range(len(extent))
    while True:
        read_run = run_bytes(shape, extent, source_axes, element_size_bytes)
        write_run = run_bytes(shape, extent, order, element_size_bytes)
        reads_suffice = read_run >= _READ_RUN_BYTES
        writes_suffice = writes_whole_chunks or write_run >= _WRITE_RUN_BYTES
        if reads_suffice and writes_suffice:
            break
        read_first = not reads_suffice and (
            writes_suffice or read_run < _READ_RUNS_PER_WRITE_RUN * write_run
        )
        sides = (source_axes, order) if read_first else (order, source_axes)
        if not any(
            _grow(shape, extent, axes, unit, budget_bytes // element_size_bytes) for axes in sides
        ):
            break
    return tuple(shape)


def run_bytes(
    shape: Sequence[int], extent: Sequence[int], axes: Sequence[int], element_size_bytes: int
) -> int:
    """Return the bytes of one contiguous run of the box where elements lie in order of `axes`."""
    run = element_size_bytes
    for axis in reversed(axes):
        run *= shape[axis]
        if shape[axis] < extent[axis]:
            break
    return run


def _grow(
    shape: list[int],
    extent: Sequence[int],
    axes: Sequence[int],
    unit: Sequence[int],
    budget_elements: int,
) -> bool:
    """Lengthen the runs in order of `axes`: the fastest axis not yet whole; False where full."""
    axis = next((axis for axis in reversed(axes) if shape[axis] < extent[axis]), None)
    if axis is None:
        return False
    across = math.prod(shape) // shape[axis]
    fits = budget_elements // across
    if fits >= extent[axis] and 2 * shape[axis] >= extent[axis]:
        wanted = extent[axis]
    else:
        wanted = min(2 * shape[axis], fits // unit[axis] * unit[axis])
    if wanted <= shape[axis]:
        return False
    shape[axis] = wanted
    return True


def shape_between_grids(
    start: Sequence[int],
    extent: Sequence[int],
    *,
    unit: Sequence[int],
    source_chunk: Sequence[int],
    budget_elements: int,
) -> tuple[int, ...]:
    """Return slabs of whole chunks of the replica that decode few source chunks twice.

    Parameters
    ----------
    start, extent
        The box that is copied.
    unit
        A chunk of the replica, in the axes of the source; every axis of the result is a multiple
        of it, or the whole axis. One unit fits the budget.

    Notes
    -----
    Greedy: the axis whose growth saves most reads for the memory that it takes, until the memory
    is used or every chunk is read once.
    """
    shape = list(unit)
    axes = range(len(shape))

    def reads(axis: int, length: int) -> float:
        return _chunk_reads(start[axis], extent[axis], length, source_chunk[axis])

    while True:
        best: tuple[float, int, int] | None = None
        elements = math.prod(shape)
        for axis in axes:
            now = reads(axis, shape[axis])
            for length in _longer(shape[axis], unit[axis], source_chunk[axis], extent[axis]):
                if elements // shape[axis] * length > budget_elements:
                    continue
                saved = now / reads(axis, length)
                if saved > 1 + 1e-9:
                    worth = math.log(saved) / math.log(length / shape[axis])
                    if best is None or worth > best[0]:
                        best = worth, axis, length
        if best is None:
            return tuple(shape)
        shape[best[1]] = best[2]


def _longer(length: int, unit: int, chunk: int, extent: int) -> Iterator[int]:
    """Yield lengths to grow to on one axis: twice, to where both grids meet, the whole axis."""
    both = math.lcm(unit, chunk)
    for wanted in (2 * length, -(-(length + 1) // both) * both, extent):
        if length < min(wanted, extent):
            yield min(wanted, extent)


def _chunk_reads(start: int, extent: int, length: int, chunk: int) -> float:
    """Return how many chunks are read on one axis, each slab's counted, in the mean.

    Slabs of `length` begin at `start`, chunks at 0.

    >>> _chunk_reads(0, 100, 10, 10)
    10.0
    >>> _chunk_reads(5, 100, 10, 10)
    20.0
    """
    if length >= extent:
        return float((start + extent - 1) // chunk - start // chunk + 1)
    common = math.gcd(length, chunk)
    reach = length if start % common else length - common
    return -(-extent // length) * (1 + reach / chunk)
