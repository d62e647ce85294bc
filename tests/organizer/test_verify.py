import os

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sds.errors import FileMissingError, FormatError, FormatVersionError
from sds.home import Home
from sds.organizer import (
    describe_replica,
    load_organizer,
    plan_reorganization,
    reorganize,
    verify_replica,
)
from sds.organizer.verify import _first_unequal
from tests.organizer.sources import make_cube


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
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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
    with h5py.File(replica.path, "r+") as handle:
        handle.attrs["sds_format"] = np.uint32(99)
    with pytest.raises(FormatVersionError, match="format 99"):
        describe_replica(replica.path)
    with h5py.File(replica.path, "r+") as handle:
        handle.attrs["sds_format"] = np.uint32(1)
        del handle.attrs["sds_order"]
    with pytest.raises(FormatError, match="damaged SDS replica"):
        describe_replica(replica.path)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_first_difference_is_an_element_that_differs(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 130), min_size=1, max_size=3)))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    a = np.zeros((*shape, 1), np.uint64)
    b = a[..., 0].transpose(order).copy().transpose(np.argsort(order))[..., None]
    assert _first_unequal(a, b, order) is None
    at = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    a[(*at, 0)] = 1
    assert _first_unequal(a, b, order) == at
