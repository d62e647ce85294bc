import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sds.errors import FileMissingError, FormatError, FormatVersionError
from sds.geometry import Box
from sds.geometry.replica_layout import SortOrder
from sds.home import Home
from sds.organizer import (
    describe_replica,
    load_organizer,
    plan_reorganization,
    reorganize,
    verify_replica,
)
from sds.organizer.verify import first_unequal
from tests.organizer.sources import make_cube, settle
from tests.replica_files import edited
from tests.sizes import repeated

# Made by the first release from numbers 0 to 59 of shape (3, 4, 5).
REPLICA_V1 = Path(__file__).parents[1] / "data" / "replica-v1.h5"


@pytest.fixture
def built(tmp_path):
    make_cube(tmp_path / "cube.h5", (70, 80, 90), "<f8")  # 3.8 MiB: four blocks
    home = Home(tmp_path / "home")
    plan = plan_reorganization(tmp_path / "cube.h5", "/cube", order=(2, 0, 1), home=home)
    return plan, reorganize(plan, home=home)


def flip(path, position):
    with path.open("r+b") as stream:
        stream.seek(position)
        byte = stream.read(1)[0]
        stream.seek(position)
        stream.write(bytes([byte ^ 0x10]))


def test_a_whole_replica_passes(built):
    _, replica = built
    report = verify_replica(replica.path)
    assert report.ok
    assert report.checked_bytes == replica.size_bytes


def test_a_flipped_byte_of_the_elements_is_found_in_its_block(built):
    plan, replica = built
    flip(replica.path, replica.data_offset_bytes + (2 << 20) + 17)
    report = verify_replica(replica.path)
    assert not report.ok
    assert report.damaged_blocks == (2,)
    assert "1 of 4 blocks" in report.problems[0]
    full = load_organizer().verify(replica, plan)
    assert full.damaged_blocks == (2,)


@given(fraction=st.floats(0, 1))
@settings(
    max_examples=repeated(20, 60), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_flipped_byte_anywhere_outside_the_elements_is_found(built, fraction):
    _, replica = built
    outside = replica.identity.size_bytes - replica.size_bytes
    position = min(int(fraction * outside), outside - 1)
    if position >= replica.data_offset_bytes:
        position += replica.size_bytes
    flip(replica.path, position)
    try:
        report = verify_replica(replica.path)
        assert not report.ok
        assert str(replica.path) in " ".join(report.problems)
    finally:
        flip(replica.path, position)


@pytest.fixture(scope="module")
def chunked(tmp_path_factory):
    """A replica in compressed chunks, of a part; three blocks of file."""
    directory = tmp_path_factory.mktemp("chunked")
    values = np.random.default_rng(2).integers(0, 1000, (70, 80, 90)).astype("<i8")
    with h5py.File(directory / "cube.h5", "w") as handle:
        handle["cube"] = values
        handle["cube"].attrs["unit"] = "counts"
    settle(directory / "cube.h5")
    home = Home(directory / "home")
    plan = plan_reorganization(
        directory / "cube.h5",
        "/cube",
        order=(2, 0, 1),
        home=home,
        chunks=(9, 11, 13),
        filters="gzip:0",
        region="[3:, :, 2:77]",
    )
    return plan, reorganize(plan, home=home)


def test_a_whole_chunked_replica_passes(chunked):
    plan, replica = chunked
    assert verify_replica(replica.path).ok
    assert load_organizer().verify(replica, plan).ok
    assert replica.identity.size_bytes > 3 << 20


@given(fraction=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=repeated(50, 150))
def test_a_flipped_bit_anywhere_in_a_chunked_replica_is_found(chunked, fraction, bit):
    """In chunks, in what leads to them, in the checksums themselves, in what nobody uses."""
    _, replica = chunked
    position = int(fraction * replica.identity.size_bytes)
    content = replica.path.read_bytes()
    flipped = bytes([content[position] ^ (1 << bit)])
    with replica.path.open("r+b") as stream:
        stream.seek(position)
        stream.write(flipped)
    try:
        report = verify_replica(replica.path)
        assert not report.ok
        if report.damaged_blocks:
            assert report.damaged_blocks == (position // replica.block_size_bytes,)
    finally:
        replica.path.write_bytes(content)


def test_a_chunked_replica_of_another_length_is_found(chunked):
    _, replica = chunked
    content = replica.path.read_bytes()
    try:
        for other in (content[:-1], content[: len(content) // 2], content + b"\0", b""):
            replica.path.write_bytes(other)
            assert not verify_replica(replica.path).ok, len(other)
        replica.path.write_bytes(content + bytes(3 << 20))
        assert not verify_replica(replica.path).ok
    finally:
        replica.path.write_bytes(content)


@given(data=st.data())
@settings(max_examples=repeated(30, 100))
def test_hdf5_reads_damaged_chunks_and_their_index_as_errors_or_right(chunked, data):
    """What a program is served by HDF5 is never wrong: each byte it uses has a checksum."""
    _, replica = chunked
    content = replica.path.read_bytes()
    with h5py.File(replica.path) as handle:
        right = handle["cube"][...]
        chunks = []
        handle["cube"].id.chunk_iter(lambda info: chunks.append((info.byte_offset, info.size)))
    if data.draw(st.booleans()):
        first, size = data.draw(st.sampled_from(chunks))
        position = first + data.draw(st.integers(0, size - 1))
    else:
        inside = {at for first, size in chunks for at in range(first, first + size, 64)}
        ends = min(first for first, _ in chunks)
        position = data.draw(st.integers(0, len(content) - 1).filter(lambda at: at not in inside))
        position = position if data.draw(st.booleans()) else position % ends
    damaged = bytearray(content)
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    replica.path.write_bytes(damaged)
    try:
        with h5py.File(replica.path) as handle:
            found = handle["cube"][...]
    except (OSError, KeyError, RuntimeError, ValueError, TypeError):
        return
    finally:
        replica.path.write_bytes(content)
    np.testing.assert_array_equal(found, right)


def test_a_replica_of_the_first_format_is_still_read(tmp_path):
    path = tmp_path / "replica.h5"
    shutil.copy(REPLICA_V1, path)
    replica = describe_replica(path)
    assert (replica.order, replica.extent) == ((2, 0, 1), (3, 4, 5))
    assert replica.region == Box.whole((3, 4, 5))
    assert (replica.chunk_shape, replica.filters, replica.decode_s_per_byte) == (None, (), 0.0)
    assert replica.stored_bytes == replica.size_bytes == 240
    report = verify_replica(path)
    assert (report.damaged_blocks, len(report.problems)) == ((), 1)
    assert report.problems[0].startswith("source: no such file")
    flip(path, replica.data_offset_bytes + 3)
    assert verify_replica(path).damaged_blocks == (0,)


def test_replicas_of_every_older_format_are_whole_until_a_byte_differs(tmp_path):
    for name, kind in (
        ("replica-v2.h5", lambda found: found.chunk_shape == (2, 2, 2)),
        ("replica-v3.h5", lambda found: found.sort == SortOrder(key="key", columns=("key", "n"))),
        ("replica-v4.h5", lambda found: found.segments.lengths == (2, 1)),
        ("replica-v5.h5", lambda found: found.sort == SortOrder(key="key", columns=("key", "n"))),
    ):
        path = tmp_path / name
        path.write_bytes((REPLICA_V1.parent / name).read_bytes())
        assert kind(describe_replica(path))
        (problem,) = verify_replica(path).problems
        assert problem.startswith("source: no such file")
        flip(path, path.stat().st_size // 2)
        assert "damaged" in verify_replica(path).problems[0]


def test_a_truncated_replica_is_found(built):
    _, replica = built
    for size in (replica.identity.size_bytes - 1, replica.data_offset_bytes + 5, 100, 0):
        os.truncate(replica.path, size)
        assert not verify_replica(replica.path).ok


def test_a_changed_or_missing_source_is_reported(built):
    plan, replica = built
    os.utime(plan.source_path)
    assert "has changed since (mtime" in verify_replica(replica.path).problems[0]
    plan.source_path.unlink()
    assert "no such file" in verify_replica(replica.path).problems[0]


def test_a_replica_of_other_elements_fails_the_comparison(built):
    plan, replica = built
    with h5py.File(plan.source_path, "r+") as handle:
        handle["cube"][3, 7, 11] = -5
    report = load_organizer().verify(replica, plan)
    assert any("element [3, 7, 11] differs" in problem for problem in report.problems)


def test_what_is_no_replica_is_said_to_be_none(built, tmp_path):
    plan, replica = built
    with pytest.raises(FormatError, match="no SDS replica"):
        describe_replica(plan.source_path)
    with pytest.raises(FileMissingError):
        verify_replica(tmp_path / "nothing")
    with edited(replica.path) as (handle, _):
        handle.attrs["sds_format"] = np.uint32(99)
    with pytest.raises(FormatVersionError, match="format 99"):
        describe_replica(replica.path)
    with edited(replica.path) as (handle, _):
        handle.attrs["sds_format"] = np.uint32(5)
        del handle.attrs["sds_order"]
    with pytest.raises(FormatError, match="damaged SDS replica"):
        describe_replica(replica.path)


@given(data=st.data())
@settings(max_examples=repeated(20, 60))
def test_the_first_difference_is_an_element_that_differs(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 130), min_size=1, max_size=3)))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    a = np.zeros((*shape, 1), np.uint64)
    b = a[..., 0].transpose(order).copy().transpose(np.argsort(order))[..., None]
    assert first_unequal(a, b, order) is None
    at = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    a[(*at, 0)] = 1
    assert first_unequal(a, b, order) == at
