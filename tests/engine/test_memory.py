"""The memory of a read, by the kernel's count: what its plan says, and no more than the law allows.

The law: with the output the larger of twice what reading run by run takes, and one sieve buffer.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from sds import _native

SIEVE_BYTES = 32 << 20
FILE_BYTES = 80 << 20
BOUND_BYTES = 1 << 20
# Beside buffers: what is in flight, vectors, touched pages of up to 32 stacks; and by how much the
# kernel's count may be wrong.
SMALL_BYTES = (512 << 10) + 4096 * os.cpu_count() * max(32, 2 * os.cpu_count())

# Run bytes, counts, strides.
SHAPES = {
    "small, near": (64, (40000,), (2000,)),
    "small, far": (8, (1000,), (65536,)),
    "long, near": (300000, (200,), (400000,)),
    "planes": (4096, (200, 50), (400000, 6000)),
    "one": (70 << 20, (), ()),
}

# The most that the process has held besides pages of files, above what it held before: its peak is
# set back before each read.
MEASURE = """
    import ctypes, json, os, sys
    import numpy as np
    from sds import _native

    path, shape, ways = sys.argv[1], *map(json.loads, sys.argv[2:4])

    def filter_calls():  # all are allowed; but where there is a filter, no ring is made
        class Filter(ctypes.Structure):
            _fields_ = [("n", ctypes.c_ushort), ("at", ctypes.c_char_p)]

        allow = (6).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little")
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(38, 1, 0, 0, 0) == 0
        assert libc.prctl(22, 2, ctypes.byref(Filter(1, allow))) == 0, ctypes.get_errno()

    def status(*names):
        with open("/proc/self/status") as lines:
            found = dict(line.split(":", 1) for line in lines)
        return [int(found[name].split()[0]) << 10 for name in names]

    def measure(is_cold, options):
        run_bytes, counts, strides = shape
        out = np.ones(run_bytes * int(np.prod(counts)), np.uint8)
        file = _native.ReadFile(path)
        with open(path) as opened:
            if is_cold:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while os.read(opened.fileno(), 1 << 20):
                    pass
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")
        before, file_before = status("VmRSS", "RssFile")
        report = file.read_runs(5, run_bytes, counts, strides, out.data, **options)
        most, file_after = status("VmHWM", "RssFile")
        peak_bytes = most - before - max(0, file_after - file_before)
        return {"peak_bytes": peak_bytes, "out_bytes": out.nbytes, **report}

    if sys.argv[4] == "threads":
        filter_calls()
    for is_cold, options in ways:
        print(json.dumps(measure(is_cold, options)))
"""

NAMED = [{"strategy": name} for name in _native.STRATEGIES]
NAMED += [{"executor": name} for name in _native.EXECUTORS]
BOUND = [options | {"max_memory_bytes": BOUND_BYTES} for options in NAMED]
WAYS = [(is_cold, options) for options in NAMED + BOUND for is_cold in (False, True)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "zeros.bin"
    with path.open("wb") as file:
        for _ in range(FILE_BYTES >> 20):
            file.write(bytes(1 << 20))
        os.fsync(file.fileno())
    return path


def measured(path, shape, ways, queue):
    """Return per way its report, and the most that the process held meanwhile."""
    # malloc asks the kernel for every buffer, and gives it back.
    env = os.environ | {
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "0",
        "MALLOC_ARENA_MAX": "1",
    }
    given = [path, json.dumps(SHAPES[shape]), json.dumps(ways), queue]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), *given],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("queue", ["ring", "threads"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_read_takes_no_more_than_its_plan_says(shape, queue, path):
    for way, found in zip(WAYS, measured(path, shape, WAYS, queue), strict=True):
        peak_bytes = found["peak_bytes"] - SMALL_BYTES
        out_bytes = found["out_bytes"]
        assert peak_bytes <= found["memory_bytes"], (way, found)
        assert out_bytes + peak_bytes <= max(2 * out_bytes, SIEVE_BYTES), (way, found)
        if "max_memory_bytes" in way[1]:
            assert found["memory_bytes"] <= BOUND_BYTES, (way, found)


def test_the_count_sees_buffers(path):
    """The control: conventional sieving takes what its plan says."""
    (found,) = measured(path, "small, far", [(False, {"strategy": "sieve"})], "ring")
    assert found["memory_bytes"] > 16 << 20
    assert found["peak_bytes"] > found["memory_bytes"] - SMALL_BYTES
