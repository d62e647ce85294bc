"""A path may lead to another file at any moment: what HDF5 has opened is what counts.

Two files differ in all their values, of which each has its number, and in the shape of one dataset.
Both have replicas. A symbolic link, to a file or to a folder, is switched between them by rename.
HDF5 looks at links to files itself: where one was switched during its open, the open may fail.
"""

import dataclasses
import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.redirect.tables import table_path
from sds.trace import read_spool
from tests.hdf5_builds import program
from tests.queries.test_query import sort_and_publish
from tests.redirected import reads_by_replica, redirect, settle
from tests.under_connector import connector_environment, native_environment, run_python
from tests.waiting import wait_until

SHAPE = (6, 7, 8)
N_OPENS = 2000

# Prints which file each part of what was read is of. Opens it so often, and until each of as many
# files as the last argument says was there.
READER = """
    import itertools, sys
    import h5py

    n_opens, n_files, numbers = int(sys.argv[2]), int(sys.argv[3]), set()
    for n in itertools.count(1):
        if n > n_opens and len(numbers) >= n_files:
            break
        try:
            file = h5py.File(sys.argv[1], "r")
        except OSError as error:
            assert "fields changed" in str(error)
            continue
        with file:
            number = file.attrs["number"]
            numbers.add(int(number))
            print(number, file["cube"][:, :, 3].max(), file["rows"][::2].min(),
                  file["series"].shape[0], file["series"][...].max())
"""
READS_WITH_SDS = """
    import sys
    import sds, sds.errors

    for _ in range(int(sys.argv[2])):
        try:
            plane = sds.read(sys.argv[1], "cube", (slice(None), slice(None), 3))
            series = sds.read(sys.argv[1], "series")
            rows = sds.read(sys.argv[1], "rows", (slice(None, None, 2),))
        except sds.errors.SdsError as error:
            assert "fields changed" in str(error)
            continue
        assert plane.min() == plane.max() and rows.min() == rows.max()
        print(len(series), series.max())
"""
SWITCHER = """
    import itertools, os, sys

    link, *targets = sys.argv[1:]
    for target in itertools.cycle(targets):
        os.symlink(target, link + ".made")
        os.rename(link + ".made", link)
"""


def write(path, number):
    with h5py.File(path, "w") as file:
        file.attrs["number"] = number
        file["cube"] = np.full(SHAPE, float(number))
        file["rows"] = np.full((200, 4096), float(number))  # the engine may read its columns
        file["series"] = np.full(number, number)
    settle(path)
    return path


@dataclasses.dataclass(frozen=True)
class Switched:
    """A link, the name by which a file is opened through it, and what it may lead to."""

    link: Path
    name: Path
    targets: tuple[Path, Path]
    files: tuple[Path, Path]

    def lead_to(self, number):
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(self.targets[number - 1])


@pytest.fixture(params=["file", "folder"])
def switched(request, tmp_path, home):
    """Return a link to files 1 and 2, or to their folders; it leads to the first."""
    folders = [tmp_path / str(number) for number in (1, 2)]
    for folder in folders:
        folder.mkdir()
    files = tuple(write(folder / "x.h5", n) for n, folder in enumerate(folders, start=1))
    for file in files:
        redirect(file, [("/cube", (2, 0, 1))], home)
    link = tmp_path / "link"
    is_file = request.param == "file"
    made = Switched(
        link=link,
        name=link if is_file else link / "x.h5",
        targets=files if is_file else tuple(folders),
        files=files,
    )
    made.lead_to(1)
    return made


@pytest.fixture(scope="module")
def switching(tmp_path_factory):
    """Return the library to preload."""
    library = tmp_path_factory.mktemp("switching") / "switched_link.so"
    source = Path(__file__).with_name("switched_link.c")
    subprocess.run(
        [program("cc"), "-shared", "-fPIC", "-O1", "-Wall", "-Werror", source, "-o", library,
         "-ldl"], check=True,
    )  # fmt: skip
    return library


def variables(switching, switched, when, n=1_000_000):
    return {
        "LD_PRELOAD": switching, "SWITCHED": when, "SWITCHED_OPENS": n,
        "SWITCHED_NAME": switched.name, "SWITCHED_LINK": switched.link,
        "SWITCHED_TO": switched.targets[1], "SWITCHED_BACK": switched.targets[0],
    }  # fmt: skip


def check_traces(home, files):
    """Assert that each dataset in a trace is of the file that it names."""
    described = [one for path in home.spool.iterdir() for one in read_spool(path).datasets]
    assert described
    for one in described:
        number = 1 + [str(file) for file in files].index(one.file)
        assert one.identity[0] == files[number - 1].stat().st_ino
        if one.path == "/series":
            assert one.extent == (number,)


def line_of(number):
    return f"{number} {number}.0 {number}.0 {number} {number}"


@pytest.mark.parametrize("engine", ["faster", "always"])
@pytest.mark.parametrize("when", ["around", "before", "after"])
def test_all_of_a_file_is_of_the_one_that_was_opened(when, engine, switched, switching, home):
    extra = variables(switching, switched, when)
    env = connector_environment(home.root, SDS_ENGINE=engine, **extra)
    found = run_python(READER, switched.name, 3, 0, env=env).stdout.splitlines()
    switched.lead_to(1)
    native = run_python(READER, switched.name, 3, 0, env=native_environment(**extra))
    assert found == native.stdout.splitlines()
    assert set(found) <= {line_of(1), line_of(2)}
    if found:
        assert line_of(2) in found
        check_traces(home, switched.files)
    else:
        assert when != "before"  # HDF5 has seen that the link was switched
        assert switched.name == switched.link


def test_replicas_serve_behind_a_link_that_stays(switched, home):
    env = connector_environment(home.root)
    found = run_python(READER, switched.name, 3, 0, env=env).stdout.splitlines()
    assert found == [line_of(1)] * 3
    assert reads_by_replica(home)[1] == 3
    check_traces(home, switched.files)


def test_replicas_serve_after_a_link_was_switched(switched, home):
    """Where a folder leads is remembered: the first file afterwards may be read from itself."""
    reader = """
    import os, sys, h5py
    name, link, *targets = sys.argv[1:]
    for n in (1, 2, 1):
        os.unlink(link)
        os.symlink(targets[n - 1], link)
        for _ in range(3):
            with h5py.File(name, "r") as file:
                assert file.attrs["number"] == n
                assert file["cube"][:, :, 3].min() == file["cube"][:, :, 3].max() == n
    """
    run_python(
        reader, switched.name, switched.link, *switched.targets,
        env=connector_environment(home.root),
    )  # fmt: skip
    assert reads_by_replica(home)[1] >= 3 * 3 * 2 - 2 * 2
    check_traces(home, switched.files)


def test_a_link_that_is_switched_all_the_time(switched, home):
    """Natively no open mixes the files; where the names of both are looked up apart, 1 in 50."""
    switcher = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SWITCHER), switched.link, *switched.targets]
    )
    try:
        env = connector_environment(home.root)
        wait_until(lambda: switched.link.readlink() == switched.targets[1], "the link is switched")
        found = run_python(READER, switched.name, N_OPENS, 2, env=env).stdout.splitlines()
        read = run_python(READS_WITH_SDS, switched.name, N_OPENS // 10, env=env).stdout
    finally:
        switcher.kill()
        switcher.wait()
    assert set(found) == {line_of(1), line_of(2)}
    assert set(read.splitlines()) <= {"1 1", "2 2"}
    check_traces(home, switched.files)


@pytest.mark.parametrize("n", [1, 2, 1_000_000])
@pytest.mark.parametrize("when", ["around", "before", "after"])
def test_sds_read_describes_and_reads_one_file(when, n, switched, switching, home):
    extra = variables(switching, switched, when, n)
    env = native_environment(SDS_HOME=home.root, **extra)
    read = run_python(READS_WITH_SDS, switched.name, 3, env=env).stdout
    assert set(read.splitlines()) <= {"1 1", "2 2"}


@pytest.mark.parametrize("switched", ["folder"], indirect=True)
@pytest.mark.parametrize("strategy", ["auto", "sorted"])
@pytest.mark.parametrize("when", ["around", "before", "after"])
def test_sds_query_answers_from_the_file_that_was_opened(when, strategy, switched, switching, home):
    for number, file in enumerate(switched.files, start=1):
        with h5py.File(file, "r+") as written:
            rows = np.zeros(100, dtype=[("key", "f8"), ("number", "i4")])
            rows["key"], rows["number"] = np.arange(100.0), number
            written["table"] = rows
        settle(file)
        sort_and_publish(home, file)
    reader = """
    import sys, sds, sds.errors
    try:
        found = sds.query(sys.argv[1], "key > 7", table="table", strategy=sys.argv[2])
        print(set(found["number"].tolist()))
    except sds.errors.UnsupportedError:
        print("no sorted replica")
    """
    env = native_environment(SDS_HOME=home.root, **variables(switching, switched, when, 1))
    found = run_python(reader, switched.name, strategy, env=env).stdout.strip()
    # Where the path leads to another file than the one that is open, its replica is not asked.
    expected = {"around": "{2}", "before": "{2}", "after": "{1}"}[when]
    is_left = strategy == "sorted" and when != "before"
    assert found == ("no sorted replica" if is_left else expected)


@pytest.mark.parametrize(
    ("switched", "when"),
    [("file", "before"), ("folder", "around"), ("folder", "before")],
    indirect=["switched"],
)
def test_the_table_of_the_file_that_is_written_is_removed(when, switched, switching, home):
    tables = [table_path(home, path) for path in switched.files]
    env = connector_environment(home.root, **variables(switching, switched, when))
    writer = """
    import sys, h5py
    with h5py.File(sys.argv[1], "r+") as file:
        print(file.attrs["number"])
        file["series"][0] = 7
    """
    assert run_python(writer, switched.name, env=env).stdout == "2\n"
    assert [table.exists() for table in tables] == [True, False]
