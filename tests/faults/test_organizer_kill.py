"""Kill -9 during a build: the original is as it was, and nothing half-made is ever published."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from sds.errors import VerificationError
from sds.home import Home
from sds.identity import identity_of
from sds.organizer import plan_reorganization, recover, reorganize, verify_replica
from sds.organizer.journal import journal_directory
from tests.organizer.sources import make_cube

MEMORY = (4 << 20) + (1 << 19)
ORDER = (2, 0, 1)
BUILD = """
import sys
from pathlib import Path
import sds.organizer.transposer
from sds.home import Home
from sds.organizer import plan_reorganization, reorganize

sds.organizer.transposer._CHECKPOINT_S = 0.002  # so that kills fall between checkpoints, too
home = Home(Path(sys.argv[2]))
plan = plan_reorganization(
    sys.argv[1], "/cube", order=(2, 0, 1), home=home, memory_bytes=int(sys.argv[3])
)
print("ready", flush=True)
reorganize(plan, home=home, rebuild=True)
print("done", flush=True)
"""


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    make_cube(path, (64, 128, 256), "<f4")  # 8 MiB: 32 slabs or more
    return path


def start(cube, home):
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(cube), str(home.root), str(MEMORY)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_kill_at_twenty_random_times(cube, tmp_path):
    home = Home(tmp_path / "home")
    before = (sha256(cube), identity_of(cube))
    plan = plan_reorganization(cube, "/cube", order=ORDER, home=home, memory_bytes=MEMORY)
    process = start(cube, home)
    ready = time.monotonic()
    process.communicate()
    build_s = time.monotonic() - ready
    plan.output.unlink()
    rng = np.random.default_rng(20261121)
    outcomes = set()
    for _ in range(20):
        process = start(cube, home)
        time.sleep(rng.uniform(0, build_s))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        half_made = list(home.replicas.rglob("*.partial"))
        outcomes.add((bool(half_made), plan.output.exists()))
        if plan.output.exists():
            report = verify_replica(plan.output)
            assert report.ok, report.problems
            with h5py.File(plan.output) as copy, h5py.File(cube) as original:
                np.testing.assert_array_equal(
                    copy["cube"][...], original["cube"][...].transpose(ORDER)
                )
            if rng.random() < 0.7:
                plan.output.unlink()
        assert sha256(cube) == before[0]
    assert (True, False) in outcomes or (True, True) in outcomes, (outcomes, build_s)
    replica = reorganize(plan, home=home, rebuild=True)
    assert verify_replica(replica.path).ok
    recover(home, keep_s=0)
    assert not list(home.replicas.rglob("*.partial"))
    assert not list(journal_directory(home).iterdir())
    assert identity_of(cube) == before[1]


def interrupted(cube, home, monkeypatch, at=0.5):
    """Interrupt a build as a terminal does, at a share of its copy."""
    monkeypatch.setattr("sds.organizer.transposer._CHECKPOINT_S", 0.0)
    plan = plan_reorganization(cube, "/cube", order=ORDER, home=home, memory_bytes=MEMORY)

    def interrupt(phase, done_bytes, total_bytes):
        if phase == "copy" and done_bytes > at * total_bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reorganize(plan, home=home, progress=interrupt)
    return plan


def test_the_next_build_goes_on_where_the_last_was_interrupted(cube, tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    plan = interrupted(cube, home, monkeypatch)
    assert not plan.output.exists()
    calls = []
    replica = reorganize(plan, home=home, progress=lambda *call: calls.append(call))
    first_done = next(done for phase, done, _ in calls if phase == "copy")
    assert first_done > 0.4 * plan.size_bytes
    assert verify_replica(replica.path).ok
    assert not list(journal_directory(home).iterdir())


def test_recover_leaves_what_can_be_continued_and_removes_the_rest(cube, tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    interrupted(cube, home, monkeypatch)
    assert recover(home) == ()
    os.utime(cube)
    removed = recover(home)
    assert {path.suffix for path in removed} == {".partial", ".json"}
    assert not list(home.replicas.rglob("*.partial"))


def test_recover_removes_what_is_too_old(cube, tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    interrupted(cube, home, monkeypatch)
    assert len(recover(home, keep_s=0)) == 2


def test_a_torn_or_damaged_journal_means_a_new_beginning(cube, tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    for damage in ("torn", "noise", "empty", "foreign"):
        plan = interrupted(cube, home, monkeypatch)
        (journal,) = journal_directory(home).glob("*.json")
        content = journal.read_bytes()
        if damage == "torn":
            journal.write_bytes(content[: len(content) // 2])
        elif damage == "noise":
            journal.write_bytes(b"\xff\x00 not json\n" + content)
        elif damage == "empty":
            journal.write_bytes(b"")
        else:
            line = json.loads(content.splitlines()[0])
            line["staged"] = os.fsencode(cube).hex()
            journal.write_bytes(json.dumps(line).encode() + b"\n")
        replica = reorganize(plan, home=home, rebuild=True)
        assert verify_replica(replica.path).ok
        assert cube.exists()
        replica.path.unlink()


def test_a_staged_file_that_was_replaced_is_not_continued(cube, tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    plan = interrupted(cube, home, monkeypatch)
    (staged,) = home.replicas.rglob("*.partial")
    staged.unlink()
    staged.write_bytes(b"something else")
    assert verify_replica(reorganize(plan, home=home).path).ok


def test_a_staged_file_that_loses_bytes_is_not_published(cube, tmp_path):
    home = Home(tmp_path / "home")
    plan = plan_reorganization(cube, "/cube", order=ORDER, home=home, memory_bytes=MEMORY)

    def cut(phase, *_):
        if phase == "verify":
            for staged in home.replicas.rglob("*.partial"):
                os.truncate(staged, 1 << 20)

    with pytest.raises(VerificationError, match="before its data does"):
        reorganize(plan, home=home, progress=cut)
    assert not plan.output.exists()
    assert not list(home.replicas.rglob("*.partial"))
