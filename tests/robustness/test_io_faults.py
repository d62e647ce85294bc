"""Calls that fail at any moment: the program reads what it would have read, and learns nothing."""

import errno
import subprocess

import pytest

from tests.redirected import reads_by_replica
from tests.robustness.conftest import redirect_to, write_cube
from tests.under_connector import (
    ROOT,
    connector_environment,
    decisions,
    native_environment,
    run_python,
)

SHORT, SLOW = -1, -2

# How the programs below arm faults, and what they read: planes across the grain, in place and
# converted, and pieces with gaps.
PRELUDE = """
    import ctypes, errno, gc, sys
    import h5py, numpy as np

    faults = ctypes.CDLL(None)
    faults.fault_arm.argtypes = [ctypes.c_char_p] * 2 + [ctypes.c_long] * 2 + [ctypes.c_int]
    faults.fault_disarm.restype = ctypes.c_long

    def arm(calls, part, after=0, n=1 << 30, error=errno.EIO):
        named = "".join(call + " " for call in calls.split())
        faults.fault_arm(named.encode(), part.encode(), after, n, error)

    disarm = faults.fault_disarm
    path = sys.argv[1]
    expected = np.arange(9 * 14 * 11, dtype="f8").reshape(9, 14, 11)

    def check(data):
        for index in (np.s_[:, :, 3], np.s_[1:8:2, 2:13, 5], np.s_[:, 3:9, 1:9:3]):
            assert np.array_equal(data[index], expected[index]), index
            assert np.array_equal(data.astype("f4")[index], expected[index].astype("f4")), index
        out = np.zeros((9, 28, 3))
        data.read_direct(out, np.s_[:, :, 4], np.s_[:, ::2, 1])
        assert np.array_equal(out[:, ::2, 1], expected[:, :, 4]) and not out[:, 1::2].any()

    def read():
        with h5py.File(path) as file:
            check(file["cube"])
"""


def run(text, *arguments, env):
    return run_python(PRELUDE + text, *arguments, env=env)


@pytest.mark.parametrize("error", [errno.EIO, errno.EAGAIN, errno.EINTR, SHORT])
def test_reading_the_replica_fails_at_any_call(error, kind, cube_of_kind, home, faults):
    # Interrupted and short reads go on where they stopped; other errors end in the original.
    text = """
    error = int(sys.argv[2])
    read()                    # the metadata is checked once per process
    arm("pread preadv", "/replicas/", 1 << 30, error=error)
    read()
    n_calls = 0
    for after in range(10000):
        with h5py.File(path) as file:
            arm("pread preadv", "/replicas/", after, 1, error)
            check(file["cube"])
            if not disarm():
                break
            n_calls += 1
    print(n_calls)
    """
    log = home.root / "log"
    env = connector_environment(home.root, SDS_DEBUG=log, **faults)
    result = run(text, cube_of_kind, error, env=env)
    n_calls = int(result.stdout)
    # Each of the seven reads makes one; what is cached is read without waiting, where EAGAIN is no
    # failure.
    assert n_calls >= (3 if (kind, error) == ("contiguous", errno.EAGAIN) else 7)
    assert result.stderr == ""
    reasons = {reason for event, *_, reason in decisions(log) if event == "original"}
    goes_on = error in (errno.EINTR, SHORT)
    assert ("the replica could not be read" in reasons) == (not goes_on)
    served = reads_by_replica(home)
    if goes_on:
        assert served == {1: 7 * (3 + n_calls)}
    else:  # one in pieces goes on after a fault, one in chunks is left alone
        assert served[0] == n_calls or kind != "contiguous"
        assert served[0] >= n_calls


def test_a_replica_that_keeps_failing_is_left_alone(cube_of_kind, home, faults):
    text = """
    with h5py.File(path) as file:
        file["cube"][:, :, 0]
        arm("pread preadv", "/replicas/")
        for i in range(30):   # of chunks that are not in memory yet
            k = 4 + i % 5
            assert np.array_equal(file["cube"][:, :, k], expected[:, :, k])
        print(disarm())
    """
    env = connector_environment(home.root, **faults)
    assert int(run(text, cube_of_kind, env=env).stdout) <= 3
    assert reads_by_replica(home) == {0: 30, 1: 1}


@pytest.mark.parametrize("part", ["/replicas/", "/tables/", "/spool/"])
@pytest.mark.parametrize("error", ["EIO", "EACCES", "ENFILE", "ENOMEM"])
def test_nothing_of_the_home_can_be_opened_or_looked_at(part, error, cube, home, faults):
    text = """
    arm("open fstat read pread preadv write", sys.argv[2], error=getattr(errno, sys.argv[3]))
    for _ in range(2):
        read()
    assert disarm() > 0
    arm("open fstat read pread preadv write", sys.argv[2], error=getattr(errno, sys.argv[3]))
    """
    env = connector_environment(home.root, **faults)
    result = run(text, cube, part, error, env=env)
    assert (result.stdout, result.stderr) == ("", "")
    if part == "/spool/":
        assert list(home.spool.iterdir()) == []
    else:
        assert set(reads_by_replica(home)) == {0}


def test_looking_at_the_source_fails_later(cube, home, faults):
    """What cannot be looked at may have changed: the original, for good."""
    text = """
    import time
    with h5py.File(path) as file:
        check(file["cube"])
        time.sleep(2.1)
        arm("stat", path)
        check(file["cube"])
        assert disarm() == 1
        check(file["cube"])
    """
    run(text, cube, env=connector_environment(home.root, **faults))
    assert reads_by_replica(home) == {0: 14, 1: 7}


def test_the_spool_is_full(cube, home, faults):
    """What cannot be written is left out, whole; the count of what is lost comes when it can."""
    text = """
    def many(n):
        with h5py.File(path) as file:
            for k in np.random.default_rng(1).integers(0, 11, n).tolist():
                file["cube"][k % 9, k, k]
    many(10)                      # opens the trace, written when the file is closed
    for error in (errno.ENOSPC, -1):
        arm("write", "/spool/", error=error, n=1 if error < 0 else 1 << 30)
        many(9000)
        assert disarm() > 0, error
    """
    run(text, cube, env=connector_environment(home.root, SDS_REDIRECT=0, **faults))
    from sds.trace import read_spool

    (spool,) = [read_spool(path) for path in home.spool.iterdir()]
    n = int(spool.records.n_reads.sum())
    assert spool.torn_bytes == 0
    assert n + spool.dropped_reads == 18010
    assert spool.dropped_reads > 0


def test_the_original_fails_natively_and_under_the_connector_alike(cube, home, faults):
    """Where no replica serves: the same error, whatever SDS does before."""
    text = """
    import os
    for after in (0, 1, 2, 5):
        for error in (errno.EIO, errno.EACCES):
            try:
                with h5py.File(path) as file:
                    data = file["cube"]
                    arm("pread read", path, after, error=error)
                    for k in range(8):
                        data[k, k, k]
                    print("read", after)
            except OSError as failure:
                print(type(failure).__name__, str(failure).replace(str(os.getpid()), "")[:60])
            finally:
                disarm()
    """
    native = run(text, cube, env=native_environment(**faults))
    assert "OSError" in native.stdout
    for variables in ({"SDS_REDIRECT": 0}, {"SDS_TRACE": 0, "SDS_REDIRECT": 0}, {}):
        env = connector_environment(home.root, **faults, **variables)
        assert run(text, cube, env=env).stdout == native.stdout, variables


def test_the_original_fails_after_the_replica_did(cube, home, faults):
    text = """
    with h5py.File(path) as file:
        data = file["cube"]
        arm("pread preadv read", "", error=errno.EIO)
        try:
            data[:, :, 3]
        except OSError as failure:
            print(type(failure).__name__, "Can't synchronously read data" in str(failure))
        print(disarm() > 1 or "struck once")
    """
    native = run(text, cube, env=native_environment(**faults))
    under = run(text, cube, env=connector_environment(home.root, **faults))
    assert native.stdout == "OSError True\nstruck once\n"
    assert under.stdout == "OSError True\nTrue\n"


@pytest.fixture(scope="module")
def kept_bytes(tmp_path_factory):
    """Return the sizes, as text, of what HDF5 is given to keep."""
    sizes = tmp_path_factory.mktemp("sizes") / "sizes"
    program = """
    #include "connector_info.h"
    #include "object.h"
    #include <stdio.h>
    int main() { printf("%zu %zu", sizeof(sds::vol::Object), sizeof(sds::vol::ConnectorInfo)); }
    """
    subprocess.run(
        ["c++", "-std=c++17", f"-I{ROOT}/native/include",
         *(f"-I{shelf}" for shelf in (ROOT / "sds" / "redirect" / "vol").iterdir()),
         "-x", "c++", "-", "-o", sizes],
        input=program, text=True, check=True,
    )  # fmt: skip
    printed = subprocess.run([sizes], capture_output=True, text=True, check=True).stdout
    return printed.split()


@pytest.fixture(params=[None, (4, 5, 3)])
def stored_cube(request, kind, tmp_path, home):
    """Return a file whose cube is contiguous or chunked, with a replica of each kind."""
    path = write_cube(tmp_path / "source.h5", chunks=request.param)
    redirect_to(kind, path, home)
    return path


def test_memory_is_exhausted_at_any_allocation(stored_cube, home, faults, kept_bytes):
    """Of all but what HDF5 is given to keep, without which there is no object, nor a connector."""
    text = """
    faults.fault_spare.argtypes = [ctypes.c_long] * 2
    faults.fault_spare(int(sys.argv[2]), int(sys.argv[3]))
    n_struck = 0
    for n in (1, 3, 1 << 30):
        for after in range(500):
            arm("malloc", "libh5sds_vol", after, n, errno.ENOMEM)
            read()
            if not disarm():
                break
            n_struck += 1
    print(n_struck)
    """
    env = connector_environment(home.root, **faults)
    result = run(text, stored_cube, *kept_bytes, env=env)
    assert int(result.stdout) > 60
    assert result.stderr == ""


def test_a_slow_replica_costs_its_own_time(cube, home, faults):
    text = """
    with h5py.File(path) as file:
        file["cube"][:, :, 3]
        arm("pread preadv", "/replicas/", error=-2)
        assert np.array_equal(file["cube"][:, :, 3], expected[:, :, 3])
        assert disarm() == 1   # the plane is one run: nothing is asked for twice
    """
    run(text, cube, env=connector_environment(home.root, **faults))
    assert reads_by_replica(home) == {1: 2}


def test_it_is_the_replica_that_would_have_served(cube_of_kind, home, faults):
    """The control of this file: without a fault all that it reads comes from replicas."""
    text = """
    read()
    assert disarm() == 0
    """
    run(text, cube_of_kind, env=connector_environment(home.root, **faults))
    assert reads_by_replica(home) == {1: 7}
