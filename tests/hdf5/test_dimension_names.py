"""Axes by the names that dimension scales and labels give them."""

import h5py
import netCDF4
import numpy as np
import pytest

from sds.cli.quantities import named_order
from sds.errors import DatasetNotFoundError, LayoutError
from sds.hdf5.dimension_names import dimension_names, order_of_names


@pytest.fixture
def maps(tmp_path):
    path = tmp_path / "maps.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, n in (("time", 4), ("lat", 3), ("lon", 2), ("other", 5)):
            file.createDimension(name, n)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(4)
        file.createVariable("t", "f4", ("time", "lat", "lon"))[:] = 1
    return path


@pytest.fixture
def labelled(tmp_path):
    path = tmp_path / "labelled.h5"
    with h5py.File(path, "w") as file:
        cube = file.create_dataset("cube", data=np.zeros((2, 3, 4)))
        cube.dims[0].label = "y"
        file["energies"] = np.arange(4)
        file["channels"] = np.arange(4)
        for scale in ("energies", "channels"):
            file[scale].make_scale()
            cube.dims[2].attach_scale(file[scale])
        file["plain"] = np.zeros((2, 2))
    return path


def test_netcdf_dimensions_have_names_with_and_without_a_variable(maps):
    with h5py.File(maps) as file:
        assert dimension_names(file["t"]) == (("time",), ("lat",), ("lon",))
    assert order_of_names(maps, "/t", ("lat", "lon", "time")) == (1, 2, 0)


def test_an_axis_may_have_several_names_or_none(labelled):
    with h5py.File(labelled) as file:
        assert dimension_names(file["cube"]) == (("y",), (), ("energies", "channels"))
    with pytest.raises(LayoutError, match=r"they are y, \(axis 1\), energies/channels; or write"):
        order_of_names(labelled, "/cube", ("channels", "y"))


@pytest.mark.parametrize("words", [("lat", "lon"), ("lat", "lon", "tme"), ("lat", "lat", "time")])
def test_names_that_are_no_order(maps, words):
    with pytest.raises(LayoutError, match="they are time, lat, lon"):
        order_of_names(maps, "/t", words)


def test_scales_that_lead_nowhere_name_nothing(labelled):
    with h5py.File(labelled, "a") as file:
        del file["energies"], file["channels"]
    with h5py.File(labelled) as file:
        assert dimension_names(file["cube"])[:2] == (("y",), ())


def test_orders_are_written_by_number_or_name(maps):
    assert named_order("2,0,1", maps, "/t") == (2, 0, 1)
    assert named_order("(lon, time, lat)", maps, "/t") == (2, 0, 1)
    with pytest.raises(LayoutError, match="no permutation"):
        named_order("0,0,1", maps, "/t")
    with pytest.raises(DatasetNotFoundError):
        named_order("lat,lon", maps, "/u")
