"""Disks that are too small are found before the work."""

import os
import re
import subprocess
import sys

import h5py
import numpy as np
import pytest

from sds.errors import InsufficientSpaceError
from sds.geometry import SegmentList
from sds.home import Home
from sds.organizer import plan_reorganization, reorganize, verify_replica
from tests.organizer.sources import make_cube, settle


def test_a_disk_too_small_is_refused_before_anything_is_written(tmp_path, small_disk):
    make_cube(tmp_path / "cube.h5", (128, 128, 128), "<f4")  # 8 MiB
    home = Home(small_disk / "home")
    plan = plan_reorganization(tmp_path / "cube.h5", "/cube", order=(2, 0, 1), home=home)
    with pytest.raises(InsufficientSpaceError, match=r"needs 9437184 bytes .* has \d+ "):
        reorganize(plan, home=home)
    assert not [path for path in small_disk.rglob("*") if path.is_file()]


def test_tiles_that_fit_are_gathered_where_the_dataset_does_not_fit(tmp_path, small_disk):
    make_cube(tmp_path / "cube.h5", (128, 128, 128), "<f4")  # 8 MiB
    home = Home(small_disk / "home")

    def planned(n_tiles):
        return plan_reorganization(
            tmp_path / "cube.h5",
            "/cube",
            order=(2, 0, 1),
            home=home,
            segments=SegmentList(
                tile_shape=(1, 32, 32), tiles=tuple(range(0, 4 * n_tiles, 4)), lengths=(n_tiles,)
            ),
        )

    plan, few = planned(512), planned(400)  # 2 MiB, and less
    assert verify_replica(reorganize(plan, home=home).path).ok
    with pytest.raises(InsufficientSpaceError, match=f"needs {few.space_needed_bytes} bytes"):
        reorganize(few, home=home)
    assert [path for path in home.replicas.rglob("*") if path.is_file()] == [plan.output]
    plan.output.unlink()


def test_a_disk_that_fills_up_while_tiles_are_gathered_leaves_nothing(tmp_path, small_disk):
    make_cube(tmp_path / "cube.h5", (128, 128, 128), "<f4")
    home = Home(small_disk / "home")
    home.create()
    plan = plan_reorganization(
        tmp_path / "cube.h5",
        "/cube",
        order=(2, 0, 1),
        home=home,
        segments=SegmentList(tile_shape=(1, 32, 32), tiles=tuple(range(500)), lengths=(500,)),
    )
    free_bytes = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    (small_disk / "filled").write_bytes(bytes(free_bytes - plan.space_needed_bytes - 20_000))
    posix_fallocate = os.posix_fallocate

    def too_late(descriptor, offset, length):
        """Take the room between the look at the disk and the copy, as another program may."""
        room = os.statvfs(small_disk)
        (small_disk / "other").write_bytes(bytes(room.f_bavail * room.f_frsize))
        posix_fallocate(descriptor, offset, length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "posix_fallocate", too_late)
        with pytest.raises(InsufficientSpaceError, match=r"the replica needs \d+ bytes"):
            reorganize(plan, home=home)
    assert not [path for path in home.replicas.rglob("*") if path.is_file()]
    (small_disk / "other").unlink()
    assert verify_replica(reorganize(plan, home=home).path).ok


def test_compressed_chunks_may_fit_where_their_elements_do_not(tmp_path, small_disk):
    make_cube(tmp_path / "cube.h5", (128, 128, 128), "<i4")  # 8 MiB, in order
    home = Home(small_disk / "home")
    plan = plan_reorganization(
        tmp_path / "cube.h5", "/cube", order=(2, 0, 1), home=home, filters="shuffle,gzip:6"
    )
    replica = reorganize(plan, home=home)
    assert replica.identity.size_bytes < 4 << 20 < replica.size_bytes
    assert verify_replica(replica.path).ok


@pytest.mark.parametrize("noted", ["often", "never"])
def test_compressed_chunks_that_do_not_fit_leave_nothing(tmp_path, small_disk, monkeypatch, noted):
    """Foreseen where progress is noted; else found when the disk is full."""
    monkeypatch.setattr(
        "sds.organizer.copy.stepwise_copy.CHECKPOINT_S", 0.0 if noted == "often" else 1e9
    )
    monkeypatch.setattr("sds.organizer.copy.stepwise_copy._NOTES_SHARE", 0)
    source = tmp_path / "noise.h5"
    with h5py.File(source, "w") as handle:
        handle["cube"] = np.random.default_rng(4).random((64, 128, 128))  # 8 MiB of noise
    settle(source)
    home = Home(small_disk / "home")
    plan = plan_reorganization(
        source,
        "/cube",
        order=(2, 0, 1),
        home=home,
        filters="gzip:1",
        chunks=(16, 32, 32),
        memory_bytes=6 << 20,
    )
    expected = r"would need \d+ more bytes" if noted == "often" else r"the replica needs \d+ bytes"
    done = []
    with pytest.raises(InsufficientSpaceError, match=expected):
        reorganize(plan, home=home, progress=lambda _, n, total: done.append(n / total))
    assert max(done) < 0.6
    assert noted == "never" or max(done) < 0.2
    assert not [path for path in small_disk.rglob("*") if path.is_file()]
    monkeypatch.undo()
    plan = plan_reorganization(source, "/cube", order=(2, 0, 1), home=home, region="[:20]")
    assert verify_replica(reorganize(plan, home=home).path).ok


def test_a_limit_of_file_sizes_counts_as_a_small_disk(tmp_path):
    make_cube(tmp_path / "cube.h5", (64, 64, 160), "<f4")
    program = f"""
import resource
from pathlib import Path
from sds.errors import InsufficientSpaceError
from sds.home import Home
from sds.organizer import plan_reorganization, reorganize
home = Home(Path({str(tmp_path / "home")!r}))
plan = plan_reorganization({str(tmp_path / "cube.h5")!r}, "/cube", order=(2, 0, 1), home=home)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    reorganize(plan, home=home)
except InsufficientSpaceError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert "needs 3670016 bytes" in result.stdout
    assert not list((tmp_path / "home").rglob("*.partial"))


@pytest.mark.parametrize("command", ["status", "ingest"])
def test_a_catalog_that_finds_no_room_is_an_error_in_one_line(small_disk, command):
    """Neither a home that is not there yet, nor one that has come half way."""
    room = small_disk.stat().st_blksize * 20
    stats = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(bytes(stats.f_bavail * stats.f_frsize - room))
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", "from sds.cli import main; main()", command],
            env={**os.environ, "SDS_HOME": str(small_disk / "home")},
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 7, ran.stderr
        assert re.fullmatch("sds: error: no room to write catalog .*; free .*\n", ran.stderr)
