"""sds try: the program as always, then what its reads took, and on request what they gain from."""

import os
import signal
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
            [sys.executable, "-P", "-m", "sds.cli", "try", *map(str, words)],
            env=native_environment(SDS_HOME=str(tmp_path / "home"), SDS_ADVICE_MIN_S=0),
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    return run


def test_a_program_is_run_and_its_reads_are_told(sds_try, cube, tmp_path):
    told = sds_try(sys.executable, "-c", PROGRAM, cube, "--yes", "-x")
    assert told.returncode == 3, told.stderr
    assert told.stdout.startswith("program --yes -x ")  # the program's own words
    assert len(told.stdout.splitlines()) == 1
    assert "ended with status 3" in told.stderr
    words = " ".join(told.stderr.split())
    assert "It read 4 MiB of 1 dataset in 1 file, in 16 HDF5 reads" in words
    assert "0 from replicas" in words
    assert "(measured) to" in words
    assert f"sds reorganize {cube}:/cube --order 2,0,1" in words
    # Nobody could answer, so nothing was built.
    assert not list(Home(tmp_path / "home").replicas.rglob("*.h5"))


def test_what_is_advised_is_built_on_request(sds_try, cube):
    first = sds_try("--yes", "--", sys.executable, "-c", PROGRAM, cube)
    assert first.returncode == 3, first.stderr
    assert "active" in first.stderr
    again = sds_try(sys.executable, "-c", PROGRAM, cube)
    assert "16 from replicas" in " ".join(again.stderr.split())
    assert again.stdout == first.stdout


@pytest.mark.parametrize(
    ("command", "status", "how"),
    [
        (["sh", "-c", "exit 5"], 5, "ended with status 5."),
        (["sh", "-c", "kill -9 $$"], 137, "ended with status 137, as by SIGKILL; what it read"),
    ],
)
def test_a_program_without_reads_keeps_its_status(sds_try, command, status, how):
    told = sds_try("--", *command)
    assert told.returncode == status
    words = " ".join(told.stderr.split())
    assert how in words
    assert "No read of it was traced" in words


# As the connector notes an HDF5 that it cannot serve.
NOTE = r"printf '%d\t1\thost\tprogram\t/opt/libhdf5.so\t1.10.8\tHDF5 1.10.8 is older\n' "


def test_an_hdf5_that_cannot_be_served_is_named_by_every_command(sds_try, cube, tmp_path):
    told = sds_try("--", "sh", "-c", f'{NOTE} $(date +%s) >> "$SDS_HOME/spool/untraced.tsv"')
    used = "1 process (program) used /opt/libhdf5.so, and nothing of it was traced: HDF5 1.10.8"
    words = " ".join(told.stderr.split())
    assert used in words
    assert "It may have read no HDF5 file" not in words
    for command in (["status"], ["ingest"], ["report"], ["advise", cube]):
        told = subprocess.run(
            [sys.executable, "-P", "-m", "sds.cli", *map(str, command)],
            env=native_environment(SDS_HOME=str(tmp_path / "home")),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert used in " ".join(told.stderr.split()), command
    # What another program used before is not told of this one.
    again = sds_try("--", "sh", "-c", "true")
    assert "It may have read no HDF5 file" in " ".join(again.stderr.split())


def test_a_program_that_cannot_be_started_gets_no_report(sds_try):
    told = sds_try("no-such-program")
    assert told.returncode == 127
    assert told.stderr == "sds: error: no-such-program: command not found\n"


def test_nothing_is_built_for_a_program_that_was_killed(sds_try, cube, tmp_path):
    program = PROGRAM.replace("sys.exit(3)", "import os, signal; os.kill(os.getpid(), 9)")
    told = sds_try("--yes", "--", sys.executable, "-c", program, cube)
    assert told.returncode == 137
    assert not list(Home(tmp_path / "home").replicas.rglob("*.h5"))


def test_traces_that_are_gone_or_damaged_are_left_out(tmp_path):
    (tmp_path / "damaged.sdst-spool").write_bytes(b"no trace")
    traces = {tmp_path / "gone.sdst-spool", tmp_path / "damaged.sdst-spool"}
    reads = program_reads(traces, since_ns=0)
    assert (reads.n_reads, reads.datasets) == (0, ())


def test_a_file_that_is_gone_changes_no_status(sds_try, cube):
    program = PROGRAM.replace("sys.exit(3)", "import os; os.unlink(sys.argv[1]); sys.exit(0)")
    told = sds_try(sys.executable, "-c", program, cube)
    assert told.returncode == 0, told.stderr
    words = " ".join(told.stderr.split())
    assert "It read 4 MiB" in words
    assert "it is no longer there" in words


def test_modules_of_the_users_directory_are_not_imported(sds_try, tmp_path, monkeypatch):
    (tmp_path / "token.py").write_text("raise SystemExit('not for SDS')")
    monkeypatch.chdir(tmp_path)
    told = sds_try("echo", "hello")
    assert (told.returncode, told.stdout) == (0, "hello\n")


def test_a_program_saves_what_it_has_at_an_interrupt(tmp_path):
    """However long that takes: it is not killed."""
    program = (
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(1)\n"
        "    print('saved', flush=True)\n"
        "    sys.exit(4)\n"
        "signal.signal(signal.SIGINT, save)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    environment = native_environment(SDS_HOME=str(tmp_path / "home"), SDS_ADVICE_MIN_S=0)
    for interrupt in ("group", "SIGTERM"):
        with subprocess.Popen(
            [sys.executable, "-m", "sds.cli", "try", sys.executable, "-c", program],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        ) as trying:  # fmt: skip
            assert trying.stdout.readline() == "ready\n"
            if interrupt == "group":  # as a terminal does
                os.killpg(trying.pid, signal.SIGINT)
            else:
                trying.terminate()
            printed, told = trying.communicate()
        assert printed == "saved\n"
        assert trying.returncode == 4
        assert "ended with status 4" in told
