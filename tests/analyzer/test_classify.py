import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.analyzer import combine_patterns, find_patterns, merge_patterns
from sds.analyzer.classify import longest_gap
from tests.analyzer.traces import POINTS, Read, records_of_reads

CUBE = (64, 64, 256)
EVERY = slice(None)


def test_reads_of_one_shape_are_one_pattern_wherever_they_are():
    reads = [Read((EVERY, EVERY, k), at_ms=10 * i) for i, k in enumerate((3, 77, 12, 200))]
    (pattern,) = find_patterns([records_of_reads(reads, CUBE)])
    assert pattern.description == "plane fixing axis 2"
    assert (pattern.n_reads, pattern.n_calls) == (4, 4)
    assert pattern.bytes_read == 4 * 64 * 64 * 4
    assert pattern.elapsed_s == pytest.approx(0.004)
    assert pattern.processes == ("p",)


def test_orientations_and_sizes_are_told_apart():
    reads = [
        Read((EVERY, EVERY, 3)),
        Read((EVERY, 3, EVERY), at_ms=10),
        Read((5, 3, EVERY), at_ms=20),
        Read((5, 3, slice(0, 8)), at_ms=30),
        Read((9, 3, slice(8, 23)), at_ms=40),
        Read((5, 3, slice(0, 200)), at_ms=50),
    ]
    patterns = find_patterns([records_of_reads(reads, CUBE)])
    found = {(p.description, p.typical.shape[2]): p.n_reads for p in patterns}
    assert found == {
        ("plane fixing axis 2", 1): 1,
        ("plane fixing axis 1", 256): 1,
        ("line along axis 2", 256): 1,
        ("line along axis 2", 8): 2,
        ("line along axis 2", 200): 1,
    }


def test_sizes_within_a_power_of_two_are_one_pattern():
    reads = [Read((5, 3, slice(0, n)), at_ms=10 * i) for i, n in enumerate((8, 9, 12, 15))]
    reads[1] = Read((7, 9, slice(0, 9)), at_ms=10)
    (pattern,) = find_patterns([records_of_reads(reads, CUBE)])
    assert pattern.n_reads == 4


def test_a_plane_read_by_lines_is_not_the_pattern_of_a_plane_read_at_once():
    by_lines = Read((0, EVERY, 3), [(64, (1, 0, 0))])
    at_once = Read((EVERY, EVERY, 9), at_ms=1000)
    found = find_patterns([records_of_reads([by_lines, at_once], CUBE)])
    assert sorted(p.n_calls for p in found) == [1, 64]
    assert {p.kind for p in found} == {"plane"}
    assert {p.call.shape for p in found} == {(1, 64, 1), (64, 64, 1)}


def test_processes_merge_and_those_at_one_time_are_counted():
    def process(name, at_ms):
        return records_of_reads(
            [Read((EVERY, EVERY, 3), at_ms=at_ms), Read((EVERY, EVERY, 99), at_ms=at_ms + 50)],
            CUBE,
            process=name,
        )

    (pattern,) = find_patterns([process("a", 0), process("b", 10), process("c", 500)])
    assert pattern.processes == ("a", "b", "c")
    assert pattern.n_concurrent == 2
    assert pattern.n_reads == 6
    assert pattern.last_ns - pattern.first_ns == 550_000_000


def test_the_longest_pause_is_that_in_which_no_process_reads():
    def begun(*at_ms, process="p"):
        reads = [Read((EVERY, EVERY, 3), at_ms=at) for at in at_ms]
        return records_of_reads(reads, CUBE, process=process)

    (apart,) = find_patterns([begun(0, 400, 500)])
    assert apart.longest_pause_ns == 400_000_000
    (filled,) = find_patterns([begun(0, 400, 500), begun(100, 300, process="q")])
    assert filled.longest_pause_ns == 200_000_000
    (first,), (later,) = find_patterns([begun(0, 400, 500)]), find_patterns([begun(1400)])
    assert (later.longest_pause_ns, merge_patterns(first, later).longest_pause_ns) == (
        0,
        900_000_000,
    )
    unknown = replace(later, longest_pause_ns=None, first_ns=later.first_ns - 2_000_000_000)
    assert merge_patterns(first, unknown).longest_pause_ns == 2_000_000_000, "the most it can be"


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 20)), min_size=1, max_size=12))
def test_the_longest_gap_lies_between_neighbouring_ends_that_no_interval_joins(lengths):
    intervals = [(begin, begin + length) for begin, length in lengths]
    ends = sorted({end for both in intervals for end in both})
    gaps = [
        q - p
        for p, q in itertools.pairwise(ends)
        if not any(begin <= p and q <= end for begin, end in intervals)
    ]
    begins, stops = (np.array(column) for column in zip(*intervals, strict=True))
    assert longest_gap(begins, stops) == max(gaps, default=0)


def test_batches_of_one_process_are_one_process():
    batches = [
        records_of_reads([Read((EVERY, EVERY, 3), at_ms=at)], CUBE, process="a") for at in (0, 90)
    ]
    together = find_patterns(batches)
    apart = combine_patterns([p for b in batches for p in find_patterns([b])])
    assert together[0].n_processes == 1
    assert together[0].n_concurrent == 1
    assert (apart[0].n_reads, apart[0].bytes_read) == (together[0].n_reads, together[0].bytes_read)


def test_time_lost_is_what_exceeds_reading_as_much_contiguously():
    slow = Read((EVERY, EVERY, 3), took_ms=100)
    (pattern,) = find_patterns(
        [records_of_reads([slow], CUBE)], contiguous_bytes_per_s=1e6, contiguous_start_s=0.01
    )
    assert pattern.time_lost_s == pytest.approx(0.1 - 0.01 - 64 * 64 * 4 / 1e6)


def test_without_a_rate_the_best_observed_one_counts():
    fast = Read((slice(0, 32), EVERY, EVERY), took_ms=2)
    slow = Read((EVERY, EVERY, 3), took_ms=50, at_ms=100)
    found = find_patterns([records_of_reads([fast, slow], CUBE)])
    assert [p.description for p in found] == ["plane fixing axis 2", "sub-cube along axes 0, 1, 2"]
    assert found[1].time_lost_s == 0.0
    rate = 32 * 64 * 256 * 4 / 0.002
    assert found[0].time_lost_s == pytest.approx(0.05 - 64 * 64 * 4 / rate)


def test_what_selects_nothing_is_no_pattern():
    assert find_patterns([records_of_reads([Read((slice(3, 3), EVERY, 3))], CUBE)]) == []
    assert find_patterns([]) == []
    nothing = Read((EVERY, EVERY, 3), kind=0, n_elements=0)
    assert find_patterns([records_of_reads([nothing], CUBE)]) == []
    no_elements = Read((), kind=1, n_elements=0)
    assert find_patterns([records_of_reads([no_elements], ())]) == []


def test_of_points_only_start_and_count_of_the_box_are_looked_at():
    records = records_of_reads([Read((slice(2, 50), 3, EVERY), kind=POINTS, n_elements=9)], CUBE)
    records.stride[:] = 0
    records.block[:] = 0
    (pattern,) = find_patterns([records])
    assert pattern.typical.shape == (48, 1, 256)


def test_points_and_replica_and_collective_reads_are_counted():
    reads = [
        Read((slice(2, 50), EVERY, EVERY), kind=POINTS, n_elements=1000),
        Read((EVERY, EVERY, 3), [(5, (0, 0, 9))], served_by=7, collective=True, at_ms=10),
    ]
    found = {p.kind: p for p in find_patterns([records_of_reads(reads, CUBE)])}
    points = found["noncontiguous chunks"]
    assert points.irregular
    assert points.bytes_read == 4000
    assert (found["plane"].n_redirected, found["plane"].n_collective) == (5, 5)


def test_the_original_read_by_the_engine_is_not_redirected():
    reads = [
        Read((EVERY, EVERY, 3), [(5, (0, 0, 9))], served_by=-1),
        Read((EVERY, EVERY, 100), [(2, (0, 0, 9))], served_by=7, at_ms=10),
    ]
    (pattern,) = find_patterns([records_of_reads(reads, CUBE)])
    assert (pattern.n_calls, pattern.n_redirected) == (7, 2)


def test_many_scattered_reads_are_few_patterns():
    n = 200_000
    random = np.random.default_rng(1)
    one = records_of_reads([Read((EVERY, 3, 4), at_ms=0)], CUBE)
    many = {
        f: np.repeat(getattr(one, f), n, axis=0)
        for f in one.__slots__
        if isinstance(getattr(one, f), np.ndarray)
    }
    many["start"][:, 1:] = random.integers(0, 64, (n, 2))
    many["start_ns"] = many["start_ns"] + np.arange(n) * 2_000_000
    many["last_start_ns"] = many["start_ns"]
    rest = {f: getattr(one, f) for f in one.__slots__ if f not in many}
    found = find_patterns([type(one)(**rest, **many)])
    assert sum(p.n_calls for p in found) == n
    assert len(found) < 10


def test_rank_32():
    extent = (2,) * 32
    index = (EVERY,) + (0,) * 31
    (pattern,) = find_patterns([records_of_reads([Read(index)], extent)])
    assert pattern.description == "line along axis 0"
