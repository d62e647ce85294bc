import json

import h5py
import netCDF4
import numpy as np
import pytest

from sds.geometry import SegmentList
from sds.hdf5.identity import source_identity, trusted_directories
from sds.home import Home
from sds.organizer import plan_reorganization, reorganize
from tests.organizer.sources import gathered, settle
from tests.under_connector import native_environment, run_python


def replica_of(source, dataset, order, tmp_path, **kind):
    home = Home(tmp_path / "home")
    plan = plan_reorganization(source, dataset, order=order, home=home, **kind)
    return reorganize(plan, home=home)


KINDS = {
    "contiguous": {},
    "chunked": {"chunks": "auto", "filters": "shuffle,gzip:4"},
    "partial": {"region": "[:, 1:3, 1:]"},
    "both": {"chunks": (1, 2, 2), "filters": "gzip:4", "region": "[:, 1:3, 1:]"},
}
every_kind = pytest.mark.parametrize("kind", KINDS)
of_a_part = pytest.mark.parametrize("kind", ["partial", "both"])


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


@every_kind
def test_attributes_come_along_with_their_types(source, tmp_path, kind):
    replica = replica_of(source, "/entry/cube", (2, 0, 1), tmp_path, **KINDS[kind])
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


@of_a_part
def test_scales_are_cut_to_the_region(source, tmp_path, kind):
    replica = replica_of(source, "/entry/cube", (2, 0, 1), tmp_path, **KINDS[kind])
    assert replica.left_out == ("attribute pointer",)
    with h5py.File(replica.path, "r") as copy:
        cube = copy["entry/cube"]
        assert cube.shape == (3, 2, 2)
        assert [d.label for d in cube.dims] == ["label x", "label z", "label y"]
        assert [[s.name for s in d.values()] for d in cube.dims] == [
            ["/axes/x"],
            ["/axes/z", "/axes/z2"],
            ["/axes/y"],
        ]
        np.testing.assert_array_equal(cube.dims[0][0][...], [10, 20, 30])
        np.testing.assert_array_equal(cube.dims[1][0][...], [0, 10])
        np.testing.assert_array_equal(cube.dims[2][0][...], [10, 20])
        for axis, name in enumerate("xzy"):
            scale = cube.dims[axis][0]
            assert scale.attrs["units"] == f"{name}-unit"
            assert scale.is_scale
            assert h5py.h5ds.get_scale_name(scale.id) == name.encode()


def test_scales_of_text_and_of_two_axes_are_cut(tmp_path):
    path = tmp_path / "square.h5"
    with h5py.File(path, "w") as handle:
        square = handle.create_dataset("d", data=np.arange(36).reshape(6, 6))
        names = handle.create_dataset(
            "names", data=[f"name {i}" for i in range(6)], dtype=h5py.string_dtype()
        )
        names.attrs["long_name"] = "of each"
        index = handle.create_dataset(
            "index", data=np.arange(6), chunks=(5,), maxshape=(None,), compression="gzip"
        )
        for scale in (names, index):
            scale.make_scale(scale.name)
        square.dims[0].attach_scale(names)
        for axis in range(2):
            square.dims[axis].attach_scale(index)
    settle(path)
    replica = replica_of(path, "/d", (1, 0), tmp_path, region="[1:3, 2:]")
    assert replica.left_out == ("dimension scale /index of axis 0",)
    with h5py.File(replica.path) as copy:
        dims = copy["d"].dims
        assert [[s.name for s in d.values()] for d in dims] == [["/index"], ["/names"]]
        assert dims[0][0][...].tolist() == [2, 3, 4, 5]
        assert dims[1][0].asstr()[...].tolist() == ["name 1", "name 2"]
        assert dims[1][0].attrs["long_name"] == "of each"
    same = replica_of(path, "/d", (1, 0), tmp_path, region="[1:3, 1:3]")
    assert same.left_out == ()
    with h5py.File(same.path) as copy:
        dims = copy["d"].dims
        assert [[s.name for s in d.values()] for d in dims] == [["/index"], ["/names", "/index"]]


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


@pytest.mark.parametrize("n_members", [0, 300, 1300])
@pytest.mark.parametrize("n_bytes", [1 << 16, 3 << 20])
def test_elements_begin_half_a_page_and_eight_bytes_behind_a_page(tmp_path, n_members, n_bytes):
    """Whatever HDF5 writes in front of them: a type of 1300 members takes 40 KiB."""
    path = tmp_path / "source.h5"
    members = {f"value number {number}": number for number in range(n_members)}
    dtype = h5py.enum_dtype(members, "i8") if n_members else np.dtype("i8")
    values = np.arange(n_bytes // 8).reshape(16, -1) % max(1, n_members)
    with h5py.File(path, "w") as handle:
        handle.create_dataset("group/d", data=values, dtype=dtype)
    settle(path)
    replica = replica_of(path, "/group/d", (1, 0), tmp_path)
    assert replica.data_offset_bytes % 4096 == 2056
    with h5py.File(replica.path) as copy:
        assert copy["group/d"].id.get_offset() == replica.data_offset_bytes
        np.testing.assert_array_equal(copy["group/d"][...], values.T)


READERS = {
    "h5py": """
        import sys, h5py
        print(h5py.version.hdf5_version)
        with h5py.File(sys.argv[1]) as handle:
            print(handle["d"][...].tolist())
    """,
    "netCDF4": """
        import sys, netCDF4
        print(netCDF4.__hdf5libversion__)
        with netCDF4.Dataset(sys.argv[1]) as handle:
            handle.set_auto_mask(False)
            print(handle["d"][...].tolist())
    """,
    "tables": """
        import sys, tables
        print(tables.hdf5_version)
        with tables.open_file(sys.argv[1]) as handle:
            print(handle.root.d[...].tolist())
    """,
}


SEGMENTS = SegmentList(tile_shape=(3, 2, 4), tiles=(7, 0, 11), lengths=(2, 1))


@pytest.mark.parametrize("kind", [*KINDS, "segments"])
def test_every_hdf5_reads_a_replica(tmp_path, kind):
    """The wheels of these packages hold HDF5 1.14, 2.0 and 2.2."""
    path = tmp_path / "source.h5"
    values = np.arange(4 * 5 * 6, dtype="<f8").reshape(4, 5, 6)
    with h5py.File(path, "w", libver="latest") as handle:
        handle.create_dataset("d", data=values, chunks=(2, 2, 2))
    settle(path)
    options = KINDS.get(kind, {"segments": SEGMENTS})
    replica = replica_of(path, "/d", (2, 0, 1), tmp_path, **options)
    box = values[:, 1:3, 1:] if "region" in options else values
    expected = box.transpose(2, 0, 1)
    if "segments" in options:
        expected = gathered(values, SEGMENTS, (2, 0, 1))
    versions = set()
    for program in READERS.values():
        result = run_python(program, replica.path, env=native_environment())
        version, elements = result.stdout.splitlines()
        versions.add(version)
        assert elements == str(expected.tolist())
    assert len(versions) == len(READERS), versions


@pytest.mark.parametrize(
    "kind", [{}, {"chunks": (1, 2, 2), "filters": "shuffle,gzip:4"}, {"region": "[1:3]"}], ids=str
)
def test_netcdf_reads_a_replica_of_a_netcdf_variable(tmp_path, kind):
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
    replica = replica_of(path, "/t2m", (1, 2, 0), tmp_path, **kind)
    times = slice(1, 3) if "region" in kind else slice(None)
    with netCDF4.Dataset(replica.path) as copy:
        variable = copy["t2m"]
        assert variable.dimensions == ("lat", "lon", "time")
        assert variable.units == "K"
        assert variable._FillValue == -9
        np.testing.assert_array_equal(variable[:], values[times].transpose(1, 2, 0))
        np.testing.assert_array_equal(copy["time"][:], np.arange(4)[times])


def test_netcdf_reads_tiles_of_a_netcdf_variable(tmp_path):
    path = tmp_path / "grid.nc"
    values = np.arange(4 * 5 * 6, dtype="f4").reshape(4, 5, 6)
    with netCDF4.Dataset(path, "w") as handle:
        for name, size in zip(("time", "lat", "lon"), values.shape, strict=True):
            handle.createDimension(name, size)
            handle.createVariable(name, "f8", (name,))[:] = np.arange(size)
        variable = handle.createVariable("t2m", "f4", ("time", "lat", "lon"), fill_value=-9)
        variable.units = "K"
        variable[:] = values
    settle(path)
    replica = replica_of(path, "/t2m", (1, 2, 0), tmp_path, segments=SEGMENTS)
    with netCDF4.Dataset(replica.path) as copy:
        variable = copy["t2m"]
        assert variable.shape == (3, 2, 4, 3)
        assert variable.units == "K"
        np.testing.assert_array_equal(variable[:], gathered(values, SEGMENTS, (1, 2, 0)))
        assert set(copy.variables) == {"t2m"}


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


@every_kind
def test_the_replica_says_where_it_comes_from(source, tmp_path, kind):
    replica = replica_of(source, "/entry/cube", (2, 0, 1), tmp_path, **KINDS[kind])
    found = source.stat()
    with h5py.File(replica.path, "r") as copy:
        root = copy.attrs
        assert root["sds_source"] == str(source)
        assert root["sds_dataset"] == "/entry/cube"
        assert root["sds_order"].tolist() == [2, 0, 1]
        assert root["sds_source_extent"].tolist() == [2, 3, 4]
        first = [0, 1, 1] if "region" in KINDS[kind] else [0, 0, 0]
        assert root["sds_region_start"].tolist() == first
        steps = [name for _, name, _ in json.loads(root["sds_filters"])]
        assert steps == {"chunked": ["shuffle", "gzip"], "both": ["gzip"]}.get(kind, [])
        assert root["sds_source_identity"].tolist() == [
            found.st_ino,
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
            source_identity(source, trusted=trusted_directories(Home(tmp_path))).instance,
        ]
        assert '"organizer": "transposer"' in root["sds_plan"]


@pytest.mark.parametrize("chunks", [None, (2, 2)])
def test_types_of_a_file_of_the_latest_format(tmp_path, chunks):
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
        replica = replica_of(path, f"/{name}", (1, 0), tmp_path, chunks=chunks)
        with h5py.File(path) as source, h5py.File(replica.path) as handle:
            assert np.array_equal(handle[name][()], source[name][()].T)
