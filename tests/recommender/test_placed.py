"""Where reads by several processes lie: all alike, in whatever layout."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.errors import SimulationLimitError
from sds.geometry import ChunkedLayout, ContiguousLayout, Hyperslab
from sds.recommender.placed import PlacedRead
from tests.recommender.drawn_reads import arrays_and_selections, chunked_reads, skips_unevenly


def shapes(read):
    return {(slab.stride, slab.count, slab.block) for slab in read.slabs}


@given(arrays_and_selections(), st.integers(1, 5))
def test_others_read_alike_within_the_array_and_always_there(array, n_processes):
    extent, slab = array
    layout = ContiguousLayout(element_size_bytes=8)
    read = PlacedRead.of(extent, slab, layout, n_processes=n_processes)
    assert len(read.slabs) == n_processes
    assert read.slabs[0] == slab
    assert len(shapes(read)) == 1
    for each in read.slabs:
        each.check_within(extent)
    assert read == PlacedRead.of(extent, slab, layout, n_processes=n_processes)


def test_others_read_elsewhere():
    extent = (64, 64, 64)
    slab = Hyperslab(start=(0, 5, 0), stride=(1, 1, 1), count=(1, 1, 1), block=(64, 1, 64))
    read = PlacedRead.of(extent, slab, ContiguousLayout(element_size_bytes=8), n_processes=4)
    assert len({each.start for each in read.slabs}) > 2


@settings(max_examples=300)
@given(chunked_reads(), st.integers(2, 5))
def test_all_touch_as_many_chunks_near_where_they_read_a_contiguous_array(read, n_processes):
    extent, slab, layout = read
    if skips_unevenly(slab, layout):
        with pytest.raises(SimulationLimitError, match="skips chunks unevenly"):
            PlacedRead.of(extent, slab, layout, n_processes=n_processes)
        return
    chunks = PlacedRead.of(extent, slab, layout, n_processes=n_processes)
    assert chunks.is_chunks
    assert len(shapes(chunks)) == 1
    contiguous = PlacedRead.of(
        extent,
        slab,
        ContiguousLayout(element_size_bytes=4, order=layout.order),
        n_processes=n_processes,
    )
    for of_chunks, of_elements in zip(chunks.slabs, contiguous.slabs, strict=True):
        of_chunks.check_within(chunks.extent)
        first = np.array(of_elements.start) // layout.chunk_shape
        assert (np.abs(first - of_chunks.start) <= 1).all()


def test_others_that_read_whole_chunks_read_whole_chunks_too():
    """Whole chunks: where others began anywhere, they would touch one more along an axis."""
    slab = Hyperslab(start=(0, 0, 0), stride=(1, 1, 1), count=(1, 1, 1), block=(1, 128, 32))
    layout = ChunkedLayout(element_size_bytes=4, chunk_shape=(256, 16, 16))
    read = PlacedRead.of((256, 256, 256), slab, layout, n_processes=4)
    assert [each.shape for each in read.slabs] == [(1, 8, 2)] * 4
    assert len({each.start for each in read.slabs}) > 1


def test_chunks_that_are_skipped_unevenly_are_refused_in_words():
    layout = ChunkedLayout(element_size_bytes=4, chunk_shape=(4,))
    slab = Hyperslab(start=(0,), stride=(10,), count=(20,), block=(1,))
    with pytest.raises(SimulationLimitError, match="skips chunks unevenly"):
        PlacedRead.of((256,), slab, layout)
