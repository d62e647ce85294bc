"""What HDF5 does with a program's property lists is what it does natively."""

import subprocess
from pathlib import Path

import pytest

from tests.hdf5_builds import CRATES, hdf5_build
from tests.redirected import reads_by_replica, redirected_cube
from tests.under_connector import connector_environment, native_environment

SOURCE = Path(__file__).with_name("property_lists.c")


def printed(program, written, cube, env):
    done = subprocess.run(
        [program, written, cube], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-2000:]
    return done.stdout


@pytest.mark.parametrize("extra", [{}, {"SDS_TRACE": "0"}], ids=["traced", "untraced"])
@pytest.mark.parametrize("version", CRATES)
def test_lists_and_their_allocators_are_used_as_natively(version, extra, tmp_path, home):
    program = hdf5_build(version).compile(SOURCE, tmp_path / "program")
    cube = redirected_cube(tmp_path, home)
    written = tmp_path / "written.h5"
    native = printed(program, written, cube, native_environment())
    assert native.count("live, then 0\n") > 100
    found = printed(program, written, cube, connector_environment(home.root, **extra))
    assert found == native
    if not extra:
        assert reads_by_replica(home).get(1) == 8  # the planes of the cube
