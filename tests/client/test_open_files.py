"""Files that stay open between reads: always the bytes that h5py would return."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest

import sds
from sds.client import open_files
from sds.errors import FileMissingError, NotHdf5Error, SelectionError
from tests.redirected import settle

SHAPE = (8, 16, 32)


@pytest.fixture(autouse=True)
def nothing_kept():
    sds.forget()
    yield
    sds.forget()


@pytest.fixture
def run(tmp_path):
    return make(tmp_path / "run.h5", 0)


def make(path, seed):
    with h5py.File(path, "w") as handle:
        handle["x"] = values(seed)
    settle(path)
    return path


def values(seed):
    return np.random.default_rng(seed).random(SHAPE)


def read(path):
    return sds.read(path, "x", np.s_[:, 3, ::5])


def expected(seed):
    return values(seed)[:, 3, ::5]


def n_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_second_read_opens_nothing(run):
    before = n_descriptors()
    assert np.array_equal(read(run), expected(0))
    kept = open_files.find_opened(run)
    assert kept is not None
    assert n_descriptors() > before
    assert np.array_equal(read(run), expected(0))
    assert open_files.find_opened(run) is kept
    sds.forget(run)
    del kept
    assert n_descriptors() == before


def test_a_file_that_was_just_written_is_not_kept(run):
    os.utime(run)
    assert np.array_equal(read(run), expected(0))
    assert open_files.find_opened(run) is None


def replaced(run):
    other = make(run.with_name("other.h5"), 1)
    other.replace(run)


def rewritten_in_place(run):
    with h5py.File(run, "r+") as handle:
        handle["x"][...] = values(1)


def made_anew(run):
    run.unlink()
    make(run, 1)


def linked_elsewhere(run):
    other = make(run.with_name("other.h5"), 1)
    run.unlink()
    run.symlink_to(other)


@pytest.mark.parametrize(
    "change", [replaced, rewritten_in_place, made_anew, linked_elsewhere], ids=lambda c: c.__name__
)
def test_what_is_changed_is_read_anew(run, change):
    assert np.array_equal(read(run), expected(0))
    change(run)
    assert np.array_equal(read(run), expected(1))
    assert np.array_equal(read(run), expected(1))


def test_what_is_removed_or_damaged_is_an_error(run):
    read(run)
    moved = run.rename(run.with_name("moved.h5"))
    with pytest.raises(FileMissingError):
        read(run)
    read(moved)
    moved.write_text("no HDF5")
    with pytest.raises(NotHdf5Error):
        read(moved)


def test_a_dataset_of_another_shape_takes_its_place(run):
    read(run)
    with h5py.File(run, "r+") as handle:
        del handle["x"]
        handle["x"] = np.arange(5)
    settle(run)
    assert sds.read(run, "x").tolist() == [0, 1, 2, 3, 4]


def test_bytes_that_h5py_holds_back_are_seen(run):
    read(run)
    with h5py.File(run, "r+") as handle:
        handle["x"][0, 3, 5] = 7
        assert sds.read(run, "x", np.s_[0, 3, 5]) == 7
    assert sds.read(run, "x", np.s_[0, 3, 5]) == 7


def test_bytes_held_back_are_seen_whichever_handle_is_left(run):
    read(run)
    file = h5py.h5f.open(bytes(run), h5py.h5f.ACC_RDWR)
    dataset = h5py.h5d.open(file, b"x")
    del file  # the dataset alone keeps the file open
    kept = open_files._files[os.fspath(run)]
    assert open_files.is_written_through_h5py(kept.version)
    space = dataset.get_space()
    space.select_hyperslab((0, 3, 5), (1, 1, 1))
    dataset.write(h5py.h5s.create_simple((1, 1, 1)), space, np.full((1, 1, 1), 7.0))
    assert sds.read(run, "x", np.s_[0, 3, 5]) == 7


def test_other_files_that_are_written_do_not_matter(run, tmp_path):
    read(run)
    kept = open_files.find_opened(run)
    with (
        h5py.File(tmp_path / "other.h5", "w") as other,
        h5py.File(run) as reading,
        h5py.File(run) as again,
    ):
        other["y"] = np.zeros(3)
        assert reading["x"].shape == again["x"].shape
        assert open_files.find_opened(run) is kept
    with h5py.File("memory", "w", driver="core", backing_store=False):
        assert open_files.find_opened(run) is None  # no telling which file that is


def test_nothing_of_hdf5_stays_open(run):
    def n_open():
        return h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE | h5py.h5f.OBJ_DATASET)

    read(run)
    assert n_open() == 0
    sds.forget()
    with pytest.raises(SelectionError) as caught:
        sds.read(run, "x", np.s_[99])
    assert n_open() == 0
    assert caught.traceback
    with h5py.File(run) as handle:  # opened twice at once
        sds.forget()
        assert np.array_equal(read(run), expected(0))
        assert handle["x"].shape == SHAPE
    assert n_open() == 0


def test_few_files_are_kept_and_the_latest(tmp_path):
    before = n_descriptors()
    paths = [make(tmp_path / f"{k}.h5", k) for k in range(open_files.MAX_FILES + 3)]
    for k, path in enumerate(paths):
        assert np.array_equal(read(path), expected(k))
    assert [path for path in paths if open_files.find_opened(path)] == paths[3:]
    assert n_descriptors() <= before + 2 * open_files.MAX_FILES


def test_idle_and_deleted_files_are_let_go(run, tmp_path, monkeypatch):
    other = make(tmp_path / "other.h5", 1)
    read(run)
    read(other)
    monkeypatch.setattr(open_files, "_SWEEP_S", -1.0)
    run.unlink()
    read(other)
    assert os.fspath(run) not in open_files._files
    monkeypatch.setattr(open_files, "MAX_IDLE_S", -1.0)
    open_files.find_opened(tmp_path / "none")
    assert open_files._files == {}


def test_a_file_is_found_while_others_are_let_go(run, tmp_path, monkeypatch):
    other = make(tmp_path / "other.h5", 1)
    read(run)
    read(other)
    kept = open_files._files[os.fspath(run)]
    other.unlink()
    monkeypatch.setattr(open_files, "_SWEEP_S", -1.0)
    assert open_files.find_local(run) is kept
    assert list(open_files._files) == [os.fspath(run)]
    run.unlink()
    assert open_files.find_local(run) is None


LOCK = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def is_locked(path):
    done = subprocess.run([sys.executable, "-c", LOCK, path], capture_output=True, check=False)
    assert done.returncode == 0 or b"BlockingIOError" in done.stderr
    return done.returncode != 0


def test_a_lock_of_the_program_is_not_dropped_behind_its_back(run, tmp_path, monkeypatch):
    others = [make(tmp_path / f"{k}.h5", k) for k in range(open_files.MAX_FILES)]
    read(run)
    with run.open("r+b") as stream:
        fcntl.lockf(stream, fcntl.LOCK_EX)
        assert is_locked(run)
        read(run)
        for other in others:
            read(other)
        monkeypatch.setattr(open_files, "_SWEEP_S", -1.0)
        monkeypatch.setattr(open_files, "MAX_IDLE_S", -1.0)
        open_files.find_opened(tmp_path / "none")
        assert is_locked(run)
        assert list(open_files._files) == [os.fspath(run)]
        fcntl.lockf(stream, fcntl.LOCK_UN)
        open_files.find_opened(tmp_path / "none")
        assert open_files._files == {}


def test_descriptors_that_the_program_closed_are_not_used(run, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(bytes(1 << 16))
    read(run)
    descriptor = open_files.find_opened(run).engine.fileno()
    with other.open("rb") as stream:
        os.dup2(stream.fileno(), descriptor)  # closes it, and opens something else there
    assert np.array_equal(read(run), expected(0))
    assert os.pread(descriptor, 1, 0) == b"\0"  # still open
    os.close(descriptor)


def test_a_child_of_fork_reads(run):
    read(run)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(read(run), expected(0)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(read(run), expected(0))


def test_threads_read_while_files_come_and_go(tmp_path):
    versions = [make(tmp_path / f"version{k}.h5", k) for k in range(2)]
    path = tmp_path / "run.h5"
    shutil.copy2(versions[0], path)
    answers = [expected(0), expected(1)]
    wrong = []

    def work():
        for _ in range(150):
            found = read(path)
            if not any(np.array_equal(found, answer) for answer in answers):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for k in range(60):
        shutil.copy2(versions[k % 2], tmp_path / "next.h5")
        (tmp_path / "next.h5").replace(path)
        if k % 3 == 0:
            sds.forget()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.usefixtures("run")
def test_a_relative_path_follows_the_directory(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    make(tmp_path / "elsewhere" / "run.h5", 1)
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(read("run.h5"), expected(0))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert np.array_equal(read("run.h5"), expected(1))
