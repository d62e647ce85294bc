"""Pieces of reads in tiles: as many as tiles are touched, and all that is read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.geometry import Hyperslab, SegmentList, tile_grid, tiles_touched
from sds.recommender import ReplicaShape, StoredArray, models_for_advice
from sds.recommender.layouts import read_seconds
from sds.recommender.pieces import MAX_PREDICTED, elements_around, pieces_in_tiles
from tests.strategies import axis_slabs


@st.composite
def tiled_reads(draw):
    extent = tuple(draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    tile_shape = tuple(draw(st.integers(1, n)) for n in extent)
    start, stride, count, block = zip(*(draw(axis_slabs(n)) for n in extent), strict=True)
    return extent, tile_shape, Hyperslab(start=start, stride=stride, count=count, block=block)


@given(tiled_reads())
def test_there_is_a_piece_of_each_tile_that_is_touched(case):
    extent, tile_shape, slab = case
    if not slab.n_elements:
        return
    pieces = pieces_in_tiles(slab, tile_shape)
    touched = tiles_touched(slab, tile_shape, extent)
    if touched is not None:
        assert pieces.total() == len(touched)
    for piece in pieces:
        for (start, stride, count, block), size in zip(piece.axes(), tile_shape, strict=True):
            assert start == 0
            assert min(count, block) > 0
            assert (count - 1) * stride + block <= size
    if all(count <= 1 or block in {1, stride} for _, stride, count, block in slab.axes()):
        elements = sum(piece.n_elements * n for piece, n in pieces.items())
        assert elements == slab.n_elements, "nothing twice, nothing left out"


def segments(tile_shape, extent):
    """All tiles of a dataset."""
    n = 1
    for axis in tile_grid(extent, tile_shape):
        n *= axis
    return SegmentList(tile_shape=tile_shape, tiles=tuple(range(n)), lengths=(n,))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_read_from_tiles_takes_the_time_of_its_pieces(order):
    array = StoredArray(extent=(1000, 600), element_size_bytes=4)
    models = models_for_advice(None)
    start_s = models[1].start_s
    assert start_s > 0
    shape = ReplicaShape(order=order, segments=segments((100, 100), array.extent))

    def box(start, size):
        return Hyperslab(start=start, stride=(1, 1), count=size, block=(1, 1))

    def at_once(size):
        """All bytes from the first to the last of a box at the corner of a tile."""
        last = np.ravel_multi_index(tuple(size[axis] - 1 for axis in order), (100, 100))
        run = StoredArray(extent=(int(last) + 1,), element_size_bytes=4)
        return read_seconds(ReplicaShape(order=(0,)), run, Hyperslab.all(run.extent), models)

    read = box((90, 200), (30, 50))
    expected = at_once((10, 50)) + at_once((20, 50)) - start_s
    assert read_seconds(shape, array, read, models) == pytest.approx(expected)
    many = box((50, 50), (900, 300))
    assert pieces_in_tiles(many, (100, 100)).total() == 40 > MAX_PREDICTED
    expected = 40 * at_once((100, 100)) - 39 * start_s
    assert read_seconds(shape, array, many, models) == pytest.approx(expected)


def test_what_lies_far_apart_in_a_tile_is_not_read_at_once():
    tile = StoredArray(extent=(2, 1 << 20), element_size_bytes=4)
    models = models_for_advice(None)
    shape = ReplicaShape(order=(0, 1), segments=segments((2, 1 << 20), tile.extent))
    column = Hyperslab(start=(0, 0), stride=(1, 1), count=(2, 1), block=(1, 1))
    alone = read_seconds(ReplicaShape(order=(0, 1)), tile, column, models)
    assert read_seconds(shape, tile, column, models) == alone


@given(tiled_reads())
def test_the_bytes_around_a_piece_are_those_from_its_first_to_its_last(case):
    extent, _, slab = case
    if not slab.n_elements:
        return
    at = np.arange(np.prod(extent)).reshape(extent)
    for axis, (start, stride, count, block) in enumerate(slab.axes()):
        chosen = [start + i * stride + j for i in range(count) for j in range(block)]
        at = at.take(chosen, axis)
    assert elements_around(slab, extent) == at.max() - at.min() + 1
