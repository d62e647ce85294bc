"""Pieces of reads in tiles: as many as tiles are touched, and all that is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.geometry import Hyperslab, SegmentList, tile_grid, tiles_touched
from sds.recommender import ReplicaShape, StoredArray, models_for_advice
from sds.recommender.layouts import read_seconds
from sds.recommender.pieces import MAX_PREDICTED, pieces_in_tiles
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
    shape = ReplicaShape(order=order, segments=segments((100, 100), array.extent))
    tile = StoredArray(extent=(100, 100), element_size_bytes=4)
    whole = ReplicaShape(order=order)

    def box(start, size):
        return Hyperslab(start=start, stride=(1, 1), count=size, block=(1, 1))

    def alone(size):
        return read_seconds(whole, tile, box((0, 0), size), models)

    read = box((90, 200), (30, 50))
    expected = alone((10, 50)) + alone((20, 50))
    assert read_seconds(shape, array, read, models) == pytest.approx(expected)
    many = box((50, 50), (900, 300))
    assert pieces_in_tiles(many, (100, 100)).total() == 40 > MAX_PREDICTED
    each = alone((100, 100))
    assert read_seconds(shape, array, many, models) == pytest.approx(40 * each)
