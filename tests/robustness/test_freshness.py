"""Whatever happens to a source, nobody reads what its replica remembers of it."""

import errno
import os
import shutil
import subprocess
import sys
import textwrap
import time

import h5py
import numpy as np
import pytest

from sds.errors import SourceChangedError
from sds.hdf5.identity import SETTLED_S, identity_of, settled_identity
from sds.home import Home
from sds.redirect.tables import table_path
from tests.redirected import (
    publish_candidates,
    reads_by_replica,
    redirect,
    settle,
    write_replica,
)
from tests.robustness.conftest import KINDS, compile_c, values_of, write_cube
from tests.under_connector import connector_environment, decisions, native_environment, run_python
from tests.waiting import PATIENCE_S

READ = """
    import sys, h5py
    try:
        with h5py.File(sys.argv[1]) as file:
            print(file["cube"][:, :, 3].tolist())
    except (OSError, KeyError) as error:
        print(type(error).__name__, getattr(error, "errno", None))
"""


def data_offset(path):
    with h5py.File(path) as file:
        return file["cube"].id.get_offset()


def put(path, value, *, at=3):
    """Change an element of the plane that is read, in place, by plain system calls."""
    offset = data_offset(path) + 8 * at
    with open(path, "r+b") as file:  # noqa: PTH123  (a change of the file's bytes, whatever it is)
        file.seek(offset)
        file.write(np.float64(value).tobytes())


def with_times_of(change):
    """Restore the times of the file after the change; its ctime cannot be."""

    def changed(path):
        before = path.stat()
        change(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return changed


def replace_by_rename(path):
    other = path.with_suffix(".new")
    shutil.copy2(path, other)
    put(other, -1.0)
    settle(other)
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


def replace_by_other_kind(path):
    path.unlink()
    write_cube(path, chunks=(3, 7, 11))
    with h5py.File(path, "r+") as file:
        file["cube"][...] = -values_of()
    settle(path)


def truncate(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 800)


def append(path):
    with path.open("ab") as file:
        file.write(b"more")


def touch(path):
    path.touch()


def change_mode(path):
    path.chmod(0o640)


def add_link(path):
    os.link(path, path.with_suffix(".hard"))


def rename_away_and_back(path):
    path.rename(path.with_suffix(".away"))
    path.with_suffix(".away").rename(path)


CHANGES = {
    "replaced by rename": replace_by_rename,
    "replaced by another layout": replace_by_other_kind,
    "rewritten": lambda path: put(path, -1.0),
    "rewritten, times restored": with_times_of(lambda path: put(path, -1.0)),
    "truncated": truncate,
    "truncated, times restored": with_times_of(truncate),
    "emptied": lambda path: path.write_bytes(b""),
    "appended to": append,
    "appended to, times restored": with_times_of(append),
    "touched": touch,
    "mode changed": change_mode,
    "hard link made": add_link,
    "renamed away and back": rename_away_and_back,
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_before_it_is_opened(change, cube, home, tmp_path):
    CHANGES[change](cube)
    log = tmp_path / "log"
    native = run_python(READ, cube, env=native_environment())
    under = run_python(READ, cube, env=connector_environment(home.root, SDS_DEBUG=log))
    assert (under.stdout, under.stderr) == (native.stdout, native.stderr)
    assert not any(event == "served" for event, *_ in decisions(log))


def test_not_changed(cube, home, tmp_path):
    """The control of the test above: reading, copying and linking to it change nothing."""
    shutil.copy2(cube, tmp_path / "copy.h5")
    (tmp_path / "link.h5").symlink_to(cube)
    cube.read_bytes()
    run_python(READ, cube, env=connector_environment(home.root))
    assert reads_by_replica(home) == {1: 1}


# ---- while it is open


class Reader:
    """A program that has the file open and reads on request."""

    PROGRAM = """
        import signal, sys, h5py
        signal.alarm(300)   # what hangs ends
        file = h5py.File(sys.argv[1], "r", locking=False)
        data = file["cube"]
        print(data[:, :, 3].tolist(), flush=True)
        for line in sys.stdin:
            try:
                print(data[:, :, 3].tolist(), flush=True)
            except OSError as error:
                print("OSError", flush=True)
    """

    def __init__(self, path, env):
        self.running = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(self.PROGRAM), path], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def answer(self):
        return self.running.stdout.readline()

    def ask(self):
        self.running.stdin.write("\n")
        self.running.stdin.flush()
        return self.answer()

    def end(self):
        self.running.stdin.close()
        assert self.running.wait(PATIENCE_S) == 0
        self.running.stdout.close()


def test_changed_while_it_is_open(tmp_path):
    """Seen at the next look, two seconds later at most; all kinds of changes at once."""
    home = Home(tmp_path / "home")
    home.create()
    readers = {}
    for number, name in enumerate(CHANGES):
        path = write_cube(tmp_path / f"{number}.h5")
        redirect(path, [("/cube", (2, 0, 1))], home)
        env = connector_environment(home.root, SDS_DEBUG=tmp_path / f"log{number}")
        readers[name] = path, tmp_path / f"log{number}", Reader(path, env)
    first = {reader.answer() for _, _, reader in readers.values()}
    assert first == {f"{values_of()[:, :, 3].tolist()}\n"}
    for name, (path, _, _) in readers.items():
        CHANGES[name](path)
    time.sleep(2.1)
    changed = values_of()
    changed[0, 0, 3] = -1.0
    for name, (_, log, reader) in readers.items():
        answer = reader.ask()
        expected = changed if name.startswith("rewritten") else values_of()
        # What was cut off is an error or what HDF5 has in memory, as natively.
        assert answer == f"{expected[:, :, 3].tolist()}\n" or "emptied" in name or "trunc" in name
        reader.end()
        reasons = [reason for event, *_, reason in decisions(log) if event == "original"]
        assert reasons == ["the source has changed, was removed or moved, or is being written"], (
            name
        )


def test_what_was_open_stays_what_it_was(cube, home, tmp_path):
    """Removed or replaced, the file that is open is still the old one, natively too."""
    answers = []
    for env in (native_environment(), connector_environment(home.root)):
        path = tmp_path / "again.h5"
        shutil.copy2(cube, path)
        redirect(path, [("/cube", (2, 0, 1))], home)
        reader = Reader(path, env)
        answers.append(reader.answer())
        replace_by_rename(path)
        answers.append(reader.ask())
        path.unlink()
        answers.append(reader.ask())
        time.sleep(2.1)
        answers.append(reader.ask())
        reader.end()
    assert len(set(answers)) == 1


# ---- away from its path while it is open

READS = """
    import ctypes, os, shutil, sys, h5py, numpy as np
    from h5py import h5s, h5t

    path, departure = sys.argv[1:]
    file = h5py.File(path, locking=False)
    cube, other = file["cube"], file["other"]
    with open("/proc/self/maps") as maps:
        hdf5 = ctypes.CDLL(next(line[line.index("/"):].rstrip() for line in maps
                                if "/libhdf5-" in line))

    def box():
        return cube[:, :, 3]

    def strided():
        return other[::2, 1:14:3, 4]

    def union():
        space = cube.id.get_space()
        space.select_hyperslab((0, 0, 1), (9, 14, 1))
        for k in (4, 8):    # at no regular distance
            space.select_hyperslab((0, 0, k), (9, 14, 1), op=h5s.SELECT_OR)
        out = np.zeros(3 * 9 * 14)
        cube.id.read(h5s.create_simple(out.shape), space, out)
        return out

    def several():
        spaces = [data.id.get_space() for data in (cube, other)]
        for space in spaces:
            space.select_hyperslab((0, 0, 6), (9, 14, 1))
        outs = [np.zeros((9, 14, 1)) for _ in spaces]
        memory = h5s.create_simple(outs[0].shape)
        ids = lambda *values: (ctypes.c_int64 * len(values))(*values)
        assert hdf5.H5Dread_multi(
            ctypes.c_size_t(2), ids(cube.id.id, other.id.id), ids(*[h5t.NATIVE_DOUBLE.id] * 2),
            ids(memory.id, memory.id), ids(*[space.id for space in spaces]), ctypes.c_int64(0),
            (ctypes.c_void_p * 2)(*[out.ctypes.data for out in outs])) >= 0
        return np.concatenate(outs)

    def read():
        for way in (box, strided, union, several):
            print(way.__name__, way().ravel().tolist())

    read()
    exec(departure)
    read()
"""
STAYS = ""
DEPARTURES = {
    "removed": "os.remove(path)",
    "replaced by rename": "shutil.copy2(path, path + '.new'); os.replace(path + '.new', path)",
    "replaced by its own copy": "shutil.copy2(path, path + '.new'); os.remove(path);"
    " shutil.copy2(path + '.new', path)",
    "moved away": "os.rename(path, path + '.away')",
    "its folder moved": "os.rename(os.path.dirname(path), os.path.dirname(path) + '.away')",
    "touched": "os.utime(path)",
    "its mode changed": "os.chmod(path, 0o640)",
}


def write_two(path):
    """Write a file of two datasets; there is a hard link to it before anything is made of it."""
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file["cube"] = values_of()
        file["other"] = -values_of()
    os.link(path, path.parent.parent / "hard.h5")
    settle(path)
    return path


def publish_two(path, kind, home):
    candidates = {
        name: [write_replica(path, name, (2, 0, 1), home, number=number, **KINDS[kind])]
        for number, name in enumerate(["/cube", "/other"], start=1)
    }
    publish_candidates(path, candidates, home)


def reads_around(departure, kind, tmp_path, *, by_link=False, extra=None):
    """Read, have the file depart, and read at once: natively, then by replicas.

    Returns how many reads the replicas served, how many the original, and the decisions.
    """
    printed = []
    home = Home(tmp_path / "home")
    home.create()
    environments = (
        native_environment(),
        connector_environment(home.root, SDS_DEBUG=tmp_path / "log", **(extra or {})),
    )
    for number, env in enumerate(environments):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        path = write_two(folder / "data" / "two.h5")
        publish_two(path, kind, home)
        name = path
        if by_link:
            name = folder / "link.h5"
            name.symlink_to(path)
        text = departure.replace("path", "os.path.realpath(path)") if by_link else departure
        printed.append(run_python(READS, name, text, env=env).stdout)
    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) == 8
    counted = reads_by_replica(home)
    served = sum(n for replica, n in counted.items() if replica > 0)
    return served, sum(counted.values()) - served, decisions(tmp_path / "log")


@pytest.mark.parametrize("departure", DEPARTURES)
def test_no_replica_serves_what_has_left_its_path(departure, tmp_path):
    """Not at the next look: at the next read. The other name that it has does not count."""
    served, original, lines = reads_around(DEPARTURES[departure], "contiguous", tmp_path)
    assert (served, original) == (5, 5)
    reasons = {reason for event, *_, reason in lines if event == "original"}
    assert "the source has changed, was removed or moved, or is being written" in reasons


@pytest.mark.parametrize("kind", ["filtered", "partial"])
def test_nor_in_chunks(kind, tmp_path):
    """The union is left to the original: such replicas serve boxes alone."""
    served, original, _ = reads_around(DEPARTURES["removed"], kind, tmp_path)
    assert (served, original) == (4, 6)


def test_nor_where_it_was_opened_by_a_symbolic_link(tmp_path):
    served, original, _ = reads_around(DEPARTURES["removed"], "contiguous", tmp_path, by_link=True)
    assert (served, original) == (5, 5)


def test_what_stays_is_served(tmp_path):
    """The control of the tests above; the reads after nothing has happened."""
    served, original, _ = reads_around(STAYS, "contiguous", tmp_path)
    assert (served, original) == (10, 0)


STATX = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static long n_calls;

int statx(int folder, const char *path, int flags, unsigned mask, struct statx *out)
{
    static int (*real)(int, const char *, int, unsigned, struct statx *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "statx");
    const int is_source = strstr(path, "two.h5") && (flags & AT_STATX_DONT_SYNC);
    n_calls += is_source;
    const char *way = getenv("STATX");
    if (!is_source || !way) return real(folder, path, flags, mask, out);
    if (*way >= '0' && *way <= '9') {
        errno = atoi(way);
        return -1;
    }
    const int result = real(folder, path, flags, mask, out);
    if (strcmp(way, "lazy") == 0) out->stx_size = 0;
    if (strcmp(way, "partly") == 0) out->stx_mask &= ~STATX_MTIME;
    return result;
}

__attribute__((destructor)) static void tell(void)
{
    const char *name = getenv("STATX_CALLS");
    FILE *file = name ? fopen(name, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld\n", n_calls);
    fclose(file);
}
"""


@pytest.fixture(scope="module")
def own_statx(tmp_path_factory):
    folder = tmp_path_factory.mktemp("statx")
    (folder / "statx.c").write_text(STATX)
    return compile_c(folder / "statx.c", folder / "statx.so", "-shared", "-fPIC", "-ldl")


@pytest.mark.parametrize("way", [errno.ENOSYS, errno.EPERM, "lazy", "partly"])
@pytest.mark.parametrize(("departure", "after"), [(STAYS, 5), (DEPARTURES["removed"], 0)])
def test_without_a_quick_look_there_is_a_full_one(departure, after, way, own_statx, tmp_path):
    """Old kernels and some containers refuse it; some file systems answer it inexactly."""
    extra = {"LD_PRELOAD": own_statx, "STATX": way}
    served, original, _ = reads_around(departure, "contiguous", tmp_path, extra=extra)
    assert (served, original) == (5 + after, 5 - after)


def test_only_reads_that_a_replica_serves_look(own_statx, tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    path = write_two(tmp_path / "data" / "two.h5")
    publish_two(path, "contiguous", home)
    text = """
        import sys, h5py
        with h5py.File(sys.argv[1]) as file:
            cube = file["cube"]
            for i in range(9):
                cube[i], cube[i, 2, 3:7]    # of one piece: the original's
            for k in range(int(sys.argv[2])):
                cube[:, :, k]
    """
    for n_served in (0, 7):
        calls = tmp_path / "calls"
        env = connector_environment(home.root, LD_PRELOAD=own_statx, STATX_CALLS=calls)
        run_python(text, path, n_served, env=env)
        assert int(calls.read_text()) == n_served
    assert reads_by_replica(home)[1] == 7


# ---- ways to a file


def test_a_link_that_is_made_to_lead_elsewhere(cube, home, tmp_path):
    """A table is of the file that is opened, not of the name by which it is."""
    other = write_cube(tmp_path / "other.h5")
    with h5py.File(other, "r+") as file:
        file["cube"][...] = -values_of()
    settle(other)
    redirect(other, [("/cube", (1, 0, 2))], home)
    link = tmp_path / "link.h5"
    link.symlink_to(cube)
    text = """
        import os, sys, h5py
        link, cube, other = sys.argv[1:]
        with h5py.File(link) as file:
            print(file["cube"][:, 2, 3].tolist())
            os.remove(link)
            os.symlink(other, link)
            print(file["cube"][:, 2, 3].tolist())
            with h5py.File(link) as again:
                print(again["cube"][:, 2, 3].tolist(), file["cube"][:, 2, 4].tolist())
    """
    arguments = link, cube, other
    native = run_python(text, *arguments, env=native_environment())
    link.unlink()
    link.symlink_to(cube)
    under = run_python(text, *arguments, env=connector_environment(home.root))
    assert under.stdout == native.stdout
    assert reads_by_replica(home) == {1: 4}


def test_a_hard_link_has_no_table_but_its_writers_are_seen(cube, home, tmp_path):
    hard = tmp_path / "hard.h5"
    os.link(cube, hard)  # changes ctime
    redirect(cube, [("/cube", (2, 0, 1))], home)
    text = """
        import sys, h5py, netCDF4, tables
        cube, hard = sys.argv[1:]
        with h5py.File(hard) as file:
            print(file["cube"][0, :, 3][1])
        reader = tables.open_file(cube)
        print(reader.root.cube[:, :, 3][0, 1])
        with h5py.File(hard, "r+", locking=False) as file:
            file["cube"][0, 1, 3] = 77
            reader.root.cube[:, :, 3]       # what HDF5 gives: not from the replica
        print(h5py.File(cube)["cube"][:, :, 3][0, 1])
    """
    env = connector_environment(home.root, HDF5_USE_FILE_LOCKING="FALSE")
    assert run_python(text, cube, hard, env=env).stdout == "14.0\n14.0\n77.0\n"
    assert reads_by_replica(home) == {0: 3, 1: 1}


def test_an_unlinked_file_is_not_redirected(cube, home, tmp_path):
    """Nor is another one redirected in its stead, that takes its name."""
    text = """
        import os, sys, h5py, numpy as np
        path = sys.argv[1]
        descriptor = os.open(path, os.O_RDONLY)
        def read(name):
            try:
                with h5py.File(name) as file:
                    print(file["cube"][:, :, 3][0].tolist())
            except OSError as error:
                print(type(error).__name__, error.errno)
        def write(name, value):
            with h5py.File(name, "w") as file:
                file["cube"] = np.full((9, 14, 11), value)
        way = f"/proc/self/fd/{descriptor}"
        read(way)
        os.unlink(path)
        read(way)
        write(path + " (deleted)", 1.0)    # what the descriptor now seems to lead to
        read(way)
        write(path, 2.0)
        read(way)
        read(path)
    """
    printed = []
    for env in (native_environment(), connector_environment(home.root)):
        path = tmp_path / "again.h5"
        shutil.copy2(cube, path)
        redirect(path, [("/cube", (2, 0, 1))], home)
        printed.append(run_python(text, path, env=env).stdout)
        (tmp_path / "again.h5 (deleted)").unlink()
    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) == 5
    assert reads_by_replica(home)[1] == 1


def test_a_file_that_is_open_for_writing_or_swmr(home, tmp_path):
    path = tmp_path / "latest.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("cube", data=values_of(), chunks=(3, 7, 11), maxshape=(None, 14, 11))
    settle(path)
    redirect(path, [("/cube", (2, 0, 1))], home)
    kept = table_path(home, path).read_bytes()
    text = """
        import sys, time, h5py, numpy as np
        path, table, kept = sys.argv[1:]
        with h5py.File(path, "r", swmr=True) as file:
            assert file["cube"][:, :, 3][0, 0] == 3
        # A writer and a reader of SWMR in one process, and what is appended is seen.
        with h5py.File(path, "r+", libver="latest") as writer:
            writer.swmr_mode = True
            with open(table, "wb") as again:
                again.write(bytes.fromhex(kept))
            with h5py.File(path, "r", swmr=True, libver="latest") as reader:
                writer["cube"].resize((12, 14, 11))
                writer["cube"][9:] = 5
                writer["cube"][0, 0, 3] = 7
                writer["cube"].flush()
                reader["cube"].refresh()
                assert reader["cube"].shape == (12, 14, 11)
                assert reader["cube"][:, :, 3][0, 0] == 7 and reader["cube"][11, 3, 3] == 5
        with h5py.File(path) as file:
            assert file["cube"][:, :, 3][0, 0] == 7
    """
    arguments = path, table_path(home, path), kept.hex()
    run_python(text, *arguments, env=connector_environment(home.root))
    assert set(reads_by_replica(home)) == {0}


# ---- coarse timestamps


@pytest.fixture
def sleeps(monkeypatch):
    """Collect how long this process sleeps each time, in seconds."""
    slept = []

    def sleep(seconds, sleep=time.sleep):
        slept.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    return slept


def test_an_identity_is_taken_only_once_it_is_settled(tmp_path, sleeps):
    """A write within the same tick of the clock would leave the same identity."""
    path = write_cube(tmp_path / "cube.h5")
    path.touch()
    identity = settled_identity(path, trusted=[tmp_path])
    assert time.time() - identity.mtime_ns / 1e9 >= SETTLED_S - 0.1
    assert sum(sleeps) <= SETTLED_S
    assert identity == identity_of(path)
    sleeps.clear()
    assert settled_identity(path, trusted=[tmp_path]) == identity
    assert sleeps == []


def test_a_file_that_is_written_while_this_waits_is_refused(tmp_path, monkeypatch):
    path = write_cube(tmp_path / "cube.h5")
    path.touch()

    def sleep(seconds, sleep=time.sleep):
        append(path)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(SourceChangedError, match=r"cube\.h5"):
        settled_identity(path, trusted=[tmp_path])


def test_the_bound_between_two_looks(cube, home):
    """Another process writes in place: for two seconds at most, the replica may still serve."""
    reader = Reader(cube, connector_environment(home.root))
    assert reader.answer() == f"{values_of()[:, :, 3].tolist()}\n"
    put(cube, -1.0)
    put_s = time.monotonic()
    changed = values_of()
    changed[0, 0, 3] = -1.0
    before, after = (f"{values[:, :, 3].tolist()}\n" for values in (values_of(), changed))
    asked_s = time.monotonic()
    while (answer := reader.ask()) != after:
        assert answer == before
        assert asked_s < put_s + 2.1  # when the read may have begun, whenever its answer came
        time.sleep(0.05)
        asked_s = time.monotonic()
    for _ in range(5):
        assert reader.ask() == after
    reader.end()
