"""Reads from mappings in Python programs: files that shrink, faulthandler, faults of others."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from sds import _native
from sds.errors import TruncatedFileError
from tests.waiting import PATIENCE_S

N_RUNS, STRIDE = 2000, 4096
FILE_BYTES = N_RUNS * STRIDE

# What the programs below have in common: read() reads a column and says how.
COMMON = f"""
import ctypes, faulthandler, mmap, os, signal, sys, threading, time
import numpy as np
from sds import _native
from sds.errors import TruncatedFileError

N_RUNS, STRIDE, FILE_BYTES = {N_RUNS}, {STRIDE}, {FILE_BYTES}
path, may_map = sys.argv[1], sys.argv[2] == "mapped"
content = (np.arange(FILE_BYTES // 8, dtype="<u8") + 1).tobytes()
with open(path, "wb") as file:
    file.write(content)
reader = _native.ReadFile(path, may_map=may_map)
expected = np.frombuffer(content, "<u8").reshape(N_RUNS, -1)[:, 3].copy()

def read():
    out = np.zeros(N_RUNS, "<u8")
    report = reader.read_runs(24, 8, (N_RUNS,), (STRIDE,), out)
    return out, report["executor"]

def check_maps():
    # 50 reads, and more until what was just written is found in memory.
    give_up_s = time.monotonic() + 60
    n = 0
    while n < 50 or (may_map and executor != "mapped"):
        out, executor = read()
        assert np.array_equal(out, expected)
        assert may_map or executor != "mapped"
        assert time.monotonic() < give_up_s, executor
        n += 1

def fault_of_the_program():
    with open(path + ".own", "w+b") as file:
        file.truncate(2 * STRIDE)
        mapped = mmap.mmap(file.fileno(), 2 * STRIDE)
        file.truncate(STRIDE)
    mapped[STRIDE + 100]
"""

ENABLE = {
    "never": ("", ""),
    "before": ("faulthandler.enable()", ""),
    "after": ("", "faulthandler.enable()"),
    "again": ("faulthandler.enable()", "faulthandler.disable(); faulthandler.enable()"),
    "off again": ("faulthandler.enable()", "faulthandler.disable()"),
}


def run_program(text, path, how="mapped"):
    return subprocess.run(
        [sys.executable, "-c", COMMON + text, path, how],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_column_that_is_cached_is_mapped(tmp_path):
    array = np.arange(FILE_BYTES // 8, dtype="<u8").reshape(N_RUNS, -1)
    array.tofile(tmp_path / "a.bin")
    file = _native.ReadFile(tmp_path / "a.bin")
    out = np.empty(N_RUNS, "<u8")
    for _ in range(50):
        report = file.read_runs(24, 8, (N_RUNS,), (STRIDE,), out)
        assert np.array_equal(out, array[:, 3])
    assert report["executor"] == "mapped"
    os.truncate(tmp_path / "a.bin", FILE_BYTES - STRIDE)
    with pytest.raises(TruncatedFileError):
        file.read_runs(24, 8, (N_RUNS,), (STRIDE,), out)


@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_ten_thousand_reads_survive_truncation(when, tmp_path):
    before, after = ENABLE[when]
    text = f"""
{before}
check_maps()
{after}
check_maps()
over = threading.Event()
counts = {{"mapped": 0, "called": 0, "short": 0}}
lock = threading.Lock()

def cut_and_mend():
    generator = np.random.default_rng(1)
    while not over.is_set():
        size = int(generator.integers(0, FILE_BYTES)) * int(generator.integers(0, 2))
        os.truncate(path, size)
        if generator.integers(0, 2):
            os.truncate(path, FILE_BYTES)
        with open(path, "r+b") as file:
            file.seek(max(size, FILE_BYTES - (1 << 20)))
            file.write(content[file.tell():])
        os.truncate(path, FILE_BYTES)
        over.wait(float(generator.uniform(0, 0.002)))

def read_many():
    for _ in range(5000):
        try:
            out, executor = read()
        except TruncatedFileError:
            how = "short"
        else:
            assert ((out == 0) | (out == expected)).all() or looks_torn(out)
            how = "mapped" if executor == "mapped" else "called"
        with lock:
            counts[how] += 1

def looks_torn(out):
    # A size in the middle of a number leaves some of its bytes zero.
    bytes_of, right = out.view("u1"), expected.view("u1")
    return ((bytes_of == 0) | (bytes_of == right)).all()

cutter = threading.Thread(target=cut_and_mend)
readers = [threading.Thread(target=read_many) for _ in range(2)]
for thread in [cutter, *readers]:
    thread.start()
for thread in readers:
    thread.join()
over.set()
cutter.join()
print(counts)
assert sum(counts.values()) == 10000 and counts["mapped"] and counts["short"], counts
with open(path, "r+b") as file:
    file.write(content)
check_maps()
"""
    done = run_program(text, tmp_path / "a.bin")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def comparable(done):
    """Return status and output, addresses and threads' numbers left out."""
    return done.returncode, re.sub(r"0x[0-9a-f]+", "0x", done.stdout + done.stderr)


@pytest.mark.parametrize("when", ENABLE)
def test_faults_of_the_program_end_it_as_ever(when, tmp_path):
    before, after = ENABLE[when]
    text = f"{before}\ncheck_maps()\n{after}\ncheck_maps()\nfault_of_the_program()\n"
    mapped = comparable(run_program(text, tmp_path / "a.bin"))
    assert mapped == comparable(run_program(text, tmp_path / "a.bin", "not"))
    assert mapped[0] == -signal.SIGBUS
    assert mapped[1].count("Fatal Python error: Bus error") == (
        when in ("before", "after", "again")
    )


@pytest.mark.parametrize("when", ENABLE)
def test_faults_between_enabling_and_the_next_read_are_the_program_s(when, tmp_path):
    before, after = ENABLE[when]
    text = f"{before}\ncheck_maps()\n{after}\nfault_of_the_program()\n"
    mapped = comparable(run_program(text, tmp_path / "a.bin"))
    assert mapped == comparable(run_program(text, tmp_path / "a.bin", "not"))


def test_handlers_in_python_are_called(tmp_path):
    text = """
check_maps()
signal.signal(signal.SIGBUS, lambda number, frame: print("caught", number))
os.kill(os.getpid(), signal.SIGBUS)
check_maps()
os.kill(os.getpid(), signal.SIGBUS)
"""
    done = run_program(text, tmp_path / "a.bin")
    assert (done.returncode, done.stdout, done.stderr) == (0, "caught 7\ncaught 7\n", "")


def test_programs_that_ignore_the_signal_go_on_ignoring_it(tmp_path):
    text = """
signal.signal(signal.SIGBUS, signal.SIG_IGN)
out, executor = read()
assert executor != "mapped" and np.array_equal(out, expected)
os.kill(os.getpid(), signal.SIGBUS)
os.execlp("grep", "grep", "SigIgn", "/proc/self/status")
"""
    done = run_program(text, tmp_path / "a.bin")
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout.split()[1], 16) >> (signal.SIGBUS - 1) & 1


def test_children_of_fork_read_on(tmp_path):
    text = """
check_maps()
wait_for, tell = os.pipe()
child = os.fork()
check_maps()
if child == 0:
    os.read(wait_for, 1)   # the parent's reads are of the whole file
    os.truncate(path, 0)
    try:
        read()
    except TruncatedFileError:
        os._exit(0)
    os._exit(1)
os.write(tell, b"x")
assert os.waitpid(child, 0)[1] == 0
"""
    done = run_program(text, tmp_path / "a.bin")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_threads_that_block_the_signal_read_by_calls(tmp_path):
    text = """
check_maps()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGBUS})
out, executor = read()
assert executor != "mapped" and np.array_equal(out, expected)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGBUS})
check_maps()
"""
    done = run_program(text, tmp_path / "a.bin")
    assert (done.returncode, done.stderr) == (0, "")
