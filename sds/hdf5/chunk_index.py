"""The chunk index of a dataset: file offset, size and filter mask of each chunk."""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds import _native

if TYPE_CHECKING:
    import h5py

_DONT_FILTER_PARTIAL_CHUNKS = 0x0002
# From here on H5Dchunk_iter has the signature that the core knows, and addresses count the user
# block.
_OLDEST_NATIVE_HDF5 = (1, 14, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkIndex:
    """One entry for each chunk of a dataset's grid, in C order.

    Attributes
    ----------
    grid
        Chunks per axis.
    offset_bytes
        In the file; -1 for a chunk that was never written.
    size_bytes
        As stored.
    skipped
        Bit k is set where the k-th filter was not applied.
    """

    grid: tuple[int, ...]
    offset_bytes: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    skipped: NDArray[np.uint32]

    @property
    def memory_bytes(self) -> int:
        """Memory of the index, bytes."""
        return self.offset_bytes.nbytes + self.size_bytes.nbytes + self.skipped.nbytes

    def cells(self, touched: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the entries of all chunks whose index on each axis is one of those given."""
        cells = np.zeros(1, np.int64)
        for indices, n in zip(touched, self.grid, strict=True):
            cells = (cells[:, None] * n + indices).reshape(-1)
        return cells


def chunk_grid(extent: tuple[int, ...], chunk_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many chunks an extent is cut into, per axis."""
    return tuple(-(-n // length) for n, length in zip(extent, chunk_shape, strict=True))


@functools.cache
def is_hdf5_able() -> bool:
    """Return whether h5py's HDF5 library reports all that reading chunks without it takes."""
    import h5py  # noqa: PLC0415  (import sds must not load the HDF5 library)

    return h5py.version.hdf5_version_tuple[:3] >= _OLDEST_NATIVE_HDF5 and all(
        hasattr(_hdf5(), name) for name in ("H5Dchunk_iter", "H5Fget_eoa", "H5Pget_chunk_opts")
    )


def read_chunk_index(dataset: h5py.Dataset) -> ChunkIndex:
    """Return where the chunks of a dataset lie; the time goes with their number.

    Raises
    ------
    OSError
        If HDF5 cannot tell, or tells of a chunk that HDF5 itself would not read.
    """
    from h5py._objects import phil  # noqa: PLC0415  (what serializes all calls of HDF5)

    grid = chunk_grid(dataset.shape, dataset.chunks)
    n_chunks = math.prod(grid)
    index = ChunkIndex(
        grid=grid,
        offset_bytes=np.full(n_chunks, -1, np.int64),
        size_bytes=np.zeros(n_chunks, np.int64),
        skipped=np.zeros(n_chunks, np.uint32),
    )
    address = ctypes.cast(_hdf5().H5Dchunk_iter, ctypes.c_void_p).value or 0
    with phil:
        done = _native.fill_chunk_table(
            address,
            dataset.id.id,
            grid,
            dataset.chunks,
            index.offset_bytes,
            index.size_bytes,
            index.skipped,
        )
        end = _end_of_allocation(dataset)
    if not done or (index.offset_bytes + index.size_bytes).max(initial=0) > end:
        message = f"the chunks of {dataset.name} cannot be found without HDF5"
        raise OSError(message)
    return index


def are_edges_unfiltered(dataset: h5py.Dataset) -> bool:
    """Return whether chunks that reach over the extent are stored without filters."""
    from h5py._objects import phil  # noqa: PLC0415

    options = ctypes.c_uint()
    with phil:
        plist = dataset.id.get_create_plist()
        get = _hdf5().H5Pget_chunk_opts
        get.argtypes = (ctypes.c_int64, ctypes.POINTER(ctypes.c_uint))
        if get(plist.id, ctypes.byref(options)) < 0:
            message = f"HDF5 does not tell how {dataset.name} stores its last chunks"
            raise OSError(message)
    return bool(options.value & _DONT_FILTER_PARTIAL_CHUNKS)


def _end_of_allocation(dataset: h5py.Dataset) -> int:
    """Return the byte of the file behind which HDF5 reads nothing."""
    import h5py  # noqa: PLC0415

    end = ctypes.c_uint64()
    get = _hdf5().H5Fget_eoa
    get.argtypes = (ctypes.c_int64, ctypes.POINTER(ctypes.c_uint64))
    if get(h5py.h5i.get_file_id(dataset.id).id, ctypes.byref(end)) < 0:
        message = f"HDF5 does not tell where the file of {dataset.name} ends"
        raise OSError(message)
    return end.value


@functools.cache
def _hdf5() -> ctypes.CDLL:
    """Return the HDF5 library that h5py is linked to."""
    import h5py  # noqa: PLC0415

    return ctypes.CDLL(h5py.h5d.__file__)
