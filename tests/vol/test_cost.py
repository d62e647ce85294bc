"""What the connector costs in memory and trace; in time: benchmarks/connector_cost.py."""

import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.trace import read_spool
from tests.hdf5_builds import CRATES, hdf5_build
from tests.redirected import reads_by_replica, redirect, settle
from tests.under_connector import connector_environment, native_environment, run_python

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "connector_cost.c"
MIB = 1 << 20


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.h5"
    with h5py.File(path, "w") as file:
        file["rows"] = np.arange(64_000, dtype="f8").reshape(1000, 64)
        file["cube"] = np.arange(128 * 128 * 512, dtype="f4").reshape(128, 128, 512)
    settle(path)
    return path


@pytest.fixture(scope="module", params=CRATES)
def program(request, tmp_path_factory):
    output = tmp_path_factory.mktemp("program") / "program"
    return hdf5_build(request.param).compile(PROGRAM, output)


def run(program, source, work, env):
    """Do the work, and return the most memory that the process had at a time."""
    process = subprocess.Popen(
        [program, source], env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    process.stdin.write(work)
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024


def test_no_read_is_lost_and_the_trace_stays_small(home, source, program):
    run(program, source, "read 1000000\n", connector_environment(home.root))
    (path,) = home.spool.iterdir()
    assert int(read_spool(path).records.n_reads.sum()) == 1_000_000
    assert path.stat().st_size < 64 * 1024


def test_a_process_that_is_served_takes_8_mebibytes_more_at_most(home, source, program):
    redirect(source, [("cube", (2, 0, 1))], home)
    work = "read 1000\nslab 3\n"
    native = run(program, source, work, native_environment())
    connected = run(program, source, work, connector_environment(home.root))
    assert reads_by_replica(home) == {0: 1000, 1: 3}
    # Of what is resident, some is shared with other processes: private memory is less.
    assert connected - native <= 8 * MIB


MANY_READS = """
    import sys
    from pathlib import Path
    import h5py

    files = [h5py.File(name) for name in sys.argv[1:]]
    for start in range(0, 64, 8):
        for file in files:
            file["d"][:, :, start : start + 3]
    status = Path("/proc/self/smaps_rollup").read_text()
    print(next(int(l.split()[1]) for l in status.splitlines() if l.startswith("Private_Dirty")))
"""


@pytest.mark.parametrize("n", [5, 15])
def test_replicas_in_chunks_take_little_memory(n, home, tmp_path):
    values = np.random.default_rng(0).integers(0, 99, (64, 64, 64), "i4")
    sources = [tmp_path / f"{i}.h5" for i in range(n)]
    for path in sources:
        with h5py.File(path, "w") as file:
            file["d"] = values
        settle(path)
        redirect(path, [("d", (2, 0, 1), {"chunks": "auto", "filters": "gzip:1"})], home)
    native = run_python(MANY_READS, *sources, env=native_environment())
    connected = run_python(MANY_READS, *sources, env=connector_environment(home.root))
    assert reads_by_replica(home) == {1: 8 * n}
    # 8 MiB for the process, with five of them, and what HDF5 takes for each further file.
    assert (int(connected.stdout) - int(native.stdout)) * 1024 <= 8 * MIB + (n - 5) * MIB // 2
