"""A user's files and programs, and ``sds`` as a user starts it, with and without a server."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.home import Home
from sds.server.remote_service import server_address
from tests.command_result import Result
from tests.native_runs import once
from tests.waiting import PATIENCE_S, wait_until

ENERGIES = 1024
LIBC = ctypes.CDLL(None)
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2

PROGRAM = """
import hashlib, sys
import h5py
with h5py.File(sys.argv[1], "r") as file:
    cube = file["image/cube"]
    digest = hashlib.sha256()
    for energy in map(int, sys.argv[2:]):
        digest.update(cube[:, :, energy].tobytes())
    for pixel in range(0, 64, 7):
        digest.update(cube[pixel, 63 - pixel].tobytes())
print(digest.hexdigest())
"""


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    values = np.random.default_rng(5).random((64, 64, ENERGIES), dtype=np.float32)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("image/cube", data=values)
        dataset.attrs["units"] = "counts"
    settle(path)
    return path


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "planes.py"
    path.write_text(PROGRAM)
    return path


def plain_environment():
    """Return this environment without what tells HDF5 and SDS something, but trusted files."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HDF5_", "SDS_")) or name == "SDS_TRUSTED_DIRECTORIES"
    }


def as_anyone():
    """Give up the right to write where the mode forbids it, where this is root."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


# Of small files in memory HDF5's reads alone take clearly longer than a replica's.
BY_HDF5 = {"SDS_ENGINE": "0"}


class Sds:
    """``sds`` in processes of its own, for one home."""

    def __init__(self, home, directory):
        self.home = Home(Path(home))
        self.directory = directory
        # However little time these small files take.
        self.environment = plain_environment() | {"SDS_HOME": str(home), "SDS_ADVICE_MIN_S": "0"}

    def __call__(self, *words, **variables):
        result = subprocess.run(
            [sys.executable, "-m", "sds.cli", *map(str, words)],
            env=self.environment | {k: str(v) for k, v in variables.items()},
            preexec_fn=as_anyone,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=6 * PATIENCE_S,  # the demonstration makes hundreds of runs
        )
        return Result(result.returncode, result.stdout, result.stderr)

    def read(self, program, *arguments, **variables):
        """Run a program under sds; return what it printed and which decisions were made."""
        log = self.directory / f"decisions-{time.monotonic_ns()}"
        result = self("run", "--", sys.executable, program, *arguments, SDS_DEBUG=log, **variables)
        assert (result.code, result.err) == (0, "")
        return result.out, [line.split("\t")[1] for line in log.read_text().splitlines()]


@pytest.fixture
def sds(tmp_path):
    return Sds(tmp_path / "home", tmp_path)


@pytest.fixture(params=["with a server", "without a server"])
def sds_both(request, sds, tmp_path):
    """Yield sds, once with a running server and once without."""
    if request.param == "without a server":
        yield sds
        return
    with serving(sds, tmp_path):
        yield sds


@contextlib.contextmanager
def serving(sds, tmp_path):
    """Run a server on the home of sds."""
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "sds.server.main", "--port", "0"],
            env=sds.environment, stdout=log, stderr=log,
            preexec_fn=as_anyone,  # noqa: PLW1509  (it takes no locks)
        )  # fmt: skip
    try:
        wait_until(
            lambda: server.poll() is not None or server_address(sds.home) is not None,
            "the server's address",
        )
        assert server.poll() is None, (tmp_path / "server.log").read_text()
        yield
    finally:
        server.terminate()
        assert server.wait(PATIENCE_S) == 0, (tmp_path / "server.log").read_text()


def native(program, *arguments):
    """Return what a program prints without SDS."""
    return once(_run_natively, program, *arguments)


def _run_natively(program, *arguments):
    return subprocess.run(
        [sys.executable, str(program), *map(str, arguments)],
        env=plain_environment(), capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    ).stdout  # fmt: skip


def settle(path):
    """Set a file's times back, so that its identity is trusted at once."""
    long_ago_ns = time.time_ns() - 10**10
    os.utime(path, ns=(long_ago_ns, long_ago_ns))
