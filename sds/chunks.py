"""Where the chunks that a selection touches lie in their file, and what undoing filters costs."""

from __future__ import annotations

import itertools
import math
import time
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import UnsupportedError

if TYPE_CHECKING:
    import h5py
    from numpy.typing import NDArray

    from sds.geometry import Hyperslab

_MAX_CHUNKS = 1 << 24

_N_SAMPLES = 4
_MAX_SAMPLED_BYTES = 16 << 20
_N_REPEATS = 3


def chunk_extents(
    dataset: h5py.Dataset, slab: Hyperslab
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return offsets and lengths in bytes of the chunks that a selection touches, by offset.

    Chunks that were never written are left out: HDF5 reads nothing for them.

    Raises
    ------
    UnsupportedError
        If there are more than 2**24.
    """
    per_axis = [
        _chunks_on_axis(*axis, chunk)
        for axis, chunk in zip(slab.axes(), dataset.chunks, strict=True)
    ]
    n_touched = math.prod(len(indices) for indices in per_axis)
    if n_touched > _MAX_CHUNKS:
        message = f"the selection touches {n_touched} chunks; select at most {_MAX_CHUNKS}"
        raise UnsupportedError(message)
    stored: list[tuple[int, int]] = []
    if n_touched * 2 > dataset.id.get_num_chunks():
        touched = [
            set((indices * chunk).tolist())
            for indices, chunk in zip(per_axis, dataset.chunks, strict=True)
        ]

        def collect(info: h5py.h5d.StoreInfo) -> None:
            if all(at in axis for at, axis in zip(info.chunk_offset, touched, strict=True)):
                stored.append((info.byte_offset, info.size))

        dataset.id.chunk_iter(collect)
    else:
        for chunk in itertools.product(*(indices.tolist() for indices in per_axis)):
            at = tuple(i * c for i, c in zip(chunk, dataset.chunks, strict=True))
            info = dataset.id.get_chunk_info_by_coord(at)
            if info.byte_offset is not None:
                stored.append((info.byte_offset, info.size))
    extents = np.array(sorted(stored), dtype=np.int64).reshape(-1, 2)
    return np.ascontiguousarray(extents[:, 0]), np.ascontiguousarray(extents[:, 1])


def _chunks_on_axis(
    start: int, stride: int, count: int, block: int, chunk: int
) -> NDArray[np.int64]:
    """Return the indices of the chunks that a selection touches on one axis, ascending."""
    if count == 0 or block == 0:
        return np.empty(0, dtype=np.int64)
    last = start + (count - 1) * stride + block - 1
    if stride - block < chunk or count == 1:
        return np.arange(start // chunk, last // chunk + 1)  # no gap skips a whole chunk
    starts = start + stride * np.arange(count)
    spans = [np.arange(s // chunk, (s + block - 1) // chunk + 1) for s in starts.tolist()]
    return np.unique(np.concatenate(spans))


def decode_seconds_per_byte(dataset: h5py.Dataset) -> float:
    """Measure how long undoing the filters of a dataset takes, per byte that comes out.

    A few of its chunks are copied as they are into memory and read there, decoded each time;
    reading as many unfiltered ones is subtracted. 0 where there are no filters or nothing is
    stored.

    Raises
    ------
    UnsupportedError
        If this HDF5 lacks a filter.
    """
    import h5py  # noqa: PLC0415  (import sds must not load the HDF5 library)

    creation = dataset.id.get_create_plist()
    n_stored = 0 if dataset.chunks is None else dataset.id.get_num_chunks()
    if n_stored == 0 or creation.get_nfilters() == 0:
        return 0.0
    file_type = dataset.id.get_type()
    n_bytes = math.prod(dataset.chunks) * file_type.get_size()
    n_samples = max(1, min(_N_SAMPLES, n_stored, _MAX_SAMPLED_BYTES // n_bytes))
    bare = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    bare.set_chunk(dataset.chunks)
    uncached = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
    uncached.set_chunk_cache(0, 0, 0.0)
    space = h5py.h5s.create_simple(dataset.chunks)
    origin = (0,) * len(dataset.chunks)
    buffer = np.zeros(n_bytes, np.uint8)
    with h5py.File("chunks", "w", driver="core", backing_store=False) as memory:
        try:
            filtered = h5py.h5d.create(
                memory.id, b"filtered", file_type, space, creation, dapl=uncached
            )
            plain = h5py.h5d.create(memory.id, b"plain", file_type, space, bare, dapl=uncached)
            plain.write_direct_chunk(origin, buffer)
            decode_s = 0.0
            for sample in range(n_samples):
                at = dataset.id.get_chunk_info(sample * n_stored // n_samples).chunk_offset
                mask, stored = dataset.id.read_direct_chunk(at)
                filtered.write_direct_chunk(origin, np.frombuffer(stored, np.uint8), mask)
                decode_s += _read_seconds(filtered, buffer) - _read_seconds(plain, buffer)
        except (OSError, ValueError) as error:
            message = f"cannot undo the filters of {dataset.name}: {error}"
            raise UnsupportedError(message) from error
    return max(0.0, decode_s) / float(n_samples * n_bytes)


def _read_seconds(dataset: h5py.h5d.DatasetID, buffer: NDArray[np.uint8]) -> float:
    """Return the shortest time of several reads of a whole dataset."""
    import h5py  # noqa: PLC0415

    file_type = dataset.get_type()
    shortest_s = math.inf
    for _ in range(_N_REPEATS):
        begun_s = time.perf_counter()
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, buffer, file_type)
        shortest_s = min(shortest_s, time.perf_counter() - begun_s)
    return shortest_s
