"""Redirect tables: what is written is read, and nothing else is accepted."""

import dataclasses
import math
import stat
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds import _native
from sds.errors import FormatError, FormatVersionError, NotFoundError, SdsValueError
from sds.geometry import Box, RaidLayout, SegmentList, StripeLayout
from sds.geometry.segments import tile_grid
from sds.hdf5.identity import FileIdentity
from sds.home import Home
from sds.redirect.tables import (
    RedirectTable,
    TableCandidate,
    TableDataset,
    TableModel,
    publish_table,
    read_table,
    table_path,
    withdraw_table,
)
from tests.data.make_golden import TABLE, golden_table
from tests.sizes import repeated

GOLDEN = TABLE.read_bytes()
OLDER = [TABLE.with_name(f"table-v{version}.sdst").read_bytes() for version in (1, 2, 3)]

sizes = st.integers(1, 2**50)
int64 = st.integers(-(2**63), 2**63 - 1)
uint32 = st.integers(0, 2**32 - 1)
segments = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=("Cs",)), max_size=20
)
paths = segments.map(lambda text: "/" + text)
files = paths.map(Path)
floats = st.floats(allow_nan=False, allow_infinity=False)
models = st.builds(
    TableModel,
    kind=st.sampled_from([0, 3, 4, 6]),
    gap=st.integers(0, 2),
    calibrated=st.booleans(),
    coefficients=st.lists(floats, max_size=8).map(tuple),
    floor_s=st.floats(0, 1e9),
)
stripes = st.builds(StripeLayout, stripe_size_bytes=sizes, stripe_count=sizes)
raids = st.builds(RaidLayout, unit_bytes=sizes, data_disks=sizes, min_request_bytes=sizes)


@st.composite
def segment_lists(draw, extent):
    tile = tuple(draw(st.integers(1, n)) for n in extent)
    n_grid = math.prod(tile_grid(extent, tile))
    tiles = draw(st.lists(st.integers(0, n_grid - 1), min_size=1, max_size=12, unique=True))
    ends = draw(st.sets(st.integers(1, len(tiles)))) | {len(tiles)}
    lengths = np.diff([0, *sorted(ends)])
    return SegmentList(tile_shape=tile, tiles=tuple(tiles), lengths=tuple(lengths.tolist()))


@st.composite
def datasets(draw):
    extent = tuple(draw(st.lists(st.integers(0, 50), max_size=5)))
    big = st.builds(
        FileIdentity,
        inode=st.integers(0, 2**64 - 1),
        size_bytes=st.integers(2**60, 2**63 - 1),
        mtime_ns=int64,
        ctime_ns=int64,
    )
    offsets = st.integers(0, 2**59)
    whole = Box.whole(extent)
    boxes = st.tuples(*(st.tuples(st.integers(0, n), st.integers(0, n)) for n in extent)).map(
        lambda ends: Box(
            start=tuple(min(pair) for pair in ends),
            extent=tuple(max(pair) - min(pair) for pair in ends),
        )
    )
    chunkings = st.fixed_dictionaries(
        {
            "chunk_shape": st.tuples(*(st.integers(1, 60) for _ in extent)),
            "stored_bytes": st.integers(0, 2**60),
            "decode_s_per_byte": st.floats(0, 1e9),
        }
    )
    contiguous = st.fixed_dictionaries({"data_offset_bytes": offsets, "metadata_crc32c": uint32})
    chunked = st.builds(
        lambda chunks: chunks | {"data_offset_bytes": 0, "metadata_crc32c": 0}, chunkings
    )

    def candidate_of(kind):
        return st.builds(
            TableCandidate,
            replica_id=int64,
            path=files,
            identity=big,
            order=st.permutations(range(len(extent))).map(tuple),
            stripes=stripes,
            raid=raids,
            model=models,
            shadow_permille=st.integers(0, 1000),
            **{"region": st.none() | boxes.filter(lambda box: box != whole)}
            | {name: st.just(value) for name, value in kind.items()},
        )

    if extent and math.prod(extent) > 0:
        contiguous |= st.builds(
            lambda offset, held: {
                "data_offset_bytes": offset,
                "metadata_crc32c": 5,
                "segments": held,
                "region": None if held.around(extent) == whole else held.around(extent),
            },
            offsets,
            segment_lists(extent),
        )
    candidates = (contiguous | chunked if extent else contiguous).flatmap(candidate_of)
    storage = draw(
        st.just({"data_offset_bytes": None})
        | st.fixed_dictionaries({"data_offset_bytes": offsets})
        | (chunkings.map(lambda chunks: chunks | {"data_offset_bytes": None}))
        if extent
        else st.fixed_dictionaries({"data_offset_bytes": st.none() | offsets})
    )
    return draw(
        st.builds(
            TableDataset,
            path=paths,
            extent=st.just(extent),
            element_size_bytes=st.integers(1, 1000),
            type_crc32c=uint32,
            type_class=st.integers(0, 11),
            stripes=stripes,
            raid=raids,
            model=models,
            candidates=st.lists(candidates, max_size=3).map(tuple),
            **{name: st.just(value) for name, value in storage.items()},
        )
    )


tables = st.builds(
    RedirectTable,
    source_path=files,
    source_identity=st.builds(
        FileIdentity,
        inode=st.integers(0, 2**64 - 1),
        size_bytes=st.integers(2**60, 2**63 - 1),
        mtime_ns=int64,
        ctime_ns=int64,
        instance=st.integers(0, 2**63 - 1),
    ),
    datasets=st.lists(datasets(), max_size=4).map(tuple),
)


@given(tables)
@settings(max_examples=repeated(20, 50))
def test_decoding_undoes_encoding(table):
    encoded = table.to_bytes()
    assert RedirectTable.from_bytes(encoded) == table
    assert RedirectTable.from_bytes(encoded).to_bytes() == encoded


def test_segments_keep_the_order_in_which_they_are_stored():
    cube = RedirectTable.from_bytes(GOLDEN).datasets[0]
    segments = cube.candidates[-1].segments
    assert segments.tiles == (1160, 8, 9, 1277, 137)
    assert segments.segments() == [(1160, 8, 9), (1277, 137)]
    assert cube.candidates[-1].stored_extent(cube.extent) == (5, 64, 1024, 100)
    assert cube.candidates[-1].region_in(cube.extent) == segments.around(cube.extent)


def test_the_golden_table_is_written_byte_for_byte():
    assert golden_table().to_bytes() == GOLDEN
    assert RedirectTable.from_bytes(GOLDEN) == golden_table()
    assert RedirectTable.from_bytes(GOLDEN).to_bytes() == GOLDEN


@given(st.data())
def test_a_changed_table_is_refused(data):
    changed = bytearray(GOLDEN)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] ^= data.draw(st.integers(1, 255))
    if changed == GOLDEN:
        return
    with pytest.raises(FormatError):
        RedirectTable.from_bytes(bytes(changed))


@given(st.data())
def test_a_table_with_a_valid_checksum_is_read_or_refused(data):
    changed = bytearray(GOLDEN)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(16, len(changed) - 8))
        width = data.draw(st.sampled_from([1, 4, 8]))
        changed[at : at + width] = data.draw(
            st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\xff" * 7 + b"\x7f"])
            | st.binary(min_size=8, max_size=8)
        )[:width]
    changed[12:16] = b"\0" * 4
    changed[12:16] = struct.pack("<I", _native.crc32c(bytes(changed)))
    try:
        table = RedirectTable.from_bytes(bytes(changed))
    except FormatError:
        return
    assert table.to_bytes()


@given(st.binary(max_size=400))
def test_what_is_no_table_is_refused(noise):
    with pytest.raises(FormatError):
        RedirectTable.from_bytes(noise)
    with pytest.raises(FormatError):
        RedirectTable.from_bytes(b"SDSTABLE\2\0\0\0" + noise)


def test_every_truncation_is_refused():
    for length in range(len(GOLDEN)):
        with pytest.raises(FormatError):
            RedirectTable.from_bytes(GOLDEN[:length])


def test_a_table_of_another_version_is_refused_as_such(home, tmp_path):
    for other in (GOLDEN[:8] + struct.pack("<I", 5) + GOLDEN[12:], *OLDER):
        with pytest.raises(FormatVersionError):
            RedirectTable.from_bytes(other)
    path = publish_table(home, _table_of(tmp_path / "run.h5"))
    path.write_bytes(OLDER[-1])
    with pytest.raises(FormatVersionError, match="verify the replicas to have it written again"):
        read_table(home, tmp_path / "run.h5")


def _with_candidate(**changes):
    table = golden_table()
    candidate = dataclasses.replace(table.datasets[0].candidates[0], **changes)
    cube = dataclasses.replace(table.datasets[0], candidates=(candidate,))
    return dataclasses.replace(table, datasets=(cube,))


@pytest.mark.parametrize(
    "changes",
    [
        {"order": (0, 0, 1)},
        {"order": (0, 1)},
        {"order": (0, 1, 3)},
        {"path": Path("relative.h5")},
        {"data_offset_bytes": -1},
        {"data_offset_bytes": 2**62},
        {"shadow_permille": 1001},
        {"model": TableModel(kind=5, gap=0, calibrated=True, coefficients=(), floor_s=0.0)},
        {"model": TableModel(kind=4, gap=3, calibrated=True, coefficients=(), floor_s=0.0)},
        {"model": TableModel(kind=4, gap=0, calibrated=True, coefficients=(1.0,) * 9, floor_s=0)},
        {
            "model": TableModel(
                kind=4, gap=0, calibrated=True, coefficients=(float("nan"),), floor_s=0.0
            )
        },
        {"model": TableModel(kind=4, gap=0, calibrated=True, coefficients=(), floor_s=-1.0)},
        {"metadata_crc32c": 2**32},
        {"region": Box(start=(0, 0, 4000), extent=(1000, 2000, 97))},
        {"region": Box(start=(0, 0), extent=(1000, 2000))},
        {"chunk_shape": (8, 8, 8)},  # with an offset and a checksum: of one kind or the other
        {"data_offset_bytes": 0, "metadata_crc32c": 0, "chunk_shape": (8, 0, 8)},
        {"data_offset_bytes": 0, "metadata_crc32c": 0, "chunk_shape": (8, 8)},
        {"segments": SegmentList(tile_shape=(10, 10), tiles=(0,), lengths=(1,))},
        {"segments": SegmentList(tile_shape=(10, 10, 5000), tiles=(0,), lengths=(1,))},
        {"segments": SegmentList(tile_shape=(500, 2000, 4096), tiles=(2,), lengths=(1,))},
        {"segments": SegmentList(tile_shape=(500, 2000, 4096), tiles=(1,), lengths=(1,))},
        {
            "segments": SegmentList(tile_shape=(500, 2000, 4096), tiles=(0, 1), lengths=(2,)),
            "region": Box(start=(0, 0, 0), extent=(999, 2000, 4096)),
        },
        {
            "data_offset_bytes": 0,
            "metadata_crc32c": 0,
            "chunk_shape": (8, 8, 8),
            "segments": SegmentList(tile_shape=(500, 2000, 4096), tiles=(0, 1), lengths=(2,)),
        },
        {"stored_bytes": 1},
        {"decode_s_per_byte": 1e-9},
    ],
)
def test_what_could_not_be_read_is_not_written(changes):
    with pytest.raises(SdsValueError, match="cannot make a redirect table for /data/"):
        _with_candidate(**changes).to_bytes()


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def _table_of(source):
    return dataclasses.replace(golden_table(), source_path=source)


def test_publishing_replaces_the_table_at_once(home, tmp_path):
    source = tmp_path / "run.h5"
    first = _table_of(source)
    path = publish_table(home, first)
    assert path == table_path(home, source)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_table(home, source) == first
    opened = path.open("rb")
    second = dataclasses.replace(first, datasets=())
    publish_table(home, second)
    assert read_table(home, source) == second
    with opened:
        assert RedirectTable.from_bytes(opened.read()) == first
    assert list(home.tables.iterdir()) == [path]


def test_a_table_is_found_through_links(home, tmp_path):
    source = tmp_path / "run.h5"
    source.touch()
    link = tmp_path / "link.h5"
    link.symlink_to(source)
    publish_table(home, _table_of(source))
    assert read_table(home, link) == _table_of(source)


def test_a_table_that_cannot_be_encoded_leaves_the_old_one(home, tmp_path):
    source = tmp_path / "run.h5"
    publish_table(home, _table_of(source))
    broken = dataclasses.replace(_with_candidate(order=(0, 0, 0)), source_path=source)
    with pytest.raises(SdsValueError):
        publish_table(home, broken)
    assert read_table(home, source) == _table_of(source)
    assert len(list(home.tables.iterdir())) == 1


def test_withdrawing_removes_the_table(home, tmp_path):
    source = tmp_path / "run.h5"
    assert not withdraw_table(home, source)
    publish_table(home, _table_of(source))
    assert withdraw_table(home, source)
    with pytest.raises(NotFoundError, match="no redirect table for"):
        read_table(home, source)


def test_a_damaged_table_is_named(home, tmp_path):
    source = tmp_path / "run.h5"
    path = publish_table(home, _table_of(source))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match=f"{path}: .*verify the replicas"):
        read_table(home, source)


def test_a_table_of_another_file_is_refused(home, tmp_path):
    path = publish_table(home, _table_of(tmp_path / "run.h5"))
    other = tmp_path / "other.h5"
    path.rename(table_path(home, other))
    with pytest.raises(FormatError, match=r"is the redirect table of .*run.h5, not of"):
        read_table(home, other)
