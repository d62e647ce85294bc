"""Programs fork, exec and die as they please: nothing waits, nothing is torn, none counts twice."""

import fcntl
import json
import multiprocessing
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.trace import read_spool
from tests.hdf5_builds import hdf5_build
from tests.page_cache import drop_from_page_cache
from tests.redirected import (
    go_past_the_page_cache,
    reads_by_replica,
    settle,
)
from tests.robustness.conftest import compile_c
from tests.under_connector import connector_environment, decisions, run_python
from tests.waiting import PATIENCE_S, wait_until

N = 50

PRELUDE = """
    import ctypes, faulthandler, os, signal, subprocess, sys, threading, time
    import h5py, numpy as np
    signal.alarm(300)   # a deadlock ends
    os.register_at_fork(after_in_child=lambda: signal.alarm(300))
    path = sys.argv[1]
    expected = np.arange(9 * 14 * 11, dtype="f8").reshape(9, 14, 11)

    def check(data, n=50):
        for i in range(n):
            assert np.array_equal(data[:, :, i % 11], expected[:, :, i % 11])

    def end(pid):
        return os.waitpid(pid, 0)[1]
"""


def run(text, *arguments, env, **options):
    return run_python(PRELUDE + text, *arguments, env=env, **options)


def traced_reads(home):
    """Return the reads that each process has written, by (pid, start); no block of any is torn."""
    found = {}
    for path in home.spool.iterdir():
        spool = read_spool(path)
        assert spool.torn_bytes == spool.skipped_bytes == spool.dropped_reads == 0
        assert (spool.process.pid, spool.process.start_ns) not in found
        key = spool.process.pid, spool.process.start_ns
        found[key] = int(spool.records.n_reads.sum())
    return found


def reads_by_process(home):
    return sorted(traced_reads(home).values())


ENDS = {
    "sys.exit": "sys.exit()",
    "os._exit": "os._exit(0)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "abort": "os.abort()",
    "fault": "faulthandler.disable(); ctypes.string_at(0)",
    "exec": "os.execv('/bin/true', ['true'])",
}


@pytest.mark.parametrize("opened", ["before the fork", "after the fork"])
@pytest.mark.parametrize("way", ENDS)
def test_a_child_that_ends(way, opened, cube, home):
    """What the parent had not written yet is the parent's alone, however the child ends."""
    text = f"""
    file = h5py.File(path)
    data = file["cube"]
    check(data)
    if (child := os.fork()) == 0:
        if {opened == "before the fork"}:
            check(data)
            file.close()
        else:
            with h5py.File(path) as own:
                check(own["cube"])
        {ENDS[way]}
    end(child)
    check(data)
    """
    run(text, cube, env=connector_environment(home.root))
    # A sixteenth of the child's life has passed since it was written first: not at all.
    assert reads_by_process(home) == [N, 2 * N]
    assert reads_by_replica(home) == {1: 3 * N}


@pytest.mark.parametrize("way", ["os._exit", "SIGKILL"])
def test_a_child_with_an_inherited_file_that_it_never_closes(way, cube, home):
    """It loses the last fifth of its life at most, and what it reads is served."""
    text = f"""
    data = h5py.File(path)["cube"]
    check(data, 3)
    if (child := os.fork()) == 0:
        begun, ends, n_young = time.monotonic(), [], 0
        # A life ends with the beginning of its last read, however long that takes.
        while n_young < 20 or life < 1:
            life = time.monotonic() - begun
            check(data, 1)
            ends.append(time.monotonic() - begun)
            n_young = sum(end <= 0.75 * life for end in ends)
            time.sleep(0.002)
        with open(sys.argv[2], "w") as file:
            file.write(f"{{n_young}} {{len(ends)}}")
        {ENDS[way]}
    end(child)
    """
    count = home.root / "count"
    run(text, cube, count, env=connector_environment(home.root))
    parents, childs = sorted(reads_by_process(home))
    assert parents == 3
    n_young, n = map(int, count.read_text().split())
    assert 20 <= n_young <= childs <= n


def test_children_of_children(cube, home):
    text = """
    data = h5py.File(path)["cube"]
    check(data, 5)
    for depth in range(6):
        if (child := os.fork()) != 0:
            end(child)
            break
        check(data, 10 + depth)
    """
    run(text, cube, env=connector_environment(home.root))
    assert reads_by_process(home) == [5, *range(10, 16)]


def test_forks_while_threads_read_and_write_the_trace(cube, home):
    """Of two HDF5 libraries, so that a fork finds the connector's own locks held by others."""
    text = """
    import tables
    stop = False

    def storm():
        random = np.random.default_rng(1)
        while not stop:
            with tables.open_file(path) as file:
                for i, j, k in random.integers(0, 9, (40, 3)).tolist():
                    file.root.cube[i, j, k]
                    file.root.cube[i, j:, k]

    threads = [threading.Thread(target=storm) for _ in range(3)]
    [thread.start() for thread in threads]
    kept = h5py.File(path)
    try:
        for i in range(120):
            if (child := os.fork()) == 0:
                check(kept["cube"], 2)
                with h5py.File(path) as own:
                    check(own["cube"], 2)
                os._exit(0)
            assert end(child) == 0   # SIGALRM, where the child waits for ever
    finally:
        stop = True
        [thread.join() for thread in threads]
    """
    run(text, cube, env=connector_environment(home.root))
    *children, _ = reads_by_process(home)
    assert children == [4] * 120


# One thread has the connector look up the functions of a library, which a preloaded library makes
# last a second; meanwhile another forks, and its child uses another HDF5.
BINDING = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void *symbol(void *handle, const char *name)
{
    return handle == NULL ? NULL : dlsym(handle, name);
}

static int open_file(const char *library, const char *path)
{
    void *hdf5 = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    int64_t (*open)(const char *, unsigned, int64_t) = symbol(hdf5, "H5Fopen");
    int (*close)(int64_t) = symbol(hdf5, "H5Fclose");
    return open == NULL || close == NULL || close(open(path, 0, 0)) < 0;
}

static char **names;

static void *bind(void *unused)
{
    (void)unused;
    static int failed;
    failed = open_file(names[2], names[1]);
    return &failed;
}

int main(int argc, char **argv)
{
    void (*arm)(const char *, const char *, long, long, int) = dlsym(RTLD_DEFAULT, "fault_arm");
    long (*count)(void) = dlsym(RTLD_DEFAULT, "fault_count");
    pthread_t thread;
    void *failed;
    int status;
    if (argc < 4 || arm == NULL || count == NULL) return 2;
    names = argv;
    alarm(300); /* a deadlock ends */
    arm("dlopen ", "libh5sds_vol", 0, 1, 0);
    pthread_create(&thread, NULL, bind, NULL);
    while (count() == 0)
        usleep(1000);
    const pid_t child = fork();
    if (child == 0) {
        alarm(300);
        _exit(open_file(argv[3], argv[1]));
    }
    waitpid(child, &status, 0);
    pthread_join(thread, &failed);
    printf("%d %d\n", status, *(int *)failed);
    return 0;
}
"""


def test_a_library_is_bound_while_another_thread_forks(cube, home, faults, tmp_path):
    """Looking up its functions holds a lock, of which the child knows nothing."""
    source = tmp_path / "binding.c"
    source.write_text(BINDING)
    program = compile_c(source, tmp_path / "binding", "-pthread", "-ldl")
    libraries = [hdf5_build(version).lib / "libhdf5.so" for version in ("1.14.6", "2.0.0")]
    env = connector_environment(home.root, SDS_DEBUG=tmp_path / "log", **faults)
    done = subprocess.run(
        [program, cube, *libraries], env=env, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("0 0\n", "")
    bound = [reason for event, *_, reason in decisions(tmp_path / "log") if event == "bound"]
    assert sorted(bound) == ["1.14.6", "2.0.0"]


# Threads open and close files by one library, of which so many are open that their list is locked
# most of the time; the children of a fork in the midst of that use another library.
STORM = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct library {
    int64_t (*open)(const char *, unsigned, int64_t);
    int (*close)(int64_t);
} library;

static library first, second;
static const char *path;
static volatile int is_over;

static library load(const char *name)
{
    void *hdf5 = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (hdf5 == NULL) _exit(3);
    return (library){dlsym(hdf5, "H5Fopen"), dlsym(hdf5, "H5Fclose")};
}

static void *storm(void *unused)
{
    while (!is_over)
        first.close(first.open(path, 0, 0));
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    int status = 0;
    if (argc < 4) return 2;
    path = argv[1];
    first = load(argv[2]);
    second = load(argv[3]);
    second.close(second.open(path, 0, 0));
    for (int i = 0; i < 4000; i++)
        first.open(path, 0, 0);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, storm, NULL);
    for (int i = 0; i < 200 && status == 0; i++) {
        usleep(200 + 37 * (i % 10));
        const pid_t child = fork();
        if (child == 0) {
            alarm(300);
            _exit(second.close(second.open(path, 0, 0)) < 0);
        }
        waitpid(child, &status, 0);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    _exit(status != 0);
}
"""


def test_forks_while_the_list_of_open_files_is_locked(cube, home, tmp_path):
    source = tmp_path / "storm.c"
    source.write_text(STORM)
    program = compile_c(source, tmp_path / "storm", "-pthread", "-ldl")
    libraries = [
        hdf5_build(version, "threadsafe").lib / "libhdf5.so" for version in ("1.14.6", "2.0.0")
    ]
    done = subprocess.run(
        [program, cube, *libraries], env=connector_environment(home.root), capture_output=True,
        text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_workers_of_a_pool(method, cube, home, tmp_path):
    """multiprocessing ends its workers by os._exit or SIGTERM.

    They lose at most what they closed in the last sixteenth of their lives.
    """
    program = tmp_path / "pool.py"
    program.write_text(
        textwrap.dedent("""
        import json, multiprocessing, os, sys, time
        import h5py

        def read(k):
            begun = time.monotonic()
            with h5py.File(sys.argv[1]) as file:
                total = sum(float(file["cube"][:, :, k % 11][0, 0]) for _ in range(20))
                closing = time.monotonic()
            return os.getpid(), total, begun, closing, time.monotonic()

        if __name__ == "__main__":
            with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
                done = pool.map(read, range(33), chunksize=1)
            process = multiprocessing.get_context(sys.argv[2]).Process(target=read, args=(3,))
            process.start()
            process.join()
            print(json.dumps([done, process.pid]))
        """)
    )
    done = subprocess.run(
        [sys.executable, program, cube, method], env=connector_environment(home.root),
        capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.stderr == ""
    tasks, joined = json.loads(done.stdout)
    assert sum(total for _, total, *_ in tasks) == 20.0 * 3 * 55
    traced = {pid: n for (pid, _), n in traced_reads(home).items()}
    assert traced.pop(joined) == 20  # it lost nothing
    workers = {pid for pid, *_ in tasks}
    assert traced.keys() == workers
    for worker in workers:
        lives = [times for pid, _, *times in tasks if pid == worker]
        begun = min(first for first, _, _ in lives)
        closing = max(last for _, last, _ in lives)
        n_kept = sum(closed <= closing - (closing - begun) / 16 for _, _, closed in lives)
        assert 20 * max(n_kept, 1) <= traced[worker] <= 20 * len(lives)
    assert set(reads_by_replica(home)) == {1}


def test_other_programs_are_started_while_threads_read(cube, home):
    """subprocess uses vfork, whose child shares the memory of its parent until it execs."""
    text = """
    data = h5py.File(path)["cube"]
    counts = []
    def storm():
        n = 0
        while not stop:
            check(data, 5)
            n += 5
        counts.append(n)
    stop = False
    threads = [threading.Thread(target=storm) for _ in range(2)]
    [thread.start() for thread in threads]
    for _ in range(20):
        subprocess.run(["/bin/true"], check=True)
        pid = os.posix_spawn("/bin/true", ["true"], {})
        assert end(pid) == 0
    stop = True
    [thread.join() for thread in threads]
    print(sum(counts))
    """
    result = run(text, cube, env=connector_environment(home.root))
    assert reads_by_process(home) == [int(result.stdout)]


def test_a_program_that_execs_itself(cube, home):
    """One process, two programs, two traces."""
    text = """
    with h5py.File(path) as file:
        check(file["cube"], 7 if len(sys.argv) == 2 else 9)
    if len(sys.argv) == 2:
        os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[2], path, "again"])
    """
    run(text, cube, env=connector_environment(home.root))
    assert reads_by_process(home) == [7, 9]
    assert len({read_spool(path).process.pid for path in home.spool.iterdir()}) == 1


def test_a_daemon(cube, home, tmp_path):
    text = """
    import fcntl
    alive = open(sys.argv[2], "w")
    fcntl.flock(alive, fcntl.LOCK_EX)    # until the last process has ended
    data = h5py.File(path)["cube"]
    check(data, 4)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            os.umask(0)
            null = os.open(os.devnull, os.O_RDWR)
            for standard in range(3):
                os.dup2(null, standard)
            check(data, 6)
            with h5py.File(path) as again:
                check(again["cube"], 5)
            sys.exit()
        os._exit(0)
    os.wait()
    """
    alive = tmp_path / "alive"
    run(text, cube, alive, env=connector_environment(home.root))
    with alive.open() as file:
        wait_until(lambda: is_free(file), "the daemon ends")
    assert reads_by_process(home) == [4, 11]


def is_free(file):
    """Return whether no other process holds the lock of an open file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize("how", ["exit", "raise", "default"])
def test_a_signal_in_the_middle_of_reading(how, cube, home):
    """Handlers that end the program by exit lose nothing; a signal that kills, the last part."""
    text = (
        PRELUDE
        + """
    def handler(*_):
        sys.exit(5)
    if sys.argv[2] == "exit":
        signal.signal(signal.SIGTERM, handler)
    elif sys.argv[2] == "raise":
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    n = 0
    file = h5py.File(path)
    data = file["cube"]
    try:
        while True:
            if n == 50:
                print("reading", flush=True)
            data[:, :, n % 11]
            n += 1
    finally:
        print(n, flush=True)
    """
    )
    begun_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), cube, how],
        env=connector_environment(home.root), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as running:  # fmt: skip
        assert running.stdout.readline() == "reading\n"
        running.send_signal(signal.SIGTERM)
        output, errors = running.communicate()
        lived_s = time.monotonic() - begun_s
    if how == "default":
        assert (running.returncode, errors) == (-signal.SIGTERM, "")
        # Nothing was closed, and only after five seconds is something written all the same.
        assert reads_by_process(home) == [] or lived_s >= 5
    else:
        assert running.returncode == {"exit": 5, "raise": -signal.SIGINT}[how]
        (traced,) = reads_by_process(home)
        assert 50 <= int(output) <= traced <= int(output) + 1  # the read that the signal ended


# A handler that runs between any two instructions, not only where Python looks for signals: a
# timer interrupts reads all the time, and its handler ends the program, or forks.
INTERRUPTED = r"""
#include <hdf5.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t left;
static const char *how;

static void handle(int number)
{
    (void)number;
    if (left-- > 0) return;
    if (strcmp(how, "exit") == 0) exit(0);
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
    left = 1 << 30;
}

int main(int argc, char **argv)
{
    double value = 0;
    const hsize_t one = 1;
    if (argc < 4) return 2;
    how = argv[2];
    left = atoi(argv[3]);
    signal(SIGALRM, handle);
    const struct itimerval each = {{0, 100}, {0, 100}};
    const hid_t memory = H5Screate_simple(1, &one, NULL);
    setitimer(ITIMER_REAL, &each, NULL);
    for (unsigned n = 0; n < 40000; n++) {
        const hid_t file = n % 100 ? -1 : H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT);
        static hid_t data = -1, space = -1;
        if (file >= 0) {
            if (data >= 0) H5Dclose(data);
            data = H5Dopen2(file, "cube", H5P_DEFAULT);
            space = H5Dget_space(data);
            H5Fclose(file);
        }
        const hsize_t at[3] = {n % 9, n * 7 % 14, n * 3 % 11}, count[3] = {1, 1, 1};
        H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, count, NULL);
        if (H5Dread(data, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, &value) < 0) return 3;
        if (value != (double)((at[0] * 14 + at[1]) * 11 + at[2])) return 4;
    }
    return 0;
}
"""


@pytest.mark.parametrize("how", ["exit", "fork"])
def test_handlers_that_interrupt_the_connector_itself(how, cube, home, tmp_path):
    build = hdf5_build("1.14.6")
    source = tmp_path / "interrupted.c"
    source.write_text(INTERRUPTED)
    program = build.compile(source, tmp_path / "interrupted")
    for left in range(1, 60, 4):
        done = subprocess.run(
            [program, cube, how, str(left)], env=connector_environment(home.root),
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        # HDF5 that is left by exit in the middle of a call may complain or crash natively, too:
        # what the connector owes is that nobody waits for what the interrupted call holds.
        if how == "fork":
            assert (done.returncode, done.stderr) == (0, "")
        else:
            assert done.returncode in (0, -signal.SIGABRT, -signal.SIGSEGV)
    if how == "fork":
        assert sum(reads_by_process(home)) == 15 * 40000


N_GENERATIONS = 6  # more than have room for a page each


def test_what_a_read_has_borrowed_is_no_debt_of_children(home, tmp_path):
    """They have neither the page nor the thread that would give it back."""
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        rows, planes, columns = np.ogrid[:64, : 2 * N_GENERATIONS, :8192]
        file["cube"] = (rows + planes + columns).astype("f8")
    settle(path)
    drop_from_page_cache(path)
    n_borrowed = N_GENERATIONS if go_past_the_page_cache(path, home) else 0
    program = hdf5_build("2.0.0").compile(
        Path(__file__).parent / "forks_in_reads.c", tmp_path / "forks", "-rdynamic"
    )
    environment = connector_environment(home.root)
    ended = subprocess.run(
        [program, path, str(N_GENERATIONS)],
        env=environment, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert int(ended.stdout) == n_borrowed
