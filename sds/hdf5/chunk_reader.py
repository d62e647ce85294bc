"""Read selections of chunked datasets chunk by chunk, without HDF5.

HDF5 reads, decodes and copies one chunk after the other in one thread. Here the chunks that a
selection touches are read in file order, adjacent ones together, and their filters are undone by
several threads (`native/src/chunks/chunk_read.c`). What cannot be done so is left to HDF5: filters
whose code is only there, chunks that are damaged (the error is then HDF5's own), values that HDF5
leaves undefined, and reads for which finding the chunks would take longer than HDF5 does.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sds import _native
from sds.errors import FormatError, TruncatedFileError
from sds.geometry.chunk_selection import chunks_on_axis, integers_of_ranges
from sds.geometry.point_selection import ListedSelection, ScatteredSelection
from sds.hdf5.chunk_index import (
    ChunkIndex,
    are_edges_unfiltered,
    chunk_grid,
    is_hdf5_able,
    read_chunk_index,
)
from sds.hdf5.codecs import DEFLATE, FLETCHER32, SHUFFLE, NativeFilter, native_filter
from sds.hdf5.dataset import DatasetDescription, fills_missing

if TYPE_CHECKING:
    import h5py

    from sds.geometry import Hyperslab

log = logging.getLogger(__name__)

_Spans: TypeAlias = tuple[int, int, int, int] | NDArray[np.int64]
_PointArrays: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
_InCore: TypeAlias = tuple[list[_Spans], tuple[int, ...], _PointArrays | None, NDArray[np.int64]]

Selected: TypeAlias = "Hyperslab | ListedSelection | ScatteredSelection"

_MAX_INDEXED_CHUNKS = 1 << 21

# Of a dataset with filters: a read of no more than this leaves its chunks behind for the next one,
# decoded. HDF5 2 keeps as much for each dataset that is open.
_MAX_KEPT_BYTES = 8 << 20

# What HDF5 takes per byte of a chunk, with a warm cache, to open a file and a dataset, and to tell
# where chunks lie; what a read without it takes before it begins (measured on one core at 3.7 GHz).
# Decisions need no more than the order of magnitude.
_HDF5_COPY_S_PER_BYTE = 0.2e-9
_HDF5_DECODE_S_PER_BYTE = {DEFLATE: 2.0e-9, SHUFFLE: 0.5e-9, FLETCHER32: 0.7e-9}
_HDF5_OTHER_CODEC_S_PER_BYTE = 0.4e-9
_HDF5_OPEN_S = 500e-6
_INDEX_S_PER_CHUNK = 0.5e-6
_START_S = 100e-6

_CHUNK_EXTRA_BYTES = 4096


@dataclass(slots=True, kw_only=True, eq=False)
class ChunkedSource:
    """A chunked dataset, with all that reading it without HDF5 needs.

    Attributes
    ----------
    filters
        What undoes its filters, in the order in which writing applied them.
    edges_unfiltered
        Whether chunks that reach over the extent are stored without filters.
    fill
        The value of elements that were never written; None where only HDF5 knows.
    index
        Where its chunks lie, once that is known.
    missed_s
        What reads through HDF5 have cost so far for want of the index.
    kept
        Chunks that reads left behind, decoded, by their entry in the index; `lock` guards it.
    """

    described: DatasetDescription
    filters: tuple[NativeFilter, ...]
    edges_unfiltered: bool
    fill: NDArray[np.generic] | None
    index: ChunkIndex | None = None
    missed_s: float = 0.0
    kept: OrderedDict[int, NDArray[np.uint8]] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of the elements of a chunk."""
        shape = self.described.chunk_shape or ()
        return math.prod(shape) * self.described.element_size_bytes

    def find_kept(self, cells: list[int]) -> dict[int, NDArray[np.uint8]]:
        """Return those of some chunks that earlier reads left behind."""
        with self.lock:
            found = {cell: self.kept[cell] for cell in cells if cell in self.kept}
            for cell in found:
                self.kept.move_to_end(cell)
        return found

    def keep(self, decoded: dict[int, NDArray[np.uint8]]) -> None:
        """Leave decoded chunks for later reads."""
        with self.lock:
            self.kept.update(decoded)
            while len(self.kept) * self.chunk_bytes > _MAX_KEPT_BYTES:
                self.kept.popitem(last=False)


def describe_chunked(dataset: h5py.Dataset, described: DatasetDescription) -> ChunkedSource | None:
    """Return the means to read a dataset without HDF5; None where only HDF5 can.

    Parameters
    ----------
    dataset, described
        Of a type whose bytes are read as they are; of a file open for reading alone.
    """
    if (
        described.chunk_shape is None
        or math.prod(chunk_grid(described.extent, described.chunk_shape)) > _MAX_INDEXED_CHUNKS
        or not is_hdf5_able()
    ):
        return None
    filters = []
    for step in described.filters:
        native = native_filter(step)
        if native is None:
            return None
        filters.append(native)
    return ChunkedSource(
        described=described,
        filters=tuple(filters),
        edges_unfiltered=bool(filters) and are_edges_unfiltered(dataset),
        fill=_fill_value(dataset, described),
    )


def find_chunks(dataset: h5py.Dataset, source: ChunkedSource, selected: Selected) -> bool:
    """Find out where the chunks of a dataset lie if that pays; return whether it is known.

    It takes time that goes with their number; HDF5 looks up only those that it reads. So HDF5 reads
    until what that has cost makes up for finding out: at worst twice the time of knowing
    beforehand.
    """
    if source.index is None:
        saved_s = _saved_seconds(source, selected)
        n_chunks = math.prod(chunk_grid(source.described.extent, dataset.chunks))
        if n_chunks * _INDEX_S_PER_CHUNK > source.missed_s + saved_s:
            source.missed_s += saved_s
            return False
        try:
            source.index = read_chunk_index(dataset)
        except OSError as error:
            log.debug("HDF5 reads %s: %s", dataset.name, error)
            return False
    return True


def _saved_seconds(source: ChunkedSource, selected: Selected) -> float:
    """Return the predicted gain over HDF5 of reading where the chunks are known."""
    described = source.described
    chunk_shape = described.chunk_shape or ()
    grid = chunk_grid(described.extent, chunk_shape)
    if isinstance(selected, ScatteredSelection):
        n_chunks = min(len(selected.offsets), math.prod(grid))
    else:
        n_chunks = math.prod(len(axis.chunks) for axis in _on_axes(selected, chunk_shape))
    per_byte = _HDF5_COPY_S_PER_BYTE + sum(
        _HDF5_DECODE_S_PER_BYTE.get(step.code, _HDF5_OTHER_CODEC_S_PER_BYTE)
        for step in described.filters
    )
    chunk_bytes = math.prod(chunk_shape) * described.element_size_bytes
    hdf5_s = n_chunks * (_native.HDF5_CHUNK_S + per_byte * chunk_bytes)
    n_workers = max(1, min(n_chunks, _n_threads()))
    return _HDF5_OPEN_S - _START_S + hdf5_s * (1 - 1 / n_workers)


def read_chunked(
    engine: _native.ReadFile,
    source: ChunkedSource,
    selected: Selected,
    result: NDArray[Any],
    *,
    max_memory_bytes: int | None = None,
) -> bool:
    """Fill an array with the selection; return whether that was done.

    Where it was not, the array may be partly filled, and HDF5 is to read, or to say what is wrong.

    Parameters
    ----------
    source
        Whose chunks were found.
    result
        C-contiguous, of as many elements as are selected: one at least.
    max_memory_bytes
        For chunks on their way, at least eight of them; no chunks are then left behind.
    """
    index = source.index
    if index is None:
        return False
    try:
        return _read(engine, source, index, selected, result, max_memory_bytes=max_memory_bytes)
    except (FormatError, TruncatedFileError, OSError, MemoryError) as error:
        log.debug("HDF5 reads %s:%s: %s", source.described.file, source.described.path, error)
        return False


def _read(
    engine: _native.ReadFile,
    source: ChunkedSource,
    index: ChunkIndex,
    selected: Selected,
    result: NDArray[Any],
    *,
    max_memory_bytes: int | None,
) -> bool:
    described = source.described
    chunk_shape = described.chunk_shape or ()
    points = None
    axes: list[_Spans] = []
    shape: tuple[int, ...]
    if isinstance(selected, ScatteredSelection):
        cells, points = _points_by_chunk(index, described, selected)
        shape = (result.size,)
    else:
        on_axes = _on_axes(selected, chunk_shape)
        cells = index.cells([axis.chunks for axis in on_axes])
        axes = [axis.native for axis in on_axes]
        shape = tuple(axis.length for axis in on_axes)
    offsets = index.offset_bytes[cells]
    stored = np.flatnonzero(offsets >= 0)
    if len(stored) < len(cells):
        if source.fill is None:
            return False
        result[...] = source.fill
    order = stored[np.argsort(offsets[stored], kind="stable")]
    into = result.reshape(-1).view(np.uint8).data

    def selection_in(chosen: NDArray[np.int64]) -> _InCore:
        """Return the selection and some of the chunks as arguments of the core."""
        return (
            axes,
            shape,
            None if points is None else points.of_chunks(chosen),
            np.stack(np.unravel_index(cells[chosen], index.grid), axis=1).astype(np.int64, "C"),
        )

    element_bytes = described.element_size_bytes
    fresh: dict[int, NDArray[np.uint8]] = {}
    is_bounded = max_memory_bytes is not None
    if source.filters and not is_bounded and len(order) * source.chunk_bytes <= _MAX_KEPT_BYTES:
        known = source.find_kept(cells[order].tolist())
        is_known = np.isin(cells[order], list(known))
        if known:
            chosen = order[is_known]
            _native.copy_chunks(
                described.extent,
                chunk_shape,
                element_bytes,
                *selection_in(chosen),
                into,
                [known[cell] for cell in cells[chosen].tolist()],
            )
            order = order[~is_known]
        fresh = {cell: np.empty(source.chunk_bytes, np.uint8) for cell in cells[order].tolist()}
    if len(order):
        report = _native.read_chunks(
            engine,
            described.extent,
            chunk_shape,
            element_bytes,
            list(source.filters),
            source.edges_unfiltered,
            *selection_in(order),
            offsets[order],
            index.size_bytes[cells[order]],
            index.skipped[cells[order]],
            into,
            *_threads_and_window(source, max_memory_bytes),
            kept=list(fresh.values()),
        )
        source.keep(fresh)
        log.debug("read %s:%s without HDF5: %s", described.file, described.path, report)
    return True


def _threads_and_window(source: ChunkedSource, max_memory_bytes: int | None) -> tuple[int, int]:
    """Return how many threads undo filters, and the bytes that are read at a time (0: default).

    A thread holds two chunks; two windows are on their way.
    """
    if max_memory_bytes is None:
        return _n_threads(), 0
    of_thread = 2 * (source.chunk_bytes + _CHUNK_EXTRA_BYTES)
    return min(_n_threads(), max(1, max_memory_bytes // 2 // of_thread)), max_memory_bytes // 4


def _n_threads() -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class _OnAxis:
    """Selection on one axis.

    Attributes
    ----------
    native
        (start, stride, count, block); or spans of consecutive indices as rows of first index,
        length and position in the result.
    length
        Indices selected.
    chunks
        The chunks that hold them, ascending.
    """

    native: _Spans
    length: int
    chunks: NDArray[np.int64]


def _on_axes(selected: Hyperslab | ListedSelection, chunk_shape: tuple[int, ...]) -> list[_OnAxis]:
    """Return the selection, axis by axis."""
    slab = selected.slab if isinstance(selected, ListedSelection) else selected
    axes = [
        _regular_on_axis(*axis, chunk) for axis, chunk in zip(slab.axes(), chunk_shape, strict=True)
    ]
    if isinstance(selected, ListedSelection):
        axes[selected.axis] = _places_on_axis(selected.places, chunk_shape[selected.axis])
    return axes


def _regular_on_axis(start: int, stride: int, count: int, block: int, chunk: int) -> _OnAxis:
    if count == 1 or stride == block:
        stride, count, block = count * block, 1, count * block
    chunks = chunks_on_axis(start, stride, count, block, chunk)
    return _OnAxis((start, stride, count, block), count * block, chunks)


def _places_on_axis(places: NDArray[np.int64], chunk: int) -> _OnAxis:
    begins = np.flatnonzero(np.diff(places, prepend=places[0] - 2) != 1)
    lengths = np.diff(np.append(begins, len(places)))
    spans = np.ascontiguousarray(np.stack([places[begins], lengths, begins], axis=1))
    return _OnAxis(spans, len(places), np.unique(places // chunk))


@dataclass(frozen=True, slots=True)
class _Points:
    """Points by chunk: those of the i-th begin at first[i]; elements in chunk and result."""

    first: NDArray[np.int64]
    in_chunk: NDArray[np.int64]
    in_result: NDArray[np.int64]

    def of_chunks(self, order: NDArray[np.int64]) -> _PointArrays:
        """Return the same of some of the chunks, in another order."""
        n_points = np.diff(self.first)[order]
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(n_points)])
        taken = integers_of_ranges(self.first[order], self.first[order + 1] - 1)
        return first, self.in_chunk[taken], self.in_result[taken]


def _points_by_chunk(
    index: ChunkIndex, described: DatasetDescription, selected: ScatteredSelection
) -> tuple[NDArray[np.int64], _Points]:
    """Return the chunks that hold single elements, and those of each."""
    chunk_shape = described.chunk_shape or ()
    at = np.stack(np.unravel_index(selected.offsets, described.extent))
    chunk, within = np.divmod(at, np.array(chunk_shape, np.int64)[:, None])
    cells = np.ravel_multi_index(tuple(chunk), index.grid)
    in_chunk = np.ravel_multi_index(tuple(within), chunk_shape)
    order = np.lexsort((in_chunk, cells))
    touched, first = np.unique(cells[order], return_index=True)
    return touched, _Points(np.append(first, len(order)), in_chunk[order], order)


def _fill_value(dataset: h5py.Dataset, described: DatasetDescription) -> NDArray[np.generic] | None:
    """Return the value of elements that were never written; None where only HDF5 knows."""
    plist = dataset.id.get_create_plist()
    if described.dtype.names is not None or not fills_missing(plist):
        return None
    value = np.zeros((), described.dtype)
    plist.get_fill_value(value)
    return value
