"""Programs do as they please with their own process, and find nothing of SDS in the way."""

import h5py
import numpy as np
import pytest

from tests.redirected import reads_by_replica, redirect, settle
from tests.under_connector import connector_environment, native_environment, run_python

N_READS = 3000  # of scattered elements: more than one block of the trace

SCATTERED_READS = f"""
    import itertools, os, resource, signal, sys, threading, time
    import h5py, numpy as np
    random = np.random.default_rng(5)

    def read(data, n={N_READS}):
        for at in zip(*(random.integers(0, length, n).tolist() for length in data.shape)):
            data[at]
"""


def program(text):
    return SCATTERED_READS + text


@pytest.fixture
def cube(tmp_path, home):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.arange(9 * 14 * 11, dtype="f8").reshape(9, 14, 11)
    settle(path)
    redirect(path, [("/cube", (2, 0, 1))], home)
    return path


def test_a_program_that_closes_all_descriptors(cube, home, tmp_path):
    """What daemons do. The numbers then mean the program's files, which nobody else may touch."""
    text = program("""
    with h5py.File(sys.argv[1]) as file:
        plane = file["cube"][:, :, 3]
        read(file["cube"])
    # HDF5's own descriptors are not to be closed while it uses them.
    data = h5py.File(sys.argv[1], driver="core", backing_store=False)["cube"]
    other = h5py.File(sys.argv[1])
    used = set(map(int, os.listdir("/proc/self/fd")))
    read(other["cube"])
    assert np.array_equal(other["cube"][:, :, 3], plane)
    for number in map(int, os.listdir("/proc/self/fd")):
        if "/home/" in os.path.realpath(f"/proc/self/fd/{number}"):
            os.close(number)
    mine = []
    for i in range(20):
        fd = os.open(f"{sys.argv[2]}/mine{i}", os.O_RDWR | os.O_CREAT)
        os.write(fd, b"mine")
        mine.append(fd)
    read(other["cube"], 9000)
    assert np.array_equal(other["cube"][:, :, 3], plane)
    # Files that are closed write the trace, once a second at most.
    spool = os.path.join(os.environ["SDS_HOME"], "spool")
    size = lambda: sum(entry.stat().st_size for entry in os.scandir(spool))
    before = size()
    while size() == before:
        h5py.File(sys.argv[1]).close()
        time.sleep(0.01)
    other.close()
    with h5py.File(sys.argv[1]) as file:
        assert np.array_equal(file["cube"][:, :, 3], plane)
    for fd in mine:
        assert os.fstat(fd).st_size == 4 and os.pread(fd, 9, 0) == b"mine"
    """)
    run_python(text, cube, tmp_path, env=connector_environment(home.root))
    served = reads_by_replica(home)
    assert served[1] >= 4
    assert sum(served.values()) >= 2 * N_READS + 9000


def test_no_descriptor_is_kept_for_the_trace(cube, home):
    text = program("""
    before = sorted(os.listdir("/proc/self/fd"))
    with h5py.File(sys.argv[1]) as file:
        read(file["cube"])
    assert sorted(os.listdir("/proc/self/fd")) == before
    """)
    env = connector_environment(home.root, SDS_REDIRECT=0)
    run_python(text, cube, env=env)
    assert reads_by_replica(home) == {0: N_READS}


def test_standard_streams_that_are_closed(cube, home):
    """Nothing of SDS takes their numbers, which the program may still write to."""
    text = program("""
    os.close(0), os.close(1)
    with h5py.File(sys.argv[1], driver="core", backing_store=False) as file:
        pass
    source = h5py.File(sys.argv[1])   # takes 0, as natively
    source["cube"][:, :, 3]
    read(source["cube"])
    assert "cube.h5" in os.path.realpath("/proc/self/fd/0")
    assert not os.path.exists("/proc/self/fd/1")
    """)
    run_python(text, cube, env=connector_environment(home.root))
    assert reads_by_replica(home)[1] >= 1


def test_a_limit_of_the_size_of_files_ends_no_program(cube, home, tmp_path):
    """A write past it raises SIGXFSZ, whose default is to end the program."""
    text = program("""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    with h5py.File(sys.argv[1]) as file:
        file["cube"][:, :, 3]
        read(file["cube"], 20000)
    print("alive")
    """)
    for limit in (0, 100, 5000):
        log = tmp_path / f"log{limit}"
        env = connector_environment(home.root, SDS_DEBUG=log)
        assert run_python(text, cube, limit, env=env).stdout == "alive\n"
        assert log.stat().st_size <= max(limit, 200)  # what was logged before the limit
    assert all(path.stat().st_size <= 5000 for path in home.spool.iterdir())


def test_many_open_files_need_no_more_descriptors(home, tmp_path):
    """A program that opens as many files as it may natively, may so with a replica for each."""
    paths = [tmp_path / f"{i}.h5" for i in range(40)]
    for i, path in enumerate(paths):
        with h5py.File(path, "w") as file:
            file["cube"] = np.arange(60.0).reshape(3, 4, 5) + i
        settle(path)
        redirect(path, [("/cube", (2, 0, 1))], home)
    text = """
    import resource, sys, h5py
    files = [h5py.File(sys.argv[1])]
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    for path in sys.argv[2:]:
        files.append(h5py.File(path))
        files[-1]["cube"][:, :, 1]
    print([float(file["cube"][:, :, 2].sum()) for file in files])
    """
    native = run_python(text, *paths, env=native_environment())
    under = run_python(text, *paths, env=connector_environment(home.root))
    assert (under.stdout, under.stderr) == (native.stdout, native.stderr)
    assert reads_by_replica(home) == {1: 79}


def test_a_home_named_from_where_the_program_began(cube, home):
    text = program("""
    with h5py.File(sys.argv[1]) as file:
        os.chdir("/")
        file["cube"][:, :, 3]
    with h5py.File(sys.argv[1]) as file:
        file["cube"][:, :, 4]
    """)
    env = connector_environment(home.root) | {"SDS_HOME": "home"}
    run_python(text, cube, env=env, cwd=home.root.parent)
    assert reads_by_replica(home) == {1: 2}
