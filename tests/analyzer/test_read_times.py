"""Times of patterns, apart for each layout that served: counts, sums, ranges, medians."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.analyzer import BY_ENGINE, BY_HDF5, combine_patterns, find_patterns
from sds.analyzer.read_times import ReadTimes, joined_times
from sds.geometry import selection_from_index
from tests.analyzer.traces import Read, records_of_reads

CUBE = (64, 64, 512)
EVERY = slice(None)


def plane(at, **how):
    return Read((EVERY, EVERY, at), at_ms=20_000 * at, **how)


def test_each_layout_has_its_times():
    reads = [
        plane(1, took_ms=10),
        plane(2, took_ms=30),
        plane(7, took_ms=2, served_by=BY_ENGINE),
        plane(3, took_ms=0.5, served_by=4),
        Read((EVERY, EVERY, 40), [(9, (0, 0, 5))], took_ms=0.25, served_by=4, at_ms=10**6),
        plane(5, took_ms=900, collective=True),
    ]
    (pattern,) = find_patterns([records_of_reads(reads, CUBE)])
    engine, hdf5, replica = pattern.times
    assert [each.served_by for each in pattern.times] == [BY_ENGINE, BY_HDF5, 4]
    assert (hdf5.n, hdf5.least_s, hdf5.most_s) == pytest.approx((2, 0.01, 0.03))
    assert hdf5.mean_s == pytest.approx(0.02)
    assert hdf5.least_s <= hdf5.median_s <= hdf5.most_s
    assert (engine.n, engine.median_s) == (1, 0.002)
    assert (replica.n, replica.total_s) == (10, pytest.approx(0.00275))
    assert replica.median_s == pytest.approx(0.00025, rel=0.5)


def test_lines_that_make_a_plane_keep_their_own_times():
    reads = [
        Read((EVERY, row, 5), took_ms=1 + row, at_ms=row * 200, served_by=-(row % 2))
        for row in range(64)
    ]
    (pattern,) = find_patterns([records_of_reads(reads, CUBE)])
    assert (pattern.n_reads, pattern.n_calls) == (1, 64)
    engine, hdf5 = pattern.times
    assert (engine.n, engine.least_s, engine.most_s) == pytest.approx((32, 0.002, 0.064))
    assert (hdf5.n, hdf5.least_s, hdf5.most_s) == pytest.approx((32, 0.001, 0.063))


def test_times_of_batches_are_those_of_all():
    def batch(seed):
        rng = np.random.default_rng(seed)
        return records_of_reads(
            [plane(i, took_ms=rng.random(), served_by=rng.integers(-1, 3)) for i in range(40)],
            CUBE,
            process=str(seed),
        )

    batches = [batch(seed) for seed in range(3)]
    (whole,) = find_patterns(batches)
    (parts,) = combine_patterns(p for one in batches for p in find_patterns([one]))
    assert len(whole.times) == len(parts.times) == 4
    for a, b in zip(whole.times, parts.times, strict=True):
        assert (a.served_by, a.n, a.least_s, a.most_s, a.histogram) == (
            b.served_by, b.n, b.least_s, b.most_s, b.histogram,
        )  # fmt: skip
        assert a.total_s == pytest.approx(b.total_s)


def test_of_many_replicas_the_newest_are_kept():
    times = [
        ReadTimes(served_by=i, n=1, total_s=1, least_s=1, most_s=1, histogram=((29, 1),))
        for i in range(-1, 100)
    ]
    assert [each.served_by for each in joined_times(times)] == [-1, 0, *range(84, 100)]


def test_the_median_of_two_lies_between_them():
    two = ReadTimes(
        served_by=0, n=2, total_s=0.073, least_s=0.003, most_s=0.07, histogram=((21, 1), (26, 1))
    )
    assert 0.004 < two.median_s < 0.07


@pytest.mark.parametrize(
    ("selection", "is_of_kind"),
    [((EVERY, EVERY, 5), True), ((EVERY, slice(0, 40), 5), False), ((EVERY, 5, EVERY), False),
     ((EVERY, slice(0, 63, 2), 5), False), ((slice(0, 64), EVERY, slice(9, 10)), True)],
)  # fmt: skip
def test_selections_are_of_the_kind_of_a_pattern(selection, is_of_kind):
    (pattern,) = find_patterns([records_of_reads([plane(7), plane(9)], CUBE)])
    slab, _ = selection_from_index(selection, CUBE)
    assert pattern.is_of_kind(slab) is is_of_kind


@given(st.lists(st.integers(1, 2**39), min_size=1, max_size=60))
def test_the_median_is_right_to_a_factor_of_two(ns):
    buckets = [n.bit_length() - 1 for n in ns]
    found = ReadTimes(
        served_by=0,
        n=len(ns),
        total_s=sum(ns) * 1e-9,
        least_s=min(ns) * 1e-9,
        most_s=max(ns) * 1e-9,
        histogram=tuple((b, buckets.count(b)) for b in sorted(set(buckets))),
    )
    lower, upper = sorted(ns)[(len(ns) - 1) // 2], sorted(ns)[len(ns) // 2]
    assert lower / 2 <= found.median_s * 1e9 <= 2 * upper * (1 + 1e-9)
    assert found.least_s <= found.median_s <= found.most_s * (1 + 1e-9)
