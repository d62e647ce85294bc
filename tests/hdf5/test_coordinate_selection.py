"""Selections by names of dimensions and values of coordinates."""

import h5py
import netCDF4
import numpy as np
import pytest
import xarray

from sds.errors import SelectionError
from sds.geometry import parse_index
from sds.hdf5.coordinate_selection import index_by_coordinates, is_by_name

DAYS = 3 * 365


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    """Three years of daily maps, latitudes from north to south."""
    path = tmp_path_factory.mktemp("maps") / "maps.nc"
    with netCDF4.Dataset(path, "w") as file:
        lengths = {"time": DAYS, "lat": 61, "lon": 144, "level": 3, "band": 4}
        for name, n in lengths.items():
            file.createDimension(name, n)
        time = file.createVariable("time", "i4", ("time",))
        time.units, time.calendar = "days since 1999-12-31 12:00", "noleap"
        time[:] = 1 + np.arange(DAYS)
        file.createVariable("lat", "f4", ("lat",))[:] = np.linspace(90, -90, 61)
        lon = file.createVariable("lon", "i2", ("lon",))
        lon.scale_factor = 0.5
        lon[:] = np.arange(144) * 2.5
        file.createVariable("level", str, ("level",))[:] = np.array(["low", "middle", "high"], "O")
        file.createVariable("t", "f4", ("time", "lat", "lon"))
        file.createVariable("w", "f4", ("level", "band", "lat"))
    return path


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("time=2001-01:2001-12, lat=40", "[365:730, 17, :]"),
        ("time=2001", "[365:730, :, :]"),
        ("time=2001-03", "[424:455, :, :]"),
        ("time=2001-03-02", "[425, :, :]"),
        ("time=2001-03-02T12:2001-03-04T12", "[425:428, :, :]"),
        ("time=:2000-01-02", "[0:2, :, :]"),
        ("time=2002-12-31:", "[1094, :, :]"),
        ("lat=10:-10", "[:, 27:34, :]"),
        ("lat=-10:10", "[:, 27:34, :]"),
        ("lat=80:", "[:, 0:4, :]"),
        ("lat=41.4", "[:, 16, :]"),
        ("lon=356, time=[::10]", "[::10, :, 142]"),
        ("lon=[5]", "[:, :, 5]"),
        ("lon=[]", "[:, :, :]"),
        ("lon=:3", "[:, :, 0:2]"),
    ],
)
def test_values_are_indices(maps, text, index):
    assert is_by_name(text)
    assert index_by_coordinates(maps, "/t", text) == index


def test_text_and_dimensions_without_a_coordinate(maps):
    assert index_by_coordinates(maps, "/w", "level=middle, band=1:3") == "[1, 1:3, :]"
    assert index_by_coordinates(maps, "/w", "band=2") == "[:, 2, :]"


@pytest.mark.parametrize("calendar", ["standard", "noleap", "360_day", "proleptic_gregorian"])
@pytest.mark.parametrize("period", ["1999", "2000-02", "2000-02-28", "2000-02:2001-03"])
def test_periods_are_those_of_xarray(tmp_path, calendar, period):
    path = tmp_path / "times.nc"
    times = xarray.date_range(
        "1999-06-15T03:00", periods=800, freq="D", calendar=calendar, use_cftime=True
    )
    data = xarray.DataArray(np.arange(800.0), dims="time", coords={"time": times}, name="d")
    data.to_netcdf(path)
    (index,) = parse_index(index_by_coordinates(path, "/d", f"time={period}"))
    ends = period.split(":")
    wanted = data.sel(time=slice(ends[0], ends[-1]))
    found = data.values[index]
    np.testing.assert_array_equal(np.atleast_1d(found), wanted.values)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tim=2001", "'tim' is no dimension of /t: they are time, lat, lon"),
        ("lat=40, lat=50", "dimension lat twice"),
        ("lat", "write NAME=VALUE"),
        ("lat=", "write NAME=VALUE"),
        ("lat=40, 7", "'7' in the selection"),
        ("lon=-75", "lon=-75 lies outside lon, which is 0 to 357.5"),
        ("lat=nan", "lat holds the numbers"),
        ("lat=:", "lat holds the numbers"),
        ("lat=north", "lat holds the numbers -90 to 90"),
        ("lat=1:2:3", "lat holds the numbers"),
        ("time=40", "times are written as 2001"),
        ("time=2001-13", "2001-13 in 'days since"),
        ("time=:2001-13", "2001-13 in 'days since"),
        ("time=2000-06:2000-00", "2000-00 in 'days since"),
        ("time=2001-02-29", "2001-02-29 in 'days since"),
        ("time=1850", "selects nothing"),
        ("lat=10:11", "selects nothing"),
        ("time=:", "times are written as"),
        ("lon=[7", "lon holds the numbers"),
    ],
)
def test_what_cannot_be_selected_is_said(maps, text, said):
    with pytest.raises(SelectionError) as error:
        index_by_coordinates(maps, "/t", text)
    assert said in str(error.value)
    assert "cannot be read" not in str(error.value)


def test_axes_without_names_and_coordinates_in_no_order(tmp_path):
    path = tmp_path / "plain.h5"
    with h5py.File(path, "w") as file:
        file["plain"] = np.zeros((4, 5))
        cube = file.create_dataset("cube", data=np.zeros((5, 3)))
        file["x"] = np.array([0.0, 2.0, 9.0, 1.0, 3.0])
        file["y"] = np.zeros((3, 2))
        file["z"] = np.full(3, -1, "i4")
        file["z"].attrs["_FillValue"] = np.int32(-1)
        for name in "xyz":
            file[name].make_scale()
        cube.dims[0].attach_scale(file["x"])
        cube.dims[1].attach_scale(file["y"])
        cube.dims[1].attach_scale(file["z"])
    for dataset, text, said in (
        ("/plain", "x=1", "its 2 axes have no names"),
        ("/cube", "x=1:3", "no range with one step"),
        ("/cube", "y=1", "of shape (3, 2), has not one value for each"),
        ("/cube", "z=1", "z has no values"),
    ):
        with pytest.raises(SelectionError) as error:
            index_by_coordinates(path, dataset, text)
        assert said in str(error.value)
    assert index_by_coordinates(path, "/cube", "x=2.4") == "[1, :]"
    assert index_by_coordinates(path, "/cube", "x=9:, z=[1]") == "[2, 1]"


def scaled(path, values, name="x", **attributes):
    """Write a dataset with one coordinate."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("d", data=np.zeros(len(values)))
        file[name] = values
        file[name].attrs.update(attributes)
        file[name].make_scale()
        data.dims[0].attach_scale(file[name])
    return path


@pytest.mark.parametrize(
    ("values", "attributes", "text", "index"),
    [
        (np.round(np.arange(90, -90.1, -0.1), 1).astype("f4"), {}, "x=40.3:40.1", "[497:500]"),
        (np.round(np.arange(90, -90.1, -0.1), 1).astype("f4"), {}, "x=40.1:40.1", "[499]"),
        (np.arange(10, dtype="i2"), {"scale_factor": 0.1}, "x=0.1:0.3", "[1:4]"),
        (np.arange(0, 3, 0.1), {}, "x=0:0.3", "[0:4]"),
        (np.array([0.1], "f4"), {}, "x=0.1", "[0]"),
        (np.array([0.494025], "f4"), {}, "x=0.494", "[0]"),
        (np.array(["Bern", "Zürich".encode()], "S10"), {}, "x=Bern", "[0]"),
        (np.array(["Bern", b"Z\xff"], "S10"), {}, "x=Bern", "[0]"),
    ],
)
def test_digits_that_a_coordinate_lacks_do_not_count(tmp_path, values, attributes, text, index):
    assert (
        index_by_coordinates(scaled(tmp_path / "x.h5", values, **attributes), "/d", text) == index
    )


@pytest.mark.parametrize(
    ("values", "attributes", "said"),
    [
        (np.arange(3), {"scale_factor": "0,1"}, "cannot be read"),
        (np.arange(3), {"scale_factor": np.zeros(0)}, "cannot be read"),
        (np.arange(3), {"scale_factor": h5py.Empty("f8")}, "cannot be read"),
        (2**62 + np.arange(3), {}, "x has no values"),
        (np.zeros(3, "S50000000"), {}, "or more than 134217728 bytes"),
        (np.zeros(3, [("a", "f4")]), {}, "no numbers and no text"),
    ],
)
def test_odd_coordinates_are_refused(tmp_path, values, attributes, said):
    path = scaled(tmp_path / "x.h5", values, **attributes)
    with pytest.raises(SelectionError) as error:
        index_by_coordinates(path, "/d", "x=1")
    assert said in str(error.value)
    assert "select by x=[START:STOP]" in str(error.value)


def test_labels_and_dimensions_of_two_axes(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("d", data=np.zeros((40, 3, 3)))
        file["time"], file["step"], file["x"] = np.arange(40), 10 * np.arange(40), np.arange(3)
        data.dims[0].label = "t"
        for axis, name in ((0, "time"), (0, "step"), (1, "x"), (2, "x")):
            if not file[name].is_scale:
                file[name].make_scale()
            data.dims[axis].attach_scale(file[name])
    assert index_by_coordinates(path, "/d", "step=30") == "[3, :, :]"
    with pytest.raises(SelectionError, match="t has several coordinates: name time or step"):
        index_by_coordinates(path, "/d", "t=30")
    with pytest.raises(SelectionError, match="several axes"):
        index_by_coordinates(path, "/d", "x=1")
    with h5py.File(path, "r+") as file:
        del file["time"], file["step"]
    assert index_by_coordinates(path, "/d", "t=30") == "[30, :, :]"


def test_an_index_has_no_names():
    assert not is_by_name("[:, 3, ::2]")
