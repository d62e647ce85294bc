import itertools
import json
import math
import re
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sds import _native
from sds.errors import (
    ConfigurationError,
    FormatError,
    FormatVersionError,
    LayoutError,
    UnsupportedError,
)
from sds.geometry import MAX_TILES, SegmentList, tile_grid
from sds.geometry.least_memory import FIXED_BYTES
from sds.home import Home
from sds.organizer import (
    SegmentPlan,
    describe_replica,
    load_organizer,
    plan_reorganization,
    reorganize,
    verify_replica,
)
from sds.organizer.replica_file.block_checksums import metadata_checksum
from tests.organizer.sources import (
    cases,
    gathered,
    make_cube,
    make_source,
    memory_of_build,
    settle,
    stored_bytes,
)
from tests.replica_files import edited, trailer_of
from tests.sizes import repeated

SEGMENTS = SegmentList(tile_shape=(2, 3, 3), tiles=(11, 0, 6, 1), lengths=(3, 1))


def build(source, dataset, home, order, segments, *, memory_bytes=16 << 20):
    plan = plan_reorganization(
        source, dataset, order=order, home=home, memory_bytes=memory_bytes, segments=segments
    )
    assert isinstance(plan, SegmentPlan)
    return plan, reorganize(plan, home=home)


@st.composite
def segment_lists(draw, extent):
    shape = tuple(draw(st.integers(1, n)) for n in extent)
    n_tiles = math.prod(tile_grid(extent, shape))
    tiles = draw(st.lists(st.integers(0, n_tiles - 1), min_size=1, max_size=60, unique=True))
    ends = draw(st.sets(st.integers(1, len(tiles)))) | {len(tiles)}
    lengths = np.diff([0, *sorted(ends)]).tolist()
    return SegmentList(tile_shape=shape, tiles=tuple(tiles), lengths=tuple(lengths))


@given(case=cases(), data=st.data())
@settings(
    max_examples=repeated(40, 120), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_replica_is_numpys_gather_byte_for_byte(case, data, tmp_path_factory):
    directory = tmp_path_factory.mktemp("case")
    source = directory / "source.h5"
    elements = make_source(source, case)
    segments = data.draw(segment_lists(case.shape))
    chunk_bytes = math.prod(case.chunks or ()) * elements.itemsize if case.chunks else 0
    least = FIXED_BYTES + 5 * chunk_bytes + 4 * elements.itemsize + 1280
    memory = least + (case.slab_kib << 10)
    plan, replica = build(
        source, "/group/d", Home(directory / "home"), case.order, segments, memory_bytes=memory
    )
    assert plan.memory_bytes <= memory
    expected = gathered(elements, segments, case.order)
    with h5py.File(replica.path, "r") as copy, h5py.File(source, "r") as original:
        dataset = copy["/group/d"]
        assert dataset.id.get_type() == original["/group/d"].id.get_type()
        assert dataset.chunks is None
        np.testing.assert_array_equal(stored_bytes(dataset), expected)
    arrays = trailer_of(replica.path)
    assert arrays["tiles"].tolist() == list(segments.tiles)
    assert arrays["segments"].tolist() == list(segments.lengths)
    with replica.path.open("rb") as stream:
        stream.seek(replica.data_offset_bytes)
        assert stream.read(replica.size_bytes) == expected.tobytes()
    assert replica.data_offset_bytes % 4096 == (0 if replica.size_bytes < 65536 else 2056)
    assert (replica.segments, replica.order) == (segments, case.order)
    assert replica.region == segments.around(case.shape)
    assert (replica.extent, replica.layout) == (case.shape, plan.layout)
    assert replica.path.stat().st_size <= plan.space_needed_bytes
    assert verify_replica(replica.path).ok
    assert describe_replica(replica.path) == replica


def test_the_segmenter_is_found_by_its_entry_point(tmp_path):
    make_cube(tmp_path / "a.h5")
    plan = plan_reorganization(
        tmp_path / "a.h5", "/cube", order=(0, 1, 2), home=Home(tmp_path), segments=SEGMENTS
    )
    assert plan.organizer == load_organizer("segmenter").name == "segmenter"


@given(case=cases(), data=st.data(), memory_kib=st.sampled_from([1, 4, 64]))
@settings(
    max_examples=repeated(20, 60), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_each_chunk_is_read_once_and_steps_stay_within_their_memory(
    case, data, memory_kib, tmp_path_factory
):
    source = tmp_path_factory.mktemp("case") / "source.h5"
    make_source(source, case)
    segments = data.draw(segment_lists(case.shape))
    chunks = case.chunks or (1,) * len(case.shape)
    with h5py.File(source) as handle:
        element = handle["group/d"].id.get_type().get_size()
    memory = FIXED_BYTES + 5 * math.prod(chunks) * element + 1280 + (memory_kib << 10)
    plan = plan_reorganization(
        source,
        "/group/d",
        order=case.order,
        home=Home(source.parent),
        segments=segments,
        memory_bytes=memory,
    )
    steps = plan.steps()
    seen = set()
    starts = []
    for index in range(len(steps)):
        boxes = steps.step(index)
        assert sum(box.box.n_elements for box in boxes) * element <= plan.step_bytes
        for gathered_box in boxes:
            box = gathered_box.box
            starts.append(box.start)
            touched = set(
                itertools.product(
                    *(
                        range(a // c, (b - 1) // c + 1)
                        for a, b, c in zip(box.start, box.end, chunks, strict=True)
                    )
                )
            )
            assert not touched & seen
            seen |= touched
    assert len(starts) == len(set(starts))
    copied = sum(
        piece.in_source.n_elements
        for index in range(len(steps))
        for box in steps.step(index)
        for piece in box.pieces
    )
    assert copied * element == plan.copied_bytes


def test_a_step_reads_many_tiles_and_a_contiguous_source_forwards(tmp_path):
    make_cube(tmp_path / "a.h5", (40, 64, 64), "<f4")
    tiles = tuple(np.random.default_rng(2).permutation(40 * 16)[:300].tolist())
    plan = plan_reorganization(
        tmp_path / "a.h5",
        "/cube",
        order=(2, 0, 1),
        home=Home(tmp_path),
        segments=SegmentList(tile_shape=(1, 16, 16), tiles=tiles, lengths=(300,)),
        memory_bytes=FIXED_BYTES + (1 << 18),
    )
    steps = plan.steps()
    boxes = [box for index in range(len(steps)) for box in steps.step(index)]
    firsts = [np.ravel_multi_index(box.box.start, (40, 64, 64)) for box in boxes]
    assert firsts == sorted(firsts)
    assert 3 < len(steps) < 300 / 20


def test_progress_counts_every_byte_once_for_each_phase(tmp_path):
    make_cube(tmp_path / "a.h5", (40, 50, 60), "<f8")
    home = Home(tmp_path / "home")
    segments = SegmentList(tile_shape=(7, 7, 7), tiles=tuple(range(5, 405)), lengths=(400,))
    plan = plan_reorganization(
        tmp_path / "a.h5",
        "/cube",
        order=(2, 1, 0),
        home=home,
        segments=segments,
        memory_bytes=FIXED_BYTES + (1 << 17),
    )
    calls = []
    reorganize(plan, home=home, progress=lambda *call: calls.append(call))
    for phase in ("copy", "verify"):
        done = [done for name, done, _ in calls if name == phase]
        total = {total for name, _, total in calls if name == phase}
        assert done == sorted(done)
        assert total == {done[-1]}
    assert len(plan.steps()) > 4


@pytest.mark.parametrize(
    ("stored", "tile_shape", "order"),
    [
        ({}, (1, 64, 64), (2, 0, 1)),
        ({}, (64, 16, 1), (2, 1, 0)),
        ({}, (64, 256, 400), (2, 1, 0)),
        ({"chunks": (16, 16, 1024), "compression": "lzf"}, (1, 64, 64), (0, 1, 2)),
        ({"chunks": (8, 16, 32)}, (3, 50, 70), (1, 0, 2)),
    ],
    ids=["planes", "columns", "large", "filtered", "chunked"],
)
def test_memory_stays_within_the_plan(tmp_path, stored, tile_shape, order):
    extent = (64, 256, 1024)
    make_cube(tmp_path / "a.h5", extent, "<f4", **stored)  # 64 MiB
    n_tiles = math.prod(tile_grid(extent, tile_shape))
    step = 1 if n_tiles < 4000 else 3
    asked = f"""
        order={order},
        memory_bytes=24 << 20,
        segments=SegmentList(
            tile_shape={tile_shape},
            tiles=tuple(range(0, {n_tiles}, {step})),
            lengths=(len(range(0, {n_tiles}, {step})),),
        ),
    """
    grown, bound = memory_of_build(tmp_path / "a.h5", Home(tmp_path / "home"), asked)
    assert bound <= 24 << 20
    assert grown <= bound + (4 << 20)  # the allocator and HDF5's own caches


def test_too_little_memory_names_what_is_enough(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as handle:
        handle.create_dataset("d", (64, 1 << 16), "<f8", chunks=(16, 1 << 16))
    settle(tmp_path / "a.h5")
    segments = SegmentList(tile_shape=(1, 64), tiles=(5, 9), lengths=(2,))
    asked = {"order": (1, 0), "home": Home(tmp_path), "segments": segments}
    with pytest.raises(
        ConfigurationError, match=r"one chunk of 16x65536 in .* at least \d+M"
    ) as error:
        plan_reorganization(tmp_path / "a.h5", "/d", memory_bytes=6 << 20, **asked)
    enough = int(re.search(r"at least (\d+)M", str(error.value))[1]) << 20
    plan = plan_reorganization(tmp_path / "a.h5", "/d", memory_bytes=enough, **asked)
    assert plan.memory_bytes <= enough
    with pytest.raises(ConfigurationError):
        plan_reorganization(tmp_path / "a.h5", "/d", memory_bytes=enough - (1 << 20), **asked)


def test_a_source_that_nothing_was_written_to_reads_as_its_fill_value(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as handle:
        handle.create_dataset("late", (3, 4), "<i4", fillvalue=7)
        handle.create_dataset("sparse", (30, 40), "<i4", chunks=(5, 5), fillvalue=-3)[7, 9] = 1
        expected = {name: handle[name][...] for name in ("late", "sparse")}
    home = Home(tmp_path / "home")
    segments = SegmentList(tile_shape=(2, 3), tiles=(3, 1), lengths=(1, 1))
    for name, elements in expected.items():
        _, replica = build(tmp_path / "a.h5", f"/{name}", home, (1, 0), segments)
        with h5py.File(replica.path, "r") as copy:
            assert copy[name].fillvalue == elements[0, 0]
            np.testing.assert_array_equal(copy[name][...], gathered(elements, segments, (1, 0)))


def test_a_user_block_shifts_nothing(tmp_path):
    elements = np.arange(60.0).reshape(3, 4, 5)
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512) as handle:
        handle["d"] = elements
    segments = SegmentList(tile_shape=(2, 2, 2), tiles=(7, 0, 11), lengths=(3,))
    _, replica = build(tmp_path / "a.h5", "/d", Home(tmp_path / "home"), (1, 2, 0), segments)
    with h5py.File(replica.path, "r") as copy:
        np.testing.assert_array_equal(copy["d"][...], gathered(elements, segments, (1, 2, 0)))


def test_datasets_of_as_many_axes_as_fit(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as handle:
        handle["d"] = np.arange(4.0).reshape((2,) + (1,) * 29 + (2,))
        handle["e"] = np.arange(4.0).reshape((2,) + (1,) * 30 + (2,))
    home = Home(tmp_path / "home")
    segments = SegmentList(tile_shape=(1,) * 30 + (2,), tiles=(1,), lengths=(1,))
    _, replica = build(tmp_path / "a.h5", "/d", home, tuple(range(31))[::-1], segments)
    with h5py.File(replica.path, "r") as copy:
        assert copy["d"][...].ravel().tolist() == [2, 3]
    more = SegmentList(tile_shape=(1,) * 32, tiles=(1,), lengths=(1,))
    with pytest.raises(UnsupportedError, match="has 32 axes: a replica of segments has one more"):
        build(tmp_path / "a.h5", "/e", home, tuple(range(32)), more)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"segments": SegmentList(tile_shape=(2, 3), tiles=(0,), lengths=(1,))}, "2 axes"),
        ({"segments": SegmentList(tile_shape=(2, 3, 5), tiles=(0,), lengths=(1,))}, "5 on"),
        ({"segments": SegmentList(tile_shape=(2, 3, 3), tiles=(12,), lengths=(1,))}, "tile 12"),
        ({"segments": SegmentList(tile_shape=(2, 3, 3), tiles=(-1,), lengths=(1,))}, "tile -1"),
        ({"segments": SegmentList(tile_shape=(2, 3, 3), tiles=(1 << 70,), lengths=(1,))}, "tile 1"),
        ({"chunks": (2, 2, 2)}, "exclude each other"),
        ({"filters": "gzip:1"}, "exclude each other"),
        ({"region": "[1:]"}, "exclude each other"),
        ({"order": (0, 1)}, "no permutation"),
        ({"organizer": "transposer"}, "'transposer' gathers no tiles"),
        ({"organizer": "segmenter", "segments": None}, "name segments"),
    ],
)
def test_requests_that_do_not_fit_are_refused(tmp_path, asked, said):
    make_cube(tmp_path / "a.h5")
    asked = {"order": (2, 0, 1), "segments": SEGMENTS} | asked
    with pytest.raises(LayoutError, match=said):
        plan_reorganization(tmp_path / "a.h5", "/cube", home=Home(tmp_path / "home"), **asked)


def test_scales_have_no_meaning_for_tiles_and_are_named(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as handle:
        handle.createDimension("time", 12)
        handle.createDimension("x", 8)
        handle.createVariable("time", "f8", ("time",))[:] = np.arange(12)
        handle.createVariable("x", "f8", ("x",))[:] = np.arange(8) * 10
        made = handle.createVariable("t2m", "f4", ("time", "x"))
        made[:] = np.arange(96).reshape(12, 8)
        made.units = "K"
    with h5py.File(tmp_path / "a.nc", "r+") as handle:
        handle["t2m"].dims[0].label = "when"
    settle(tmp_path / "a.nc")
    home = Home(tmp_path / "home")
    segments = SegmentList(tile_shape=(4, 4), tiles=(0, 3), lengths=(2,))
    _, replica = build(tmp_path / "a.nc", "/t2m", home, (1, 0), segments)
    assert {"dimension scale /time", "dimension scale /x", "dimension label when"} <= set(
        replica.left_out
    )
    with h5py.File(replica.path) as copy:
        assert copy["t2m"].attrs["units"] == b"K"
        assert not {"DIMENSION_LIST", "DIMENSION_LABELS", "_Netcdf4Coordinates"} & set(
            copy["t2m"].attrs
        )
        assert set(copy) == {"t2m"}
    only = SegmentList(tile_shape=(5,), tiles=(2, 0), lengths=(1, 1))
    _, replica = build(tmp_path / "a.nc", "/time", home, (0,), only)
    with h5py.File(replica.path) as copy:
        assert not copy["time"].is_scale
        assert copy["time"][...].tolist() == [[10, 11, 0, 0, 0], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("name", ["sds_tiles", "sds_segments", "sds_checksums", "sds_tiles/d"])
def test_a_dataset_may_be_called_as_what_older_replicas_hold(tmp_path, name):
    with h5py.File(tmp_path / "a.h5", "w") as handle:
        handle[name] = np.arange(10)
    segments = SegmentList(tile_shape=(2,), tiles=(1,), lengths=(1,))
    _, replica = build(tmp_path / "a.h5", name, Home(tmp_path / "home"), (0,), segments)
    with h5py.File(replica.path) as copy:
        assert copy[name][...].tolist() == [[2, 3]]
    assert verify_replica(replica.path).ok


def test_the_metadata_of_the_largest_list_stay_below_what_the_connector_checks(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as handle:
        made = handle.create_dataset("d", (1 << 20, 1 << 20), "i1", chunks=(4, 1 << 18))
        for index in range(5):
            made.attrs[f"much {index}"] = np.zeros(50_000, "i1")
    settle(tmp_path / "a.h5")
    numbers = np.random.default_rng(0).choice(1 << 38, MAX_TILES, replace=False)
    segments = SegmentList(
        tile_shape=(1, 4), tiles=tuple(numbers.tolist()), lengths=(1,) * MAX_TILES
    )
    _, replica = build(
        tmp_path / "a.h5", "/d", Home(tmp_path / "home"), (0, 1), segments, memory_bytes=64 << 20
    )
    outside = replica.path.stat().st_size - replica.size_bytes
    # Of elements so many that there are all checksums that there can be.
    assert outside + 4 * ((1 << 16) - 1) < 1 << 20
    assert replica.segments == segments


@pytest.fixture
def replica(tmp_path):
    make_cube(tmp_path / "cube.h5")
    return build(tmp_path / "cube.h5", "/cube", Home(tmp_path / "home"), (2, 0, 1), SEGMENTS)[1]


@pytest.mark.parametrize(
    "lie",
    [
        {"tiles": [11, 0, 6]},
        {"tiles": [11, 0, 6, 6]},
        {"tiles": [11, 0, 6, 12]},
        {"tiles": [11, 0, 6, -1]},
        {"tiles": range(MAX_TILES + 1)},
        {"tiles": [11, 7, 6, 5]},
        {"segments": [3, 2]},
        {"segments": [4, 0]},
        {"segments": [5, -1]},
        {"segments": np.array([3, 1, 0], "<i4")},
        {"tiles": None},
        {"segments": None},
    ],
    ids=str,
)
def test_a_file_whose_lists_contradict_it_is_damaged(replica, lie):
    with edited(replica.path) as (_, arrays):
        ((name, numbers),) = lie.items()
        del arrays[name]
        if numbers is not None:
            arrays[name] = np.asarray(numbers, getattr(numbers, "dtype", "<i8"))
    check_damaged(replica.path)


@pytest.mark.parametrize(
    "lie",
    [
        lambda f: rewritten(f, "sds_tiles", [3, 0, 7], "<f8"),
        lambda f: rewritten(f, "sds_tiles", [[3, 0], [7, 1]]),
        lambda f: rewritten(f, "sds_tiles", [3, 0, 7], chunks=(2,)),
        lambda f: (f.__delitem__("sds_tiles"), f.create_group("sds_tiles")),
        lambda f: (f.__delitem__("sds_tiles"), f.__setitem__("sds_tiles", h5py.Empty("<i8"))),
        lambda f: f.__delitem__("sds_segments"),
        lambda f: f.attrs.modify("sds_format", np.uint32(2)),
        lambda f: f.attrs.__delitem__("sds_tile_shape"),
    ],
)
def test_an_older_file_whose_lists_contradict_it_is_damaged(tmp_path, lie):
    path = tmp_path / "replica.h5"
    path.write_bytes((Path(__file__).parents[2] / "data" / "replica-v4.h5").read_bytes())
    assert describe_replica(path).segments.tiles == (3, 0, 7)
    with h5py.File(path, "r+") as handle:
        lie(handle)
    check_damaged(path)


def rewritten(handle, path, numbers, dtype="<i8", **options):
    del handle[path]
    handle.create_dataset(path, data=np.array(numbers, dtype), **options)


def check_damaged(path):
    with pytest.raises(FormatError, match=r"damaged SDS replica .* build it again"):
        describe_replica(path)
    assert not verify_replica(path).ok


@pytest.mark.parametrize(
    "lie",
    [
        lambda f: f.attrs.__setitem__("sds_tile_shape", [2, 3, 4]),
        lambda f: f.attrs.__setitem__("sds_tile_shape", [3, 3, 2]),
        lambda f: f.attrs.__setitem__("sds_tile_shape", [2, 9]),
        lambda f: f.attrs.__setitem__("sds_tile_shape", [2, 3, 0]),
        lambda f: f.attrs.__setitem__("sds_tile_shape", "2x3x3"),
        lambda f: f.attrs.__setitem__("sds_source_extent", [6, 5, 3]),
        lambda f: f.attrs.__setitem__("sds_source_extent", [6, 5]),
        lambda f: f.attrs.__setitem__("sds_region_start", [0, 1, 0]),
        lambda f: f.attrs.__setitem__("sds_order", [2, 1, 0]),
        lambda f: f.attrs.__setitem__("sds_order", [3, 0, 1, 2]),
        lambda f: f.attrs.__setitem__("sds_format", np.uint32(2)),
        lambda f: f.attrs.__delitem__("sds_tile_shape"),
    ],
)
def test_a_file_that_contradicts_itself_is_damaged(replica, lie):
    with edited(replica.path) as (handle, _):
        lie(handle)
    check_damaged(replica.path)


def seal(path):
    """Give a replica the checksums of what it holds now."""
    with edited(path) as (handle, arrays):
        dataset = handle["cube"]
        begin, n_bytes = dataset.id.get_offset(), dataset.id.get_storage_size()
        arrays["checksums"][1:] = _native.crc32c(stored_bytes(dataset).tobytes())
    with path.open("rb") as stream:
        at, _ = _native.read_trailer(stream.fileno())["checksums"]
    with path.open("r+b") as stream:
        crc = metadata_checksum(
            stream.fileno(),
            data_offset_bytes=begin,
            size_bytes=n_bytes,
            zeroed_offset_bytes=at,
        )
        stream.seek(at)
        stream.write(crc.to_bytes(4, "little"))


def planned_again(replica, segments):
    return plan_reorganization(
        replica.source_path,
        "/cube",
        order=(2, 0, 1),
        segments=segments,
        home=Home(replica.path.parents[2]),
    )


def test_a_replica_that_names_other_tiles_than_it_holds_fails_the_comparison(replica):
    plan = planned_again(replica, SEGMENTS)
    organizer = load_organizer("segmenter")
    assert organizer.verify(replica, plan).ok
    with edited(replica.path) as (_, arrays):
        arrays["tiles"][...] = [0, 11, 6, 1]
    assert "metadata" in verify_replica(replica.path).problems[0]
    seal(replica.path)
    swapped = describe_replica(replica.path)
    assert verify_replica(replica.path).ok
    assert "other tiles" in organizer.verify(swapped, plan).problems[0]
    report = organizer.verify(swapped, planned_again(swapped, swapped.segments))
    assert "tile 0: element [0, 0, 0] differs from that of" in report.problems[0]


@pytest.fixture(params=[None, (3, 2, 5)], ids=["contiguous", "chunked"], scope="module")
def several(request, tmp_path_factory):
    """Build a replica of segments of which some are neighbours, some cut off."""
    directory = tmp_path_factory.mktemp("several")
    make_cube(directory / "cube.h5", (9, 10, 23), "<i2", chunks=request.param)
    tiles = tuple(np.random.default_rng(6).permutation(3 * 4 * 6)[:40].tolist())
    segments = SegmentList(tile_shape=(4, 3, 4), tiles=tiles, lengths=(40,))
    return build(directory / "cube.h5", "/cube", Home(directory / "home"), (2, 0, 1), segments)


@given(data=st.data())
@settings(
    max_examples=repeated(30, 80), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_element_is_compared_with_the_source(several, data):
    plan, replica = several
    at = tuple(data.draw(st.integers(0, n - 1)) for n in plan.replica_extent)
    with edited(replica.path) as (handle, _):
        handle["cube"][at] ^= 1
    seal(replica.path)
    try:
        report = load_organizer("segmenter").verify(replica, plan)
    finally:
        with edited(replica.path) as (handle, _):
            handle["cube"][at] ^= 1
        seal(replica.path)
    number = plan.segments.tiles[at[0]]
    in_tile = [at[1 + plan.order.index(axis)] for axis in range(3)]
    box = plan.segments.box(number, plan.extent)
    index = [a + b for a, b in zip(box.start, in_tile, strict=True)]
    said = f"tile {number}: element [{', '.join(map(str, index))}] differs from that of "
    if any(i >= n for i, n in zip(in_tile, box.extent, strict=True)):
        said = f"tile {number} is not empty beyond the end of the source"
    (problem,) = report.problems
    assert problem.startswith(said)
    assert load_organizer("segmenter").verify(replica, plan).ok


def test_anything_beyond_the_source_is_found(replica):
    with edited(replica.path) as (handle, _):
        # Tile 11 begins at [4, 3, 3]: the source has 2x2x1 of it.
        handle["cube"][0, 1, 0, 0] = 1e-40
    assert verify_replica(replica.path).damaged_blocks == (0,)
    seal(replica.path)
    assert verify_replica(replica.path).ok
    report = load_organizer("segmenter").verify(replica, planned_again(replica, SEGMENTS))
    assert report.problems == ("tile 11 is not empty beyond the end of the source",)


def test_an_older_sds_refuses_the_format_and_this_one_newer_ones(replica):
    with edited(replica.path) as (handle, _):
        assert int(handle.attrs["sds_format"]) == 5
        noted = json.loads(handle.attrs["sds_plan"])
        assert noted["layout"]["segments"]["n_tiles"] == 4
        handle.attrs["sds_format"] = np.uint32(7)
    with pytest.raises(FormatVersionError, match="format 7; this SDS knows formats up to 6"):
        describe_replica(replica.path)
