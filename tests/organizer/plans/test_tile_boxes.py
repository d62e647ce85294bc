"""Boxes that hold tiles: none overlap, all of every tile is in them, and nothing is read twice."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.errors import UnsupportedError
from sds.geometry import SegmentList, tile_grid
from sds.organizer.plans.tile_boxes import TilePlaces, boxes_of_tiles, slab_of_cells


@st.composite
def gatherings(draw):
    """Draw an extent, tiles of it, the shape of cells and how many a box may have."""
    rank = draw(st.integers(1, 4))
    most = {1: 60, 2: 20, 3: 9, 4: 6}[rank]
    extent = tuple(draw(st.lists(st.integers(1, most), min_size=rank, max_size=rank)))
    shape = tuple(draw(st.integers(1, n)) for n in extent)
    n_tiles = math.prod(tile_grid(extent, shape))
    tiles = draw(st.lists(st.integers(0, n_tiles - 1), min_size=1, max_size=40, unique=True))
    segments = SegmentList(tile_shape=shape, tiles=tuple(tiles), lengths=(len(tiles),))
    cell_shape = tuple(draw(st.integers(1, n)) for n in extent)
    return extent, segments, cell_shape, draw(st.sampled_from([1, 2, 5, 1 << 62]))


def cells_of(first, count):
    ranges = (range(a, a + n) for a, n in zip(first, count, strict=True))
    return set(itertools.product(*ranges))


@given(gatherings())
def test_every_cell_that_holds_anything_is_in_one_box_and_no_other_is(case):
    extent, segments, cell_shape, most = case
    first, count = boxes_of_tiles(segments, extent, cell_shape=cell_shape, cells_of_box=most)
    cells = [cells_of(*box) for box in zip(first.tolist(), count.tolist(), strict=True)]
    assert all(1 <= len(box) <= most for box in cells)
    wanted = np.zeros(extent, bool)
    for number in segments.tiles:
        box = segments.box(number, extent)
        ends = (a + n for a, n in zip(box.start, box.extent, strict=True))
        wanted[tuple(slice(a, b) for a, b in zip(box.start, ends, strict=True))] = True
    holding = {
        tuple(index) for index in (np.argwhere(wanted) // np.array(cell_shape, int)).tolist()
    }
    assert set.union(*cells) == holding
    assert sum(map(len, cells)) == len(holding)
    assert first.tolist() == sorted(first.tolist())


@given(gatherings())
def test_every_element_of_every_tile_is_in_one_piece_at_its_place(case):
    extent, segments, cell_shape, most = case
    numbered = np.arange(math.prod(extent)).reshape(extent)
    tiles = TilePlaces(segments, extent)
    copies = np.full((len(segments.tiles), *segments.tile_shape), -1)
    first, count = boxes_of_tiles(segments, extent, cell_shape=cell_shape, cells_of_box=most)
    for box in zip(first.tolist(), count.tolist(), strict=True):
        cells = slab_of_cells(*box, cell_shape, extent)
        gathered = tiles.gathered(cells)
        places = [piece.place for piece in gathered.pieces]
        assert places == sorted(set(places))
        assert all(
            a <= b and c <= d
            for a, b, c, d in zip(
                cells.start, gathered.box.start, gathered.box.end, cells.end, strict=True
            )
        )
        for piece in gathered.pieces:
            target = copies[piece.place][piece.in_tile.slices]
            assert (target == -1).all()
            target[...] = numbered[piece.in_source.slices]
    for copy, number in zip(copies, segments.tiles, strict=True):
        box = segments.box(number, extent)
        held = tuple(slice(n) for n in box.extent)
        ends = (a + n for a, n in zip(box.start, box.extent, strict=True))
        inside = tuple(slice(a, b) for a, b in zip(box.start, ends, strict=True))
        np.testing.assert_array_equal(copy[held], numbered[inside])
        assert np.count_nonzero(copy == -1) == copy.size - box.n_elements


def test_neighbours_are_read_together():
    segments = SegmentList(tile_shape=(4, 4), tiles=(0, 1, 2, 3, 10, 11), lengths=(6,))
    first, count = boxes_of_tiles(segments, (16, 16), cell_shape=(4, 4), cells_of_box=100)
    assert list(zip(first.tolist(), count.tolist(), strict=True)) == [
        ([0, 0], [1, 4]),
        ([2, 2], [1, 2]),
    ]
    every = SegmentList(tile_shape=(4, 4), tiles=tuple(range(16))[::-1], lengths=(16,))
    _, count = boxes_of_tiles(every, (16, 16), cell_shape=(4, 4), cells_of_box=100)
    assert count.tolist() == [[4, 4]]
    _, count = boxes_of_tiles(every, (16, 16), cell_shape=(4, 4), cells_of_box=8)
    assert count.tolist() == [[2, 4], [2, 4]]


def test_tiles_across_very_many_cells_are_refused():
    extent = (1 << 40, 1 << 20)
    segments = SegmentList(tile_shape=(1 << 40, 1), tiles=(3,), lengths=(1,))
    with pytest.raises(UnsupportedError, match=r"pieces of 16x16, .* multiples of its chunks"):
        boxes_of_tiles(segments, extent, cell_shape=(16, 16), cells_of_box=4)


def test_datasets_of_nearly_as_many_elements_as_there_are_numbers():
    extent = ((1 << 62) + 3,)
    last = extent[0] // 5
    segments = SegmentList(tile_shape=(5,), tiles=(last, 0), lengths=(2,))
    first, count = boxes_of_tiles(segments, extent, cell_shape=(7,), cells_of_box=4)
    tiles = TilePlaces(segments, extent)
    pieces = [
        piece
        for box in zip(first.tolist(), count.tolist(), strict=True)
        for piece in tiles.gathered(slab_of_cells(*box, (7,), extent)).pieces
    ]
    assert pieces[0].place == 1
    assert sum(piece.in_source.n_elements for piece in pieces) == 5 + extent[0] - 5 * last
