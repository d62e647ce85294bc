"""What the connector costs in memory and trace; in time: benchmarks/connector_cost.py."""

import os
import re
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.trace import read_spool
from tests.hdf5_builds import CRATES, hdf5_build
from tests.page_cache import drop_from_page_cache
from tests.redirected import (
    go_past_the_page_cache,
    publish_candidates,
    reads_by_replica,
    redirect,
    settle,
    write_many_replicas,
    write_replica,
)
from tests.served_in_turn import READ_IN_TURN
from tests.under_connector import ROOT, connector_environment, native_environment, run_python

PROGRAM = ROOT / "benchmarks" / "connector_cost.c"
MIB = 1 << 20


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.h5"
    with h5py.File(path, "w") as file:
        file["rows"] = np.arange(64_000, dtype="f8").reshape(1000, 64)
        file["cube"] = np.arange(128 * 128 * 512, dtype="f4").reshape(128, 128, 512)
        for i in range(1000):
            file[f"many/{i:04d}"] = np.arange(4.0)
    settle(path)
    return path


@pytest.fixture(scope="module", params=CRATES)
def program(request, tmp_path_factory):
    output = tmp_path_factory.mktemp("program") / "program"
    return hdf5_build(request.param).compile(PROGRAM, output)


def run(program, source, work, env):
    """Do the work, and return the most memory that the process had at a time.

    What wait4 says of it includes what this process had when it started the other.
    """
    with subprocess.Popen(
        [program, source], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write(work)
        process.stdin.flush()
        for _ in work.splitlines():
            assert process.stdout.readline(), "the program ended early"
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.stdin.close()
    assert process.returncode == 0
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def test_no_read_is_lost_and_the_trace_stays_small(home, source, program):
    run(program, source, "read 1000000\n", connector_environment(home.root))
    (path,) = home.spool.iterdir()
    assert int(read_spool(path).records.n_reads.sum()) == 1_000_000
    assert path.stat().st_size < 64 * 1024


def test_reads_of_a_thousand_datasets_in_turn_fold(home, source, program):
    run(program, source, "turn1000 200000\n", connector_environment(home.root))
    (path,) = home.spool.iterdir()
    spool = read_spool(path)
    found = np.bincount(spool.records.dataset_id, spool.records.n_reads)
    assert (found[1:] == 200).all()
    assert len(found) == 1001
    assert path.stat().st_size < MIB


def test_a_process_that_is_served_takes_8_mebibytes_more_at_most(home, source, program):
    redirect(source, [("cube", (2, 0, 1))], home)
    work = "read 1000\nslab 3\n"
    # How much of the libraries' files is resident differs from one run to the next.
    native = min(run(program, source, work, native_environment()) for _ in range(3))
    env = connector_environment(home.root, SDS_ENGINE=0)
    connected = min(run(program, source, work, env) for _ in range(3))
    assert reads_by_replica(home) == {0: 3 * 1000, 1: 3 * 3}
    # Of what is resident, some is shared with other processes: private memory is less.
    assert connected - native <= 8 * MIB


LONG_READ = f"""
    import fcntl, os, sys
    import h5py, numpy as np

    sys.path.insert(0, {str(ROOT)!r})
    from tests.page_cache import pages_cached
    from tests.waiting import wait_until

    def status(*names):
        with open("/proc/self/status") as lines:
            found = dict(line.split(":", 1) for line in lines)
        return [int(found[name].split()[0]) << 10 for name in names]

    def is_direct(descriptor):
        try:
            return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        except OSError:  # not open
            return False

    def print_peak_of_long_read(path):
        file = h5py.File(path)
        data, out = file["cube"], np.ones((128, 8192))
        data[0, 0, 0]

        def is_dropped():   # but for what lies around the element that was read
            os.posix_fadvise(file.id.get_vfd_handle(), 0, 0, os.POSIX_FADV_DONTNEED)
            return not pages_cached(path)[32:].any()

        wait_until(is_dropped, "the page cache drops what is to be read")
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")
        before, file_before = status("VmRSS", "RssFile")
        data.read_direct(out, np.s_[:, 2])
        most, file_after = status("VmHWM", "RssFile")
        assert (out == np.arange(128)[:, None] + np.arange(8192)).all()
        n_direct = sum(map(is_direct, range(64)))
        print(most - before - max(0, file_after - file_before), n_direct)
"""


def write_long(path):
    with h5py.File(path, "w") as file:
        file["cube"] = np.arange(128.0)[:, None, None] + np.zeros((4, 1)) + np.arange(8192)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    settle(path)
    return path


def test_a_long_read_past_the_page_cache_borrows_memory(home, tmp_path):
    path = write_long(tmp_path / "long.h5")
    drop_from_page_cache(path)  # or skip the test, which the program cannot
    is_direct = go_past_the_page_cache(path, home)
    program = (
        LONG_READ
        + """
    print_peak_of_long_read(sys.argv[1])
    """
    )
    env = connector_environment(home.root, SDS_ENGINE="always")
    printed = run_python(program, path, env=env).stdout
    peak_bytes, n_direct = map(int, printed.split())
    assert n_direct == is_direct
    # A large page, while the read lasts, or as many small ones as are used of it.
    assert peak_bytes <= 3 * MIB
    assert peak_bytes > MIB or not n_direct


PRIVATE_MEMORY = """
    import sys, threading, time
    from pathlib import Path
    import h5py, numpy as np

    def print_private_memory():
        # Pages of its own, whether or not it shares what they were copied from.
        status = Path("/proc/self/smaps_rollup").read_text()
        print(next(int(l.split()[1]) for l in status.splitlines() if l.startswith("Anonymous")))
"""
# As many arenas as glibc has for two processors, whatever this machine has, and sets in one order.
STEADY = {"MALLOC_ARENA_MAX": 16, "PYTHONHASHSEED": 0}
MOST_RUNS = 3


def forget_runs(home, variables):
    """Remove the trace of earlier runs, and the log that these variables name."""
    logs = [Path(variables[name]) for name in ("SDS_DEBUG",) if name in variables]
    for old in (*home.spool.iterdir(), *logs):
        old.unlink(missing_ok=True)


def private_memory(program, *arguments, home, most_bytes=8 * MIB, **extra):
    """Return how much more private memory a program has in the end under the connector.

    What threads take of malloc differs from one run to the next. The least of several runs counts,
    natively and under the connector alike: of one where that is no more than `most_bytes`, of three
    otherwise. The trace and the log are those of the latest run.
    """
    native, connected = [], []
    for _ in range(MOST_RUNS):
        for environment, found in (
            (native_environment(**STEADY | extra), native),
            (connector_environment(home.root, **STEADY | extra), connected),
        ):
            forget_runs(home, extra)
            printed = run_python(PRIVATE_MEMORY + program, *arguments, env=environment).stdout
            found.append(int(printed) * 1024)
        if min(connected) - min(native) <= most_bytes:
            break
    return min(connected) - min(native)


@pytest.fixture
def many_replicas(tmp_path, home):
    """Return a file of 33 datasets with replicas in chunks of 1 MiB, and one that is contiguous."""
    path = tmp_path / "many.h5"
    write_many_replicas(path, 33, home)
    return path


def test_replicas_in_chunks_take_little_memory(many_replicas, home):
    program = (
        READ_IN_TURN
        + """
    file = h5py.File(sys.argv[1])
    names = sorted(file)[:33]
    part, whole = np.zeros((64, 64, 3), "i4"), np.zeros((64, 64, 511), "f4")
    for name in names:
        first = lambda: file[name].read_direct(part, np.s_[:, :, :3])
        read_until_served(first, f"many.{name}-{int(name) + 1}.h5")
        for k in range(3, 60, 3):
            file[name].read_direct(part, np.s_[:, :, k : k + 3])
        file["whole"].read_direct(whole, np.s_[:, :, 1:])
    print_private_memory()
    """
    )
    more = private_memory(program, many_replicas, home=home)
    served = reads_by_replica(home)
    assert all(served[number] >= 20 for number in range(1, 34)), served
    assert more <= 8 * MIB


def test_the_libraries_of_a_process_take_little_memory_together(many_replicas, home):
    program = (
        READ_IN_TURN
        + """
    import netCDF4, tables
    files = h5py.File(sys.argv[1]), netCDF4.Dataset(sys.argv[1]), tables.open_file(sys.argv[1])
    by_library = [lambda n: files[0][n], lambda n: files[1][n], lambda n: files[2].root[n]]
    whole = np.zeros((64, 64, 511), "f4")

    def read_of(library, number):
        name = f"{number:02d}"
        return (lambda: by_library[library](name)[:, :, 5:8]), f"many.{name}-{number + 1}.h5"

    latest = {}
    for number in range(18):   # of each library its own
        library = number % 3
        others = [one for other, one in latest.items() if other != library]
        latest[library] = read_of(library, number)
        read_until_served(*latest[library], *others)
        if library == 2:
            files[0]["whole"].read_direct(whole, np.s_[:, :, 1:])
    print_private_memory()
    files[2].close()
    """
    )
    more = private_memory(program, many_replicas, home=home)
    assert reads_by_replica(home).keys() >= set(range(1, 19))
    assert more <= 8 * MIB


@pytest.mark.parametrize("name", ["whole", "07"])
def test_threads_take_little_memory_together(name, many_replicas, home):
    program = """
    data = h5py.File(sys.argv[1])[sys.argv[2]]
    parts = [np.zeros((64, 64, 50), data.dtype) for _ in range(32)]

    def read(part):
        for k in range(10):
            data.read_direct(part, np.s_[:, :, k : k + 50])

    threads = [threading.Thread(target=read, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print_private_memory()
    """
    more = private_memory(program, many_replicas, name, home=home, SDS_ENGINE=0)
    assert sum(n for replica, n in reads_by_replica(home).items() if replica > 0) == 320
    assert more <= 8 * MIB


def test_threads_that_decode_take_little_memory_together(many_replicas, home):
    """Each thread has memory of malloc's that others do not use, and that keeps what was freed."""
    program = """
    file = h5py.File(sys.argv[1])
    names = sorted(file)[:33]
    np.ones(3 << 20)   # once such sizes were freed, malloc keeps more

    def read(number):
        part = np.zeros((64, 64, 4), "i4")
        for i in range(24):
            for k in range(0, 16, 4):
                file[names[(5 * number + i) % 33]].read_direct(part, np.s_[:, :, k : k + 4])
            if i % 6 == 0:
                time.sleep(0.06)   # longer than a replica is kept open in vain

    threads = [threading.Thread(target=read, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print_private_memory()
    """
    more = private_memory(program, many_replicas, home=home)
    assert sum(n for replica, n in reads_by_replica(home).items() if replica > 0) > 300
    assert more <= 8 * MIB, more / MIB


N_HANDLES = 10_000

KEEP_OPEN = """
    from h5py import h5d, h5f, h5s
    selected, n_threads, rounds = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    file = h5f.open(sys.argv[1].encode(), h5f.ACC_RDONLY)
    names = list(file) * rounds
    kept, done = [], threading.Barrier(n_threads)

    def read(names):
        in_file = h5d.open(file, names[0]).get_space()
        shape = in_file.shape
        if selected == "rows":
            in_file.select_hyperslab((2, 0)[: len(shape)], (3, *shape[1:]))
        elif selected == "strided":
            in_file.select_hyperslab((0,), (3,), (3,))
        elif selected == "listed":
            in_file.select_elements(np.array([[0], [1], [4], [8]]))
        elif selected == "columns":
            in_file.select_hyperslab((0, 1), (shape[0], 2))
        values = np.zeros(in_file.get_select_npoints())
        in_memory = h5s.create_simple(values.shape)
        for name in names:
            dataset = h5d.open(file, name)
            dataset.read(in_memory, in_file, values)
            kept.append(dataset)
        done.wait()

    threads = [threading.Thread(target=read, args=(names[i::n_threads],)) for i in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print_private_memory()
"""


def write_datasets(path, n, values):
    with h5py.File(path, "w", libver="latest") as file:
        for i in range(n):
            file[f"a_name_as_long_as_those_of_instruments_{i:05d}"] = values
    settle(path)


@pytest.fixture(scope="module")
def small_datasets(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.h5"
    write_datasets(path, N_HANDLES, np.arange(10.0))
    return path


@pytest.mark.parametrize(
    ("selected", "n_threads", "engine"),
    [("rows", 1, "1"), ("rows", 64, "1"), ("strided", 1, "always"), ("listed", 64, "always")],
)
def test_datasets_that_stay_open_take_little_memory(
    selected, n_threads, engine, small_datasets, home
):
    more = private_memory(
        KEEP_OPEN, small_datasets, selected, n_threads, 1, home=home, SDS_ENGINE=engine
    )
    assert reads_by_replica(home) == {-1 if engine == "always" else 0: N_HANDLES}
    assert more <= 8 * MIB


@pytest.mark.parametrize(("selected", "served_by"), [("rows", 0), ("columns", 1)])
def test_datasets_of_a_table_that_stay_open_take_little_memory(selected, served_by, tmp_path, home):
    path = tmp_path / "tables.h5"
    n = 2_500
    write_datasets(path, n, np.arange(32.0 * 32).reshape(32, 32))
    with h5py.File(path) as file:
        names = [f"/{name}" for name in file]
    replica = write_replica(path, names[0], (1, 0), home)
    publish_candidates(path, {name: [replica] for name in names}, home)
    more = private_memory(KEEP_OPEN, path, selected, 1, N_HANDLES // n, home=home)
    assert reads_by_replica(home) == {served_by: N_HANDLES}
    assert more <= 8 * MIB
