import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sds.errors import FormatError
from sds.geometry import Box
from sds.geometry.least_memory import FIXED_BYTES
from sds.home import Home
from sds.organizer import describe_replica, plan_reorganization, reorganize, verify_replica
from sds.organizer.replica_file.filters import FLETCHER32
from tests.organizer.sources import (
    cases,
    make_cube,
    make_source,
    memory_of_build,
    settle,
    stored_bytes,
)
from tests.sizes import repeated


def build(source, dataset, home, order, memory_bytes=16 << 20, **options):
    plan = plan_reorganization(
        source, dataset, order=order, home=home, memory_bytes=memory_bytes, **options
    )
    return plan, reorganize(plan, home=home)


@given(case=cases())
@settings(
    max_examples=repeated(20, 60), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_replica_is_the_transposed_source_byte_for_byte(case, tmp_path_factory):
    directory = tmp_path_factory.mktemp("case")
    source = directory / "source.h5"
    elements = make_source(source, case)
    chunk = 2 * int(np.prod(case.chunks)) * elements.itemsize if case.chunks else 0
    unit = chunk // 2 or elements.itemsize
    memory = FIXED_BYTES + chunk + 2 * max(unit, case.slab_kib << 10)
    plan, replica = build(source, "/group/d", Home(directory / "home"), case.order, memory)
    assert plan.memory_bytes <= memory
    with h5py.File(replica.path, "r") as copy, h5py.File(source, "r") as original:
        dataset = copy["/group/d"]
        assert dataset.id.get_type() == original["/group/d"].id.get_type()
        assert dataset.chunks is None
        np.testing.assert_array_equal(stored_bytes(dataset), elements.transpose(case.order))
        with replica.path.open("rb") as stream:
            stream.seek(replica.data_offset_bytes)
            stored = stream.read(replica.size_bytes)
    assert stored == elements.transpose(case.order).tobytes()
    assert replica.data_offset_bytes % 4096 == (0 if replica.size_bytes < 65536 else 2056)
    assert replica.extent == case.shape


@st.composite
def kinds(draw):
    """Draw a source, and a box of it to keep, contiguous or in chunks of some shape, filtered."""
    case = draw(cases())
    start = tuple(draw(st.integers(0, n - 1)) for n in case.shape)
    extent = tuple(draw(st.integers(1, n - a)) for a, n in zip(start, case.shape, strict=True))
    region = draw(st.sampled_from([None, Box(start=start, extent=extent)]))
    held = case.shape if region is None else region.extent
    shape = tuple(draw(st.integers(1, held[axis])) for axis in case.order)
    chunks = draw(st.sampled_from([None, "auto", shape]))
    filters = "none"
    if chunks is not None:
        filters = draw(st.sampled_from(["none", "gzip:1", "shuffle,gzip:4", "lzf", "source"]))
    return case, region, chunks, filters


@given(kind=kinds())
@settings(
    max_examples=repeated(40, 120), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_replica_of_any_kind_is_the_transposed_box(kind, tmp_path_factory):
    case, region, chunks, filters = kind
    directory = tmp_path_factory.mktemp("kind")
    source = directory / "source.h5"
    elements = make_source(source, case)
    plan, replica = build(
        source,
        "/group/d",
        Home(directory / "home"),
        case.order,
        chunks=chunks,
        filters=filters,
        region=region,
    )
    box = elements
    if region is not None:
        ends = (a + n for a, n in zip(region.start, region.extent, strict=True))
        box = elements[tuple(slice(a, b) for a, b in zip(region.start, ends, strict=True))]
    with h5py.File(replica.path, "r") as copy, h5py.File(source, "r") as original:
        dataset = copy["/group/d"]
        assert dataset.id.get_type() == original["/group/d"].id.get_type()
        assert dataset.chunks == plan.layout.chunk_shape
        np.testing.assert_array_equal(stored_bytes(dataset), box.transpose(case.order))
        assert dataset.maxshape == dataset.shape
        properties = dataset.id.get_create_plist()
        steps = [properties.get_filter(index)[0] for index in range(properties.get_nfilters())]
    if chunks is None:
        assert steps == []
        assert replica.data_offset_bytes % 4096 == (0 if replica.size_bytes < 65536 else 2056)
    else:
        assert steps == [*(step.code for step in plan.layout.filters), FLETCHER32]
        with replica.path.open("rb") as stream:
            assert stream.read(9)[8] == 3  # the version of the superblock
    assert replica.path.stat().st_size <= plan.space_needed_bytes
    assert verify_replica(replica.path).ok
    assert describe_replica(replica.path) == replica
    assert replica.layout == plan.layout
    assert replica.extent == case.shape


def test_progress_counts_every_byte_once_for_each_phase(tmp_path):
    make_cube(tmp_path / "a.h5", (40, 50, 60), "<f8")
    home = Home(tmp_path / "home")
    plan = plan_reorganization(
        tmp_path / "a.h5",
        "/cube",
        order=(2, 1, 0),
        home=home,
        memory_bytes=FIXED_BYTES + (1 << 17),
    )
    calls = []
    reorganize(plan, home=home, progress=lambda *call: calls.append(call))
    for phase in ("copy", "verify"):
        done = [done for name, done, _ in calls if name == phase]
        total = {total for name, _, total in calls if name == phase}
        assert done == sorted(done)
        assert total == {done[-1]}
    assert plan.n_slabs > 4


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        ({}, {}),
        ({}, {"chunks": (64, 64, 64), "filters": "shuffle,gzip:1"}),
        (
            {"chunks": (16, 16, 1024), "compression": "lzf"},
            {"chunks": (256, 32, 32), "filters": "lzf"},
        ),
    ],
    ids=["contiguous", "chunked", "from chunks to chunks"],
)
def test_memory_stays_within_the_plan(tmp_path, stored, kind):
    make_cube(tmp_path / "a.h5", (64, 256, 1024), "<f4", **stored)  # 64 MiB
    asked = f"order=(2, 0, 1), memory_bytes=24 << 20, **{kind!r}"
    grown, bound = memory_of_build(tmp_path / "a.h5", Home(tmp_path / "home"), asked)
    assert bound <= 24 << 20
    assert grown <= bound + (4 << 20)  # the allocator and HDF5's own caches


def test_a_source_that_nothing_was_written_to_reads_as_its_fill_value(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as handle:
        handle.create_dataset("late", (3, 4), "<i4", fillvalue=7)
        handle.create_dataset("sparse", (30, 40), "<i4", chunks=(5, 5), fillvalue=-3)[7, 9] = 1
    home = Home(tmp_path / "home")
    _, replica = build(tmp_path / "a.h5", "/late", home, (1, 0))
    with h5py.File(replica.path, "r") as copy:
        assert copy["late"].fillvalue == 7
        assert (copy["late"][...] == 7).all()
    _, replica = build(tmp_path / "a.h5", "/sparse", home, (1, 0))
    with h5py.File(replica.path, "r") as copy, h5py.File(tmp_path / "a.h5", "r") as original:
        assert copy["sparse"].fillvalue == -3
        np.testing.assert_array_equal(copy["sparse"][...], original["sparse"][...].T)


def test_a_user_block_shifts_nothing(tmp_path):
    elements = np.arange(60.0).reshape(3, 4, 5)
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512) as handle:
        handle["d"] = elements
    _, replica = build(tmp_path / "a.h5", "/d", Home(tmp_path / "home"), (1, 2, 0))
    with h5py.File(replica.path, "r") as copy:
        np.testing.assert_array_equal(copy["d"][...], elements.transpose(1, 2, 0))


def test_a_part_without_the_damaged_chunks_of_its_source(tmp_path, caplog):
    values = np.arange(40 * 40).reshape(40, 40)
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as handle:
        made = handle.create_dataset("d", data=values, chunks=(10, 40), fletcher32=True)
        offset = made.id.get_chunk_info(0).byte_offset
    with source.open("r+b") as stream:
        stream.seek(offset + 5)
        stream.write(b"\xa5")
    settle(source)
    home = Home(tmp_path / "home")
    _, replica = build(source, "/d", home, (1, 0), region="[20:]", filters="gzip:1")
    with h5py.File(replica.path) as copy:
        np.testing.assert_array_equal(copy["d"][...], values[20:].T)
    assert replica.source_decode_s_per_byte == 0
    assert "its filters count as free" in caplog.text
    with pytest.raises(FormatError, match=r"/d in .*a\.h5 cannot be read .*it is damaged"):
        build(source, "/d", home, (1, 0))
    assert not list(home.replicas.rglob("*.partial"))


def test_a_filter_that_is_not_installed_is_named(tmp_path):
    from sds.errors import UnsupportedError

    with h5py.File(tmp_path / "a.h5", "w") as handle:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((4, 4))
        properties.set_filter(32999, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((8, 8))
        created = h5py.h5d.create(handle.id, b"d", h5py.h5t.IEEE_F32LE, space, dcpl=properties)
        created.write_direct_chunk((0, 0), bytes(64), 0)
    home = Home(tmp_path / "home")
    with pytest.raises(UnsupportedError, match=r"filter 32999.*install its plugin"):
        build(tmp_path / "a.h5", "/d", home, (1, 0))
    assert not list(home.replicas.rglob("*.h5"))
    assert not list(home.replicas.rglob("*.partial"))


@pytest.mark.parametrize("damaged", [False, True])
def test_filtered_sources_are_decoded_without_hdf5_where_memory_allows(tmp_path, caplog, damaged):
    file = tmp_path / "a.h5"
    values = np.arange(64 * 64 * 64, dtype="<f4").reshape(64, 64, 64)
    with h5py.File(file, "w") as handle:
        handle.create_dataset(
            "cube", data=values, chunks=(16, 16, 32), compression="gzip", fletcher32=True
        )
    with h5py.File(file) as handle:
        offset = handle["cube"].id.get_chunk_info(3).byte_offset
    if damaged:
        with file.open("r+b") as stream:
            stream.seek(offset + 9)
            stream.write(b"damage")
    home = Home(tmp_path / "home")
    with caplog.at_level("DEBUG", "sds.hdf5.chunk_reader"):
        if damaged:
            with pytest.raises(FormatError, match="damaged"):
                build(file, "/cube", home, (2, 0, 1), memory_bytes=64 << 20)
            return
        plan, replica = build(file, "/cube", home, (2, 0, 1), memory_bytes=64 << 20)
    assert plan.decode_bytes == 8 << 20
    assert "without HDF5" in caplog.text
    with h5py.File(replica.path) as copy:
        assert np.array_equal(copy["cube"][...], values.transpose(2, 0, 1))
