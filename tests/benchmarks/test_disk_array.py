"""The mounted array of disks of benchmarks.disk_array: same bytes, and every block on its disk."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from benchmarks.disk_array import DiskArray, NotMountedError, disk_counts, mounted
from sds.geometry import extent_features
from tests.system_packages import find_program

# Small, uneven, and so fast that hardly anything waits.
ARRAY = DiskArray(
    n_osts=3,
    data_disks=5,
    stripe_bytes=96 << 10,
    unit_bytes=16 << 10,
    min_request_bytes=4 << 10,
    speed=1000,
)
FILE_BYTES = (3 << 20) + 12345


@pytest.fixture(scope="module")
def mount():
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("left out: only root mounts, where there is /dev/fuse")
    for name in ("fusermount3", "/usr/include/fuse3/fuse.h", "pkg-config"):
        find_program(name)
    with mounted(ARRAY) as directory:
        yield directory


@pytest.fixture(scope="module")
def file(mount):
    path = mount / "data"
    path.write_bytes(np.random.default_rng(1).bytes(FILE_BYTES))
    return path


def bytes_per_disk(counts):
    return np.array([disk.bytes for disk in counts])


def bytes_of_disks(begin, end):
    """Walk the bytes, by docs/reference/semantics.md; return bytes per disk of what is touched."""
    at = np.arange(begin, end)
    stripe = at // ARRAY.stripe_bytes
    ost = stripe % ARRAY.n_osts
    in_object = stripe // ARRAY.n_osts * ARRAY.stripe_bytes + at % ARRAY.stripe_bytes
    requests = np.unique(np.stack([ost, in_object // ARRAY.min_request_bytes]), axis=1)
    block = requests[1] * ARRAY.min_request_bytes // ARRAY.unit_bytes
    disk = requests[0] * ARRAY.data_disks + block % ARRAY.data_disks
    n_disks = ARRAY.n_osts * ARRAY.data_disks
    return np.bincount(disk, minlength=n_disks) * ARRAY.min_request_bytes


def test_same_bytes(file):
    expected = np.random.default_rng(1).bytes(FILE_BYTES)
    assert file.read_bytes() == expected
    with file.open("rb") as opened:
        for begin, n in ((0, 1), (98303, 2), (FILE_BYTES - 7, 100), (FILE_BYTES + 9, 5)):
            assert os.pread(opened.fileno(), n, begin) == expected[begin : begin + n]


def test_every_block_on_its_disk(mount, file):
    random = np.random.default_rng(2)
    elsewhere = mount / "elsewhere"
    elsewhere.write_bytes(bytes(FILE_BYTES))
    with file.open("rb") as opened:
        for _ in range(60):
            begin = int(random.integers(0, FILE_BYTES - 1))
            n = min(int(10 ** random.uniform(0, 5)), FILE_BYTES - begin)
            elsewhere.read_bytes()  # What a disk read last it need not read again.
            before = disk_counts(mount)
            os.pread(opened.fileno(), n, begin)
            read = bytes_per_disk(disk_counts(mount)) - bytes_per_disk(before)
            wanted = bytes_of_disks(begin, begin + n)
            assert (read == wanted).all()
            features = extent_features(np.array([begin]), np.array([n]), ARRAY.stripes, ARRAY.raid)
            assert np.count_nonzero(wanted) == features.disks_touched
            assert wanted.sum() == features.bytes_touched


def test_seeks_and_transfers_take_their_time(mount, file):
    far = ARRAY.unit_bytes * ARRAY.data_disks * 4  # of the object: four units on, on disk 0
    with file.open("rb") as opened:
        os.pread(opened.fileno(), ARRAY.min_request_bytes, far % ARRAY.stripe_bytes)
        os.pread(opened.fileno(), 1, 0)
        counts = [disk_counts(mount)[0]]
        offset = far // ARRAY.stripe_bytes * ARRAY.stripe_bytes * ARRAY.n_osts
        for at in (offset + far % ARRAY.stripe_bytes, 0, 0):
            os.pread(opened.fileno(), 1, at)
            counts.append(disk_counts(mount)[0])
    transfer_s = ARRAY.min_request_bytes / ARRAY.bytes_per_s / ARRAY.speed
    gap = 4 * ARRAY.unit_bytes - ARRAY.min_request_bytes
    passing_s = gap / ARRAY.bytes_per_s / ARRAY.speed
    back_s = ARRAY.seek_s(4 * ARRAY.unit_bytes + ARRAY.min_request_bytes)
    assert passing_s < ARRAY.seek_s(gap)
    took_s = np.diff([disk.busy_s for disk in counts])
    # Forwards over a short gap; back by a seek; and once more, from the disk's buffer.
    assert took_s == pytest.approx([passing_s + transfer_s, back_s + transfer_s, 0], abs=2e-9)
    assert np.diff([disk.seeks for disk in counts]).tolist() == [0, 1, 0]
    assert np.diff([disk.requests for disk in counts]).tolist() == [1, 1, 1]


def test_holds_hdf5_files(mount):
    path = mount / "array.h5"
    values = np.arange(60_000.0).reshape(40, 50, 30)
    with h5py.File(path, "w") as made:
        made["d"] = values
    with h5py.File(path) as opened:
        assert np.array_equal(opened["d"][:, 7, :], values[:, 7, :])
    path.unlink()
    assert not path.exists()


@pytest.mark.usefixtures("mount")
def test_says_what_is_wrong(tmp_path):
    wrong = DiskArray(stripe_bytes=100_000)
    with pytest.raises(NotMountedError, match="multiple of --unit"), mounted(wrong, at=tmp_path):
        pass
