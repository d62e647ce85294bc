"""A home, a file with a replica, and a library that makes system calls fail."""

import os
import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.home import Home
from tests.redirected import redirect, settle

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
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def cube(tmp_path, home):
    """Return a file whose dataset ``cube`` is served from a replica."""
    path = write_cube(tmp_path / "cube.h5")
    redirect(path, [("/cube", (2, 0, 1))], home)
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
    return pytest.mark.skipif(os.geteuid() != 0, reason=f"left out: only root {what}")
