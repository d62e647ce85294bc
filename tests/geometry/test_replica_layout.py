import math

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.errors import LayoutError, SelectionError, UnsupportedError
from sds.geometry import Box
from sds.geometry.replica_layout import (
    MAX_CHUNK_BYTES,
    Filter,
    ReplicaLayout,
    automatic_chunk_shape,
    check_chunk_shape,
    choose_chunk_shape,
    parse_region,
)
from sds.organizer.plans.slab_shapes import _chunk_reads, shape_between_grids
from tests.sizes import repeated

GZIP = (Filter(code=1, name="gzip", options=(4,)),)


@given(
    extent=st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    element=st.sampled_from([1, 2, 3, 8, 24, 4096, 2 << 20]),
)
@settings(max_examples=repeated(130, 2000))
def test_automatic_chunks_follow_the_order_and_are_about_a_mebibyte(extent, element):
    shape = automatic_chunk_shape(extent, element)
    n_bytes = math.prod(shape) * element
    assert n_bytes <= max(MAX_CHUNK_BYTES, element)
    # One axis is cut at most; those before it have length 1, those behind it are whole.
    cut = [axis for axis, (c, n) in enumerate(zip(shape, extent, strict=True)) if c < n]
    if cut:
        assert all(c == 1 for c in shape[: cut[-1]])
        last = cut[-1]
        larger = list(shape)
        larger[last] = min(extent[last], 2 * shape[last] + 1)
        assert math.prod(larger) * element > MAX_CHUNK_BYTES or last == 0 or shape[last] == 1
        assert shape[last] * -(-extent[last] // shape[last]) - extent[last] < shape[last]


@pytest.mark.parametrize(
    ("chunks", "extent", "message"),
    [
        ((64, 64), (100, 100, 100), r"'64,64' have 2 axes, the replica has 3"),
        ((0, 1), (10, 10), r"length 0 on replica axis 0, which has 10 elements: give 1 to 10"),
        ((1, -3), (10, 10), r"length -3 on replica axis 1"),
        ((1, 11), (10, 10), r"length 11 on replica axis 1, which has 10 elements"),
        (
            (1 << 15, 1 << 14),
            (1 << 20, 1 << 20),
            r"4294967296 bytes each, .* of at most 1048576, .* make them smaller, such as 1,131072",
        ),
        ((1, 131073), (1 << 20, 1 << 20), r"hold 1048584 bytes each"),
        ((1, 1), (1 << 13, 1 << 12), r"would be 33554432 in number"),
    ],
)
def test_chunks_that_do_not_fit_are_refused_with_the_value(chunks, extent, message):
    with pytest.raises(LayoutError, match=message):
        check_chunk_shape(chunks, extent, 8)


@pytest.mark.parametrize("chunks", [(10, 10), (1, 1), (7, 10)])
def test_hdf5_accepts_what_passes(chunks, tmp_path):
    assert check_chunk_shape(chunks, (10, 10), 8) == chunks
    with h5py.File(tmp_path / "a.h5", "w") as handle:
        handle.create_dataset("d", (10, 10), "f8", chunks=chunks)


@pytest.mark.parametrize("extent", [(1 << 20, 1 << 18), (1 << 41,), (1 << 10, 10, 1 << 26)])
def test_automatic_chunks_of_enormous_datasets_stay_small(extent):
    shape = choose_chunk_shape("auto", (), extent, 8)
    assert 1 << 19 <= 8 * math.prod(shape) <= MAX_CHUNK_BYTES


def test_datasets_of_too_many_small_chunks_are_refused_with_what_to_do():
    with pytest.raises(LayoutError, match=r"33554432 in number.*region, or build a contiguous"):
        choose_chunk_shape("auto", (), (1 << 42,), 8)


def test_what_is_not_said_about_chunks():
    extent = (40, 50)
    assert choose_chunk_shape(None, (), extent, 8) is None
    assert choose_chunk_shape("contiguous", (), extent, 8) is None
    assert choose_chunk_shape(None, GZIP, extent, 8) == (40, 50)
    assert choose_chunk_shape("auto", (), extent, 8) == (40, 50)
    with pytest.raises(LayoutError, match=r"filters \(gzip\) work on chunks"):
        choose_chunk_shape("contiguous", GZIP, extent, 8)
    with pytest.raises(LayoutError, match="'often'"):
        choose_chunk_shape("often", (), extent, 8)
    assert choose_chunk_shape("auto", (), extent, 1 << 20) == (1, 1)
    with pytest.raises(UnsupportedError, match=r"one element of 1048577 bytes.*contiguous replica"):
        choose_chunk_shape("auto", (), extent, (1 << 20) + 1)


@given(data=st.data())
@settings(max_examples=repeated(60, 1000))
def test_a_region_is_what_numpy_would_take(data):
    extent = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    bound = st.one_of(st.none(), st.integers(-10, 10))
    parts = [slice(data.draw(bound), data.draw(bound)) for _ in extent]
    text = ", ".join(
        ":".join("" if end is None else str(end) for end in (part.start, part.stop))
        for part in parts
    )
    elements = np.arange(math.prod(extent)).reshape(extent)[tuple(parts)]
    if elements.size == 0:
        with pytest.raises(SelectionError, match="empty"):
            parse_region(text, extent)
        return
    region = parse_region(text, extent)
    assert region.extent == elements.shape
    assert elements.flat[0] == np.ravel_multi_index(region.start, extent)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[::2, :]", "axis 0 has step 2"),
        ("[3:3, :]", "no index of axis 0, which has 0 to 9"),
        ("[12, :]", "out of range"),
        ("[:, :, :]", "3 axes selected"),
        ("what?", "what"),
    ],
)
def test_regions_that_are_no_boxes_are_refused(text, message):
    with pytest.raises(SelectionError, match=message):
        parse_region(text, (10, 10))


def test_a_step_over_a_single_index_is_a_box():
    assert parse_region("[3:4:7, ::9]", (10, 8)) == Box(start=(3, 0), extent=(1, 1))


@given(data=st.data())
@settings(max_examples=repeated(60, 1000))
def test_chunks_in_source_axes_are_the_chunks(data):
    rank = data.draw(st.integers(1, 5))
    order = tuple(data.draw(st.permutations(range(rank))))
    chunk = tuple(data.draw(st.integers(1, 9)) for _ in range(rank))
    layout = ReplicaLayout(
        order=order, chunk_shape=chunk, filters=(), region=Box.whole((9,) * rank)
    )
    source = layout.chunk_in_source_axes
    assert tuple(source[axis] for axis in order) == chunk
    assert layout.n_chunks == math.prod(-(-9 // c) for c in chunk)


def counted_reads(start, extent, length, chunk):
    """Return how often a chunk is read on one axis, slab by slab."""
    reads = 0
    for first in range(start, start + extent, length):
        last = min(first + length, start + extent) - 1
        reads += last // chunk - first // chunk + 1
    return reads


@given(
    start=st.integers(0, 40),
    length=st.integers(1, 30),
    chunk=st.integers(1, 30),
    periods=st.integers(1, 4),
)
@settings(max_examples=repeated(130, 2000))
def test_reads_of_chunks_are_counted_exactly_over_whole_periods(start, length, chunk, periods):
    extent = math.lcm(length, chunk) * periods
    expected = counted_reads(start, extent, length, chunk)
    assert _chunk_reads(start, extent, length, chunk) == pytest.approx(expected)


@given(data=st.data())
@settings(max_examples=repeated(40, 500))
def test_slabs_between_two_grids_never_read_more_than_single_chunks_do(data):
    rank = data.draw(st.integers(1, 3))
    extent = tuple(data.draw(st.integers(1, 40)) for _ in range(rank))
    start = tuple(data.draw(st.integers(0, 9)) for _ in range(rank))
    unit = tuple(data.draw(st.integers(1, n)) for n in extent)
    source = tuple(data.draw(st.integers(1, 20)) for _ in range(rank))
    budget = math.prod(unit) * data.draw(st.integers(1, 50))
    shape = shape_between_grids(
        start, extent, unit=unit, source_chunk=source, budget_elements=budget
    )
    assert math.prod(shape) <= budget
    assert all(s % u == 0 or s == n for s, u, n in zip(shape, unit, extent, strict=True))

    def reads(lengths):
        return math.prod(
            _chunk_reads(a, n, length, c)
            for a, n, length, c in zip(start, extent, lengths, source, strict=True)
        )

    assert reads(shape) <= reads(unit) * (1 + 1e-9)


def test_each_source_chunk_is_read_once_where_the_memory_allows():
    shape = shape_between_grids(
        (0, 0), (1000, 1000), unit=(100, 10), source_chunk=(10, 100), budget_elements=100 * 100
    )
    assert shape == (100, 100)
