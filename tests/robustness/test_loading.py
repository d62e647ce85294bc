"""The loader's lock and HDF5's: no read waits for a library that another thread loads."""

import subprocess

import pytest

from tests.hdf5_builds import hdf5_build
from tests.redirected import reads_by_replica
from tests.robustness.conftest import HERE, compile_c, values_of
from tests.under_connector import connector_environment, native_environment


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """Build the program and its library, which calls HDF5 when it is loaded."""
    folder = tmp_path_factory.mktemp("loading")
    build = hdf5_build("1.14.6", "threadsafe")
    linked = [f"-I{build.include}", "-rdynamic", "-pthread", "-ldl", f"-L{build.lib}", "-lhdf5"]
    program = compile_c(HERE / "loading.c", folder / "loading", *linked, f"-Wl,-rpath,{build.lib}")
    library = compile_c(
        HERE / "loading.c", folder / "constructor.so", "-DCONSTRUCTOR", "-shared", "-fPIC"
    )
    return lambda source: [program, source, library]


@pytest.mark.parametrize("kind", ["contiguous", "filtered"], indirect=True)
def test_a_first_read_waits_for_no_constructor(command, cube_of_kind, home):
    expected = values_of()[:, :, 0].ravel().tolist()
    for env in (native_environment(), connector_environment(home.root)):
        done = subprocess.run(
            command(cube_of_kind), env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert [float(line) for line in done.stdout.split()] == expected
    assert reads_by_replica(home) == {1: 1}
