"""Trails: the newest reads in order of time, the same whatever batches they come in."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.analyzer import join_trails, trail_of
from sds.analyzer.read_history import MAX_TRAIL_READS, MAX_TURNS
from sds.errors import SdsValueError
from tests.analyzer.traces import ALL, POINTS, Read, records_of_reads

EXTENT = (40, 50)


@st.composite
def reads(draw):
    low = [draw(st.integers(0, 9)) for _ in EXTENT]
    size = [draw(st.integers(1, 4)) for _ in EXTENT]
    loops = draw(
        st.lists(
            st.tuples(st.integers(1, 4), st.tuples(st.integers(0, 3), st.integers(0, 3))),
            max_size=2,
        )
    )
    return Read(
        tuple(slice(a, a + n) for a, n in zip(low, size, strict=True)),
        loops=loops,
        at_ms=draw(st.integers(0, 60)),
        took_ms=draw(st.sampled_from([0.0, 1.0, 7.0])),
        kind=draw(st.sampled_from([2, 2, 2, 2, 2, POINTS])),
        collective=draw(st.integers(0, 9)) == 0,
    )


batches = st.lists(
    st.tuples(st.lists(reads(), max_size=5), st.sampled_from(["p", "q", "r"])), max_size=5
)


def entries(trail):
    """Each entry as plain values."""
    if trail is None:
        return []
    return [
        (
            int(trail.time_ns[i]),
            trail.processes[trail.process[i]],
            int(trail.n_reads[i]),
            trail.slab(i),
        )
        for i in range(len(trail))
    ]


def one_by_one(read, process):
    """Return the reads of a record, as a person would list them: (time, process, start)."""
    turns = [turns for turns, _ in read.loops]
    n = int(np.prod(turns, dtype=np.int64))
    took_ns = int((n - 1) * read.took_ms * 1e6)
    for i, at in enumerate(itertools.product(*(range(t) for t in turns))):
        start = tuple(
            part.start + sum(k * step[axis] for k, (_, step) in zip(at, read.loops, strict=True))
            for axis, part in enumerate(read.index)
        )
        time_ns = 1_000_000_000 + read.at_ms * 1_000_000 + i * max(1, took_ns // max(1, n - 1))
        yield time_ns, process, start


@given(batches, st.integers(1, 30))
@settings(deadline=None)
def test_the_newest_reads_are_kept_in_order_of_time(given_batches, max_reads):
    records = [records_of_reads(batch, EXTENT, process=name) for batch, name in given_batches]
    trail = trail_of(records, EXTENT, max_reads=max_reads)
    expected = sorted(
        entry
        for batch, name in given_batches
        for read in batch
        if read.kind == 2 and not read.collective
        for entry in one_by_one(read, name)
    )[-max_reads:]
    # Of equals, which the cut may part, any are kept; their times and processes are the same.
    found = [(time, process) for time, process, _, _ in entries(trail)]
    assert found == [entry[:2] for entry in expected]
    oldest = expected[0][:2] if expected else None
    assert {(t, p, slab.start) for t, p, _, slab in entries(trail) if (t, p) != oldest} == {
        entry for entry in expected if entry[:2] != oldest
    }


@given(batches, st.integers(1, 30), st.randoms())
@settings(deadline=None)
def test_batches_join_to_the_trail_of_all_in_any_order(given_batches, max_reads, random):
    records = [records_of_reads(batch, EXTENT, process=name) for batch, name in given_batches]
    at_once = trail_of(records, EXTENT, max_reads=max_reads)
    random.shuffle(records)
    joined = None
    for batch in records:
        more = trail_of([batch], EXTENT, max_reads=max_reads)
        known = [trail for trail in (joined, more) if trail is not None]
        joined = join_trails(known, max_reads=max_reads) if known else None
    assert entries(joined) == entries(at_once)


def test_a_walk_is_one_entry_with_its_reads():
    walk = Read((slice(0, 1), slice(0, 50)), loops=[(MAX_TURNS + 1, (0, 0))], at_ms=0)
    some = Read((slice(3, 4), slice(0, 50)), loops=[(MAX_TURNS, (0, 0))], at_ms=5000)
    trail = trail_of([records_of_reads([walk, some], EXTENT)], EXTENT)
    assert sorted(trail.n_reads.tolist()) == [1] * MAX_TURNS + [MAX_TURNS + 1]


def test_at_most_so_many_reads_are_kept_of_many_records():
    many = [
        Read((i % 40, slice(0, 50)), loops=[(900, (0, 0))], at_ms=i, took_ms=0.001)
        for i in range(3000)
    ]
    records = records_of_reads(many, EXTENT)
    trail = trail_of([records], EXTENT)
    assert len(trail) == MAX_TRAIL_READS
    assert np.all(np.diff(trail.time_ns) >= 0)
    newest = int(records.start_ns.max()) + 900_000
    assert int(trail.time_ns[0]) > newest - 6_000_000


def test_the_whole_is_a_selection_and_other_extents_are_left_out():
    whole = records_of_reads([Read((slice(0, 1), slice(0, 1)), kind=ALL)], EXTENT)
    other = records_of_reads([Read((0, 0))], (7, 7))
    trail = trail_of([whole, other], EXTENT)
    assert [slab.shape for *_, slab in entries(trail)] == [EXTENT]
    assert trail_of([other], EXTENT) is None
    assert trail_of([whole], ()) is None


def test_reads_that_repeat_within_a_tick_of_the_clock_keep_their_order():
    record = Read((0, slice(0, 5)), loops=[(4, (9, 0))], took_ms=0.0)
    trail = trail_of([records_of_reads([record], EXTENT)], EXTENT)
    assert trail.selection.start[:, 0].tolist() == [0, 9, 18, 27]


def test_trails_of_different_datasets_are_refused():
    one = trail_of([records_of_reads([Read((0, 0))], EXTENT)], EXTENT)
    other = trail_of([records_of_reads([Read((0, 0))], (7, 7))], (7, 7))
    for trails in ([one, other], []):
        with pytest.raises(SdsValueError, match="join those of one dataset"):
            join_trails(trails)
    with pytest.raises(SdsValueError, match="none of 1"):
        replace(one, process=np.array([1]))
