"""Whatever looks through a replica finds what the source holds, and nothing of SDS's own."""

import gc
import json
import warnings

import h5netcdf
import h5py
import netCDF4
import numpy as np
import pytest
import tables
import xarray

from sds.geometry import SegmentList
from sds.home import Home
from sds.organizer import plan_reorganization, plan_sorting, reorganize
from tests.organizer.sources import settle

SIZES = {"time": 60, "lat": 7, "lon": 11}
KINDS = {
    "contiguous": {},
    "chunked": {"chunks": (3, 5, 20), "filters": "shuffle,gzip:1"},
    "region": {"region": "[10:50, :, :]"},
}


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """Return a netCDF file whose longest dimension is as long as a replica has checksums."""
    path = tmp_path_factory.mktemp("source") / "grid.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, size in SIZES.items():
            file.createDimension(name, size)
            file.createVariable(name, "f8", (name,))[:] = np.arange(size)
        t2m = file.createVariable("t2m", "f4", tuple(SIZES), contiguous=True)
        t2m[:] = np.arange(np.prod(list(SIZES.values()))).reshape(list(SIZES.values()))
    settle(path)
    return path


@pytest.fixture(scope="module", params=KINDS)
def replica(grid, request, tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("home"))
    options = KINDS[request.param]
    return reorganize(plan_reorganization(grid, "/t2m", order=(1, 2, 0), home=home, **options),
                      home=home)  # fmt: skip


def expected(grid, replica):
    """Return variables and dimensions as xarray would show them of the source, transposed."""
    with xarray.open_dataset(grid, engine="netcdf4") as file:
        held = slice(replica.region.start[0], replica.region.start[0] + replica.region.extent[0])
        return file.isel(time=held).transpose("lat", "lon", "time").load()


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_xarray_shows_the_source_transposed(grid, replica, engine):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # h5netcdf warns of dimensions without a name
        with xarray.open_dataset(replica.path, engine=engine) as copy:
            xarray.testing.assert_equal(copy.load(), expected(grid, replica))
            assert copy["t2m"].dims == ("lat", "lon", "time")


def test_netcdf4_and_h5netcdf_list_variables_and_dimensions_of_the_source(replica):
    for library in (netCDF4.Dataset, h5netcdf.File):
        with library(replica.path, "r") as copy:
            assert set(copy.variables) == {"t2m", *SIZES}
            assert set(copy.dimensions) == set(SIZES)


@pytest.fixture
def _collects_no_garbage():
    """Keep h5py's objects from being freed in a thread of zarr.

    kerchunk waits for such a thread while it visits a file, which holds the lock of h5py that they
    need: both would wait forever.
    """
    gc.disable()
    yield
    gc.enable()


def arrays_of(references):
    """Return the names of the arrays that kerchunk found."""
    return {key.rpartition("/")[0] for key in references if key.endswith("/.zarray")}


@pytest.mark.usefixtures("_collects_no_garbage")
def test_kerchunk_refers_to_variables_of_the_source(grid, replica):
    from kerchunk.hdf import SingleHdf5ToZarr

    with replica.path.open("rb") as stream:
        reader = SingleHdf5ToZarr(stream, str(replica.path), inline_threshold=0)
        if replica.chunk_shape is not None:
            with pytest.warns(UserWarning, match="fletcher32"):
                made = reader.translate()["refs"]
            assert arrays_of(made) == set(SIZES)
            return
        made = reader.translate()["refs"]
    assert arrays_of(made) == {"t2m", *SIZES}
    assert json.loads(made["t2m/.zattrs"])["_ARRAY_DIMENSIONS"] == ["lat", "lon", "time"]
    held = expected(grid, replica)["t2m"].to_numpy()
    _, at, size = made["t2m/0.0.0"]
    content = replica.path.read_bytes()[at : at + size]
    np.testing.assert_array_equal(np.frombuffer(content, "<f4").reshape(held.shape), held)


def test_h5py_and_pytables_visit_the_datasets_of_the_source(replica):
    visited = []
    with h5py.File(replica.path) as copy:
        copy.visititems(lambda name, _: visited.append(name))
    assert set(visited) == {"t2m", *SIZES}
    with tables.open_file(replica.path) as copy:
        assert set(copy.root._v_children) == set(visited)


def test_tiles_and_sorted_rows_come_with_no_list_of_sds(tmp_path, grid):
    home = Home(tmp_path / "home")
    tiles = SegmentList(tile_shape=(6, 7, 11), tiles=(3, 1), lengths=(2,))
    gathered = reorganize(
        plan_reorganization(grid, "/t2m", order=(1, 2, 0), segments=tiles, home=home), home=home
    )
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["table/key"] = np.array([3.0, 1.0, 2.0])
    settle(tmp_path / "rows.h5")
    rows = reorganize(plan_sorting(tmp_path / "rows.h5", "/table", key="key", home=home), home=home)
    for replica, names in (
        (gathered, {"t2m"}),
        (rows, {"table", "table/key"}),
    ):
        visited = []
        with h5py.File(replica.path) as copy:
            copy.visititems(lambda name, _, to=visited: to.append(name))
        assert set(visited) == names
    with netCDF4.Dataset(gathered.path) as copy:
        assert copy["t2m"].shape == (2, 7, 11, 6)
