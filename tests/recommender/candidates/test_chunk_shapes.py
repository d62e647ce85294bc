"""Chunk shapes fitted to reads, against every shape tried and what a read really touches."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.geometry import Hyperslab, count_chunks, parse_selection
from sds.geometry.replica_layout import MAX_CHUNK_BYTES, check_chunk_shape
from sds.recommender.candidates.chunk_shapes import (
    ChunkCosts,
    WeightedRead,
    chunked_seconds,
    expected_chunks,
    fit_chunk_shape,
)
from sds.recommender.models.cost_model import builtin_model
from sds.recommender.models.read_cost import StoredArray

COSTS = ChunkCosts(chunk_s=1e-5, request_s=6e-5, byte_s=1e-9)


def read(selection, extent, weight=1.0, now_s=1e9):
    return WeightedRead(slab=parse_selection(selection, extent), weight=weight, now_s=now_s)


def total(reads, shape, extent, element=4):
    return sum(
        r.weight
        * min(
            r.now_s, chunked_seconds(r.slab, shape, extent, element_size_bytes=element, costs=COSTS)
        )
        for r in reads
    )


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 30))
def test_the_expected_number_of_chunks_is_the_mean_over_all_beginnings(length, more, chunk):
    # Chunks to both sides: no beginning is special.
    extent = (length + more) * chunk
    counts = [
        count_chunks(Hyperslab(start=(s,), stride=(1,), count=(length,), block=(1,)), (chunk,))
        for s in range(chunk)
        if s + length <= extent
    ]
    slab = Hyperslab(start=(0,), stride=(1,), count=(length,), block=(1,))
    if len(counts) == chunk:
        assert expected_chunks(slab, (chunk,), (extent,)) == pytest.approx(np.mean(counts))


def test_one_kind_of_read_gets_chunks_of_its_own_shape():
    extent = (3650, 180, 360)
    assert fit_chunk_shape([read("[7]", extent)], extent, 4, costs=COSTS) == (1, 180, 360)
    series = fit_chunk_shape([read("[:, 3, 4]", extent)], extent, 4, costs=COSTS)
    assert series == (3650, 1, 1)
    tiles = fit_chunk_shape([read("[7, 32:64, 32:64]", extent)], extent, 4, costs=COSTS)
    assert tiles[0] == 1
    assert tiles[1] > 8
    assert tiles[2] > 8


def test_maps_and_series_get_a_shape_between():
    extent = (3650, 180, 360)
    both = [read("[7]", extent), read("[:, 3, 4]", extent)]
    shape = fit_chunk_shape(both, extent, 4, costs=COSTS)
    for one_sided in ((1, 180, 360), (3650, 1, 1)):
        assert total(both, shape, extent) < 0.5 * total(both, one_sided, extent)
    more_maps = [read("[7]", extent, weight=100), read("[:, 3, 4]", extent)]
    assert fit_chunk_shape(more_maps, extent, 4, costs=COSTS)[0] < shape[0]


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)),
        min_size=1,
        max_size=3,
    )
)
def test_the_search_ends_near_the_best_of_all_shapes(boxes):
    extent = (24, 20, 32)
    lengths = [[n, max(1, n // 2), max(1, n // 4), 1] for n in extent]
    divisors = [[c for c in range(1, n + 1) if n % c == 0] for n in extent]
    reads = [
        WeightedRead(
            slab=Hyperslab(
                start=(0, 0, 0),
                stride=(1, 1, 1),
                count=tuple(of_axis[i] for of_axis, i in zip(lengths, box[:3], strict=True)),
                block=(1, 1, 1),
            ),
            weight=float(box[3]),
            now_s=1e9,
        )
        for box in boxes
    ]
    shape = fit_chunk_shape(reads, extent, 4096, costs=COSTS)
    assert np.prod(shape) * 4096 <= MAX_CHUNK_BYTES
    best = min(
        total(reads, s, extent, 4096)
        for s in product(*divisors)
        if np.prod(s) * 4096 <= MAX_CHUNK_BYTES
    )
    assert total(reads, shape, extent, 4096) <= 1.25 * best


@pytest.mark.parametrize(
    ("extent", "selection", "element"),
    [
        ((2,) * 32, "[..., 0]", 1),
        ((1,), "[0]", 8),
        ((10**12,), "[5:500]", 8),
        ((7, 10**6), "[:, 3]", 1000),
        ((100, 100), "[::7, ::3]", 4),
    ],
)
def test_every_shape_is_one_that_the_organizer_builds(extent, selection, element):
    shape = fit_chunk_shape([read(selection, extent)], extent, element, costs=COSTS)
    assert check_chunk_shape(shape, extent, element) == shape


def test_there_is_no_shape_for_no_reads_no_axes_no_elements_and_huge_elements():
    line = read("[0:3]", (10,))
    assert fit_chunk_shape([], (10,), 4, costs=COSTS) is None
    assert fit_chunk_shape([line], (10,), MAX_CHUNK_BYTES + 1, costs=COSTS) is None
    assert fit_chunk_shape([line], (), 4, costs=COSTS) is None
    assert fit_chunk_shape([line], (0,), 4, costs=COSTS) is None


def test_costs_follow_from_the_model():
    array = StoredArray(extent=(10, 10), element_size_bytes=4)
    model = builtin_model()
    _, request_s, byte_s = model.coefficients
    costs = ChunkCosts.of(model, array, decode_s_per_byte=3e-9, stored_share=0.5)
    assert costs.request_s == pytest.approx(request_s + 4096 * byte_s, rel=0.01)
    assert costs.byte_s == pytest.approx(0.5 * byte_s + 3e-9, rel=0.01)
