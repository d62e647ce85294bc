"""What HDF5 asks for through its sieve buffer: against a count piece by piece, and HDF5 itself."""

import subprocess
import sys

import h5py
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sds import _native
from sds.geometry import (
    LOCAL_DISK_RAID,
    LOCAL_DISK_STRIPES,
    ContiguousLayout,
    Hyperslab,
    block_features,
)
from tests.strategies import axis_slabs

WINDOW, PAGE = 65536, 4096
STORAGE = (1 << 20, 1, 4096, 1, 4096)


def sieved(pieces):
    """Requests, jumps and bytes, as H5Dcontig.c reads pieces (begin, length) in turn."""
    requests = jumps = read = held = 0
    window_end, previous_end = 0, -(1 << 62)
    for begin, length in pieces:
        if length <= WINDOW and held and begin + length <= window_end:
            continue
        requests += 1
        jumps += begin - previous_end > PAGE
        size = max(WINDOW, length)
        read += size
        previous_end = begin + size
        if length <= WINDOW:
            held, window_end = 1, begin + size
    return requests, jumps, read


def pieces_of(case):
    """Pieces of a selection, walked."""
    first, length, counts, strides = _native.runs(*case)
    begins = np.full(1, first, dtype=np.int64)
    for count, stride in zip(counts, strides, strict=True):
        begins = (begins[:, None] + stride * np.arange(count)).ravel()
    return [(int(b), length) for b in begins] if length else []


@st.composite
def wide_cases(draw):
    """Selections whose pieces, holes and rows are of the order of the window."""
    extent = tuple(draw(st.lists(st.integers(1, 24), min_size=1, max_size=4)))
    element = draw(st.sampled_from([1, 8, 512, 1000, 4096, 5000, 16384, 40_000, 65536, 70_000]))
    slabs = [draw(axis_slabs(n)) for n in extent]
    start, stride, count, block = zip(*slabs, strict=True)
    return extent, element, draw(st.integers(0, 100_000)), start, stride, count, block


@given(wide_cases())
def test_requests_are_those_of_a_walk(case):
    found = _native.features(*case, *STORAGE, 0)
    assert found["sieve"] == sieved(pieces_of(case))


@given(wide_cases(), st.integers(1, 2000))
def test_a_small_budget_changes_no_bound(case, budget_ns):
    found = _native.features(*case, *STORAGE, budget_ns)
    requests, jumps, read = found["sieve"]
    pieces = pieces_of(case)
    assert (requests > 0) == bool(pieces)
    assert jumps <= requests <= len(pieces)
    assert read >= 0


def test_a_plane_across_the_grain_is_one_scan():
    features = block_features(
        (65536, 512),
        Hyperslab(start=(0, 7), stride=(1, 1), count=(65536, 1), block=(1, 1)),
        ContiguousLayout(element_size_bytes=8),
        LOCAL_DISK_STRIPES,
        LOCAL_DISK_RAID,
    )
    # 16 rows of 4 KiB in a window.
    assert (features.runs, features.sieve_requests, features.sieve_jumps) == (65536, 4096, 1)
    assert features.sieve_bytes == 65536 * 4096


CALLS = """
import re, sys, h5py, numpy as np
def calls():
    text = open("/proc/self/io").read()
    return int(re.search(r"syscr: (\\d+)", text)[1])
own = -(calls() - calls())
for key in sys.argv[2:]:
    start, stride, count = eval(key)
    with h5py.File(sys.argv[1], "r") as file:
        dataset = file["data"].id
        space = dataset.get_space()
        space.select_hyperslab(start, count, stride, (1, 1))
        out = np.empty(count, np.float32)
        memory = h5py.h5s.create_simple(count)
        before = calls()
        dataset.read(memory, space, out)
        print(calls() - before - own)
"""


def test_hdf5_makes_as_many_requests(tmp_path):
    extent = (1024, 3000)
    path = tmp_path / "plain.h5"
    with h5py.File(path, "w") as file:
        file["data"] = np.zeros(extent, np.float32)
        offset = file["data"].id.get_offset()
    reads = [
        ((0, 5), (1, 1), (1024, 1)),  # a column: 5 rows and a bit in a window
        ((0, 0), (3, 1), (300, 200)),
        ((10, 0), (17, 1), (50, 3)),  # rows apart: more than a window
        ((0, 0), (1, 2), (200, 1500)),  # every other element
        ((5, 0), (1, 1), (200, 3000)),  # one long run
        ((3, 7), (2, 700), (100, 4)),
    ]
    program = [sys.executable, "-c", CALLS, str(path), *map(repr, reads)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    seen = [int(line) for line in done.stdout.split()]
    expected = []
    for start, stride, count in reads:
        slab = Hyperslab(start=start, stride=stride, count=count, block=(1, 1))
        layout = ContiguousLayout(element_size_bytes=4, data_offset_bytes=offset)
        found = block_features(extent, slab, layout, LOCAL_DISK_STRIPES, LOCAL_DISK_RAID)
        expected.append(found.sieve_requests)
    assert seen == expected
