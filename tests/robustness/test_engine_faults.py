"""Calls on an original fail while the engine reads it: HDF5 then does, and nobody notices.

What a mapping meets where calls fail is a signal: tests/native/test_guard.c and test_mapped.c.
"""

import errno
import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.hdf5_builds import hdf5_build
from tests.redirected import reads_by_replica, settle
from tests.under_connector import connector_environment, decisions, native_environment

SOURCE = Path(__file__).parent / "engine_reads.c"
VERSIONS = ("1.14.6", "2.0.0", "2.2.0")
SHORT = -1
ENGINE, HDF5 = -1, 0
N_SHAPES = 7
# By calls; from a mapping, where HDF5's own look at the file's size may fail; from the device, by
# threads, the first request of which may be the kernel's reading ahead.
STATES = {
    "calls": ("pread preadv", {"SDS_MMAP": 0}, ()),
    "mapped": ("pread preadv fstat", {}, ()),
    "cold": ("pread preadv", {"SDS_MMAP": 0, "FAULTS_NO_RING": 1}, ("cold",)),
}


@pytest.fixture(scope="module", params=VERSIONS)
def program(request, tmp_path_factory):
    target = tmp_path_factory.mktemp("engine") / "engine_reads"
    return hdf5_build(request.param).compile(SOURCE, target)


@pytest.fixture
def original(tmp_path):
    path = tmp_path / "original.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.arange(64**3, dtype="f8").reshape(64, 64, 64)
    with path.open("rb") as file:
        os.fsync(file.fileno())  # what is not written yet stays in the page cache
    settle(path)
    return path


def run(program, original, calls, error, *more, env):
    named = "".join(f"{call} " for call in calls.split())
    command = [program, original, named, str(int(error)), *more]
    result = subprocess.run(
        command, env=env, check=False, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    borne, failed = map(int, result.stdout.split())
    return borne, failed, result.stderr


FAULTS = [(state, errno.EIO) for state in STATES] + [
    (state, error) for state in ("calls", "cold") for error in (errno.EINTR, SHORT)
]


@pytest.mark.parametrize("fault", FAULTS)
def test_any_call_of_the_engine_fails(program, original, home, faults, fault):
    state, error = fault
    calls, variables, more = STATES[state]
    log = home.root / "log"
    env = connector_environment(
        home.root, SDS_ENGINE="always", SDS_DEBUG=log, **variables, **faults
    )
    borne, failed, complaints = run(program, original, calls, error, *more, env=env)
    assert (failed, complaints) == (0, "")
    assert borne >= N_SHAPES
    served = reads_by_replica(home)
    assert sum(served.values()) == 2 * (N_SHAPES + borne)
    if error != errno.EIO:  # goes on where it stopped
        assert set(served) == {ENGINE}
    else:
        assert 0 < served[HDF5] <= borne
    assert all(event in {"bound", "engine", "no-table"} for event, *_ in decisions(log))


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])
def test_without_the_engine_such_reads_fail(program, original, faults, error):
    """The control of this file: HDF5 has no second way."""
    env = native_environment(**faults)
    borne, failed, complaints = run(program, original, "pread preadv", error, env=env)
    assert borne == 0
    assert failed >= N_SHAPES
    assert "Read failed" in complaints
