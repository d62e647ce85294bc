"""Regions cut at stripes and items, against what single bytes say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.errors import SdsValueError
from sds.organizer.collective import CollectiveSettings, Partition
from sds.organizer.collective.pieces import (
    Pieces,
    cut_at_items,
    cut_at_stripes,
    item_begins,
    match_regions,
    merge,
)

some_regions = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), max_size=12)
lengths = st.lists(st.integers(1, 40), max_size=12)


def arrays(regions):
    array = np.array(regions, np.int64).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()


def bytes_of(offsets, sizes):
    return [
        b for o, n in zip(offsets.tolist(), sizes.tolist(), strict=True) for b in range(o, o + n)
    ]


def pieces_of(regions):
    offsets, sizes = arrays(regions)
    return Pieces(offsets=offsets, lengths=sizes, memory=1000 + np.cumsum(sizes) - sizes)


@given(some_regions, lengths)
def test_lists_are_cut_alike(regions, cuts):
    offsets, sizes = arrays(regions)
    total = int(sizes.sum())
    ends = sorted({min(cut, total) for cut in np.cumsum(cuts).tolist()} | {total})
    in_memory = np.diff([0, *filter(None, ends)])
    places = np.arange(len(in_memory))[::-1] * 1000
    pieces = match_regions(offsets, sizes, places, in_memory)
    assert bytes_of(pieces.offsets, pieces.lengths) == bytes_of(offsets, sizes)
    assert bytes_of(pieces.memory, pieces.lengths) == bytes_of(places, in_memory)


def test_sums_that_differ():
    one, two = np.array([1]), np.array([2])
    with pytest.raises(SdsValueError, match="have 1 bytes, those of memory 2"):
        match_regions(one, one, one, two)


@given(some_regions, st.integers(1, 50))
def test_pieces_lie_in_one_stripe_each(regions, stripe):
    pieces = pieces_of(regions)
    cut = cut_at_stripes(pieces, stripe)
    assert (cut.lengths > 0).all()
    assert (cut.offsets // stripe == (cut.offsets + cut.lengths - 1) // stripe).all()
    assert bytes_of(cut.offsets, cut.lengths) == bytes_of(pieces.offsets, pieces.lengths)
    assert bytes_of(cut.memory, cut.lengths) == bytes_of(pieces.memory, pieces.lengths)


@given(some_regions)
def test_union(regions):
    offsets, sizes = merge(*arrays(regions))
    assert bytes_of(offsets, sizes) == sorted(set(bytes_of(*arrays(regions))))
    assert (offsets[1:] > (offsets + sizes)[:-1]).all()


@given(some_regions.filter(bool), st.integers(1, 60), st.floats(0, 1))
def test_items_hold_a_buffer_each(regions, buffer_bytes, threshold):
    offsets, sizes = merge(*arrays(regions))
    begins = item_begins(offsets, sizes, buffer_bytes=buffer_bytes, threshold=threshold)
    union = Pieces(offsets=offsets, lengths=sizes, memory=np.zeros_like(offsets))
    parts, items = cut_at_items(union, begins)
    assert bytes_of(parts.offsets, parts.lengths) == bytes_of(offsets, sizes)
    assert (np.diff(items) >= 0).all()
    held = np.bincount(items, weights=parts.lengths).astype(int).tolist()
    assert held[:-1] == [buffer_bytes] * (len(held) - 1)
    assert held[-1] <= (1 + threshold) * buffer_bytes
    if len(held) > 1:
        assert held[-1] > threshold * buffer_bytes or held[-1] == buffer_bytes
    assert begins.tolist() == [parts.offsets[items == item][0] for item in range(len(held))]


@given(some_regions.filter(bool), st.integers(1, 60))
def test_requests_are_cut_at_the_items_of_all(regions, buffer_bytes):
    mine = pieces_of(sorted(regions)[::2])
    begins = item_begins(*merge(*arrays(regions)), buffer_bytes=buffer_bytes, threshold=0.5)
    parts, items = cut_at_items(mine, begins)
    assert bytes_of(parts.offsets, parts.lengths) == bytes_of(mine.offsets, mine.lengths)
    assert bytes_of(parts.memory, parts.lengths) == bytes_of(mine.memory, mine.lengths)
    assert (begins[items] <= parts.offsets).all()
    ends = np.append(begins[1:], 1 << 40)[items]
    assert (parts.offsets + parts.lengths <= ends).all()


def test_the_example_of_wang_2014():
    """Fig. 1: 18 stripes, 3 aggregators, 3 OSTs; a buffer of 2 stripes holds stripes 1 and 4."""
    stripes = np.arange(18)
    owners = Partition.EVEN.aggregators_of(stripes, first=0, end=18, n_aggregators=3)
    assert owners.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    of_ost = stripes[(owners == 0) & (stripes % 3 == 0)]
    begins = item_begins(of_ost, np.ones_like(of_ost), buffer_bytes=2, threshold=0.5)
    assert of_ost.tolist() == [0, 3]
    assert begins.tolist() == [0]


def test_partitions():
    stripes = np.arange(5, 12)
    even = Partition.EVEN.aggregators_of(stripes, first=5, end=12, n_aggregators=3)
    assert even.tolist() == [0, 0, 1, 1, 2, 2, 2]
    few = Partition.EVEN.aggregators_of(stripes[:2], first=5, end=7, n_aggregators=4)
    assert len(set(few.tolist())) == 2
    cyclic = Partition.CYCLIC.aggregators_of(stripes, first=5, end=12, n_aggregators=3)
    assert cyclic.tolist() == [2, 0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"buffer_bytes": 0}, "buffer_bytes is 0"),
        ({"buffer_bytes": 1 << 31}, "give 1 to 1073741824"),
        ({"threshold": 1.5}, "threshold is 1.5; give 0 to 1"),
        ({"n_aggregators": 0}, "n_aggregators is 0; give at least 1"),
    ],
)
def test_settings_that_cannot_be(settings, said):
    with pytest.raises(SdsValueError, match=said):
        CollectiveSettings(**settings)
