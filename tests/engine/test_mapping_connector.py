"""Mappings of the connector, and of the Python module beside it: one process, several handlers."""

import re
import signal

import h5py
import numpy as np
import pytest

from tests.redirected import redirect, settle
from tests.under_connector import connector_environment, native_environment, run_python

# Reads many small runs of a replica, which the original has apart as well, and of a file. The
# engine does not read originals: it would read these as fast.
PROGRAM = """
import faulthandler, mmap, os, signal, sys
import h5py, numpy as np
from sds import _native

path, when, ending = sys.argv[1:4]
if when == "before":
    faulthandler.enable()
array = np.arange(2048 * 512, dtype="<u8").reshape(2048, 512)
array.tofile(path + ".raw")
reader = _native.ReadFile(path + ".raw", may_map=os.environ.get("SDS_MMAP") != "0")
file = h5py.File(path)
cube = np.arange(64 * 64 * 512.0).reshape(64, 64, 512)

def read(n):
    for k in range(n):
        part = file["cube"][k % 64, ::3, ::5]
        assert np.array_equal(part, cube[k % 64, ::3, ::5]), k
        out = np.empty(2048, "<u8")
        report = reader.read_runs(24, 8, (2048,), (4096,), out)
        assert np.array_equal(out, array[:, 3])
    return report["executor"]

read(20)
if when == "after":
    faulthandler.enable()
executor = read(20)
if os.environ.get("SDS_CONNECTOR") and os.environ.get("SDS_MMAP") != "0":
    assert executor == "mapped"
    with open("/proc/self/maps") as maps:
        assert "/replicas/" in maps.read()
else:
    with open("/proc/self/maps") as maps:
        assert "/replicas/" not in maps.read()

def fault_of_the_program():
    with open(path + ".own", "w+b") as own:
        own.truncate(8192)
        mapped = mmap.mmap(own.fileno(), 8192)
        own.truncate(4096)
    mapped[5000]

if ending == "fault":
    fault_of_the_program()
"""


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.arange(64 * 64 * 512, dtype="f8").reshape(64, 64, 512)
    settle(path)
    return path


def outcome(done):
    """Return status and output, addresses and threads' numbers left out."""
    return done.returncode, re.sub(r"0x[0-9a-f]+", "0x", done.stdout + done.stderr)


@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_faults_of_the_program_end_it_as_without_sds(when, cube, home):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    native = native_environment(SDS_MMAP=0)
    ended = outcome(run_python(PROGRAM, cube, when, "fault", env=native, check=False))
    assert ended[0] == -signal.SIGBUS
    assert ("Fatal Python error: Bus error" in ended[1]) == (when != "never")
    served = connector_environment(home.root, SDS_ENGINE=0)
    seen = outcome(run_python(PROGRAM, cube, when, "fault", env=served, check=False))
    assert seen == ended, seen[1]


@pytest.mark.parametrize("variables", [{}, {"SDS_MMAP": 0}])
def test_mappings_can_be_turned_off(variables, cube, home):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    environment = connector_environment(home.root, SDS_ENGINE=0, **variables)
    assert outcome(run_python(PROGRAM, cube, "never", "end", env=environment)) == (0, "")


def test_replicas_that_are_cut_short_under_reads_are_not_missed(cube, home):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    program = (
        PROGRAM
        + """
import threading
replica = next(os.path.join(folder, name) for folder, _, names in os.walk(sys.argv[4])
               for name in names if name.endswith(".h5"))
over = threading.Event()

def cut():
    size = os.path.getsize(replica)
    while not over.is_set():
        os.truncate(replica, size // 2)
        os.truncate(replica, 0)
        over.wait(0.001)

thread = threading.Thread(target=cut)
thread.start()
read(500)
over.set()
thread.join()
"""
    )
    env = connector_environment(home.root, SDS_ENGINE=0)
    done = run_python(program, cube, "never", "end", home.replicas, env=env)
    assert outcome(done) == (0, "")


def test_a_file_that_was_mapped_is_unlocked_when_it_is_closed(cube, home):
    program = """
import sys
import h5py

for k in range(64):
    with h5py.File(sys.argv[1]) as file:
        for i in range(4):
            file["cube"][i, ::3, k]
    with h5py.File(sys.argv[1], "r+") as file:
        file["cube"][0, 0, 0] = k
"""
    done = run_python(program, cube, env=connector_environment(home.root, SDS_ENGINE=0))
    assert outcome(done) == (0, "")
