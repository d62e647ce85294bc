"""A device that fails in the middle of a read: an error, and HDF5's own under the connector."""

import contextlib
import errno
import itertools
import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest

from sds import _native
from tests.redirected import reads_by_replica, redirect, settle
from tests.robustness.failing_device import KINDS, FailingDevice, build_server
from tests.under_connector import (
    connector_environment,
    decisions,
    native_environment,
    run_python,
)

SHAPE = (64, 64, 256)  # 8 MiB of float64
FAILING = (4 << 20, (4 << 20) + (1 << 16))
WELL_BYTES = 2 << 20  # from the beginning; what lies near a bad place may fail with it
# io_uring where the kernel allows it, and threads where it is refused.
QUEUES = {"ring": {}, "threads": {"FAULTS_NO_RING": 1}}


@pytest.fixture(scope="module")
def server(tmp_path_factory, tool):
    return build_server(tmp_path_factory.mktemp("server") / "failing_fs", tool)


@pytest.fixture(params=KINDS)
def kind_of_device(request):
    return request.param


@pytest.fixture
def device_over(kind_of_device, server, tmp_path):
    """Return what makes the device that holds a folder's files."""
    with contextlib.ExitStack() as stack:

        def make(folder):
            device = FailingDevice(kind_of_device, server, folder, tmp_path)
            stack.callback(device.close)
            return device

        yield make


def write_cube(path):
    with h5py.File(path, "w") as file:
        made = file.create_dataset(
            "cube", data=np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)
        )
        offset = made.id.get_offset()
    settle(path)
    return offset


# Each executor reads what is well, what is not, and what is well again.
EVERY_EXECUTOR = """
    import sys
    import numpy as np
    from sds import _native

    path, well_bytes = sys.argv[1], int(sys.argv[2])
    content = np.fromfile(sys.argv[3], np.uint8)

    def read(file, executor, n_rows):
        out = np.zeros((n_rows, 100), np.uint8)
        report = file.read_runs(7, 100, (n_rows,), (65536,), out, executor=executor)
        assert np.array_equal(out, content[: n_rows << 16].reshape(n_rows, -1)[:, 7:107])
        return report

    files = {executor: _native.ReadFile(path) for executor in _native.EXECUTORS}
    for executor, file in files.items():
        report = read(file, executor, well_bytes >> 16)
        for _ in range(2):
            try:
                read(file, executor, len(content) >> 16)
                print(executor, report["executor"], report["queue"], "no error")
            except OSError as failure:
                print(executor, report["executor"], report["queue"], failure.errno)
        read(file, executor, well_bytes >> 16)
    print("heal", flush=True)
    sys.stdin.readline()
    for executor, file in files.items():
        read(file, executor, len(content) >> 16)
"""


@pytest.mark.parametrize("queue", QUEUES)
def test_every_executor_says_so_and_reads_on(device_over, kind_of_device, queue, faults, tmp_path):
    device = device_over(tmp_path / "device")
    path, copy = device.folder / "random", tmp_path / "copy"
    content = np.random.default_rng(4).bytes(8 << 20)
    for written in (path, copy):
        written.write_bytes(content)
    device.put_to_use()
    device.fail(path, *FAILING)
    command = [sys.executable, "-c", textwrap.dedent(EVERY_EXECUTOR), path, str(WELL_BYTES), copy]
    program = subprocess.Popen(
        command,
        env=native_environment(**faults, **QUEUES[queue]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = itertools.takewhile(lambda line: line != "heal\n", program.stdout)
        lines = [line.split() for line in said]
        assert device.n_failed > 0
        device.heal()
        program.communicate("\n")
        assert program.returncode == 0
    finally:
        program.kill()
        program.wait()
    assert {error for *_, error in lines} == {str(errno.EIO)}
    carried_out = {asked: (by, flight) for asked, by, flight, _ in lines}
    assert set(carried_out) == set(_native.EXECUTORS)
    assert carried_out["list"] == ("list", queue)
    assert carried_out["direct"] == ("direct", queue)
    for executor in ("pread", "sieve", "vector"):
        assert carried_out[executor] == (executor, "none")
    # What a server in user space holds is never mapped.
    assert (carried_out["mapped"][0] == "mapped") == (kind_of_device == "disk")


READS = """
    import re, sys
    import h5py, numpy as np

    path = sys.argv[1]
    shape = (64, 64, 256)
    expected = np.arange(np.prod(shape), dtype="f8").reshape(shape)
    for index in (np.s_[:16, :, 7], np.s_[:, :, 7], np.s_[:, 3, :], np.s_[20:40, ::3, 2::5],
                  np.s_[48:, :, 9], np.s_[:, :, :9], np.s_[..., 200], np.s_[...]):
        with h5py.File(path) as file:
            for _ in range(2):
                try:
                    data = file["cube"][index]
                except OSError as failure:
                    said = re.sub("time = .*?, |, buf = .*", "", str(failure), flags=re.S)
                    print(index, type(failure).__name__, said)
                else:
                    assert np.array_equal(data, expected[index]), index
                    print(index, "right")
"""
WELL_AFTER_FAILURES = """
    with h5py.File(path) as file:
        for index in (np.s_[..., 200],) * 3 + (np.s_[:16, :, 7],):
            try:
                file["cube"][index]
                print(index, "read")
            except OSError:
                print(index, "failed")
"""
STATES = {
    "mapped": {},
    "ring": {"SDS_MMAP": 0},
    "threads": {"SDS_MMAP": 0, "FAULTS_NO_RING": 1},
}


@pytest.mark.parametrize("state", STATES)
def test_reads_of_an_original_fail_as_natively(device_over, home, state, faults, tmp_path):
    device = device_over(tmp_path / "device")
    path = device.folder / "original.h5"
    offset = write_cube(path)
    device.put_to_use()
    place = offset + FAILING[0]
    device.fail(path, place - place % 4096, place - place % 4096 + (1 << 16))
    program = READS + WELL_AFTER_FAILURES
    native = run_python(program, path, env=native_environment())
    env = connector_environment(home.root, SDS_ENGINE="always", **faults, **STATES[state])
    under = run_python(program, path, env=env)
    assert (under.stdout, under.stderr) == (native.stdout, "")
    assert native.stdout.count("right") == 4
    assert native.stdout.count("OSError") == 12
    assert native.stdout.count("errno = 5") == native.stdout.count("OSError")
    # The engine reads what is well, and tries the rest: after three failures it leaves the file to
    # HDF5, until it is opened anew.
    assert reads_by_replica(home)[-1] == 4


@pytest.mark.parametrize("state", STATES)
def test_reads_that_a_replica_fails_come_from_the_original(
    device_over, home, tmp_path, state, faults
):
    device = device_over(home.replicas)
    path = tmp_path / "original.h5"
    write_cube(path)
    redirect(path, [("/cube", (2, 0, 1))], home)
    (replica,) = device.folder.rglob("*.h5")
    device.put_to_use()
    device.fail(replica, *FAILING)
    log = home.root / "log"
    env = connector_environment(home.root, SDS_ENGINE=0, SDS_DEBUG=log, **faults, **STATES[state])
    under = run_python(READS, path, env=env)
    assert under.stdout.count("right") == 16
    assert under.stderr == ""
    assert device.n_failed > 0
    reasons = {reason for event, *_, reason in decisions(log) if event == "original"}
    assert "the replica could not be read" in reasons
    served = reads_by_replica(home)
    assert served[1] > 0
