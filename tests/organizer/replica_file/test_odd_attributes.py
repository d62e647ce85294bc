"""Attributes and scales that cannot be carried over are left out by name."""

import h5py
import numpy as np
import pytest

from sds import _native
from sds.geometry import SegmentList
from sds.home import Home
from sds.organizer import plan_reorganization, reorganize
from tests.organizer.sources import settle

EXTENT = (4, 5, 6)


def add_variable(file, *, anonymous=False):
    data = file.create_dataset("d", data=np.arange(np.prod(EXTENT), dtype="f4").reshape(EXTENT))
    data.attrs["units"] = "K"
    for axis, name in enumerate(("time", "y", "x")):
        scale = file.create_dataset(None if anonymous else name, data=np.arange(EXTENT[axis]))
        scale.make_scale(name)
        data.dims[axis].attach_scale(scale)
    return data


def copied(path):
    with h5py.File(path.with_name("whole.h5"), "w") as whole, h5py.File(path, "w") as file:
        add_variable(whole)
        whole.copy("d", file)


def anonymous(path):
    with h5py.File(path, "w") as file:
        add_variable(file, anonymous=True)


def deleted(path):
    with h5py.File(path, "w") as file:
        add_variable(file)
    with h5py.File(path, "r+") as file:
        del file["time"]


def latin_scale(path):
    with h5py.File(path, "w") as file:
        data = add_variable(file)
        scale = file.create_dataset(b"L\xe4nge", data=np.arange(EXTENT[2]))
        scale.make_scale("length")
        data.dims[2].attach_scale(scale)


def unreadable_scale(path):
    with h5py.File(path, "w") as file:
        data = add_variable(file)
        names = file.create_dataset(
            "station", EXTENT[2:], h5py.string_dtype(), chunks=EXTENT[2:], compression="gzip"
        )
        names[...] = list("abcdef")
        names.id.write_direct_chunk((0,), b"not what gzip makes")
        names.make_scale("station")
        data.dims[2].attach_scale(names)


def scale_of_a_missing_filter(path):
    with h5py.File(path, "w") as file:
        data = add_variable(file)
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(EXTENT[1:2])
        properties.set_filter(400, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple(EXTENT[1:2])
        scale = h5py.h5d.create(file.id, b"station", h5py.h5t.IEEE_F64LE, space, properties)
        scale.write_direct_chunk((0,), np.arange(5.0).tobytes())
        h5py.Dataset(scale).make_scale("station")
        data.dims[1].attach_scale(h5py.Dataset(scale))


def latin_attribute(path):
    with h5py.File(path, "w") as file:
        data = add_variable(file)
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        made = h5py.h5a.create(data.id, b"Temp\xe9rature", h5py.h5t.IEEE_F64LE, space)
        made.write(np.array(21.5))


def ragged_attribute(path):
    kind = np.dtype([("name", h5py.string_dtype()), ("ids", h5py.vlen_dtype(np.int32))])
    table = np.empty(3, kind)
    for i in range(3):
        table[i] = (f"group {i}", np.arange(i + 2, dtype=np.int32))
    with h5py.File(path, "w") as file:
        add_variable(file).attrs.create("members", table, dtype=kind)


def unwritten_attribute(path):
    with h5py.File(path, "w") as file:
        text = h5py.h5t.py_create(h5py.string_dtype(), logical=True)
        h5py.h5a.create(add_variable(file).id, b"note", text, h5py.h5s.create_simple((4,)))


def time_attribute(path):
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        made = h5py.h5a.create(add_variable(file).id, b"taken", h5py.h5t.UNIX_D32LE, space)
        made.write(np.frombuffer(b"\1\0\0\0", "V4").reshape(()), mtype=h5py.h5t.UNIX_D32LE)


ODD = {
    copied: "dimension scales of axis",
    anonymous: "dimension scales of axis 0",
    deleted: "a dimension scale of axis 0 that has no name",
    latin_scale: r"dimension scale /L\xe4nge",
    unreadable_scale: "dimension scale /station",
    scale_of_a_missing_filter: "",
    latin_attribute: None,
    ragged_attribute: None,
    unwritten_attribute: "",
    time_attribute: "",
}


@pytest.mark.parametrize("kind", ["whole", "chunked", "segments"])
@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
def test_what_cannot_be_carried_over_keeps_no_replica_from_being_built(make, kind, tmp_path):
    path = tmp_path / "odd.h5"
    make(path)
    settle(path)
    home = Home(tmp_path / "home")
    options = {
        "chunked": {"chunks": (2, 3, 4)},
        "segments": {"segments": SegmentList(tile_shape=(2, 5, 6), tiles=(0, 1), lengths=(2,))},
    }.get(kind, {})
    plan = plan_reorganization(path, "/d", order=(2, 0, 1), home=home, **options)
    replica = reorganize(plan, home=home)
    with h5py.File(replica.path) as copy, h5py.File(path) as source:
        assert copy["d"].attrs["units"] == "K"
        if kind != "segments":
            expected = source["d"][...].transpose(2, 0, 1)
            np.testing.assert_array_equal(copy["d"][...], expected)
        names = {h5py.h5a.open(copy["d"].id, index=i).name for i in range(len(copy["d"].attrs))}
    said = ODD[make]
    if said is None and kind != "segments":
        assert replica.left_out == ()
        assert {b"Temp\xe9rature", b"members"} & names
    elif said and kind != "segments":
        assert any(what.startswith(said) for what in replica.left_out), replica.left_out
    ", ".join(replica.left_out).encode()  # text, whatever the names


@pytest.mark.parametrize("make", [unreadable_scale, scale_of_a_missing_filter])
def test_a_scale_whose_part_cannot_be_read_is_left_out(make, tmp_path):
    path = tmp_path / "odd.h5"
    make(path)
    settle(path)
    home = Home(tmp_path / "home")
    plan = plan_reorganization(path, "/d", order=(2, 0, 1), home=home, region="[:, 1:, 2:]")
    replica = reorganize(plan, home=home)
    assert replica.left_out.count("dimension scale /station") == 1
    with h5py.File(replica.path) as copy, h5py.File(path) as source:
        expected = source["d"][:, 1:, 2:].transpose(2, 0, 1)
        np.testing.assert_array_equal(copy["d"][...], expected)
        assert "station" not in copy
        assert copy["d"].dims[1].keys() == ["time"]


N_VALUES = 20_000


def long_variable(file, scale):
    data = file.create_dataset("d", data=np.arange(N_VALUES * 2.0).reshape(N_VALUES, 2))
    scale.make_scale(scale.name)
    data.dims[0].attach_scale(scale)


def scale_written_value_by_value(path):
    with h5py.File(path, "w") as file:
        scale = file.create_dataset("times", (N_VALUES,), "f8", chunks=(1,), maxshape=(None,))
        scale[:] = np.arange(N_VALUES) * 0.25
        scale.attrs["units"] = "days since 1850-01-01"
        long_variable(file, scale)


def scale_of_long_texts(path):
    with h5py.File(path, "w") as file:
        names = [f"station {i:06d} " + "x" * 130 for i in range(N_VALUES // 2)]
        scale = file.create_dataset("stations", (N_VALUES,), h5py.string_dtype())
        scale[: N_VALUES // 2] = names
        long_variable(file, scale)


@pytest.mark.parametrize("region", [None, "[7:, :]"])
@pytest.mark.parametrize("make", [scale_written_value_by_value, scale_of_long_texts])
def test_scales_leave_a_replica_little_enough_to_check(make, region, tmp_path):
    """However large their indexes and heaps are, of which HDF5's storage size says nothing."""
    path = tmp_path / "odd.h5"
    make(path)
    settle(path)
    home = Home(tmp_path / "home")
    plan = plan_reorganization(path, "/d", order=(1, 0), home=home, region=region)
    replica = reorganize(plan, home=home)
    assert replica.metadata_bytes <= _native.MAX_METADATA_BYTES
    with h5py.File(replica.path) as copy, h5py.File(path) as source:
        if make is scale_of_long_texts:
            assert replica.left_out == ("dimension scale /stations",)
            return
        assert replica.left_out == ()
        scale = copy["d"].dims[1][0]
        expected = source["times"][...] if region is None else source["times"][7:]
        np.testing.assert_array_equal(scale[...], expected)
        assert scale.attrs["units"] == "days since 1850-01-01"
