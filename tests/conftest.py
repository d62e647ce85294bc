"""What holds for every test."""

import json
import os
import signal
import sys

# Before netCDF4, beside whose codecs h5py cannot make datasets with hdf5plugin's Blosc.
import hdf5plugin  # noqa: F401
import pytest
from hypothesis import settings

from sds import _native
from sds.cli.command_line import run_command
from sds.hdf5.identity import FileSystemKind
from sds.home import Home
from tests.command_result import Result
from tests.sizes import IS_ALL, repeated
from tests.system_packages import find_program

# The thousands of programs that tests start compile SDS once, whatever the shell has set.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Nor do they multiply matrices: OpenBLAS's threads take a third of the time to import NumPy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No test asserts how long something takes: machines are shared.
settings.register_profile("sds", deadline=None, max_examples=repeated(40, 100))
settings.load_profile("sds")


# Files that take longest, for what they build or start: they begin first, lest one is left alone.
LONGEST_FIRST = (
    "tests/packaging/test_install.py",
    "tests/end_to_end/test_loop.py",
    "tests/vol/test_memory_in_all.py",
    "tests/native/test_under_sanitizers.py",
    "tests/vol/test_crippled.py",
    "tests/robustness/test_threads.py",
    "tests/calibration/test_run.py",
    "tests/faults/test_server_kill.py",
    "tests/faults/test_organizer_kill.py",
    "tests/differential/test_differential.py",
    "tests/robustness/test_fallbacks.py",
    "tests/server/api/test_attacks.py",
    "tests/end_to_end/test_demo.py",
    "tests/end_to_end/test_damage.py",
    "tests/machines/test_fit.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Two workers for each processor, since tests wait for disks and processes; eight at most."""
    return min(2 * len(os.sched_getaffinity(0)), 8)


def pytest_configure(config):
    config.addinivalue_line("markers", "long: held by make test-all alone (tests/README.md)")


def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if item.get_closest_marker("long") and not IS_ALL]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


@pytest.fixture(autouse=True, scope="session")
def _own_data_directory(tmp_path_factory):
    """Keep the copy of the connector, and homes that a test does not name, out of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _served_sources(tmp_path_factory):
    """Vouch for the files of tests where the directory of all tests lies in memory, or on an
    overlay or another file system whose time stamps SDS does not know.
    """
    place = tmp_path_factory.getbasetemp()
    descriptor = os.open(place, os.O_RDONLY)
    _, kind, _ = _native.file_system(descriptor)
    os.close(descriptor)
    with pytest.MonkeyPatch.context() as patch:
        if kind in {FileSystemKind.UNKNOWN, FileSystemKind.MEMORY, FileSystemKind.IMAGE}:
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


# Pytest's own, and what importing netCDF4 and scikit-learn sets.
_SET_BY_OTHERS = ("PYTEST_", "HDF5_PLUGIN_PATH", "KMP_")


@pytest.fixture(autouse=True)
def _environment_is_left_as_it_was():
    """Fail the test that changes the environment, not those that happen to run behind it."""
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    changed = {
        name
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name) and not name.startswith(_SET_BY_OTHERS)
    }
    for name in changed:
        os.environ.pop(name, None)
    os.environ.update({name: before[name] for name in changed & before.keys()})
    assert not changed, "left in the environment of the tests that follow"


@pytest.fixture
def sds(capfd, monkeypatch):
    """Give the function that runs the command line in this process."""

    def run(*words):
        capfd.readouterr()
        with monkeypatch.context() as own:
            own.setenv("HDF5_VOL_CONNECTOR", "")  # a command may set it
            code = run_command([str(word) for word in words])
        return Result(int(code), *capfd.readouterr())

    return run


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
