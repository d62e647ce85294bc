"""Memory of a program that does at a time all that the connector takes memory for."""

import dataclasses
from collections import Counter

import h5py
import numpy as np
import pytest

from sds.home import Home
from sds.trace import read_spool
from tests.page_cache import drop_from_page_cache
from tests.redirected import (
    go_past_the_page_cache,
    publish_candidates,
    reads_by_replica,
    settle,
    write_replica,
)
from tests.under_connector import connector_environment, decisions, run_python
from tests.vol.test_cost import (
    LONG_READ,
    MIB,
    PRIVATE_MEMORY,
    STEADY,
    forget_runs,
    private_memory,
    write_long,
)
from tests.vol.test_decoding_memory import own_malloc

N_DATASETS = 34_000  # more shapes than the trace follows in turn
N_HANDLES = 60_000  # which take all that the connector remembers them in
N_SERVED = 18
MOST_ATTEMPTS = 20  # of programs in which the trace is not to be written at one moment
KINDS = [
    {"compression": "gzip", "compression_opts": 1, "shuffle": True, "chunks": (64, 64, 64)},
    {"compression": "gzip", "compression_opts": 1, "shuffle": True, "chunks": (64, 16, 16)},
    {"compression": "lzf", "chunks": (64, 64, 64)},  # which HDF5 decodes
]

PROGRAM = """
    import zlib
    import netCDF4, tables
    from h5py import h5d, h5f, h5s
    small, big, steps, n = sys.argv[1], sys.argv[2], sys.argv[3].split(), int(sys.argv[4])
    open_files = h5py.File(big), netCDF4.Dataset(big), tables.open_file(big)
    libraries = [lambda n: open_files[0][n], lambda n: open_files[1][n],
                 lambda n: open_files[2].root[n]]
    locks = [threading.Lock() for _ in libraries]   # two of them are for one thread at a time
    names = sorted(open_files[0])
    element = np.arange(64 * 64).reshape(64, 64, 1)

    def sum_of(name, k):
        slab = (element * (int(name) + 7) + np.arange(k, k + 4)) % 9973
        return zlib.crc32(slab.astype("i4"))

    expected = {(name, k): sum_of(name, k) for name in names for k in range(0, 64, 4)}
    np.ones(3 << 20)   # once such sizes were freed, malloc keeps more
    failed = []

    def read_slabs(number):
        for i in range(len(names)):
            name, k = names[(5 * number + i) % len(names)], 4 * ((number + i) % 16)
            which = (number + i // 6) % 3
            with locks[which]:
                found = libraries[which](name)[:, :, k : k + 4]
            if zlib.crc32(found) != expected[name, k]:
                failed.append((name, k))
            if i % 6 == 0:
                time.sleep(0.06)   # longer than a replica is kept open in vain

    def replicas():
        threads = [threading.Thread(target=read_slabs, args=(number,)) for number in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed

    file = h5f.open(small.encode(), h5f.ACC_RDONLY)
    group = h5py.h5g.open(file, b"small")
    paths = [b"small/" + name for name in group]
    kept, values = [], np.zeros(10)

    def read_kept():
        for i, dataset in enumerate(kept):
            dataset.read(h5s.ALL, h5s.ALL, values)
            assert values[9] == 9 + i % len(paths)

    def handles():
        for i in range(n):
            kept.append(h5d.open(file, paths[i % len(paths)]))
            kept[-1].read(h5s.ALL, h5s.ALL, values)
        for _ in range(2):
            read_kept()

    def parts():
        for k in range(0, 64, 4):   # of one chunk
            found = open_files[0]["01"][:16, :16, k : k + 4]
            assert (found == (element[:16, :16] * 8 + np.arange(k, k + 4)) % 9973).all()

    def long():
        print_peak_of_long_read(sys.argv[5])

    for step in steps:
        {"handles": handles, "replicas": replicas, "parts": parts, "long": long}[step]()
    print_private_memory()
    open_files[2].close()
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return a file of small datasets, one with replicas of each kind, and their home."""
    directory = tmp_path_factory.mktemp("all")
    small, big, home = directory / "small.h5", directory / "big.h5", Home(directory / "home")
    home.create()
    with h5py.File(small, "w", libver="latest") as file:
        for i in range(N_DATASETS):
            file[f"small/a_name_as_long_as_those_of_instruments_{i:05d}"] = np.arange(10.0) + i
    element = np.arange(64 * 64).reshape(64, 64, 1)
    with h5py.File(big, "w") as file:
        for i in range(N_SERVED):
            file[f"{i:02d}"] = ((element * (i + 7) + np.arange(64)) % 9973).astype("i4")
    settle(small)
    settle(big)
    replicas = {
        f"/{i:02d}": [write_replica(big, f"/{i:02d}", (2, 0, 1), home, number=i + 1, **kind)]
        for i in range(N_SERVED)
        for kind in [KINDS[i % len(KINDS)]]
    }
    publish_candidates(big, replicas, home)
    return small, big, home


@pytest.mark.parametrize(
    ("steps", "malloc"),
    [
        ("handles replicas", "glibc"),
        pytest.param("replicas handles", "glibc", marks=pytest.mark.long),
        ("replicas handles", "own"),
    ],
)
def test_all_at_once_takes_8_mebibytes_at_most(steps, malloc, sources, tmp_path):
    small, big, home = sources
    variables = own_malloc(tmp_path) if malloc == "own" else {}
    more = private_memory(PROGRAM, small, big, steps, N_HANDLES, home=home, **variables)
    reads = reads_by_replica(home)
    (spool,) = map(read_spool, home.spool.iterdir())
    # However often a dataset is described anew, it is described as the same.
    assert len({dataclasses.astuple(d)[1:] for d in spool.datasets}) <= N_DATASETS + 3 * N_SERVED
    n_of_replicas = 64 * N_SERVED * steps.count("replicas")
    assert sum(reads.values()) == 3 * N_HANDLES + n_of_replicas
    if steps.startswith("replicas"):
        assert sum(n for replica, n in reads.items() if replica > 0) > 20
    assert more <= 8 * MIB, more / MIB


def read_parts(steps, sources, log):
    """Return how many reads each replica served, and why originals were read."""
    small, big, home = sources
    forget_runs(home, {})
    environment = connector_environment(home.root, SDS_DEBUG=log, **STEADY)
    run_python(PRIVATE_MEMORY + PROGRAM, small, big, steps, N_HANDLES, env=environment)
    reasons = {reason for event, _, _, reason in decisions(log) if event == "original"}
    return Counter(reads_by_replica(home)), reasons


def test_a_chunk_that_is_kept_serves_all_its_parts(sources, tmp_path):
    served, reasons = read_parts("parts", sources, tmp_path / "log")
    assert (served[2], reasons) == (16, set())


def test_a_chunk_that_cannot_be_kept_is_not_decoded_for_each_read(sources, tmp_path):
    """It would take longer than the original, of which HDF5 or the system keep what was read."""
    for attempt in range(MOST_ATTEMPTS):
        served, reasons = read_parts("handles parts", sources, tmp_path / f"log{attempt}")
        assert served.total() == 3 * N_HANDLES + 16
        told = any("no memory is left to keep" in reason for reason in reasons)
        assert (served[2] < 16) == told
        if served[2] == 1:
            break
        # The trace was written meanwhile, and gave back what the chunk needs.
    else:
        pytest.fail(f"the chunk was decoded more than once in each of {MOST_ATTEMPTS} programs")


def test_a_long_read_does_without_the_memory_that_is_not_there(sources, home, tmp_path):
    """It takes the little that every read may, and gives the same bytes."""
    small, big, _ = sources
    path = write_long(tmp_path / "long.h5")
    drop_from_page_cache(path)  # or skip the test, which the program cannot
    is_direct = go_past_the_page_cache(path, home)
    program = PRIVATE_MEMORY + LONG_READ + PROGRAM
    environment = connector_environment(home.root, SDS_ENGINE="always", **STEADY)
    for _ in range(MOST_ATTEMPTS):
        arguments = small, big, "handles long", N_HANDLES, path
        printed = run_python(program, *arguments, env=environment).stdout
        peak_bytes, n_direct = map(int, printed.splitlines()[0].split())
        assert n_direct == is_direct
        if peak_bytes < MIB:
            break
        # The trace was written meanwhile, and gave back what is borrowed.
    else:
        pytest.fail(f"each of {MOST_ATTEMPTS} programs borrowed what others keep")
