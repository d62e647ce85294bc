"""Spool files: what was read comes back, whatever happened to the file in between."""

import dataclasses
import signal
import struct
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds import _native, _spool_writer
from sds.errors import FormatError, FormatVersionError, SdsValueError
from sds.trace import SUFFIX, expand, read_spool
from tests.data.make_golden import SPOOL, golden_spool
from tests.sizes import repeated

GOLDEN = SPOOL.read_bytes()
NEVER = 2**62


def new_writer(directory, *, pid=1, max_file_bytes=0, flush_interval_ns=NEVER):
    return _spool_writer.SpoolWriter(
        directory,
        pid=pid,
        start_ns=5,
        host="node",
        executable="prog",
        max_file_bytes=max_file_bytes,
        flush_interval_ns=flush_interval_ns,
    )


def add_dataset(writer, name="/d", rank=3):
    return writer.add_dataset(file="/f.h5", path=name, extent=(100,) * rank, element_bytes=4)


def add(writer, dataset, starts, *, at=0, step_ns=10, shape=None, elapsed_ns=None):
    starts = np.asarray(starts, np.int64)
    n, rank = starts.shape
    shape = shape or (1,) * rank
    writer.add_reads(
        dataset,
        start=starts,
        stride=(1,) * rank,
        count=shape,
        block=(1,) * rank,
        start_ns=at + step_ns * np.arange(n),
        elapsed_ns=np.full(n, 100) if elapsed_ns is None else elapsed_ns,
        n_elements=int(np.prod(shape)),
    )


def starts_of(records, indices=None):
    order = range(len(records)) if indices is None else indices
    return [tuple(start) for i in order for start in expand(records, i).tolist()]


def test_the_golden_spool_is_written_byte_for_byte(tmp_path):
    assert golden_spool(tmp_path) == GOLDEN


def test_the_golden_spool_is_read():
    spool = read_spool(SPOOL)
    assert spool.process.host == "nid00042"
    assert spool.process.rank == 3
    assert spool.process.key == "nid00042-4711-1700000000000000000"
    cube, grid = spool.datasets
    assert (cube.path, cube.extent, cube.chunk) == ("/entry/cube", (64, 128, 4096), None)
    assert (grid.path, grid.extent, grid.chunk) == ("", (2**40, 3), (1024, 3))
    assert grid.identity == (2**63 - 1, 5, -6, 7)
    assert (spool.offset, spool.torn_bytes, spool.dropped_reads) == (len(GOLDEN), 0, 0)
    records = spool.records
    planes = int(np.flatnonzero(records.n_reads == 35)[0])
    assert records.repeat[planes].tolist() == [5, 7, 1, 1]
    assert records.advance[planes, :2].tolist() == [[0, 1, 0], [0, 0, 4]]
    assert records.elapsed_ns[planes] == sum(700 + 37 * i for i in range(35))
    assert records.n_reads.sum() == 35 + 6 + 1 + 3 + 1
    assert records.latency.sum() == records.n_reads.sum()
    assert records.served_by[records.selection_kind == 1].tolist() == [7]
    assert records.collective[records.rank == 2].tolist() == [True, False]


numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 4)


@st.composite
def streams(draw):
    """Starts of reads: random ones and loops, one after the other."""
    rank = draw(st.integers(0, 4))
    pieces = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            n = draw(st.integers(1, 6))
            rows = [[draw(numbers) for _ in range(rank)] for _ in range(n)]
            pieces.append(np.array(rows, np.int64).reshape(n, rank))
            continue
        repeat = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
        steps = draw(
            st.lists(
                st.lists(st.integers(-3, 3), min_size=rank, max_size=rank),
                min_size=len(repeat),
                max_size=len(repeat),
            )
        )
        turns = np.indices(repeat).reshape(len(repeat), -1).T
        rows = turns @ np.array(steps, np.int64).reshape(len(repeat), rank)
        pieces.append(rows[draw(st.integers(0, 3)) :])
    return np.concatenate(pieces)


@given(streams(), st.data())
@settings(max_examples=repeated(50, 150))
def test_records_expand_to_the_reads_that_were_added(tmp_path_factory, starts, data):
    n = len(starts)
    if n == 0:
        return
    elapsed = np.array(data.draw(st.lists(st.integers(0, 2**50), min_size=n, max_size=n)))
    writer = new_writer(tmp_path_factory.mktemp("spool"))
    add(writer, add_dataset(writer, rank=starts.shape[1]), starts, elapsed_ns=elapsed)
    path = writer.path
    writer.close()
    spool = read_spool(path)
    records = spool.records
    assert spool.torn_bytes == spool.skipped_bytes == spool.dropped_reads == 0
    order = np.argsort(records.start_ns, kind="stable")
    assert starts_of(records, order) == [tuple(start) for start in starts.tolist()]
    first = 0
    for i in order:
        these = elapsed[first : first + records.n_reads[i]]
        assert records.start_ns[i] == 10 * first
        assert records.elapsed_ns[i] == these.sum()
        assert (records.elapsed_min_ns[i], records.elapsed_max_ns[i]) == (these.min(), these.max())
        buckets = np.minimum(np.log2(np.maximum(these, 1)).astype(int), 39)
        assert records.latency[i].tolist() == np.bincount(buckets, minlength=40).tolist()
        first += records.n_reads[i]
        assert records.last_start_ns[i] == 10 * (first - 1)


def test_datasets_read_in_turn_fold_apart(tmp_path):
    writer = new_writer(tmp_path)
    ids = [add_dataset(writer, f"/d{i}") for i in range(10)]
    assert add_dataset(writer, "/d3") == ids[3]
    for step in range(50):
        for dataset in ids:
            add(writer, dataset, [(step, 0, 0)], at=step)
    path = writer.path
    writer.close()
    records = read_spool(path).records
    assert sorted(records.dataset_id.tolist()) == ids
    assert records.n_reads.tolist() == [50] * 10


def ways(random, n):
    """Starts of n reads of one dataset: in steps, in nested loops, or anywhere."""
    kind = random.integers(0, 3)
    turn = np.arange(n)
    if kind == 0:
        return turn[:, None] * random.integers(0, 3, 2)
    if kind == 1:
        return np.stack([turn // 5, turn % 5], 1)
    return random.integers(0, 2**40, (n, 2)) >> random.integers(0, 40)


@pytest.mark.parametrize("seed", range(4))
def test_reads_of_many_datasets_in_turn_come_back_exactly(tmp_path, seed):
    random = np.random.default_rng(seed)
    writer = new_writer(tmp_path, flush_interval_ns=(NEVER, 10**5)[seed % 2])
    datasets = [add_dataset(writer, f"/{i}", rank=2) for i in range(200)]
    ways_of = {dataset: ways(random, 30) for dataset in datasets}
    elapsed_of = {dataset: 2 ** random.integers(0, 40, 30) for dataset in datasets}
    shapes = [(1, 1), (1, 2), (2**33, 1)]
    at = 0
    for i in range(30):
        for dataset in datasets:
            at += 10
            add(
                writer, dataset, ways_of[dataset][i : i + 1], at=at, shape=shapes[dataset % 3],
                elapsed_ns=elapsed_of[dataset][i : i + 1],
            )  # fmt: skip
    path = writer.path
    writer.close()
    records = read_spool(path).records
    order = np.argsort(records.start_ns, kind="stable")
    for dataset in datasets:
        mine = [i for i in order if records.dataset_id[i] == dataset]
        expected = [tuple(start) for start in ways_of[dataset].tolist()]
        assert starts_of(records, mine) == expected
        assert {tuple(records.count[i, :2]) for i in mine} == {shapes[dataset % 3]}
        assert records.elapsed_ns[mine].sum() == elapsed_of[dataset].sum()
        assert records.elapsed_min_ns[mine].min() == elapsed_of[dataset].min()
        assert records.elapsed_max_ns[mine].max() == elapsed_of[dataset].max()
        assert records.last_start_ns[mine].max() == 10 * (200 * 29 + datasets.index(dataset) + 1)
        buckets = np.bincount(np.log2(elapsed_of[dataset]).astype(int), minlength=40)
        assert (records.latency[mine].sum(0) == buckets).all()


@pytest.mark.parametrize(("n_datasets", "n", "most_bytes"), [(1000, 100, 75), (50_000, 5, 95)])
def test_steps_of_many_datasets_in_turn_fold(tmp_path, n_datasets, n, most_bytes):
    """More than there is room for at a time are written one by one, in part."""
    writer = new_writer(tmp_path)
    datasets = [add_dataset(writer, f"/{i}", rank=2) for i in range(n_datasets)]
    path = Path(writer.path)
    elapsed = np.array([100])
    at = np.array([0])
    for i in range(n):
        start = np.array([(i, 2)])
        for dataset in datasets:
            at += 10
            writer.add_reads(
                dataset, start=start, stride=(1, 1), count=(1, 1), block=(1, 1), start_ns=at,
                elapsed_ns=elapsed, n_elements=1,
            )  # fmt: skip
    writer.close()
    spool = read_spool(path)
    found = np.bincount(spool.records.dataset_id, spool.records.n_reads)
    assert (found[1:] == n).all()
    assert path.stat().st_size < most_bytes * n_datasets


def test_a_million_regular_reads_are_a_few_hundred_bytes(tmp_path):
    writer = new_writer(tmp_path, flush_interval_ns=10**9)
    dataset = add_dataset(writer)
    j, k = np.divmod(np.arange(10**6), 1000)
    add(writer, dataset, np.stack([0 * j, j, k], 1), step_ns=20_000, shape=(100, 1, 1))
    path = Path(writer.path)
    writer.close()
    assert path.stat().st_size < 4096
    assert read_spool(path).records.n_reads.sum() == 10**6


def test_irregular_reads_take_few_bytes_each(tmp_path):
    writer = new_writer(tmp_path)
    starts = np.random.default_rng(0).integers(0, 10_000, (20_000, 3))
    add(writer, add_dataset(writer), starts)
    path = Path(writer.path)
    writer.close()
    assert path.stat().st_size < 20 * len(starts)
    assert starts_of(read_spool(path).records) == [tuple(start) for start in starts.tolist()]


def irregular_spool(directory, n=20_000):
    writer = new_writer(directory)
    starts = np.random.default_rng(1).integers(0, 10_000, (n, 3))
    add(writer, add_dataset(writer), starts)
    path = Path(writer.path)
    writer.close()
    return path


def blocks_of(content):
    """Offsets of the blocks of a whole spool file."""
    offsets, at = [], 0
    while at < len(content):
        offsets.append(at)
        at += 16 + struct.unpack_from("<I", content, at + 8)[0]
    return [*offsets, at]


def test_a_torn_tail_is_skipped_and_reported(tmp_path):
    path = irregular_spool(tmp_path)
    content = path.read_bytes()
    offsets = blocks_of(content)
    assert len(offsets) > 6
    whole = read_spool(path).records
    for length in [*offsets[1:], *range(offsets[-2], offsets[-1], 997), offsets[-2] + 3]:
        path.write_bytes(content[:length])
        spool = read_spool(path)
        last = max(offset for offset in offsets if offset <= length)
        assert (spool.offset, spool.torn_bytes) == (last, length - last)
        n = len(spool.records)
        assert n == 0 or np.array_equal(spool.records.start, whole.start[:n])


@pytest.mark.parametrize("offset_in_block", [0, 4, 9, 13, 20, 4000])
def test_a_damaged_block_in_the_middle_is_passed_over(tmp_path, offset_in_block):
    path = irregular_spool(tmp_path)
    content = bytearray(path.read_bytes())
    offsets = blocks_of(content)
    content[offsets[4] + offset_in_block] ^= 0x55
    intact = read_spool(path).records
    path.write_bytes(content)
    spool = read_spool(path)
    assert spool.skipped_bytes == offsets[5] - offsets[4]
    assert (spool.offset, spool.torn_bytes) == (len(content), 0)
    assert 0 < spool.records.n_reads.sum() < intact.n_reads.sum()
    assert set(starts_of(spool.records)) <= set(starts_of(intact))


def test_reading_piece_by_piece_counts_every_read_once(tmp_path):
    path = irregular_spool(tmp_path)
    content = path.read_bytes()
    whole = read_spool(path)
    growing = tmp_path / "growing"
    offset, starts = 0, []
    for length in range(200, len(content) + 5000, 5000):
        growing.write_bytes(content[:length])
        piece = read_spool(growing, offset)
        assert [dataset.path for dataset in piece.datasets] == ["/d"][: len(piece.datasets)]
        starts.append(piece.records.start)
        offset = piece.offset
    assert offset == len(content)
    assert np.array_equal(np.concatenate([s for s in starts if len(s)]), whole.records.start)
    assert len(read_spool(path, offset).records) == 0
    assert read_spool(path, offset).datasets == whole.datasets


def test_max_records_bounds_a_piece(tmp_path):
    path = irregular_spool(tmp_path)
    whole = read_spool(path).records
    offset, pieces = 0, []
    for _ in range(100):
        spool = read_spool(path, offset, max_records=1000)
        pieces.append(spool.records.start)
        offset = spool.offset
        if spool.is_complete:
            break
        assert 1000 <= len(spool.records) < 5000
    assert len(pieces) > 2
    assert np.array_equal(np.concatenate([p for p in pieces if len(p)]), whole.start)


@given(st.data())
@settings(max_examples=repeated(40, 200))
def test_any_damage_is_survived(tmp_path_factory, data):
    content = bytearray(GOLDEN)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[at] ^= data.draw(st.integers(1, 255))
        else:
            del content[at : at + data.draw(st.integers(1, 40))]
        if not content:
            break
    # Checksums made right again reach what lies behind them.
    at = 0
    while data.draw(st.booleans()) and at + 16 <= len(content):
        (length,) = struct.unpack_from("<I", content, at + 8)
        payload = bytes(content[at + 16 : at + 16 + length])
        crc = _native.crc32c(payload, _native.crc32c(bytes(content[at : at + 12])))
        struct.pack_into("<I", content, at + 12, crc)
        at += 16 + len(payload)
    path = tmp_path_factory.mktemp("damaged") / "x"
    path.write_bytes(content)
    try:
        spool = read_spool(path)
    except FormatError:
        return
    assert 0 <= spool.offset <= len(content)
    assert spool.offset + spool.torn_bytes == len(content)
    assert spool.skipped_bytes <= spool.offset
    assert np.array_equal(spool.records.latency.sum(axis=1), spool.records.n_reads)
    assert set(spool.records.dataset_id.tolist()) <= {d.id for d in spool.datasets}


def test_what_is_no_spool_file_is_told_apart(tmp_path):
    path = tmp_path / "x"
    for content in (b"", b"SDSB", b"\x89HDF\r\n\x1a\n" * 10):
        path.write_bytes(content)
        with pytest.raises(FormatError):
            read_spool(path)
    path.write_bytes(GOLDEN[:4] + struct.pack("<H", 2) + GOLDEN[6:])
    with pytest.raises(FormatVersionError):
        read_spool(path)
    with pytest.raises(FileNotFoundError):
        read_spool(tmp_path / "none")
    with pytest.raises(FormatError):
        read_spool(tmp_path)


def test_reads_past_the_cap_are_counted(tmp_path):
    writer = new_writer(tmp_path, max_file_bytes=200_000)
    n = 50_000
    starts = np.random.default_rng(2).integers(0, 10_000, (n, 3))
    add(writer, add_dataset(writer), starts)
    path = Path(writer.path)
    writer.close()
    assert 100_000 < path.stat().st_size <= 200_000
    spool = read_spool(path)
    assert spool.dropped_reads > 0
    assert spool.records.n_reads.sum() + spool.dropped_reads == n


def test_no_file_where_nothing_was_read(tmp_path):
    writer = new_writer(tmp_path)
    add_dataset(writer)
    writer.flush()
    writer.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SdsValueError, match="closed"):
        writer.flush()


def test_the_file_is_private_and_never_another_ones(tmp_path):
    writer = new_writer(tmp_path)
    add(writer, add_dataset(writer), [(1, 2, 3)])
    path = Path(writer.path)
    assert path.name == f"node-1-5{SUFFIX}"
    path.symlink_to(tmp_path / "victim")
    writer.close()
    assert not (tmp_path / "victim").exists()
    path.unlink()
    writer = new_writer(tmp_path)
    add(writer, add_dataset(writer), [(1, 2, 3)])
    writer.close()
    assert path.stat().st_mode & 0o777 == 0o600


def run_python(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


WRITER = """
import os, signal, sys, threading, time
import numpy as np
from sds import _spool_writer

def new_writer(directory, **options):
    return _spool_writer.SpoolWriter(
        directory, pid=os.getpid(), start_ns=5, host="node", executable="prog", **options)

def add(writer, starts, at=0, step_ns=10):
    dataset = writer.add_dataset(file="/f.h5", path="/d", extent=(100,) * 3, element_bytes=4)
    starts = np.asarray(starts, np.int64)
    n = len(starts)
    writer.add_reads(
        dataset, start=starts, stride=(1,) * 3, count=(1,) * 3, block=(1,) * 3, n_elements=1,
        start_ns=at + step_ns * np.arange(n), elapsed_ns=np.full(n, 100))

def irregular(n):
    return np.random.default_rng(0).integers(0, 10_000, (n, 3))
"""


def test_a_full_disk_leaves_whole_blocks_and_no_trace_of_itself(tmp_path):
    code = (
        WRITER
        + """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
writer = new_writer(sys.argv[1], flush_interval_ns=2**62)
add(writer, irregular(20_000))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
add(writer, irregular(1_000))
writer.close()
"""
    )
    done = run_python(code, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (path,) = tmp_path.iterdir()
    spool = read_spool(path)
    assert spool.torn_bytes == spool.skipped_bytes == 0
    assert 0 < spool.dropped_reads < 20_000
    assert spool.records.n_reads.sum() + spool.dropped_reads == 21_000


@pytest.mark.parametrize("kind", ["missing", "file", "readonly"])
def test_a_spool_that_cannot_be_written_is_no_matter(tmp_path, kind):
    spool = tmp_path / "spool"
    if kind == "file":
        spool.touch()
    if kind == "readonly":
        spool = Path("/proc")
    done = run_python(
        WRITER
        + """
writer = new_writer(sys.argv[1], flush_interval_ns=1)
add(writer, irregular(10_000))
writer.close()
""",
        spool,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_killed_process_loses_at_most_the_interval(tmp_path):
    code = (
        WRITER
        + """
writer = new_writer(sys.argv[1], flush_interval_ns=1000)
add(writer, [(0, i // 7, i % 7) for i in range(1000)], step_ns=10)
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    assert run_python(code, tmp_path).returncode == -signal.SIGKILL
    (path,) = tmp_path.iterdir()
    spool = read_spool(path)
    assert spool.torn_bytes == 0
    n = int(spool.records.n_reads.sum())
    assert 1000 - 101 <= n <= 1000
    order = np.argsort(spool.records.start_ns, kind="stable")
    assert starts_of(spool.records, order) == [(0, i // 7, i % 7) for i in range(n)]


def test_a_forked_child_never_writes_what_the_parent_read(tmp_path):
    code = (
        WRITER
        + """
writer = new_writer(sys.argv[1], flush_interval_ns=2**62)
add(writer, [(i, 0, 0) for i in range(10)])
for reads in (0, 5):
    child = os.fork()
    if child == 0:
        if reads:
            add(writer, [(50 + i, 0, 0) for i in range(reads)])
        writer.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
add(writer, [(i, 0, 0) for i in range(10, 20)])
writer.close()
"""
    )
    done = run_python(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    spools = sorted((read_spool(path) for path in tmp_path.iterdir()), key=lambda s: s.process.pid)
    assert len(spools) == 2
    parent, child = sorted(spools, key=lambda spool: spool.process.start_ns)
    assert starts_of(parent.records) == [(i, 0, 0) for i in range(20)]
    assert starts_of(child.records) == [(50 + i, 0, 0) for i in range(5)]
    assert child.process.pid != parent.process.pid
    (theirs,), (its_own,) = parent.datasets, child.datasets
    assert dataclasses.replace(its_own, id=theirs.id) == theirs


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forking_while_threads_trace_neither_hangs_nor_mixes(tmp_path):
    code = (
        WRITER
        + """
import warnings
warnings.simplefilter("ignore")
writer = new_writer(sys.argv[1], flush_interval_ns=20_000)
stop = threading.Event()
def read():
    while not stop.is_set():
        add(writer, irregular(300))
threads = [threading.Thread(target=read) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(40):
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        add(writer, [(7, i, i) for i in range(100)])
        writer.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
writer.close()
print(os.getpid())
"""
    )
    done = run_python(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    n_children = 0
    for path in tmp_path.iterdir():
        spool = read_spool(path)
        assert spool.torn_bytes == spool.skipped_bytes == 0
        if spool.process.pid != int(done.stdout):
            n_children += 1
            assert starts_of(spool.records) == [(7, i, i) for i in range(100)]
    assert n_children == 40


def test_threads_are_told_apart(tmp_path):
    writer = new_writer(tmp_path)
    dataset = add_dataset(writer)
    barrier = threading.Barrier(4)

    def read(axis):
        barrier.wait()
        for i in range(200):
            start = [0, 0, 0]
            start[axis % 3] = i * (axis + 1)
            add(writer, dataset, [start], at=i)

    threads = [threading.Thread(target=read, args=(axis,)) for axis in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    path = writer.path
    writer.close()
    records = read_spool(path).records
    assert sorted(records.n_reads.tolist()) == [200] * 4
    assert len(set(records.thread.tolist())) == 4


def test_expanding_too_much_is_refused(tmp_path):
    writer = new_writer(tmp_path)
    add(writer, add_dataset(writer, rank=0), np.zeros((2**26 + 2, 0), np.int64))
    path = writer.path
    writer.close()
    with pytest.raises(SdsValueError, match="67108866 reads; work with repeat"):
        expand(read_spool(path).records, 0)


def test_a_file_longer_than_a_trace_can_be_is_refused_unread(tmp_path):
    """A sparse file takes no disk, but time to look through."""
    path = tmp_path / f"sparse{SUFFIX}"
    path.write_bytes(GOLDEN)
    with path.open("r+b") as stream:
        stream.truncate(1 << 40)
    before = _bytes_read()
    with pytest.raises(FormatError, match=f"{1 << 40} bytes long.*{1 << 28}.*remove it"):
        read_spool(path)
    assert _bytes_read() - before < 1 << 20
    with path.open("r+b") as stream:
        stream.truncate(1 << 28)
    assert len(read_spool(path).records) == len(read_spool(SPOOL).records)


def _bytes_read():
    """Return how many bytes this process has read from files."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_damage_that_looks_like_blocks_again_and_again_ends_the_file(tmp_path):
    """Each such place may cost a checksum over 1 MiB: so many in a file, not in each gap of it."""
    writer = new_writer(tmp_path)
    dataset = add_dataset(writer)
    sizes = []
    for i in range(4):
        add(writer, dataset, [(i, 0, 0)])
        writer.flush()
        sizes.append(Path(writer.path).stat().st_size)
    whole = Path(writer.path).read_bytes()
    writer.close()
    parts = [whole[a:b] for a, b in zip([0, *sizes], sizes, strict=False)]
    lure = struct.pack("<4sHHII", b"SDSB", 1, 3, 0, 0)
    path = tmp_path / f"lures{SUFFIX}"
    path.write_bytes((400 * lure).join(parts))
    spool = read_spool(path)
    assert starts_of(spool.records) == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert spool.skipped_bytes == 2 * 400 * len(lure)
    assert spool.torn_bytes == 400 * len(lure) + len(parts[3])
