"""sds try: the program as always, then what its reads took, and on request what they gain from."""

import subprocess
import sys

import h5py
import numpy as np
import pytest

from sds.cli.commands.try_program import program_reads
from sds.home import Home
from tests.organizer.sources import settle
from tests.under_connector import native_environment

PROGRAM = """
import sys
import h5py
with h5py.File(sys.argv[1]) as file:
    for i in range(0, 64, 4):
        total = file["cube"][:, :, i].sum()
print("program", *sys.argv[2:], total)
sys.exit(3)
"""


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.random.default_rng(0).random((256, 256, 64)).astype("f4")
    settle(path)
    return path


@pytest.fixture
def sds_try(tmp_path):
    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "sds.cli", "try", *map(str, words)],
            env=native_environment(SDS_HOME=str(tmp_path / "home")),
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    return run


def test_a_program_is_run_and_its_reads_are_told(sds_try, cube, tmp_path):
    told = sds_try(sys.executable, "-c", PROGRAM, cube, "--yes", "-x")
    assert told.returncode == 3, told.stderr
    assert told.stdout.startswith("program --yes -x ")  # the program's own words
    assert "ended with status 3" in told.stdout
    words = " ".join(told.stdout.split())
    assert "It read 4 MiB of 1 dataset in 1 file, in 16 HDF5 reads" in words
    assert "0 from replicas" in words
    assert "Measured, the reads of a day took" in words
    assert f"sds reorganize {cube}:/cube --order 2,0,1" in words
    # Nobody could answer, so nothing was built.
    assert not list(Home(tmp_path / "home").replicas.rglob("*.h5"))


def test_what_is_advised_is_built_on_request(sds_try, cube):
    first = sds_try("--yes", "--", sys.executable, "-c", PROGRAM, cube)
    assert first.returncode == 3, first.stderr
    assert "every byte verified" in first.stdout or "active" in first.stdout
    again = sds_try(sys.executable, "-c", PROGRAM, cube)
    assert "16 from replicas" in " ".join(again.stdout.split())
    assert again.stdout.splitlines()[0] == first.stdout.splitlines()[0]  # the same sum


@pytest.mark.parametrize(
    ("command", "status"),
    [(["sh", "-c", "exit 5"], 5), (["sh", "-c", "kill -9 $$"], 137), (["no-such-program"], 127)],
)
def test_a_program_without_reads_keeps_its_status(sds_try, command, status):
    told = sds_try("--", *command)
    assert told.returncode == status
    assert f"ended with status {status}" in told.stdout
    assert "No read of it was traced" in told.stdout


def test_traces_that_are_gone_or_damaged_are_left_out(tmp_path):
    (tmp_path / "damaged.sdst-spool").write_bytes(b"no trace")
    reads = program_reads({tmp_path / "gone.sdst-spool", tmp_path / "damaged.sdst-spool"})
    assert (reads.n_reads, reads.datasets) == (0, ())
