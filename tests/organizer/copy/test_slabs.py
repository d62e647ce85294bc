import errno
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.errors import TruncatedFileError
from sds.organizer.copy.slabs import read_slab_directly, slab_runs, write_slab
from sds.organizer.plans.reorganization_plan import Slab


@st.composite
def slabs(draw):
    extent = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    start = tuple(draw(st.integers(0, n - 1)) for n in extent)
    shape = tuple(draw(st.integers(1, n - a)) for n, a in zip(extent, start, strict=True))
    return extent, Slab(start=start, shape=shape)


@given(slabs(), st.sampled_from([1, 3, 8]))
def test_runs_are_the_bytes_of_the_slab_in_its_order(drawn, element):
    extent, slab = drawn
    file = np.arange(np.prod(extent) * element, dtype=np.int64).reshape(*extent, element)
    offsets, length = slab_runs(extent, slab, element)
    found = (offsets[:, None] + np.arange(length)).reshape(-1)
    np.testing.assert_array_equal(found, file[slab.slices].reshape(-1))


@given(slabs())
def test_what_is_written_is_read_again_and_nothing_else_is_touched(tmp_path_factory, drawn):
    extent, slab = drawn
    path = tmp_path_factory.mktemp("slab") / "file"
    expected = np.zeros(extent, np.uint16)
    path.write_bytes(bytes(100) + expected.tobytes())
    elements = np.arange(1, np.prod(slab.shape) + 1, dtype=np.uint16)
    expected[slab.slices] = elements.reshape(slab.shape)
    runs = slab_runs(extent, slab, 2)
    out = np.empty(elements.nbytes, np.uint8)
    with path.open("r+b") as stream:
        write_slab(stream.fileno(), 100, runs, elements.view(np.uint8))
        read_slab_directly(stream.fileno(), 100, runs, out)
    assert path.read_bytes() == bytes(100) + expected.tobytes()
    np.testing.assert_array_equal(out.view(np.uint16), elements)


def test_a_source_that_ends_early_is_an_error(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(bytes(10))
    runs = slab_runs((4, 4), Slab(start=(0, 0), shape=(4, 4)), 1)
    with path.open("rb") as stream, pytest.raises(TruncatedFileError, match="byte 10"):
        read_slab_directly(stream.fileno(), 0, runs, np.empty(16, np.uint8))


def test_a_full_disk_is_told():
    with (
        Path("/dev/full").open("wb", buffering=0) as full,
        pytest.raises(OSError, match="No space left") as caught,
    ):
        write_slab(full.fileno(), 0, (np.array([0, 5]), 2), np.zeros(4, np.uint8))
    assert caught.value.errno == errno.ENOSPC
