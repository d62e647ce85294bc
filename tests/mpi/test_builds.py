"""Builds by the ranks of an MPI program: what one process builds, whatever happens to a rank."""

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest

from sds.cli.commands.reorganize import Engine, number_of_ranks
from sds.errors import (
    BuildInterruptedError,
    BusyError,
    ConfigurationError,
    InsufficientSpaceError,
    SdsValueError,
    VerificationError,
)
from sds.geometry import SegmentList
from sds.hdf5.row_numbers import RowNumbers
from sds.home import Home
from sds.organizer import plan_reorganization, plan_sorting, reorganize, verify_replica
from sds.organizer.journal import journal_directory, plan_digest, staged_name
from tests.hdf5_builds import mpich_program
from tests.organizer.sources import gathered, make_cube, settle
from tests.sizes import repeated
from tests.waiting import wait_until

MEMORY = (4 << 20) + (1 << 19)
SHAPE = (64, 128, 256)
CHUNKED = {"chunks": (16, 8, 16), "memory_bytes": 5 << 20}
SEGMENTS = SegmentList(
    tile_shape=(1, 24, 24),  # cut off at the ends of two axes
    tiles=tuple(np.random.default_rng(7).permutation(64 * 6 * 11)[:3000].tolist()),
    lengths=(1000, 2000),
)
every_kind = pytest.mark.parametrize("options", [{}, CHUNKED, {"segments": SEGMENTS}])
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    path = tmp_path_factory.mktemp("cube") / "cube.h5"
    make_cube(path, SHAPE, "<f4")  # 8 MiB: 32 slabs or more
    settle(path)
    return path


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


@pytest.fixture
def ranks(monkeypatch):
    """Have ranks note every batch; return what decides the fate of one."""
    wrapper = [mpich_program("mpiexec"), "-n", "{n}", sys.executable, "-m", "tests.mpi.killed_rank"]
    monkeypatch.setenv("SDS_MPIEXEC", " ".join(map(str, wrapper)))
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    # More ranks than processors: those that wait give way to those that work.
    monkeypatch.setenv("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")
    monkeypatch.delenv("SDS_TEST_RANK", raising=False)
    return lambda rank, steps, deed: monkeypatch.setenv("SDS_TEST_RANK", f"{rank} {steps} {deed}")


def planned(cube, home, *, order=(2, 0, 1), memory_bytes=MEMORY, **options):
    return plan_reorganization(
        cube, "/cube", order=order, home=home, memory_bytes=memory_bytes, **options
    )


def check(plan, home):
    """Compare a published replica with its source; nothing else is left."""
    assert verify_replica(plan.output).ok
    with h5py.File(plan.source_path) as source, h5py.File(plan.output) as copy:
        box = tuple(
            slice(a, a + n) for a, n in zip(plan.region.start, plan.region.extent, strict=True)
        )
        if plan.layout.segments is None:
            wanted = source[plan.dataset_path][box].transpose(plan.order)
        else:
            wanted = gathered(source[plan.dataset_path][...], plan.layout.segments, plan.order)
        assert np.array_equal(copy[plan.dataset_path][...], wanted)
    assert not list(journal_directory(home).iterdir())
    assert not list(home.replicas.rglob("*.partial"))


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("n_ranks", [2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": (2, 1, 0)},
        {"order": (1, 0, 2), "region": "[3:60, 5:, 1:200]"},
        CHUNKED,
        {"chunks": (16, 8, 16), "filters": "shuffle,gzip:1", "memory_bytes": 64 << 20},
        CHUNKED | {"filters": "lzf"},  # which HDF5 applies
        {"segments": SEGMENTS},
    ],
)
def test_what_ranks_build_is_what_one_process_builds(cube, home, n_ranks, options):
    plan = planned(cube, home, **options)
    if "gzip" in options.get("filters", ""):
        assert plan.encode_bytes  # SDS applies them
        plan = dataclasses.replace(plan, slab_shape=(8, 48, 256))
    calls = []
    replica = reorganize(
        plan, home=home, n_ranks=n_ranks, progress=lambda *call: calls.append(call)
    )
    check(plan, home)
    assert replica.path == plan.output
    copied = getattr(plan, "copied_bytes", plan.size_bytes)
    for phase, total in (("copy", copied), ("verify", 2 * plan.size_bytes)):
        done = [n for name, n, of in calls if name == phase and of == total]
        assert done == sorted(done)
        assert done[-1] == total


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("chunked", [{"chunks": True}, {"chunks": True, "compression": "gzip"}])
def test_chunks_of_the_source_are_read_by_every_rank(tmp_path, home, chunked):
    path = tmp_path / "source.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("cube", data=np.random.default_rng(0).random((40, 60, 50)), **chunked)
    settle(path)
    plan = planned(path, home)
    reorganize(plan, home=home, n_ranks=2)
    check(plan, home)


@every_kind
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_the_next_build_goes_on_when_a_rank_was_killed(cube, home, ranks, victim, options):
    random = np.random.default_rng(victim)
    plan = planned(cube, home, **options)
    n_steps = len(plan.steps()) if "segments" in options else plan.n_slabs
    for _ in range(repeated(2, 12)):
        ranks(victim, 1 + random.integers(n_steps // 3), "kill")
        with pytest.raises(BuildInterruptedError, match="goes on from what was noted"):
            reorganize(plan, home=home, n_ranks=3, rebuild=True)
        noted = noted_steps(home, plan)
        ranks(-1, 0, "kill")
        calls = []
        n_ranks = int(random.choice([1, 2, 3]))
        reorganize(
            plan, home=home, n_ranks=n_ranks, rebuild=True,
            progress=lambda *call, calls=calls: calls.append(call),
        )  # fmt: skip
        check(plan, home)
        # What was on disk is not copied again.
        first = min(done for phase, done, _ in calls if phase == "copy")
        assert first >= (noted - 1) * plan.size_bytes // n_steps // 2
        assert noted == 0 or first > 0


def noted_steps(home, plan):
    journal = journal_directory(home) / f"{plan_digest(plan)}.json"
    if not journal.exists():
        return 0
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    return max([line["steps_done"] for line in lines if "steps_done" in line], default=0)


@every_kind
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_fails_in_an_odd_way_ends_all(cube, home, ranks, victim, options):
    """What is no error of the work, as a thread that cannot be started, leaves no rank waiting."""
    plan = planned(cube, home, **options)
    ranks(victim, 2, "odd")
    # What ranks say is forwarded by mpiexec, which does not promise to do so to the end.
    said = "can't start new thread|They said: Traceback"
    with pytest.raises((BuildInterruptedError, RuntimeError), match=said):
        reorganize(plan, home=home, n_ranks=2)
    assert not plan.output.exists()


@pytest.mark.usefixtures("ranks")
def test_ranks_that_never_began_leave_nothing(cube, home, monkeypatch):
    monkeypatch.setenv("SDS_MPIEXEC", "false {n}")
    with pytest.raises(BuildInterruptedError, match="ended with status 1"):
        reorganize(planned(cube, home), home=home, n_ranks=2)
    assert not list(journal_directory(home).iterdir())
    assert not list(home.replicas.rglob("*.partial"))


@every_kind
@pytest.mark.parametrize("victim", [0, 1])
def test_an_error_of_one_rank_is_that_of_the_build(cube, home, ranks, victim, options):
    plan = planned(cube, home, **options)
    ranks(victim, 2, "full")
    with pytest.raises(InsufficientSpaceError, match="free some, or name a file"):
        reorganize(plan, home=home, n_ranks=2)
    assert not list(journal_directory(home).iterdir())
    assert not list(home.replicas.rglob("*.partial"))
    assert not plan.output.exists()


@every_kind
@pytest.mark.parametrize("victim", [0, 1])
def test_what_one_rank_wrote_wrong_is_not_published(cube, home, ranks, victim, options):
    plan = planned(cube, home, **options)
    ranks(victim, 2, "flip")
    with pytest.raises(VerificationError, match="differs from that of"):
        reorganize(plan, home=home, n_ranks=2)
    assert not plan.output.exists()
    assert not list(home.replicas.rglob("*.partial"))


@pytest.mark.usefixtures("ranks")
def test_ranks_end_with_the_process_that_started_them(cube, home):
    plan = planned(cube, home)
    program = (
        "import pickle, sys, time\n"
        "from sds.home import Home\n"
        "from sds.organizer import reorganize\n"
        "plan, home = pickle.load(sys.stdin.buffer)\n"
        "def progress(phase, done, total):\n"
        "    if phase == 'copy' and done > total // 3:\n"
        "        print('copying', flush=True)\n"
        "        time.sleep(300)\n"
        "reorganize(plan, home=home, n_ranks=2, progress=progress)\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as build:
        build.stdin.write(pickle.dumps((plan, home)))
        build.stdin.close()
        assert build.stdout.readline() == b"copying\n"
        started = [child.pid for child in psutil.Process(build.pid).children(recursive=True)]
        assert len(started) >= 3
        build.kill()
    wait_until(lambda: not any(map(is_running, started)), f"the end of {started}")
    reorganize(plan, home=home, n_ranks=2)
    check(plan, home)


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_file_that_ranks_still_write_is_not_continued(cube, home, ranks, monkeypatch):
    plan = planned(cube, home)
    ranks(1, 7, "kill")
    with pytest.raises(BuildInterruptedError):
        reorganize(plan, home=home, n_ranks=2)
    assert noted_steps(home, plan) > 0
    staged = plan.output.parent / staged_name(plan_digest(plan))
    command = ["flock", "--shared", staged, "sh", "-c", "echo locked; exec sleep 1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as holder:
        try:
            assert holder.stdout.readline() == b"locked\n"
            monkeypatch.setattr("sds.organizer.journal._RANKS_END_S", 0.1)
            with pytest.raises(BusyError, match="ranks of an earlier build still write"):
                reorganize(plan, home=home)
            assert staged.exists()
        finally:
            os.killpg(holder.pid, signal.SIGKILL)
    assert noted_steps(home, plan) > 0
    reorganize(plan, home=home)
    check(plan, home)


def test_processes_of_another_mpi_are_refused(cube, home, monkeypatch, tmp_path):
    alone = tmp_path / "mpiexec"
    alone.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    alone.chmod(0o755)
    monkeypatch.setenv("SDS_MPIEXEC", f"{alone} -n {{n}}")
    with pytest.raises(ConfigurationError, match="another MPI than mpi4py"):
        reorganize(planned(cube, home), home=home, n_ranks=2)
    monkeypatch.setenv("SDS_MPIEXEC", f"{tmp_path / 'none'} {{n}}")
    with pytest.raises(ConfigurationError, match="set SDS_MPIEXEC"):
        reorganize(planned(cube, home), home=home, n_ranks=2)
    monkeypatch.setenv("SDS_MPIEXEC", "mpirun")
    with pytest.raises(ConfigurationError, match=r"write \{n\} for the number of ranks"):
        reorganize(planned(cube, home), home=home, n_ranks=2)
    assert not list(journal_directory(home).iterdir())


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "table.h5"
    rng = np.random.default_rng(11)
    energy = rng.exponential(size=60_000).astype("<f4")
    energy[rng.integers(len(energy), size=500)] = np.nan
    with h5py.File(path, "w") as file:
        file["t/energy"] = energy
        file["t/few"] = rng.integers(3, size=len(energy)).astype("<i2")  # ties across all runs
        file["t/risen"] = np.arange(len(energy), dtype="<i8")
        file.create_dataset("t/x", data=rng.random(len(energy)), chunks=(7000,), compression=1)
    settle(path)
    return path


def sorting(table, home, key="energy", **options):
    return plan_sorting(table, "/t", key=key, home=home, memory_bytes=6 << 20, **options)


def check_rows(plan, home):
    """Compare a published replica with a stable sort of its source; nothing else is left."""
    assert verify_replica(plan.output).ok
    key = plan.sort.key
    with h5py.File(plan.source_path) as source, h5py.File(plan.output) as copy:
        columns = {name: source[f"t/{name}"][...] for name in plan.sort.columns}
        order = np.argsort(columns[key], kind="stable")  # NaN last, as they lie in the source
        assert (RowNumbers(copy, plan.n_rows).read(0, plan.n_rows) == order).all()
        for name, values in columns.items():
            assert copy[f"t/{name}"][...].tobytes() == values[order].tobytes()
    assert not list(journal_directory(home).iterdir())
    assert not list(home.replicas.rglob("*.partial"))


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("n_ranks", [2, 3])
@pytest.mark.parametrize("key", ["energy", "few", "risen"])
@pytest.mark.parametrize("n_rows", [60_000, 700, 2])
def test_ranks_sort_as_one_process_does(tmp_path, table, home, *, n_ranks, key, n_rows):
    if n_rows < 60_000:
        few = tmp_path / "few.h5"
        with h5py.File(table) as file, h5py.File(few, "w") as short:
            for name, column in file["t"].items():
                short[f"t/{name}"] = column[:n_rows]
        settle(few)
        table = few
    plan = sorting(table, home, key)
    if n_rows == 700:
        plan = dataclasses.replace(plan, run_rows=60, merge_rows=10)  # several of each rank
    calls = []
    reorganize(plan, home=home, n_ranks=n_ranks, progress=lambda *call: calls.append(call))
    check_rows(plan, home)
    for phase, total in (("copy", plan.size_bytes), ("verify", 2 * plan.size_bytes)):
        done = [n for name, n, of in calls if name == phase and of == total]
        assert done == sorted(done)
        assert done[-1] == total


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize(
    ("deed", "error"),
    [
        ("kill", BuildInterruptedError),
        ("full", InsufficientSpaceError),
        ("flip", VerificationError),
    ],
)
def test_a_sort_of_which_a_rank_fails_leaves_nothing(table, home, ranks, *, victim, deed, error):
    plan = sorting(table, home)
    ranks(victim, 3, deed)
    with pytest.raises(error):
        reorganize(plan, home=home, n_ranks=2)
    assert not plan.output.exists()
    assert not list(journal_directory(home).iterdir())
    assert not list(home.replicas.rglob("*.partial"))
    ranks(-1, 0, "kill")
    reorganize(plan, home=home, n_ranks=2)
    check_rows(plan, home)


def test_sorts_by_ranks_and_by_one_process_exclude_each_other(table, home):
    plan = sorting(table, home)
    alone = dataclasses.replace(plan, run_rows=plan.n_rows, merge_rows=0)
    assert alone.in_runs() != alone
    assert plan_digest(alone.in_runs()) == plan_digest(alone)


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("started", [["--engine", "mpi", "-n", "2"], ["mpiexec"]])
def test_the_command(cube, home, started):
    sds = [sys.executable, "-m", "sds.cli"]
    arguments = ["reorganize", f"{cube}:/cube", "--order", "2,0,1", "--json"]
    command = [*sds, *arguments, *started]
    if started == ["mpiexec"]:
        command = [mpich_program("mpiexec"), "-n", "2", *sds, *arguments, "--engine", "mpi"]
    done = subprocess.run(
        command, check=True, env=os.environ | {"SDS_HOME": str(home.root)}, stdout=subprocess.PIPE
    )
    found = json.loads(done.stdout)  # one of the processes alone prints
    assert found["state"] == "active"
    assert Path(found["path"]).exists()
    check(planned(cube, home, output=None), home)


@pytest.mark.parametrize(
    ("arguments", "environment", "n_ranks"),
    [
        ((Engine.AUTO, None), {}, 1),
        ((Engine.AUTO, 3), {}, 3),
        ((Engine.AUTO, None), {"PMI_RANK": "3", "PMI_SIZE": "4"}, 1),
        ((Engine.MPI, None), {"PMI_RANK": "0", "PMI_SIZE": "4"}, 4),
        ((Engine.MPI, None), {"PMI_RANK": "3", "PMI_SIZE": "4"}, 0),
        ((Engine.MPI, 2), {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, 2),
        ((Engine.MPI, None), {"SLURM_NTASKS": "7"}, 7),
        ((Engine.MPI, None), {}, len(os.sched_getaffinity(0))),
        ((Engine.SERIAL, None), {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, 1),
        ((Engine.SERIAL, 1), {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}, 1),
    ],
)
def test_the_number_of_ranks(monkeypatch, arguments, environment, n_ranks):
    for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert number_of_ranks(*arguments) == n_ranks


def test_one_process_has_one_rank():
    with pytest.raises(SdsValueError, match="--engine serial is one process; leave --ranks 3 out"):
        number_of_ranks(Engine.SERIAL, 3)
