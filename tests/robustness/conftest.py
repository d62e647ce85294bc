"""A home, a file with a replica, and a library that makes system calls fail."""

import os
import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.geometry import Box
from tests.accounts import NOBODY, may_become
from tests.redirected import publish_candidates, redirect, settle, write_replica
from tests.robustness.file_systems import Mounts

HERE = Path(__file__).parent
SHAPE = (9, 14, 11)


def values_of(shape=SHAPE):
    return np.arange(np.prod(shape), dtype="f8").reshape(shape)


def write_cube(path, **creation):
    with h5py.File(path, "w") as file:
        file.create_dataset("cube", data=values_of(), **creation)
    settle(path)
    return path


@pytest.fixture
def cube(tmp_path, home):
    """Return a file whose dataset ``cube`` is served from a replica."""
    path = write_cube(tmp_path / "cube.h5")
    redirect(path, [("/cube", (2, 0, 1))], home)
    return path


KINDS = {
    "contiguous": {},
    "filtered": {"chunks": (4, 3, 5), "compression": "gzip", "shuffle": True},
    "partial": {"region": Box(start=(0, 0, 0), extent=(9, 14, 9)), "chunks": (4, 3, 5)},
}


def redirect_to(kind, source, home):
    """Serve the cube from a replica of this kind."""
    candidate = write_replica(source, "/cube", (2, 0, 1), home, **KINDS[kind])
    return publish_candidates(source, {"/cube": [candidate]}, home)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def cube_of_kind(kind, tmp_path, home):
    """Return a file whose dataset ``cube`` is served from a replica of each kind in turn.

    A partial one holds all but the last planes.
    """
    path = write_cube(tmp_path / "cube.h5")
    redirect_to(kind, path, home)
    return path


def compile_c(source, output, *options):
    compiler = shutil.which("cc")
    assert compiler, "no C compiler (cc) on PATH"
    built = subprocess.run(
        [compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", source, "-o", output,
         *options],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return output


@pytest.fixture(scope="session")
def faults(tmp_path_factory):
    """Return the variables that preload the library that makes calls fail."""
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    compile_c(HERE / "faults.c", library, "-shared", "-fPIC", "-ldl")
    return {"LD_PRELOAD": library}


def needs_root(what):
    return pytest.mark.skipif(
        not may_become(NOBODY), reason=f"left out: only root, where there are others, {what}"
    )


@pytest.fixture
def mounts(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("left out: only root mounts")
    found = Mounts(tmp_path)
    yield found
    found.close()
