"""netCDF4, xarray, h5netcdf, PyTables and h5py read the same through replicas as without."""

import subprocess
import sys

import pytest

from sds.home import Home
from tests import peer_readers
from tests.redirected import reads_by_replica, redirect, settle
from tests.under_connector import connector_environment, native_environment


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    made = peer_readers.make_files(tmp_path_factory.mktemp("files"))
    for path in made:
        settle(path)
    return made


@pytest.fixture(scope="module")
def replicas(files, tmp_path_factory):
    """Return a home with replicas of all the files."""
    home = Home(tmp_path_factory.mktemp("home"))
    home.create()
    for path in files:
        redirect(path, peer_readers.replica_orders(path), home)
    return home


def printed(reader, files, env):
    done = subprocess.run(
        [sys.executable, peer_readers.__file__, reader, *files],
        env=env, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("reader", peer_readers.READERS)
def test_reads_are_the_native_ones(reader, files, replicas):
    readable = [path for path in files if path.suffix in peer_readers.READERS[reader]]
    for spool in replicas.spool.iterdir():
        spool.unlink()
    native = printed(reader, readable, native_environment())
    assert printed(reader, readable, connector_environment(replicas.root)) == native
    served = reads_by_replica(replicas)
    assert sum(n for replica, n in served.items() if replica) > 20, served
