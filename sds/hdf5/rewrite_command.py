"""Commands of HDF5 and netCDF that write a file anew in other chunks."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from sds.hdf5.dataset import get_dataset, open_hdf5
from sds.hdf5.dimension_names import dimension_names

if TYPE_CHECKING:
    import os

# That netCDF-C writes into the root of each file.
_OF_NETCDF = "_NCProperties"


def rewrite_command(
    file: str | os.PathLike[str], dataset: str, chunk_shape: tuple[int, ...]
) -> str:
    """Return what a user types to write a file anew, with one dataset in other chunks.

    ``nccopy`` of files of netCDF, in which each axis has the name of its dimension, else
    ``h5repack``. Both keep the filters.

    Raises
    ------
    FileMissingError, DatasetNotFoundError, NotHdf5Error, PermissionDeniedError
        If there is no such dataset.
    """
    with open_hdf5(file) as handle:
        names = dimension_names(get_dataset(handle, dataset))
        is_netcdf = _OF_NETCDF in handle.attrs and all(names)
    written = Path(file).with_name(f"{Path(file).stem}-rewritten{Path(file).suffix}")
    if is_netcdf:
        lengths = ",".join(f"{of[0]}/{n}" for of, n in zip(names, chunk_shape, strict=True))
        return shlex.join(["nccopy", "-c", lengths, str(file), str(written)])
    layout = f"{dataset}:CHUNK={'x'.join(map(str, chunk_shape))}"
    return shlex.join(["h5repack", "-l", layout, str(file), str(written)])
