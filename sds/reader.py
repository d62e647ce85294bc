"""``sds.read``: read a selection of a dataset, equal to what h5py returns for it.

Basic selections of types that need no conversion come from a replica where that is predicted
faster, or from a contiguous original straight from the file; everything else through h5py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from sds import _native
from sds.dataset import (
    DatasetDescription,
    Storage,
    describe_open_dataset,
    get_dataset,
    open_hdf5,
)
from sds.errors import SdsValueError, SelectionError
from sds.geometry import Hyperslab, is_basic_index, parse_index, selection_from_index
from sds.redirect.serve import serve_from_replica

if TYPE_CHECKING:
    import h5py
    from numpy.typing import NDArray


def read(
    file: str | os.PathLike[str],
    dataset: str,
    selection: object = ...,
    out: NDArray[Any] | None = None,
) -> Any:  # noqa: ANN401  (as h5py: an array, or a scalar where every axis is dropped)
    """Return a selection of a dataset, equal to h5py's ``file[dataset][selection]``.

    Parameters
    ----------
    file, dataset
        An HDF5 file and the path of a dataset in it.
    selection
        An index expression such as ``np.s_[:, 3, ::2]``, or the text of one; any that h5py takes.
    out
        Filled and returned if given: C-contiguous, of the result's shape and type.

    Raises
    ------
    NotHdf5Error, FileMissingError, DatasetNotFoundError
        And the other errors of `sds.dataset.describe_dataset`.
    SelectionError
        If h5py cannot select so, or the selection reaches outside the dataset.
    SdsValueError
        If `out` does not fit.
    """
    index = parse_index(selection) if isinstance(selection, str) else selection
    with open_hdf5(file) as handle:
        found = get_dataset(handle, dataset)
        described = describe_open_dataset(found, found.file.filename)
        if is_basic_index(index) and described.extent and not described.is_null:
            slab, shape = selection_from_index(index, described.extent)
            if shape and described.is_native and found.file.mode == "r":
                result = _result(shape, described.dtype, out)
                if _fill(found, described, slab, result):
                    return result
        return _read_through_hdf5(found, index, out)


def _fill(
    dataset: h5py.Dataset, described: DatasetDescription, slab: Hyperslab, result: NDArray[Any]
) -> bool:
    """Fill an array from a replica or the file's own bytes; return whether that was possible.

    The file must be open for reading alone: opened for writing elsewhere in this process, HDF5 may
    hold bytes back that the file does not have yet.
    """
    if result.size == 0:
        return True
    contiguous = (
        described.storage is Storage.CONTIGUOUS
        and described.data_offset_bytes is not None
        and dataset.file.driver in ("sec2", "stdio")
    )
    if serve_from_replica(dataset, described, slab, result, engine_serves_original=contiguous):
        return True
    if contiguous:
        _read_contiguous(described, slab, result)
    return contiguous


def _result(
    shape: tuple[int, ...], dtype: np.dtype[np.generic], out: NDArray[Any] | None
) -> NDArray[Any]:
    """Return `out` if it fits, or a new array if there is none."""
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype:
        message = (
            f"out is {out.dtype} of shape {out.shape}, the selection {dtype} of shape {shape}; "
            f"pass np.empty({shape}, {str(dtype)!r})"
        )
        raise SdsValueError(message)
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise SdsValueError("out must be C-contiguous and writeable; pass a fresh np.empty array")
    return out


def _read_contiguous(described: DatasetDescription, slab: Hyperslab, result: NDArray[Any]) -> None:
    """Fill an array with a selection of a contiguous dataset."""
    runs = _native.runs(
        described.extent,
        described.element_size_bytes,
        described.data_offset_bytes or 0,
        slab.start,
        slab.stride,
        slab.count,
        slab.block,
    )
    descriptor = os.open(described.file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _native.read_runs(descriptor, *runs, result.reshape(-1).view(np.uint8).data)
    finally:
        os.close(descriptor)


def _read_through_hdf5(dataset: h5py.Dataset, index: object, out: NDArray[Any] | None) -> Any:  # noqa: ANN401
    """Return what h5py returns, its complaints about the selection as SelectionError."""
    try:
        values = dataset[index]
    except (TypeError, ValueError, IndexError) as error:
        message = f"cannot select {index!r} of {dataset.name} with extent {dataset.shape}: {error}"
        raise SelectionError(message) from error
    if out is None:
        return values
    array = np.asarray(values)
    result = _result(array.shape, array.dtype, out)
    result[...] = array
    return result
