"""Kills and full disks while a table is sorted: nothing half-made is published or left behind."""

import hashlib
import os

import h5py
import numpy as np
import pytest

from sds.errors import InsufficientSpaceError
from sds.hdf5.identity import identity_of
from sds.home import Home
from sds.organizer import plan_sorting, recover, reorganize, verify_replica
from tests.faults.killed_builds import count_steps, kill_at
from tests.organizer.sources import settle

MEMORY = 8 << 20
SORT = """
from pathlib import Path
from sds.home import Home
from sds.organizer import plan_sorting, reorganize

home = Home(Path(sys.argv[3]))
plan = plan_sorting(sys.argv[2], "/p", key="e", home=home, memory_bytes=int(sys.argv[4]))
reorganize(plan, home=home, rebuild=True, progress=progress)
done()
"""


def write_particles(path, n_rows):
    rng = np.random.default_rng(8)
    with h5py.File(path, "w") as handle:
        handle["p/e"] = rng.random(n_rows).astype("<f4")
        handle["p/x"] = rng.random(n_rows).astype("<f8")
    settle(path)


def files_of(home):
    return sorted(path.name for path in home.replicas.rglob("*") if path.is_file())


def test_kill_at_many_random_steps(tmp_path):
    source = tmp_path / "p.h5"
    write_particles(source, 300_000)
    home = Home(tmp_path / "home")
    before = (hashlib.sha256(source.read_bytes()).hexdigest(), identity_of(source))
    plan = plan_sorting(source, "/p", key="e", home=home, memory_bytes=MEMORY)
    assert plan.n_runs > 3
    build = (SORT, str(source), str(home.root), str(MEMORY))
    n_steps = count_steps(*build)
    assert n_steps > 4
    plan.output.unlink()
    rng = np.random.default_rng(3)
    half_made = 0
    for kill in range(10):
        step = 1 + int(rng.integers(n_steps))
        kill_at(step, *build, after_s=None if kill % 2 else rng.uniform(0, 0.05))
        half_made += any(name.endswith(".partial") for name in files_of(home))
        if plan.output.exists():
            assert verify_replica(plan.output).ok
            plan.output.unlink()
        recover(home)
        assert files_of(home) == []
    assert half_made
    replica = reorganize(plan, home=home)
    assert verify_replica(replica.path).ok
    assert (hashlib.sha256(source.read_bytes()).hexdigest(), identity_of(source)) == before


@pytest.mark.parametrize("small_disk", ["8m"], indirect=True)
def test_a_disk_without_room_for_the_runs_is_refused_before_the_work(tmp_path, small_disk):
    write_particles(tmp_path / "p.h5", 300_000)  # 4.8 MB with row numbers
    home = Home(small_disk / "home")
    plan = plan_sorting(tmp_path / "p.h5", "/p", key="e", home=home, memory_bytes=MEMORY)
    with pytest.raises(InsufficientSpaceError, match=f"needs {plan.space_needed_bytes} bytes"):
        reorganize(plan, home=home)
    assert files_of(home) == []
    # In memory, it fits.
    whole = plan_sorting(tmp_path / "p.h5", "/p", key="e", home=home)
    assert verify_replica(reorganize(whole, home=home).path).ok


@pytest.mark.parametrize("small_disk", ["8m"], indirect=True)
def test_a_disk_that_fills_up_during_the_sort_is_explained_and_left_clean(tmp_path, small_disk):
    write_particles(tmp_path / "p.h5", 100_000)
    home = Home(small_disk / "home")
    plan = plan_sorting(tmp_path / "p.h5", "/p", key="e", home=home, memory_bytes=6 << 20)
    assert plan.n_runs > 1
    filled = small_disk / "filled"

    def fill(phase, *_):
        if phase == "copy" and not filled.exists():
            free = os.statvfs(small_disk)
            with filled.open("wb") as stream:
                stream.write(bytes(free.f_bavail * free.f_frsize - 100_000))

    with pytest.raises(InsufficientSpaceError, match="the replica needs"):
        reorganize(plan, home=home, progress=fill)
    assert files_of(home) == []
