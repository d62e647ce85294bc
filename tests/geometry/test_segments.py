"""Tiles and segments: every element lies in one tile, and a read is held where all of it is."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.errors import LayoutError
from sds.geometry import Hyperslab
from sds.geometry.segments import (
    MAX_TILES,
    MAX_TILES_OF_READ,
    SegmentList,
    tile_grid,
    tiles_touched,
)
from tests.strategies import axis_slabs


@st.composite
def tiled_reads(draw):
    extent = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    tile_shape = tuple(draw(st.integers(1, n)) for n in extent)
    start, stride, count, block = zip(*(draw(axis_slabs(n)) for n in extent), strict=True)
    return extent, tile_shape, Hyperslab(start=start, stride=stride, count=count, block=block)


def elements_of(slab, extent):
    chosen = np.zeros(extent, dtype=bool)
    axes = [
        [start + i * stride + j for i in range(count) for j in range(block)]
        for start, stride, count, block in slab.axes()
    ]
    chosen[np.ix_(*axes)] = True
    return chosen


def numbers_of(extent, tile_shape):
    """The tile of every element."""
    grid = tile_grid(extent, tile_shape)
    at = np.indices(extent)
    indices = [axis // size for axis, size in zip(at, tile_shape, strict=True)]
    return np.ravel_multi_index(indices, grid)


@given(tiled_reads())
def test_a_selection_touches_the_tiles_of_its_elements(case):
    extent, tile_shape, slab = case
    touched = tiles_touched(slab, tile_shape, extent)
    expected = np.unique(numbers_of(extent, tile_shape)[elements_of(slab, extent)])
    if slab.n_elements == 0 or len(expected) > MAX_TILES_OF_READ:
        assert touched is None
    else:
        assert touched.tolist() == expected.tolist()


@given(tiled_reads(), st.data())
def test_a_read_is_held_where_every_element_lies_in_a_tile(case, data):
    extent, tile_shape, slab = case
    n_tiles = math.prod(tile_grid(extent, tile_shape))
    tiles = data.draw(st.lists(st.integers(0, n_tiles - 1), min_size=1, unique=True))
    held = SegmentList(tile_shape=tile_shape, tiles=tuple(tiles), lengths=(len(tiles),))
    held.check_within(extent)
    within = np.isin(numbers_of(extent, tile_shape), tiles)
    chosen = elements_of(slab, extent)
    assert held.holds(slab, extent) == (chosen.any() and bool(within[chosen].all()))
    around = held.around(extent)
    inside = np.argwhere(within)
    assert around.start == tuple(inside.min(axis=0))
    assert around.extent == tuple(inside.max(axis=0) + 1 - inside.min(axis=0))


@given(tiled_reads())
def test_tiles_tile_the_dataset(case):
    extent, tile_shape, _ = case
    n_tiles = math.prod(tile_grid(extent, tile_shape))
    every = SegmentList(tile_shape=tile_shape, tiles=tuple(range(n_tiles)), lengths=(n_tiles,))
    numbers = numbers_of(extent, tile_shape)
    for number in every.tiles:
        box = every.box(number, extent)
        inside = tuple(slice(a, a + n) for a, n in zip(box.start, box.extent, strict=True))
        assert (numbers[inside] == number).all()
        assert box.n_elements == np.count_nonzero(numbers == number)


def test_segments_are_successive_tiles():
    gathered = SegmentList(tile_shape=(2,), tiles=(5, 1, 7, 0), lengths=(1, 3))
    assert gathered.segments() == [(5,), (1, 7, 0)]
    assert gathered.n_elements == 8


def test_a_read_of_many_tiles_is_not_listed():
    extent = (1 << 40, 1 << 20)
    assert tiles_touched(Hyperslab.all(extent), (1, 1), extent) is None
    sparse = Hyperslab(start=(0, 0), stride=(1 << 20, 1), count=(1 << 20, 1), block=(1, 1))
    assert tiles_touched(sparse, (16, 16), extent) is None


@pytest.mark.parametrize(
    ("tile_shape", "tiles", "lengths", "named"),
    [
        ((), (0,), (1,), "length of at least 1"),
        ((4, 0), (0,), (1,), r"\(4, 0\)"),
        ((4, 4), (), (), "0 tiles"),
        ((4, 4), tuple(range(MAX_TILES + 1)), (MAX_TILES + 1,), str(MAX_TILES + 1)),
        ((4, 4), (3, 3), (2,), "twice"),
        ((4, 4), (3, 4), (1,), "add up"),
        ((4, 4), (3, 4), (2, 0), "at least 1"),
    ],
)
def test_what_is_no_segment_list_is_refused(tile_shape, tiles, lengths, named):
    with pytest.raises(LayoutError, match=named):
        SegmentList(tile_shape=tile_shape, tiles=tiles, lengths=lengths)


@pytest.mark.parametrize("number", [-1, 6])
def test_a_tile_that_the_dataset_does_not_have_is_refused(number):
    gathered = SegmentList(tile_shape=(4, 4), tiles=(number,), lengths=(1,))
    with pytest.raises(LayoutError, match=f"tile {number}: the dataset has 6"):
        gathered.check_within((8, 9))


def test_tiles_larger_than_the_dataset_are_refused():
    gathered = SegmentList(tile_shape=(4, 10), tiles=(0,), lengths=(1,))
    with pytest.raises(LayoutError, match="4,10"):
        gathered.check_within((8, 9))


def test_tiles_are_numbered_with_the_last_axis_fastest():
    gathered = SegmentList(tile_shape=(2, 3), tiles=(0,), lengths=(1,))
    boxes = [gathered.box(number, (4, 7)) for number in range(6)]
    starts = list(itertools.product((0, 2), (0, 3, 6)))
    assert [box.start for box in boxes] == starts
    assert boxes[5].extent == (2, 1)
