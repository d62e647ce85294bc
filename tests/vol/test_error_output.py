"""What HDF5 prints of a failed call is printed once, as without the connector."""

import re
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.home import Home
from tests.hdf5_builds import CRATES, hdf5_build
from tests.redirected import redirect, settle
from tests.under_connector import connector_environment, native_environment

SOURCE = Path(__file__).with_name("failing_calls.c")


@pytest.fixture
def paths(tmp_path):
    source, other = tmp_path / "source.h5", tmp_path / "text"
    with h5py.File(source, "w") as file:
        file["d"] = np.arange(16.0)
        file["d"].attrs["a"] = 1
    other.write_text("no HDF5\n")
    settle(source)
    return source, other


def printed(program, paths, env):
    """Return what the program prints, but for what no two runs have in common.

    Where a file cannot be opened, HDF5 fails in one line of H5VL_file_open under the native
    connector, and in another one under any other.
    """
    done = subprocess.run([program, *paths], env=env, check=True, capture_output=True, text=True)
    assert done.stdout == ""
    return re.sub(r"thread \d+|0x[0-9a-f]+|= \d{6,}|line \d+ in H5VL_file_open", "#", done.stderr)


@pytest.mark.parametrize("version", CRATES)
def test_errors_are_printed_as_natively(version, tmp_path, paths):
    program = hdf5_build(version).compile(SOURCE, tmp_path / "program")
    home = Home(tmp_path / "home")
    home.create()
    redirect(paths[0], [("/d", (0,))], home)
    native = printed(program, paths, native_environment())
    assert native.count("HDF5-DIAG") > 15
    assert printed(program, paths, connector_environment(home.root)) == native
