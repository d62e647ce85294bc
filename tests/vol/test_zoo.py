"""Files that other packages ship read the same through replicas as without: values and errors."""

import h5py
import numpy as np
import pytest

from benchmarks.conformance import zoo
from benchmarks.conformance.outcomes import compare
from sds.home import Home
from tests.redirected import reads_by_replica, settle
from tests.under_connector import connector_environment, native_environment


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return copies of the files in the packages that the tests need anyway."""
    folder = tmp_path_factory.mktemp("zoo") / "installed"
    zoo.keep(folder, ((path.name, path.read_bytes()) for path in zoo.installed_files()))
    return sorted(folder.iterdir())


def test_reads_of_installed_files_are_the_native_ones(files, tmp_path):
    assert len(files) > 40
    home = Home(tmp_path / "home")
    home.create()
    n_replicas = 0
    for path in files:
        n_replicas += zoo.force_replicas(path, home, n_replicas + 1)
    assert n_replicas > 80
    native, n_reads = zoo.read(files, tmp_path, native_environment())
    connected = connector_environment(home.root, SDS_ENGINE="always")
    connector, _ = zoo.read(files, tmp_path, connected)
    assert compare([native], [connector]).new_failures == []
    assert n_reads > 4000
    served = reads_by_replica(home)
    assert sum(n for replica, n in served.items() if replica > 0) > 0.2 * n_reads


def test_the_comparison_sees_one_changed_element(tmp_path):
    runs = []
    for name, changed in (("native", 5), ("connector", 6)):
        folder = tmp_path / name
        folder.mkdir()
        with h5py.File(folder / "a.h5", "w") as file:
            file["d"] = np.arange(50) + (np.arange(50) == 20) * changed
            file["same"] = np.arange(5)
        settle(folder / "a.h5")
        runs.append(zoo.read([folder / "a.h5"], tmp_path, native_environment())[0])
    assert compare([runs[0]], [runs[1]]).new_failures == ["a.h5:/d: another output"]


def test_a_reader_that_ends_early_is_a_new_failure(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["d"] = np.arange(50)
    whole = zoo.read([tmp_path / "a.h5"], tmp_path, native_environment())[0]
    none = zoo.read([], tmp_path, native_environment())[0]
    assert compare([whole], [none]).new_failures


@pytest.mark.parametrize("user_block", [0, 512, 2048])
def test_hdf5_files_are_known_by_their_content(user_block, tmp_path):
    path = tmp_path / "data.bin"
    with h5py.File(path, "w", userblock_size=user_block) as file:
        file["d"] = 1
    assert zoo.is_hdf5(path.read_bytes())
    assert not zoo.is_hdf5(b"CDF\x01" + bytes(5000))
