"""CMake builds and installs the connector without Python, and HDF5 loads it from there."""

import h5py
import pytest

from tests.under_connector import decisions, native_environment, run_python
from tests.vol.crippled_builds import build_connector, find_cmake, run


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """The directory that the connector is installed into."""
    directory = tmp_path_factory.mktemp("connector")
    run(find_cmake(), "--install", build_connector(tmp_path_factory), "--prefix", directory)
    return directory


def test_libraries_alone_are_installed(prefix):
    files = [path for path in prefix.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"libh5sds_vol.so", "sds_preload.so"}
    assert {path.relative_to(prefix).parts[1] for path in files} == {"sds"}


@pytest.mark.parametrize("way", ["preloaded", "named"])
def test_hdf5_loads_it_from_there(way, prefix, home, tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = range(10)
    (connector,) = prefix.rglob("libh5sds_vol.so")
    variables = {
        "preloaded": {
            "LD_PRELOAD": connector.parents[1] / "preload" / "$PLATFORM" / "sds_preload.so",
            "SDS_CONNECTOR": connector,
        },
        "named": {"HDF5_PLUGIN_PATH": connector.parent, "HDF5_VOL_CONNECTOR": "sds"},
    }[way]
    env = native_environment(SDS_HOME=home.root, SDS_DEBUG=tmp_path / "log", **variables)
    program = "import sys, h5py; print(h5py.File(sys.argv[1])['x'][()].sum())"
    result = run_python(program, tmp_path / "x.h5", env=env)
    assert (result.stdout, result.stderr) == ("45\n", "")
    assert [entry[0] for entry in decisions(tmp_path / "log")][:1] == ["bound"]
