"""Shares of reads that are new to their process, by layout."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.analyzer import BY_HDF5, ReadTimes
from sds.geometry import ReplicaLayout
from sds.recommender.candidates.first_touches import (
    granule_of_array,
    granule_of_replica,
    new_shares,
    share_begun_cold,
)
from sds.recommender.models.read_cost import StoredArray
from tests.analyzer.test_hot_segments import box, trail_of_slabs, trails

EXTENT = (100, 300, 50)
FLOATS = StoredArray(extent=EXTENT, element_size_bytes=4)
ACROSS = [box((0, 0, k), (100, 300, 1)) for k in range(0, 50, 5)]
IN_ROWS = granule_of_array(FLOATS)
IN_PLANES = granule_of_replica(ReplicaLayout.whole(EXTENT, order=(2, 0, 1)), 4)


def shares(slabs, *, of, granules, processes=None, n_reads=None, warmed_by=None):
    trail = trail_of_slabs(slabs, EXTENT, processes, n_reads)
    return new_shares(trail, [of], granules, warmed_by)[0].tolist()


def test_what_lies_together_in_64_kib():
    assert IN_ROWS == (1, 300, 50)  # 60,000 bytes: one more row would be too much
    assert IN_PLANES == (54, 300, 1)
    in_chunks = ReplicaLayout.whole(EXTENT, order=(2, 0, 1), chunk_shape=(5, 10, 30))
    assert granule_of_replica(in_chunks, 4) == (10, 30, 5)
    assert granule_of_array(replace(FLOATS, chunks=(7, 8, 9))) == (7, 8, 9)
    assert granule_of_array(replace(FLOATS, extent=(7,), element_size_bytes=1 << 20)) == (1,)


def test_planes_across_the_grain_find_each_other_in_memory_but_not_in_a_replica():
    assert shares(ACROSS, of=ACROSS[0], granules=[IN_ROWS, IN_PLANES]) == [0.1, 1.0]


def test_a_read_that_is_made_again_is_new_once():
    assert shares(ACROSS[:1] * 5, of=ACROSS[0], granules=[IN_ROWS, IN_PLANES]) == [0.2, 0.2]


def test_each_process_begins_anew():
    processes = ["p", "q"] * 5
    assert shares(ACROSS, of=ACROSS[0], granules=[IN_ROWS], processes=processes) == [0.2]


def test_reads_of_other_shapes_count_where_they_are_named():
    line, plane = box((5, 7, 0), (1, 1, 50)), ACROSS[0]
    asked = {"of": line, "granules": [IN_ROWS]}
    assert shares([*ACROSS, line], **asked) == [1.0]
    assert shares([*ACROSS, line], warmed_by=[line, plane], **asked) == [0.0]
    assert shares([line, *ACROSS], warmed_by=[line, plane], **asked) == [1.0]


@pytest.mark.parametrize("n", [500, 510, 511, 2000])
def test_the_number_of_reads_is_no_matter(n):
    """By turns of two shapes, and many more than are looked at."""
    line = box((5, 7, 0), (1, 1, 50))
    slabs = [slab for k in range(n // 2) for slab in (line, ACROSS[k % 10])]
    (found,) = shares(slabs, of=ACROSS[0], granules=[IN_PLANES])
    assert found <= 20 / (n // 2)
    assert shares(slabs, of=line, granules=[IN_ROWS]) == [pytest.approx(1 / (n // 2))]


def of_reads(*seconds):
    n_ns = [int(one * 1e9) for one in seconds]
    return ReadTimes(
        served_by=BY_HDF5, n=len(seconds), total_s=sum(seconds), least_s=min(seconds),
        most_s=max(seconds),
        histogram=tuple(sorted(Counter(one.bit_length() - 1 for one in n_ns).items())),
    )  # fmt: skip


@pytest.mark.parametrize("cold_s", [0.55, 0.6, 0.8, 1.0, 1.2, 2.0])
def test_all_cold_reads_count(cold_s):
    """Sixty of two hundred, as many as came first, wherever their times lie within a bucket."""
    times = of_reads(*[cold_s] * 60, *[0.001] * 140)
    assert share_begun_cold(times, 1.1, 0.3) == pytest.approx(1.0)


def test_a_read_that_waited_for_a_processor_was_not_cold():
    assert np.isnan(share_begun_cold(of_reads(0.009, *[1e-4] * 9), 0.004, 0.1))
    assert share_begun_cold(of_reads(0.02, *[1e-4] * 9), 0.004, 0.1) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("times", "new_share", "expected"),
    [
        (of_reads(1.0, *[0.01] * 9), 0.1, 1.0),  # the first, and it warmed all others
        (of_reads(1.0, *[0.01] * 99), 0.1, 0.1),  # one of ten processes that came first
        (of_reads(1.0, *[0.01] * 9), 1.0, 0.1),
        (of_reads(0.3, *[0.01] * 9), 0.1, None),  # none was as slow as a cold one
        (of_reads(1.0, *[0.5] * 9), 0.1, None),  # all were alike
        (of_reads(1.0), 1.0, None),
        (None, 0.1, None),
        (of_reads(1.0, *[0.01] * 9), np.nan, None),
    ],
)
def test_cold_starts_are_told_by_the_slowest_reads(times, new_share, expected):
    found = share_begun_cold(times, 1.0, new_share)
    assert np.isnan(found) if expected is None else found == pytest.approx(expected)


def test_of_what_the_trail_has_not_nothing_is_known():
    assert np.isnan(shares(ACROSS, of=box((0, 0, 0), (1, 1, 1)), granules=[IN_ROWS])).all()
    assert np.isnan(shares([], of=ACROSS[0], granules=[IN_ROWS])).all()
    assert np.isnan(new_shares(None, ACROSS, [IN_ROWS])).all()
    walk = shares(ACROSS[:1], of=ACROSS[0], granules=[IN_ROWS], n_reads=[5000])
    assert np.isnan(walk).all()


@settings(max_examples=100)
@given(trails(), st.booleans())
def test_shares_are_as_an_oracle_counts_them(drawn, alone):
    """Granules of one element: whatever a box around an earlier read has is known."""
    trail, _ = drawn
    rank = len(trail.extent)
    cells = [_around(trail.slab(row)) for row in range(len(trail))]
    shapes = [tuple(map(int, row)) for row in trail.selection.selected]
    for row in range(len(trail)):
        warmed_by = None if alone else [trail.slab(k) for k in range(len(trail))]
        (share,) = new_shares(trail, [trail.slab(row)], [(1,) * rank], warmed_by)[0]
        alike = [k for k in range(len(trail)) if shapes[k] == shapes[row] and trail.n_reads[k] == 1]
        if not alike:
            assert np.isnan(share)
            continue
        expected = []
        for k in alike:
            before = [
                cells[b]
                for b in range(k)
                if trail.process[b] == trail.process[k] and (not alone or shapes[b] == shapes[k])
            ]
            known = set().union(*before)
            expected.append(len(cells[k] - known) / len(cells[k]))
        mean = np.mean(expected)
        # Four points of each read are looked at: exact where all or nothing of each is new.
        if all(one in {0.0, 1.0} for one in expected):
            assert share == pytest.approx(mean)
        assert 0 <= share <= 1


def _around(slab):
    """Elements of the box around a selection."""
    spans = (
        range(start, start + (count - 1) * stride + block)
        for start, stride, count, block in slab.axes()
    )
    return set(itertools.product(*spans))
