"""Where the chunks that a selection touches lie in their file."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import UnsupportedError

if TYPE_CHECKING:
    import h5py
    from numpy.typing import NDArray

    from sds.geometry import Hyperslab

_MAX_CHUNKS = 1 << 24


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
