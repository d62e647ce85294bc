"""Commands that write a file anew in other chunks."""

import h5py
import netCDF4
import numpy as np
import pytest

from sds.errors import DatasetNotFoundError
from sds.hdf5.rewrite_command import rewrite_command


def test_files_of_netcdf_are_copied_by_names_of_dimensions(tmp_path):
    path = tmp_path / "my maps.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, n in (("time", 4), ("lat", 3)):
            file.createDimension(name, n)
        file.createVariable("lat", "f8", ("lat",))[:] = np.arange(3)
        file.createVariable("t", "f4", ("time", "lat"))[:] = 1
    written = tmp_path / "my maps-rewritten.nc"
    assert rewrite_command(path, "/t", (4, 1)) == f"nccopy -c time/4,lat/1 '{path}' '{written}'"


def test_other_files_by_lengths(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["a/b c"] = np.zeros((4, 3))
    written = tmp_path / "run-rewritten.h5"
    assert (
        rewrite_command(path, "/a/b c", (4, 1))
        == f"h5repack -l '/a/b c:CHUNK=4x1' {path} {written}"
    )
    with pytest.raises(DatasetNotFoundError):
        rewrite_command(path, "/no", (4, 1))
