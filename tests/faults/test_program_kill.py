"""kill -9 of the program, at any moment: files as they were, what it had traced counts once."""

import hashlib
import random
import signal
import subprocess
import sys
import time

import h5py
import numpy as np

from sds.home import Home
from sds.server.operations.service import Service
from sds.trace import read_spool
from tests.redirected import redirect, settle
from tests.under_connector import native_environment, run_python

KILLS = 20

# Reads that the replica serves, reads that it does not, and files opened and closed all the time.
PROGRAM = """
    import hashlib, itertools, sys, h5py
    print("begun", flush=True)
    rounds = itertools.count() if sys.argv[2] == "forever" else range(2)
    for _ in rounds:
        if sys.argv[2] == "forever":
            print("round", flush=True)
        found = hashlib.sha256()
        with h5py.File(sys.argv[1]) as file:
            cube = file["cube"]
            for k in range(0, cube.shape[2], 3):
                found.update(cube[:, :, k].tobytes())
                found.update(cube[k, k % 7, ::2].tobytes())
    print(found.hexdigest())
"""


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def spool_reads(home):
    """Return the reads in all whole blocks of the spool."""
    return sum(
        int(read_spool(path).records.n_reads.sum()) for path in home.spool.glob("*.sdst-spool")
    )


def test_a_program_that_is_killed_twenty_times_leaves_everything_whole(tmp_path):
    rng = random.Random(20261121)  # noqa: S311  (when to kill is no secret)
    source = tmp_path / "cube.h5"
    with h5py.File(source, "w") as file:
        file["cube"] = np.random.default_rng(1).random((32, 24, 32), dtype="f4")
    settle(source)
    home = Home(tmp_path / "home")
    home.create()
    table = redirect(source, [("/cube", (2, 0, 1))], home, always=True)
    replica = table.datasets[0].candidates[0].path
    kept = {path: digest(path) for path in (source, replica, *home.tables.iterdir())}
    native = run_python(PROGRAM, source, "twice", env=native_environment()).stdout
    environment = native_environment(SDS_HOME=home.root)
    command = [sys.executable, "-m", "sds.cli", "run", "--", sys.executable, "-c"]
    code = "\n".join(line[4:] for line in PROGRAM.splitlines())

    counted = 0
    with Service.open(home) as service:
        for _ in range(KILLS):
            with subprocess.Popen(
                [*command, code, source, "forever"], env=environment, stdout=subprocess.PIPE
            ) as running:
                if rng.random() < 0.75:
                    assert running.stdout.readline() == b"begun\n"
                    for _ in range(rng.randrange(20)):
                        assert running.stdout.readline() == b"round\n"
                time.sleep(rng.uniform(0, 0.1))  # the kill comes at a moment like any other
                running.send_signal(signal.SIGKILL)
            assert running.returncode == -signal.SIGKILL
            assert {path: digest(path) for path in kept} == kept
            if rng.random() < 0.5:  # else several killed programs are counted together
                counted += service.ingest().reads
        last = subprocess.run(
            [*command, code, source, "twice"], env=environment, capture_output=True, check=True
        )
        assert last.stdout.decode() == native
        assert last.stderr == b""
        counted += service.ingest().reads
        assert service.ingest().reads == 0
    assert counted == spool_reads(home) > 0
    assert {path: digest(path) for path in kept} == kept
