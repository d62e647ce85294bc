"""Threads: of thread-safe builds, of several HDF5 libraries at once, of Python; small stacks."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.redirect.launch.connector import PLUGIN_NAME
from tests.hdf5_builds import hdf5_build
from tests.redirected import reads_by_replica, settle
from tests.robustness.conftest import HERE, compile_c
from tests.under_connector import (
    ROOT,
    connector_environment,
    decisions,
    native_environment,
    run_python,
)
from tests.waiting import PATIENCE_S

VERSIONS = ("1.14.6", "2.0.0")
STACK_BYTES = 8 << 20
SMALL_STACK_BYTES = 32 << 10


def libraries(kind, *versions):
    return [hdf5_build(version, kind).lib / "libhdf5.so" for version in versions]


def build_program(output, *options):
    include = hdf5_build(VERSIONS[0], "threadsafe").include
    return compile_c(HERE / "threads.c", output, f"-I{include}", "-pthread", "-ldl", *options)


def run_threads(
    program, source, *, env, rounds, stack=STACK_BYTES, of=VERSIONS, n=8, kind="threadsafe"
):
    done = subprocess.run(
        [program, source, str(n), str(rounds), str(stack), *libraries(kind, *of)],
        env=env, check=False, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build_program(tmp_path_factory.mktemp("threads") / "threads")


@pytest.mark.parametrize("of", [("1.14.6",), ("2.0.0",), VERSIONS], ids="+".join)
@pytest.mark.parametrize("kind", ["contiguous", "filtered"], indirect=True)
def test_threads_read_while_others_open_and_close(of, program, cube_of_kind, home):
    """Replicas are opened by threads of few of malloc's arenas: there are no more here."""
    env = connector_environment(home.root, MALLOC_ARENA_MAX=2)
    run_threads(program, cube_of_kind, env=env, rounds=100, of=of)
    assert reads_by_replica(home) == {1: 2 * 8 * 100}


@pytest.mark.parametrize("kind", ["filtered"], indirect=True)
def test_threads_of_many_arenas(program, cube_of_kind, home):
    """Those that may not open a replica in chunks read the original, and say why."""
    log = home.root / "log"
    env = connector_environment(home.root, SDS_DEBUG=log, MALLOC_ARENA_MAX=64)
    run_threads(program, cube_of_kind, env=env, rounds=100)
    assert sum(reads_by_replica(home).values()) == 2 * 8 * 100
    assert {reason for event, *_, reason in decisions(log) if event == "original"} <= {
        "other threads use the memory that there is to open replicas in chunks"
    }


@pytest.mark.parametrize("variables", [{}, {"SDS_REDIRECT": "0"}, {"SDS_TRACE": "0"}])
@pytest.mark.parametrize("kind", ["contiguous", "filtered"], indirect=True)
def test_threads_with_small_stacks(variables, program, cube_of_kind, home):
    """What is enough for HDF5 with something to spare is enough."""
    cube = cube_of_kind
    env = connector_environment(home.root, SDS_DEBUG=home.root / "log", **variables)
    run_threads(program, cube, env=native_environment(), rounds=30, stack=SMALL_STACK_BYTES // 2)
    run_threads(program, cube, env=env, rounds=30, stack=SMALL_STACK_BYTES)
    served = reads_by_replica(home)
    assert sum(served.values()) == (0 if "SDS_TRACE" in variables else 2 * 8 * 30)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """Return the folder of a connector, and a program, built with the thread sanitizer."""
    folder = tmp_path_factory.mktemp("sanitized")
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }")
    checked = ["-fsanitize=thread", "-g"]
    built = subprocess.run(
        ["cc", *checked, probe, "-o", folder / "probe"], capture_output=True, check=False
    )
    if built.returncode or subprocess.run([folder / "probe"], check=False).returncode:
        pytest.skip("left out: this compiler and kernel have no thread sanitizer")
    beside = Path(sysconfig.get_path("scripts")) / "cmake"
    cmake = beside if beside.exists() else shutil.which("cmake")
    flags = " ".join(checked)
    for command in (
        [cmake, "-S", ROOT, "-B", folder / "build", "-DSDS_BUILD_PYTHON=OFF",
         "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_CXX_FLAGS={flags}",
         "-DCMAKE_MODULE_LINKER_FLAGS=-fsanitize=thread"],
        [cmake, "--build", folder / "build", "--parallel", str(os.cpu_count() or 1)],
    ):  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "build" / PLUGIN_NAME).exists()
    return folder / "build", build_program(folder / "threads", *checked)


@pytest.mark.parametrize("kind", ["contiguous", "partial"], indirect=True)
def test_the_sanitizer_sees_no_race_between_libraries(sanitized, cube_of_kind, home):
    """Each library locks out its own threads; what two of them share, the connector locks."""
    plugins, threads = sanitized
    env = connector_environment(home.root, SDS_DEBUG=home.root / "log")
    env |= {"SDS_CONNECTOR": str(plugins / PLUGIN_NAME), "TSAN_OPTIONS": "halt_on_error=1"}
    run_threads(threads, cube_of_kind, env=env, rounds=60)
    served = reads_by_replica(home)
    assert sum(served.values()) == 2 * 8 * 60
    assert served[1] > served.get(0, 0)  # two planes of eleven are not in the partial one


def test_the_sanitizer_sees_no_race_between_threads_that_decode(sanitized, tmp_path, home):
    plugins, threads = sanitized
    path = tmp_path / "chunks.h5"
    values = np.arange(9 * 14 * 11, dtype="f8").reshape(9, 14, 11)
    with h5py.File(path, "w") as file:
        file.create_dataset("cube", data=values, chunks=(2, 5, 3), compression="gzip", shuffle=True)
    settle(path)
    env = connector_environment(home.root, SDS_THREADS="4", SDS_ENGINE="always")
    env |= {"SDS_CONNECTOR": str(plugins / PLUGIN_NAME), "TSAN_OPTIONS": "halt_on_error=1"}
    # The others are built without deflate; of these each has one thread.
    run_threads(threads, path, env=env, rounds=60, n=2, kind="serial")
    assert reads_by_replica(home) == {-1: 2 * 2 * 60}


PYTHON = """
    import sys, threading
    from concurrent.futures import ThreadPoolExecutor
    import h5py, netCDF4, numpy as np, tables
    path, small = sys.argv[1], int(sys.argv[2])
    expected = np.arange(9 * 14 * 11, dtype="f8").reshape(9, 14, 11)
    if small:
        threading.stack_size(small)
"""


@pytest.mark.parametrize("small", [0, SMALL_STACK_BYTES])
def test_a_pool_of_python_threads(small, cube, home):
    """As dask reads an array: blocks in any order, through one handle and through many."""
    text = (
        PYTHON
        + """
    shared = h5py.File(path)["cube"]
    blocks = [np.s_[i : i + 3, j : j + 7, k : k + 2]
              for i in range(0, 9, 3) for j in range(0, 14, 7) for k in range(0, 11, 2)]

    def through_one(block):
        return np.array_equal(shared[block], expected[block])

    def through_many(block):
        with h5py.File(path) as file:
            return np.array_equal(file["cube"][block], expected[block])

    with ThreadPoolExecutor(8) as pool:
        for _ in range(6):
            assert all(pool.map(through_one, blocks))
            assert all(pool.map(through_many, blocks))
    """
    )
    run_python(text, cube, small, env=connector_environment(home.root))
    assert reads_by_replica(home) == {1: 12 * 36}


def test_threads_of_three_wheels(cube, home):
    """PyTables' HDF5 is thread-safe; the two others are kept to one thread each by their users."""
    text = (
        PYTHON
        + """
    failed = []

    def by_h5py(k):
        with h5py.File(path) as file:
            return file["cube"][:, :, k]

    def by_tables(k):
        with tables.open_file(path) as file:
            return file.root.cube[:, :, k]

    netcdf = threading.Lock()

    def by_netcdf4(k):
        with netcdf, netCDF4.Dataset(path) as file:
            return file["cube"][:, :, k]

    def read(of, seed):
        random = np.random.default_rng(seed)
        for k in random.integers(0, 11, 120).tolist():
            if not np.array_equal(of(k), expected[:, :, k]):
                failed.append((of, k))

    tables_lock = threading.Lock()   # of PyTables' own registry of open files
    def by_tables_alone(k):
        with tables_lock:
            return by_tables(k)

    threads = [threading.Thread(target=read, args=(of, seed))
               for seed, of in enumerate([by_h5py, by_tables_alone, by_netcdf4] * 3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failed, failed
    """
    )
    run_python(text, cube, 0, env=connector_environment(home.root))
    assert reads_by_replica(home) == {1: 9 * 120}
