"""What mappings of files count towards a process's resident memory: at most what is allowed.

Batch systems end jobs by it, though the page cache holds the same pages anyway.
"""

import os
import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest

from tests.redirected import settle
from tests.under_connector import connector_environment, run_python
from tests.waiting import wait_until

MIB = 1 << 20
ROWS, ROW_BYTES = 12_288, 8192
FILE_BYTES = ROWS * ROW_BYTES  # 96 MiB
BOUND_BYTES = 32 * MIB
# What faults enter around the last pieces, and tables.
SLACK_BYTES = 4 * MIB

# The most that was resident above what was before; its peak is set back first.
PEAK = """
    def status(name):
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))

    def peak_of(read):
        read()
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")
        before = status("RssAnon")
        read()
        return status("VmHWM") - before
"""

BY_ENGINE = PEAK + """
    import sys
    import numpy as np
    from sds import _native
    path, rows, row_bytes, n_files = sys.argv[1], *map(int, sys.argv[2:])
    files = [_native.ReadFile(path) for _ in range(n_files)]
    out = np.ones(8 * rows, np.uint8)
    def read():
        for column in range(4):
            for file in files:
                file.read_runs(
                    64 * column, 8, (rows,), (row_bytes,), out.data, executor="mapped"
                )
    base = status("RssFile")
    print(peak_of(read) - base)
"""  # fmt: skip

BY_CONNECTOR = (
    PEAK
    + """
    import sys
    import h5py
    with h5py.File(sys.argv[1]) as file:
        table = file["x"]
        def read():
            for column in range(4):
                table[:, column * 16]
        base = status("RssFile")
        print(peak_of(read) - base)
"""
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return bytes and a dataset, both cached."""
    folder = tmp_path_factory.mktemp("mapped")
    plain, array = folder / "bytes", folder / "array.h5"
    plain.write_bytes(bytes(FILE_BYTES))
    with h5py.File(array, "w") as file:
        file["x"] = np.zeros((ROWS, ROW_BYTES // 8))
    settle(array)
    return {"plain": plain, "array": array}


def peak_bytes(source, *arguments, env):
    """Return what a program of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def expect_unbounded(peak):
    """Wait until all that is read is resident: a read that is slow is left to calls."""
    wait_until(lambda: peak() > FILE_BYTES * 3 // 4, "all that is read is resident")


@pytest.mark.parametrize("n_files", [1, 3])
def test_no_more_is_resident_than_is_allowed(files, n_files):
    arguments = files["plain"], ROWS, ROW_BYTES, n_files
    # The control: without a bound.
    expect_unbounded(lambda: peak_bytes(BY_ENGINE, *arguments, env=os.environ))
    bounded = os.environ | {"SDS_MMAP_BYTES": str(BOUND_BYTES)}
    assert peak_bytes(BY_ENGINE, *arguments, env=bounded) < BOUND_BYTES + SLACK_BYTES


def test_a_part_of_the_memory_that_the_job_may_use_is_allowed(files):
    """Where the variable says nothing; of RLIMIT_RSS an eighth."""
    limited = "import resource\nresource.setrlimit(resource.RLIMIT_RSS, (1 << 28, 1 << 28))\n"
    found = peak_bytes(
        limited + textwrap.dedent(BY_ENGINE), files["plain"], ROWS, ROW_BYTES, 1, env=os.environ
    )
    assert found < (1 << 28) // 8 + SLACK_BYTES


@pytest.mark.parametrize("value", ["", "many", "-1", "32M"])
def test_what_is_no_number_of_bytes_counts_as_not_set(files, value):
    env = os.environ | {"SDS_MMAP_BYTES": value}
    expect_unbounded(lambda: peak_bytes(BY_ENGINE, files["plain"], ROWS, ROW_BYTES, 1, env=env))


def test_nothing_is_mapped_where_no_bytes_are_allowed(files):
    env = os.environ | {"SDS_MMAP_BYTES": "0"}
    assert peak_bytes(BY_ENGINE, files["plain"], ROWS, ROW_BYTES, 1, env=env) < SLACK_BYTES


def test_programs_under_the_connector_keep_to_it(files, tmp_path):
    env = connector_environment(tmp_path, SDS_MMAP_BYTES=BOUND_BYTES)
    bounded = int(run_python(BY_CONNECTOR, files["array"], env=env).stdout)
    env = connector_environment(tmp_path)
    wait_until(
        lambda: int(run_python(BY_CONNECTOR, files["array"], env=env).stdout) > FILE_BYTES // 2,
        "the control: what is read is resident",
    )
    assert bounded < BOUND_BYTES + SLACK_BYTES
