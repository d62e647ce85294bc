import h5py
import netCDF4
import numpy as np
import pytest

from sds.home import Home
from sds.organizer import plan_reorganization, reorganize
from tests.organizer.sources import settle


def replica_of(source, dataset, order, tmp_path):
    home = Home(tmp_path / "home")
    return reorganize(plan_reorganization(source, dataset, order=order, home=home), home=home)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.h5"
    with h5py.File(path, "w", track_order=True) as handle:
        cube = handle.create_dataset(
            "entry/cube",
            data=np.arange(2 * 3 * 4, dtype=">f4").reshape(2, 3, 4),
            fillvalue=-1,
            track_order=True,
        )
        cube.attrs["units"] = "counts/s"
        cube.attrs["fixed"] = np.bytes_(b"abc")
        cube.attrs["names"] = np.array(["alpha", "beta"], h5py.string_dtype())
        cube.attrs["ragged"] = np.array(
            [np.arange(2), np.arange(3)], dtype=h5py.vlen_dtype(np.int64)
        )
        cube.attrs["table"] = np.array([(1, 2.5)], [("n", "<i2"), ("x", ">f8")])
        cube.attrs["matrix"] = np.arange(6).reshape(2, 3)
        cube.attrs["flag"] = True
        cube.attrs["nothing"] = h5py.Empty("f4")
        cube.attrs["pointer"] = handle.ref
        cube.attrs.create("_Netcdf4Coordinates", [10, 11, 12], dtype="<i4")
        for axis, name in enumerate(("z", "y", "x")):
            scale = handle.create_dataset(f"axes/{name}", data=np.arange(2.0 + axis) * 10)
            scale.attrs["units"] = f"{name}-unit"
            scale.make_scale(name)
            cube.dims[axis].attach_scale(scale)
            cube.dims[axis].label = f"label {name}"
        second = handle.create_dataset("axes/z2", data=np.array([b"a", b"b"]))
        second.make_scale("z2")
        cube.dims[0].attach_scale(second)
    settle(path)
    return path


def test_attributes_come_along_with_their_types(source, tmp_path):
    replica = replica_of(source, "/entry/cube", (2, 0, 1), tmp_path)
    with h5py.File(source, "r") as original, h5py.File(replica.path, "r") as copy:
        a, b = original["entry/cube"].attrs, copy["entry/cube"].attrs
        left = {"pointer", "DIMENSION_LIST", "DIMENSION_LABELS"}
        assert [n for n in b if n not in left] == [n for n in a if n not in left]
        for name in ("units", "fixed", "flag"):
            assert a[name] == b[name]
        for name in ("names", "table", "matrix"):
            np.testing.assert_array_equal(a[name], b[name])
            assert a.get_id(name).get_type() == b.get_id(name).get_type()
        for left_part, right_part in zip(a["ragged"], b["ragged"], strict=True):
            np.testing.assert_array_equal(left_part, right_part)
        assert isinstance(b["nothing"], h5py.Empty)
        assert copy["entry/cube"].fillvalue == -1
    assert replica.left_out == ("attribute pointer",)


def test_the_dimension_ids_of_netcdf_follow_the_axes(source, tmp_path):
    replica = replica_of(source, "/entry/cube", (2, 0, 1), tmp_path)
    with h5py.File(replica.path, "r") as copy:
        assert copy["entry/cube"].attrs["_Netcdf4Coordinates"].tolist() == [12, 10, 11]


def test_scales_and_labels_are_attached_to_the_permuted_axes(source, tmp_path):
    replica = replica_of(source, "/entry/cube", (2, 0, 1), tmp_path)
    with h5py.File(replica.path, "r") as copy:
        cube = copy["entry/cube"]
        assert [d.label for d in cube.dims] == ["label x", "label z", "label y"]
        assert [[s.name for s in d.values()] for d in cube.dims] == [
            ["/axes/x"],
            ["/axes/z", "/axes/z2"],
            ["/axes/y"],
        ]
        assert cube.dims[2][0].attrs["units"] == "y-unit"
        np.testing.assert_array_equal(cube.dims[2][0][...], [0, 10, 20])


def test_netcdf_reads_a_replica_of_a_netcdf_variable(tmp_path):
    path = tmp_path / "grid.nc"
    values = np.arange(4 * 3 * 2, dtype="f4").reshape(4, 3, 2)
    with netCDF4.Dataset(path, "w") as handle:
        for name, size in (("time", 4), ("lat", 3), ("lon", 2)):
            handle.createDimension(name, size)
            handle.createVariable(name, "f8", (name,))[:] = np.arange(size)
        variable = handle.createVariable(
            "t2m", "f4", ("time", "lat", "lon"), fill_value=-9, contiguous=True
        )
        variable.units = "K"
        variable[:] = values
    settle(path)
    replica = replica_of(path, "/t2m", (1, 2, 0), tmp_path)
    with netCDF4.Dataset(replica.path) as copy:
        variable = copy["t2m"]
        assert variable.dimensions == ("lat", "lon", "time")
        assert variable.units == "K"
        assert variable._FillValue == -9
        np.testing.assert_array_equal(variable[:], values.transpose(1, 2, 0))
        np.testing.assert_array_equal(copy["time"][:], np.arange(4))


def test_what_would_make_the_metadata_too_large_is_left_out_and_named(tmp_path):
    path = tmp_path / "wide.h5"
    with h5py.File(path, "w", libver="latest") as handle:
        cube = handle.create_dataset("d", data=np.zeros((200_000, 2), "i1"))
        cube.attrs["small"] = 1
        cube.attrs["large"] = np.zeros(40_000)
        cube.attrs["dense"] = np.zeros(10_000)
        scale = handle.create_dataset("long", data=np.arange(200_000.0))
        scale.make_scale("long")
        cube.dims[0].attach_scale(scale)
    settle(path)
    replica = replica_of(path, "/d", (1, 0), tmp_path)
    assert replica.left_out == ("attribute large", "dimension scale /long")
    assert replica.identity.size_bytes - replica.size_bytes < 1 << 20
    with h5py.File(replica.path, "r") as copy:
        assert copy["d"].attrs["small"] == 1
        assert copy["d"].attrs["dense"].shape == (10_000,)


def test_a_scale_itself_can_be_reorganized(source, tmp_path):
    replica = replica_of(source, "/axes/y", (0,), tmp_path)
    with h5py.File(replica.path, "r") as copy:
        assert copy["axes/y"].is_scale
        np.testing.assert_array_equal(copy["axes/y"][...], [0, 10, 20])


def test_the_replica_says_where_it_comes_from(source, tmp_path):
    replica = replica_of(source, "/entry/cube", (2, 0, 1), tmp_path)
    found = source.stat()
    with h5py.File(replica.path, "r") as copy:
        root = copy.attrs
        assert root["sds_source"] == str(source)
        assert root["sds_dataset"] == "/entry/cube"
        assert root["sds_order"].tolist() == [2, 0, 1]
        assert root["sds_source_identity"].tolist() == [
            found.st_ino,
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
        ]
        assert '"organizer": "transposer"' in root["sds_plan"]


def test_types_of_a_file_of_the_latest_format(tmp_path):
    """Such a type has a version that older formats lack, and takes it along."""
    path = tmp_path / "latest.h5"
    values = np.zeros((3, 4), [("n", "<i2"), ("x", ">f8", (2,))])
    values["n"] = np.arange(12).reshape(3, 4)
    with h5py.File(path, "w", libver="latest") as handle:
        handle["compound"] = values
        handle["enum"] = (values["n"] % 2).astype(h5py.enum_dtype({"no": 0, "yes": 1}, "i1"))
        handle["complex"] = values["n"] + 1j
    settle(path)
    for name in ("compound", "enum", "complex"):
        replica = replica_of(path, f"/{name}", (1, 0), tmp_path)
        with h5py.File(path) as source, h5py.File(replica.path) as handle:
            assert np.array_equal(handle[name][()], source[name][()].T)
