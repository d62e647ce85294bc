"""What changes a source's bytes and leaves its inode, size and times is never served stale.

Each test makes such a change on a file system of its kind, and then asks the connector and
:func:`sds.read` for what HDF5 alone answers.
"""

import os
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import h5py
import numpy as np
import pytest

from sds.catalog.requests import ReorganizeRequest
from sds.errors import ConfigurationError, SourceChangedError, UnsupportedError
from sds.hdf5.identity import (
    CLOCKS_AGREE_S,
    SETTLED_S,
    FileIdentity,
    FileSystemKind,
    identity_of,
    settled_identity,
    settling_s,
    source_identity,
    trusted_directories,
)
from sds.home import Home
from sds.organizer import plan_sorting, reorganize
from sds.redirect.sorted_replicas import find_sorted, publish_sorted
from sds.redirect.tables import read_table, table_path
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.queries.test_query import listed
from tests.redirected import reads_by_replica, redirect, settle
from tests.robustness.conftest import write_cube
from tests.robustness.file_systems import (
    IMAGES,
    WRITABLE,
    copy_as_power_is_lost,
    make_image,
)
from tests.under_connector import connector_environment, native_environment, run_python
from tests.waiting import PATIENCE_S, wait_until

THROUGH_HDF5 = """
    import sys, h5py
    with h5py.File(sys.argv[1], locking=False) as file:
        print(file["cube"][:, :, 3].ravel().tolist())
"""
THROUGH_SDS = """
    import sys, sds
    for _ in range(2):  # the second one by what is kept
        values = sds.read(sys.argv[1], "cube", (slice(None), slice(None), slice(3, 4)))
    print(values.ravel().tolist())
"""


@pytest.fixture
def home(tmp_path):
    """Make a home whose user vouches for nothing."""
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture(autouse=True)
def _nothing_is_trusted(monkeypatch):
    monkeypatch.delenv("SDS_TRUSTED_DIRECTORIES", raising=False)


def answers(path, home, prefix=()):
    """Return what HDF5 alone reads, and how many of the connector's reads a replica served.

    The connector, and sds.read, must read the same.
    """
    before = reads_by_replica(home).get(1, 0)
    printed = [
        subprocess.run(
            [*prefix, sys.executable, "-c", textwrap.dedent(text), path],
            env=env, cwd="/", check=True, capture_output=True, text=True, timeout=300,
        ).stdout
        for text, env in (
            (THROUGH_HDF5, native_environment()),
            (THROUGH_HDF5, connector_environment(home.root)),
            (THROUGH_SDS, native_environment(SDS_HOME=home.root)),
        )
    ]  # fmt: skip
    assert printed[1] == printed[0]
    assert printed[2] == printed[0]
    return printed[0], reads_by_replica(home).get(1, 0) - before


def served(path, home, prefix=()):
    return answers(path, home, prefix)[1] > 0


def offset_in_plane(path):
    """Return where the first element of the plane lies that is read."""
    with h5py.File(path) as file:
        return file["cube"].id.get_offset() + 3 * 8


def put(path, value, offset, *, sync=False):
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, np.float64(value).tobytes(), offset)
    if sync:
        os.fdatasync(descriptor)
    os.close(descriptor)


# ---- stores into mappings

MAPPED = """
    import mmap, os, signal, struct, sys
    signal.alarm(300)       # what hangs ends
    path, offset = sys.argv[1], int(sys.argv[2])
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)    # nothing but the page below is still to be written
    mapped = mmap.mmap(descriptor, 0)
    os.close(descriptor)
    struct.pack_into("d", mapped, offset, 3.0)   # what was there: the page is dirty now
    print("dirty", flush=True)
    for line in sys.stdin:
        struct.pack_into("d", mapped, offset, float(line))
        print("stored", flush=True)
"""


class MappedWriter:
    """A program that has dirtied a page of a mapping of a file, and stores there on request."""

    def __init__(self, path):
        self._running = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(MAPPED), path, str(offset_in_plane(path))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._running.stdout.readline() == "dirty\n"

    def store(self, value):
        self._running.stdin.write(f"{value}\n")
        self._running.stdin.flush()
        assert self._running.stdout.readline() == "stored\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._running.communicate(timeout=PATIENCE_S)


def wait_for_a_tick(scratch):
    """Wait until the clock that dates files has moved."""
    scratch.touch()
    before_ns = scratch.stat().st_mtime_ns

    def has_moved():
        scratch.touch()
        return scratch.stat().st_mtime_ns != before_ns

    wait_until(has_moved, "a tick of the clock that dates files")


def place_on(kind, mounts, tmp_path):
    """Mount a writable file system and return a folder of it."""
    folder = tmp_path / "data"
    if kind in WRITABLE:
        mounts.disk(kind, folder)
    elif kind == "overlay of ext4":
        mounts.disk("ext4", tmp_path / "below")
        mounts.overlay(folder, tmp_path / "below")
    elif kind == "overlay of tmpfs":
        mounts.mount(tmp_path / "below", "-t", "tmpfs", "tmpfs")
        mounts.overlay(folder, tmp_path / "below")
    else:
        mounts.mount(folder, "-t", "tmpfs", "tmpfs")
    return folder


@pytest.mark.parametrize("kind", [*WRITABLE, "overlay of ext4"])
def test_a_store_into_a_page_that_was_dirty_already(kind, mounts, home, tmp_path):
    path = write_cube(place_on(kind, mounts, tmp_path) / "cube.h5")
    with MappedWriter(path) as writer:
        settle(path)  # the times of a write long ago; its page is dirty still
        redirect(path, [("/cube", (2, 0, 1))], home)
        assert served(path, home)
        writer.store(-1.0)
        text, n_served = answers(path, home)
    assert text.startswith("[-1.0, ")
    assert n_served == 0


def test_a_store_between_the_fsync_and_the_look(mounts, tmp_path, monkeypatch):
    """However long this process stands still there: the page is dirty again."""
    path = write_cube(place_on("ext4", mounts, tmp_path) / "cube.h5")
    settle(path)
    with MappedWriter(path) as writer:
        values = iter([-1.0])

        def fsync(descriptor, real=os.fsync):
            real(descriptor)
            for value in values:
                writer.store(value)
                time.sleep(SETTLED_S + 0.5)

        monkeypatch.setattr(os, "fsync", fsync)
        settled = settled_identity(path)  # whose times are seconds old
        writer.store(-2.0)
        assert source_identity(path) != settled


@pytest.mark.parametrize("kind", ["tmpfs", "overlay of tmpfs"])
def test_where_mapped_stores_never_leave_a_time(kind, mounts, home, tmp_path, monkeypatch):
    """No replica, unless the user vouches for the directory."""
    path = write_cube(place_on(kind, mounts, tmp_path) / "cube.h5")
    before = identity_of(path)
    with MappedWriter(path) as writer:
        after_first = identity_of(path)
        wait_for_a_tick(tmp_path / "beside")
        writer.store(-1.0)
        assert identity_of(path) == after_first  # no rule of ours: what the kernel does
    assert identity_of(path) != before
    settle(path)
    with pytest.raises(UnsupportedError, match=r"mapped files.*trusted_directories"):
        redirect(path, [("/cube", (2, 0, 1))], home)
    assert not any(home.tables.iterdir())
    monkeypatch.setenv("SDS_TRUSTED_DIRECTORIES", f'["/nonexistent", "{path.parent}"]')
    redirect(path, [("/cube", (2, 0, 1))], home)
    assert served(path, home)


# ---- other file systems in the same place


def make_images(kind, folder):
    """Make two images of a file that differ in one element of it."""
    paths = [folder / f"staged{number}" / "cube.h5" for number in (1, 2)]
    for number, path in enumerate(paths, start=1):
        path.parent.mkdir()
        write_cube(path)
        put(path, -number, offset_in_plane(path))

    def are_of_one_second():
        for path in paths:
            os.utime(path, (10**9, 10**9))
        return len({path.stat().st_ctime_ns // 10**9 for path in paths}) == 1

    wait_until(are_of_one_second, "one second of ctime, which ext4's images keep")
    for number, path in enumerate(paths, start=1):
        make_image(kind, folder / f"image{number}", path.parent)


@pytest.mark.parametrize("kind", IMAGES)
def test_another_image_in_the_same_place(kind, mounts, home, tmp_path):
    """Whose file has the inode, size and times of the first one's."""
    make_images(kind, tmp_path)
    folder = tmp_path / "data"
    path = folder / "cube.h5"
    found = []
    for number in (1, 2):
        mounts.mount(folder, "-o", "loop,ro", tmp_path / f"image{number}")
        found.append(identity_of(path))
        if number == 1:
            redirect(path, [("/cube", (2, 0, 1))], home)
            assert served(path, home)
        text, n_served = answers(path, home)
        assert text.startswith(f"[-{number}.0, ")
        assert (n_served > 0) == (number == 1)
        mounts.unmount(folder)
    assert found[0] == found[1]


def test_another_image_of_a_sorted_table(mounts, home, tmp_path):
    staged = tmp_path / "staged"
    staged.mkdir()
    folder = tmp_path / "data"
    path = folder / "table.h5"
    for number in (1, 2):
        rows = np.zeros(1000, [("key", "i4"), ("value", "f8")])
        rows["key"] = number * np.arange(1000)[::-1]
        with h5py.File(staged / "table.h5", "w", libver="latest") as file:
            file["rows"] = rows
        os.utime(staged / "table.h5", (10**9, 10**9))
        make_image("squashfs", tmp_path / f"image{number}", staged)
        mounts.mount(folder, "-o", "loop,ro", tmp_path / f"image{number}")
        if number == 1:
            replica = reorganize(plan_sorting(path, "/rows", key="key", home=home), home=home)
            publish_sorted(home, listed(replica))
        assert len(find_sorted(home, path, path.stat())) == (number == 1)
        mounts.unmount(folder)


def test_another_image_while_a_program_reads(mounts, home, tmp_path):
    """HDF5 keeps reading the first one, and so does the connector, from it."""
    make_images("squashfs", tmp_path)
    folder = tmp_path / "data"
    path = folder / "cube.h5"
    mounts.mount(folder, "-o", "loop,ro", tmp_path / "image1")
    redirect(path, [("/cube", (2, 0, 1))], home)
    text = """
        import subprocess, sys, time, h5py
        folder, image, path = sys.argv[1:]
        with h5py.File(path, locking=False) as file:
            print(file["cube"][:, :, 3][0, 0])
            subprocess.run(["umount", "-l", folder], check=True)
            subprocess.run(["mount", "-o", "loop,ro", image, folder], check=True)
            print(file["cube"][:, :, 3][0, 0])
            with h5py.File(path, locking=False) as other:
                print(other["cube"][:, :, 3][0, 0])
            time.sleep(2.1)
            print(file["cube"][:, :, 3][0, 0])
    """
    env = connector_environment(home.root)
    done = run_python(text, folder, tmp_path / "image2", path, env=env)
    assert done.stdout.split() == ["-1.0", "-1.0", "-2.0", "-1.0"]
    assert reads_by_replica(home) == {1: 1, 0: 3}


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_a_namespace_of_mounts_is_no_other_file_system(kind, mounts, home, tmp_path):
    """A container's program that sees the file at its path is served."""
    path = write_cube(place_on(kind, mounts, tmp_path) / "cube.h5")
    redirect(path, [("/cube", (2, 0, 1))], home)
    assert served(path, home, ("unshare", "--mount"))


# ---- lost power


@pytest.mark.parametrize("kind", ["ext4", "ext4, times written lazily", "xfs"])
def test_bytes_of_a_write_whose_times_were_lost(kind, mounts, tmp_path):
    """fdatasync brings bytes to disk, not the times."""
    folder = tmp_path / "data"
    path = folder / "cube.h5"
    for attempt in range(20):
        image = mounts.disk(kind, folder)
        home = Home(tmp_path / f"home{attempt}")
        home.create()
        write_cube(path)
        redirect(path, [("/cube", (2, 0, 1))], home)
        before = identity_of(path)
        assert attempt or served(path, home)
        put(path, -1.0, offset_in_plane(path), sync=True)
        copy_as_power_is_lost(image, tmp_path / "found")
        mounts.unmount(folder)
        mounts.mount(folder, "-o", "loop", tmp_path / "found")
        if identity_of(path) == before:
            break
        mounts.unmount(folder)  # the journal was committed in between, as by any call of sync
    else:
        pytest.fail("the times were never lost")
    text, n_served = answers(path, home)
    assert text.startswith("[-1.0, ")
    assert n_served == 0


def test_a_machine_that_was_started_again(mounts, home, tmp_path):
    """Its disks are the same ones, and the times on them may be older than the bytes."""
    path = write_cube(place_on("ext4", mounts, tmp_path) / "cube.h5")
    redirect(path, [("/cube", (2, 0, 1))], home)
    other = tmp_path / "boot_id"
    other.write_text("00000000-0000-4000-8000-000000000000\n")
    bind = f'mount --bind {other} /proc/sys/kernel/random/boot_id && exec "$@"'
    assert served(path, home, ("unshare", "--mount", "sh", "-c", 'exec "$@"', "sh"))
    assert not served(path, home, ("unshare", "--mount", "sh", "-c", bind, "sh"))


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_disk_that_is_mounted_anew_is_compared_again(is_changed, mounts, home, tmp_path):
    """Every byte of its replicas with their sources; then they serve again, or never."""
    folder = tmp_path / "data"
    image = mounts.disk("ext4", folder)
    path = write_cube(folder / "cube.h5")
    with Service.open(home, Settings()) as service:
        record = service.reorganize(
            ReorganizeRequest(file=str(path), dataset="/cube", order=(2, 0, 1))
        )
        if is_changed:
            put(path, -1.0, offset_in_plane(path), sync=True)
        copy_as_power_is_lost(image, tmp_path / "found")
        mounts.unmount(folder)
        mounts.mount(folder, "-o", "loop", tmp_path / "found")
        retired = service.collect_garbage().replicas_retired
        assert [one.id for one in retired] == ([record.id] if is_changed else [])
        assert table_path(home, path).exists() != is_changed
        if not is_changed:
            after = service.replica(record.id)
            assert after.source_identity == source_identity(path) != record.source_identity
            assert read_table(home, path).source_identity == after.source_identity


# ---- times that are coarse, or of other clocks


def test_whole_seconds_are_waited_for(mounts, tmp_path):
    """A write within the second of the last change would leave the same times, if put back."""
    folder = tmp_path / "data"
    mounts.disk("ext4, times in whole seconds", folder)
    path = write_cube(folder / "cube.h5")
    offset = offset_in_plane(path)
    time.sleep(1.0 - time.time() % 1.0)
    settle(path)  # as tar, rsync and cp -a do: an old mtime, and a ctime of now
    before = path.stat()
    settled = settled_identity(path)
    put(path, -1.0, offset)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert identity_of(path).mtime_ns == settled.mtime_ns
    assert identity_of(path) != replace(settled, instance=0)


class Slept(Exception):  # noqa: N818
    """How long something would have waited."""


@pytest.fixture
def no_sleep(monkeypatch):
    def sleep(seconds):
        raise Slept(seconds)

    monkeypatch.setattr(time, "sleep", sleep)


def test_a_file_system_that_keeps_no_change_time(mounts, home, tmp_path):
    """Not served, since mtime can be put back; the user may vouch that nobody does."""
    served_folder = tmp_path / "served"
    served_folder.mkdir()
    original = write_cube(served_folder / "cube.h5")
    path = mounts.sftp(tmp_path / "data", served_folder) / "cube.h5"
    long_ago = int(time.time()) - 1000
    os.utime(original, (long_ago, long_ago))
    with pytest.raises(UnsupportedError, match="trusted_directories"):
        redirect(path, [("/cube", (2, 0, 1))], home)
    assert not any(home.tables.iterdir())
    (home.root / "config.toml").write_text(f'trusted_directories = ["{path.parent}"]\n')
    redirect(path, [("/cube", (2, 0, 1))], home)
    assert served(path, home)
    put(path, -1.0, offset_in_plane(path))
    text, n_served = answers(path, home)
    assert text.startswith("[-1.0, ")
    assert n_served == 0


@pytest.mark.usefixtures("no_sleep")
def test_a_writer_whose_clock_is_behind(mounts, tmp_path):
    """What was written now with a time of 5 s ago looks settled, and is not."""
    served_folder = tmp_path / "served"
    served_folder.mkdir()
    original = write_cube(served_folder / "cube.h5")
    folder = mounts.sftp(tmp_path / "data", served_folder)
    just_now = time.time() - 5
    os.utime(original, (just_now, just_now))
    with pytest.raises(Slept) as waited:
        settled_identity(folder / "cube.h5", trusted=[folder])
    since_s = time.time() - just_now
    # To a second, which is what the protocol gives times to.
    assert CLOCKS_AGREE_S - since_s - 2 < waited.value.args[0] <= CLOCKS_AGREE_S - 4


@pytest.mark.usefixtures("no_sleep")
def test_a_writer_whose_clock_is_far_ahead(mounts, tmp_path):
    served_folder = tmp_path / "served"
    served_folder.mkdir()
    original = write_cube(served_folder / "cube.h5")
    folder = mounts.sftp(tmp_path / "data", served_folder)
    later = time.time() + 3600
    os.utime(original, (later, later))
    with pytest.raises(SourceChangedError, match="future"):
        settled_identity(folder / "cube.h5", trusted=[folder])


NOW_S = 1_800_000_000.25
AGES = {
    # kind, age of mtime, age of ctime (s; ".0": a whole second), seen for: how long to wait
    "written": (FileSystemKind.DISK, 0.5, 0.5, 0.0, 1.5),
    "written long ago": (FileSystemKind.DISK, 9.1, 9.1, 0.0, None),
    "copied with its times": (FileSystemKind.DISK, 9e6, 0.01, 0.0, 0.09),
    "so where times are whole seconds": (FileSystemKind.DISK, 9e6, 0.25, 0.0, SETTLED_S - 0.25),
    "mtime set to the future": (FileSystemKind.DISK, -9e6, 9.1, 0.0, None),
    "clock set back": (FileSystemKind.DISK, -30.1, -30.1, 0.0, 30.2),
    "in memory, vouched for": (FileSystemKind.MEMORY, 0.5, 0.5, 0.0, 1.5),
    "image": (FileSystemKind.IMAGE, -9e6, -9e6, 0.0, None),
    "server, whatever its clock": (FileSystemKind.SERVER, 3600.1, 3600.1, 0.0, SETTLED_S),
    "server ahead": (FileSystemKind.SERVER, -3600.1, -3600.1, 0.5, SETTLED_S - 0.5),
    "server, seen": (FileSystemKind.SERVER, 0.1, 0.1, 2.5, None),
    "server, whole seconds": (FileSystemKind.SERVER, 7.25, 7.25, 2.5, 2 * SETTLED_S - 2.5),
    "server, long ago": (FileSystemKind.SERVER, 90000.1, 90000.1, 0.0, None),
    "cluster": (FileSystemKind.CLUSTER, 5.1, 5.1, 9.0, CLOCKS_AGREE_S - 5.1),
    "cluster, its metadata": (FileSystemKind.CLUSTER, 9e6, 5.1, 9.0, CLOCKS_AGREE_S - 5.1),
    "cluster, a minute ago": (FileSystemKind.CLUSTER, 60.1, 60.1, 0.0, None),
}


@pytest.mark.parametrize("case", AGES)
def test_how_long_each_kind_settles(case):
    kind, mtime_age_s, ctime_age_s, seen_s, expected_s = AGES[case]
    found = FileIdentity(
        inode=1,
        size_bytes=2,
        mtime_ns=round((NOW_S - mtime_age_s) * 100) * 10**7,
        ctime_ns=round((NOW_S - ctime_age_s) * 100) * 10**7,
    )
    wait_s = settling_s(found, kind, now_s=NOW_S, seen_s=seen_s)
    if expected_s is None:
        assert wait_s <= 0
    else:
        assert wait_s == pytest.approx(expected_s, abs=0.011)


@pytest.mark.parametrize("said", ["/data", '"/data"', '["data"]', "[1]", "{"])
def test_trusted_directories_are_absolute_paths(said, home, monkeypatch):
    monkeypatch.setenv("SDS_TRUSTED_DIRECTORIES", said)
    with pytest.raises(ConfigurationError, match="trusted_directories"):
        trusted_directories(home)
