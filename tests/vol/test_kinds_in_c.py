"""C programs on replicas in chunks: every version of HDF5, every way to end, nothing printed."""

import dataclasses
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.hdf5.identity import identity_of
from tests.hdf5_builds import hdf5_build
from tests.redirected import publish_candidates, reads_by_replica, settle, write_replica
from tests.under_connector import connector_environment, native_environment

SHAPE = (18, 28, 22)
SOURCE = Path(__file__).with_name("kinds.c")
BUILDS = [("1.14.6", "serial"), ("2.0.0", "serial"), ("2.2.0", "serial")]
THREADED = [("1.14.6", "threadsafe"), ("2.2.0", "threadsafe")]
ENDS = ("close", "left-open", "library-close", "twice")


@pytest.fixture
def cube(tmp_path, home):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.arange(np.prod(SHAPE), dtype=float).reshape(SHAPE)
    settle(path)
    replica = write_replica(
        path, "/cube", (2, 0, 1), home, chunks=(3, 18, 28), compression="gzip", shuffle=True
    )
    publish_candidates(path, {"/cube": [replica]}, home)
    return path


@pytest.fixture
def cubes(tmp_path, home):
    path = tmp_path / "cubes.h5"
    names = [f"/cube{i}" for i in range(6)]
    with h5py.File(path, "w") as file:
        for name in names:
            file[name] = np.arange(np.prod(SHAPE), dtype=float).reshape(SHAPE)
    settle(path)
    candidates = {
        name: [write_replica(path, name, (2, 0, 1), home, number=i + 1, chunks=(3, 18, 28))]
        for i, name in enumerate(names)
    }
    publish_candidates(path, candidates, home)
    return path


@pytest.fixture(scope="module", params=BUILDS, ids="-".join)
def program(request, tmp_path_factory):
    target = tmp_path_factory.mktemp("kinds") / "program"
    return hdf5_build(*request.param).compile(SOURCE, target)


def run(program, *arguments, env):
    return subprocess.run(
        [program, *map(str, arguments)], env=env, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip


def compare(program, *arguments, home):
    """Run a program natively and under the connector; return the reads by replica."""
    native = run(program, *arguments, env=native_environment())
    assert (native.returncode, native.stderr) == (0, "")
    assert "wrong: 0" in native.stdout
    found = run(program, *arguments, env=connector_environment(home.root))
    assert (found.returncode, found.stdout, found.stderr) == (0, native.stdout, "")
    return reads_by_replica(home)


@pytest.mark.parametrize("end", ENDS)
def test_a_program_is_served_and_ends_as_natively(end, program, cube, home):
    served = compare(program, cube, end, home=home)
    assert served == {1: 2 * SHAPE[2] if end == "twice" else SHAPE[2]}


def test_replicas_take_turns_in_being_open(program, cubes, home):
    served = compare(program, cubes, "turns", home=home)
    assert served == dict.fromkeys(range(1, 7), 3)


def test_a_program_does_not_hear_of_damage(program, cube, home):
    # HDF5 prints the errors of a C program that does not forbid it.
    replica = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(1, 18, 28), compression="gzip")
    with h5py.File(replica.path) as file:
        damaged = file["cube"].id.get_chunk_info(5).byte_offset
    with replica.path.open("r+b") as file:
        file.seek(damaged + 3)
        file.write(b"damage")
    replica = dataclasses.replace(replica, identity=identity_of(replica.path))
    publish_candidates(cube, {"/cube": [replica]}, home)
    served = compare(program, cube, "close", home=home)
    assert served == {1: 5, 0: SHAPE[2] - 5}


@pytest.mark.parametrize("build", THREADED, ids="-".join)
def test_threads_of_a_thread_safe_library(build, tmp_path, cube, home):
    program = hdf5_build(*build).compile(SOURCE, tmp_path / "program")
    assert compare(program, cube, "threads", home=home) == {1: SHAPE[2] + 4 * 200}


@pytest.mark.parametrize("build", THREADED, ids="-".join)
def test_threads_have_replicas_take_turns(build, tmp_path, cubes, home):
    program = hdf5_build(*build).compile(SOURCE, tmp_path / "program")
    served = compare(program, cubes, "thread-turns", home=home)
    assert sum(served.values()) == 4 * 200
    assert sum(1 for replica in served if replica > 0) > 3  # more than are open at a time


def test_a_static_program_that_hides_its_symbols(tmp_path, cube, home):
    build = hdf5_build("2.0.0")
    program = build.compile(SOURCE, tmp_path / "program", static=True, export_dynamic=False)
    assert compare(program, cube, "close", home=home) == {1: SHAPE[2]}
