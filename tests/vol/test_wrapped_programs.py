"""Programs behind wrappers: those that can be are served, and the others run as without SDS."""

import subprocess
import sys

import pytest

from tests.hdf5_builds import CannotBuildError, hdf5_build, leave_out, mpich_program
from tests.redirected import reads_by_replica, redirected_cube
from tests.under_connector import native_environment

# A line in one piece: mpiexec mixes what ranks write.
READ = """
import os, sys, h5py
with h5py.File(sys.argv[1]) as file:
    line = f"{file['cube'][:, :, 3].sum()}\\n"
os.write(1, line.encode())
"""
COMPILED = """
#include <hdf5.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    double plane[42] = {0};
    hsize_t start[3] = {0, 0, 3}, count[3] = {6, 7, 1}, flat[1] = {42};
    hid_t file = H5Fopen(argv[argc - 1], H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, "/cube", H5P_DEFAULT);
    hid_t selected = H5Dget_space(dataset), memory = H5Screate_simple(1, flat, NULL);
    H5Sselect_hyperslab(selected, H5S_SELECT_SET, start, NULL, count, NULL);
    int failed = H5Dread(dataset, H5T_NATIVE_DOUBLE, memory, selected, H5P_DEFAULT, plane) < 0;
    printf("%g\\n", plane[41]);
    return failed;
}
"""


@pytest.fixture
def cube(tmp_path, home):
    return redirected_cube(tmp_path, home)


@pytest.fixture
def under_sds(tmp_path, home):
    """Run a command natively and by `sds run`, see that both are the same, return the output."""

    def run(*command, options=()):
        env = native_environment(SDS_HOME=home.root, XDG_DATA_HOME=tmp_path / "data")
        sds = [sys.executable, "-m", "sds.cli", "run", *options, "--"]
        native, under = (
            subprocess.run(
                [*map(str, (*before, *command))], env=env, cwd=tmp_path, capture_output=True,
                text=True, check=False, timeout=60,
            )
            for before in ((), sds)
        )  # fmt: skip
        assert (under.returncode, under.stdout, under.stderr) == (
            native.returncode, native.stdout, native.stderr,
        )  # fmt: skip
        assert native.returncode == 0, native.stderr
        return under.stdout

    return run


def test_a_shell_script_with_programs_of_every_kind(under_sds, cube, home, tmp_path):
    """One is served, one has no symbols left; either would crash without its connector."""
    source = tmp_path / "program.c"
    source.write_text(COMPILED)
    build = hdf5_build("2.2.0")
    dynamic = build.compile(source, tmp_path / "dynamic")
    stripped = build.compile(source, tmp_path / "stripped", "-s", static=True, export_dynamic=False)
    script = tmp_path / "script.sh"
    script.write_text(
        f'set -e\n"{dynamic}" "$1"\n"{stripped}" "$1"\n"{sys.executable}" -c "$2" "$1"\n'
    )
    assert under_sds("sh", script, cube, READ).splitlines()[:2] == ["331", "331"]
    assert reads_by_replica(home) == {1: 2}


def test_ranks_under_mpiexec(under_sds, cube, home):
    try:
        mpiexec = mpich_program("mpiexec")
    except CannotBuildError as error:
        leave_out(str(error))
    command = (mpiexec, "-n", "2", sys.executable, "-c", READ, cube)
    assert under_sds(*command).splitlines() == ["7014.0"] * 2
    assert reads_by_replica(home) == {1: 2}
