"""File extents of the chunks that a selection touches, and the cost of undoing filters."""

from __future__ import annotations

import itertools
import math
import time
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import UnsupportedError
from sds.geometry import MAX_CHUNKS, chunks_on_axis

if TYPE_CHECKING:
    import h5py
    from numpy.typing import NDArray

    from sds.geometry import Hyperslab

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
        chunks_on_axis(*axis, chunk)
        for axis, chunk in zip(slab.axes(), dataset.chunks, strict=True)
    ]
    n_touched = math.prod(len(indices) for indices in per_axis)
    if n_touched > MAX_CHUNKS:
        message = f"the selection touches {n_touched} chunks; select at most {MAX_CHUNKS}"
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


def decode_seconds_per_byte(dataset: h5py.Dataset) -> float:
    """Measure how long undoing the filters of a dataset takes, per byte that comes out.

    A few of its chunks are read both decoded and as they are stored, after they came into the page
    cache; the difference is what decoding takes. (Reading a chunk as it is stored takes it out of
    HDF5's own cache, so that it is decoded each time.) 0 where there are no filters or nothing is
    stored.

    Raises
    ------
    UnsupportedError
        If this HDF5 lacks a filter.
    """
    n_stored = 0 if dataset.chunks is None else dataset.id.get_num_chunks()
    if n_stored == 0 or dataset.id.get_create_plist().get_nfilters() == 0:
        return 0.0
    n_bytes = math.prod(dataset.chunks) * dataset.id.get_type().get_size()
    n_samples = max(1, min(_N_SAMPLES, n_stored, _MAX_SAMPLED_BYTES // n_bytes))
    decode_s = 0.0
    decoded_bytes = 0
    try:
        for sample in range(n_samples):
            at = dataset.id.get_chunk_info(sample * n_stored // n_samples).chunk_offset
            seconds, size_bytes = _decode_seconds(dataset.id, at, dataset.chunks)
            decode_s += seconds
            decoded_bytes += size_bytes
    except OSError as error:
        message = f"cannot undo the filters of {dataset.name}: {error}"
        raise UnsupportedError(message) from error
    return max(0.0, decode_s / decoded_bytes)


def _decode_seconds(
    dataset: h5py.h5d.DatasetID, at: tuple[int, ...], chunk_shape: tuple[int, ...]
) -> tuple[float, int]:
    """Return the time that decoding a stored chunk takes, and the bytes that come out."""
    import h5py  # noqa: PLC0415

    file_type = dataset.get_type()
    # What lies beyond the extent is decoded too, but not returned.
    within = tuple(
        min(length, n - first)
        for length, n, first in zip(chunk_shape, dataset.shape, at, strict=True)
    )
    in_file = dataset.get_space()
    in_file.select_hyperslab(at, within)
    in_memory = h5py.h5s.create_simple(within)
    elements = np.empty(within, f"V{file_type.get_size()}")
    dataset.read_direct_chunk(at)  # into the page cache
    stored_s, decoded_s = math.inf, math.inf
    for _ in range(_N_REPEATS):
        begun_s = time.perf_counter()
        dataset.read_direct_chunk(at)
        between_s = time.perf_counter()
        dataset.read(in_memory, in_file, elements, file_type)
        stored_s = min(stored_s, between_s - begun_s)
        decoded_s = min(decoded_s, time.perf_counter() - between_s)
    return decoded_s - stored_s, math.prod(chunk_shape) * file_type.get_size()
