"""What holds for every test."""

import json
import os
import signal

# Before netCDF4, beside whose codecs h5py cannot make datasets with hdf5plugin's Blosc.
import hdf5plugin  # noqa: F401
import pytest
from hypothesis import settings

from sds import _native
from sds.home import Home
from sds.identity import FileSystemKind
from tests.system_packages import find_program

# No test asserts how long something takes: machines are shared.
settings.register_profile("sds", deadline=None)
settings.load_profile("sds")


@pytest.fixture(autouse=True, scope="session")
def _own_data_directory(tmp_path_factory):
    """Keep the copy of the connector, and homes that a test does not name, out of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _served_sources(tmp_path_factory):
    """Vouch for the files of tests where the directory of all tests lies in memory."""
    place = tmp_path_factory.getbasetemp()
    descriptor = os.open(place, os.O_RDONLY)
    _, kind, _ = _native.file_system(descriptor)
    os.close(descriptor)
    with pytest.MonkeyPatch.context() as patch:
        if kind == FileSystemKind.MEMORY:
            patch.setenv("SDS_TRUSTED_DIRECTORIES", json.dumps([str(place)]))
        yield


@pytest.fixture(autouse=True, scope="session")
def _heed_interrupts():
    """Undo what a shell does to the jobs that it starts in the background: ignoring Ctrl-C."""
    are_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if are_ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if are_ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.fixture
def home(tmp_path):
    """Make an empty home."""
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture(scope="session")
def tool():
    """Give the function that finds programs of Debian packages."""
    return find_program
