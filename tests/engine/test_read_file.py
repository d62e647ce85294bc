"""Reads through the engine from Python: every strategy and executor, cold and warm."""

import mmap
import os

import numpy as np
import pytest

from sds import _native
from sds.errors import LayoutError, SdsValueError, TruncatedFileError
from tests.page_cache import drop_from_page_cache, pages_cached

CONTENT = np.random.default_rng(3).integers(0, 256, (1 << 20) + 77, np.uint8)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("engine") / "random.bin"
    path.write_bytes(CONTENT.tobytes())
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return path


def ask_to_drop(path):
    """Ask once for a file to be dropped: for reads that are right whether pages stay or not."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


WAYS = [(strategy, "any") for strategy in _native.STRATEGIES]
WAYS += [("auto", executor) for executor in _native.EXECUTORS]


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize(("strategy", "executor"), WAYS)
@pytest.mark.parametrize(
    "shape",
    [
        (8, (1000,), (1000,)),
        (100, (30, 20), (30000, 150)),
        (5000, (100,), (9000,)),
        (900000, (), ()),
    ],
)
def test_all_ways_read_the_same(shape, strategy, executor, is_cold, path):
    run_bytes, counts, strides = shape
    offsets = np.full(1, 123)
    for count, stride in zip(counts, strides, strict=True):
        offsets = (offsets[:, None] + stride * np.arange(count)).reshape(-1)
    expected = CONTENT[offsets[:, None] + np.arange(run_bytes)].reshape(-1)
    if is_cold:
        ask_to_drop(path)
    file = _native.ReadFile(path)
    for _ in range(2):
        out = np.zeros(len(expected), np.uint8)
        report = file.read_runs(
            123, run_bytes, counts, strides, out, strategy=strategy, executor=executor
        )
        assert np.array_equal(out, expected)
    assert report["bytes_useful"] == len(expected)
    assert report["requests"] >= (report["executor"] != "mapped")


def test_a_depth_may_be_given(path):
    drop_from_page_cache(path)
    out = np.zeros(8000, np.uint8)
    report = _native.ReadFile(path).read_runs(
        0, 8, (1000,), (1000,), out, executor="list", queue_depth=3
    )
    assert report["executor"] == "list"
    assert np.array_equal(out.reshape(-1, 8), CONTENT[: 10**6].reshape(-1, 1000)[:, :8])


@pytest.mark.parametrize("executor", _native.EXECUTORS)
def test_a_file_that_ends_early_is_named(executor, path):
    file = _native.ReadFile(path)
    out = np.zeros(4000, np.uint8)
    with pytest.raises(TruncatedFileError):
        file.read_runs(len(CONTENT) - 3000, 40, (100,), (100,), out, executor=executor)


def test_a_descriptor_stays_the_callers(tmp_path):
    array = np.arange(60, dtype="<i4").reshape(6, 10)
    path = tmp_path / "column.bin"
    path.write_bytes(b"head" + array.tobytes())
    out = np.empty(6, "<i4")
    fd = os.open(path, os.O_RDONLY)
    try:
        file = _native.ReadFile(fd)
        report = file.read_runs(4 + 3 * 4, 4, (6,), (40,), out)
        assert (report["requests"], report["bytes_read"]) == (1, 204)
        assert np.array_equal(out, array[:, 3])
        with pytest.raises(TruncatedFileError):
            file.read_runs(16 + 40, 4, (6,), (40,), out)
    finally:
        os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_runs(0, 4, (), (), np.empty(1, "<i4"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        _native.ReadFile(fd)


def test_runs_are_checked(path):
    file = _native.ReadFile(path)
    out = np.empty(6, "<i4")
    with pytest.raises(SdsValueError, match="out has 24 bytes, the runs 20"):
        file.read_runs(16, 4, (5,), (40,), out)
    with pytest.raises(LayoutError):
        file.read_runs(16, 4, (6, 2**60), (40, 2**60), out)
    with pytest.raises(SdsValueError, match="as long as each other"):
        file.read_runs(16, 4, (6,), (), out)


def test_names_are_checked(path):
    file = _native.ReadFile(path)
    out = np.zeros(8, np.uint8)
    with pytest.raises(SdsValueError, match="no executor is called 'magic'; there are any, pread"):
        file.read_runs(0, 8, (), (), out, executor="magic")
    with pytest.raises(SdsValueError):
        file.read_runs(0, 8, (), (), out, queue_depth=-1)


@pytest.fixture
def cold_file(path):
    """A file out of the page cache, on a file system that gives pages back."""
    long = path.with_name("long.bin")
    with long.open("wb") as file:
        file.write(bytes(24 << 20))
    drop_from_page_cache(long)
    yield long
    long.unlink()


def test_a_long_cold_stream_leaves_out_no_page(cold_file):
    # The kernel takes what leaves out a page for scattered reads, and reads nothing ahead.
    begin, n, page = 1 << 20, 2048, 4096
    out = np.ones(n * page, np.uint8)
    report = _native.ReadFile(str(cold_file)).read_runs(begin, page, (n,), (2 * page,), out)
    assert report["cache"] == "cold"
    assert report["executor"] in {"sieve", "vector"}
    assert not out.any()
    first = begin // mmap.PAGESIZE
    assert pages_cached(cold_file)[first : first + (2 * n - 1) * page // mmap.PAGESIZE].all()


def test_of_a_short_cold_stream_nothing_is_read_behind_its_end(cold_file):
    begin, n, stride = 1 << 20, 2000, 2048
    out = np.ones(n * 8, np.uint8)
    report = _native.ReadFile(str(cold_file)).read_runs(begin, 8, (n,), (stride,), out)
    assert (report["cache"], report["executor"]) == ("cold", "sieve")
    assert not out.any()
    cached = pages_cached(cold_file)
    first, end = begin // mmap.PAGESIZE, -(-(begin + n * stride) // mmap.PAGESIZE)
    assert cached[first : end - 1].all()
    assert not cached[end:].any()
