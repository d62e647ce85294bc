"""Starts MPI programs, and tells what their traces say."""

import os
import signal
import subprocess

import pytest

from sds.trace import read_spool
from tests.hdf5_builds import mpich_program
from tests.under_connector import native_environment
from tests.waiting import PATIENCE_S

# Ranks that wait give their processor to those that work: there may be more of them than that.
YIELDING = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}


def mpiexec(ranks, timeout_s=PATIENCE_S):
    """Run one command per rank, each with its environment, as one MPI program."""
    native = native_environment(**YIELDING)
    command = [mpich_program("mpiexec")]
    for environment, arguments in ranks:
        changes = [f"{name}={value}" for name, value in environment.items() if name not in native]
        command += [":"] * (len(command) > 1) + ["-n", "1", "env", *changes, *arguments]
    running = subprocess.Popen(
        [str(part) for part in command], env=native, cwd="/",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = running.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGTERM)  # mpiexec ends the ranks that it has started
        printed, _ = running.communicate(timeout=timeout_s)
        pytest.fail(f"no end after {timeout_s} s: a deadlock\n{printed}")
    assert running.returncode == 0, printed
    return printed


def served(home, n_ranks):
    """Return the reads of each rank by the replica that served them."""
    found = {}
    for path in home.spool.iterdir():
        spool = read_spool(path)
        assert spool.process.n_ranks == n_ranks
        counts = found.setdefault(spool.process.rank, {})
        for replica, n in zip(spool.records.served_by, spool.records.n_reads, strict=True):
            counts[int(replica)] = counts.get(int(replica), 0) + int(n)
    return found
