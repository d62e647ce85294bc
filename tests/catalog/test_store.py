from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, select

from sds.analyzer import BY_HDF5, ReadTimes, ReadTrail, join_trails
from sds.analyzer.logical_reads import Slabs
from sds.analyzer.read_history import MAX_TRAIL_READS
from sds.catalog.database import sqlite_url
from sds.catalog.read_histories import decode_trail, encode_trail
from sds.catalog.records import ReplicaState, SpoolAdvance, as_json
from sds.catalog.rows import DatasetRow, TrailRow
from sds.catalog.store import Store
from sds.errors import NotFoundError
from sds.geometry import Box
from sds.geometry.replica_layout import ReplicaLayout


def advance(start, end, *, name="host-1-2.sdst-spool", inode=5, complete=False):
    return SpoolAdvance(
        name=name,
        inode=inode,
        start_bytes=start,
        end_bytes=end,
        size_bytes=end,
        complete=complete,
        n_reads=3,
    )


def whole(order):
    return ReplicaLayout(order=order, chunk_shape=None, filters=(), region=Box.whole((8, 9, 10)))


def test_a_dataset_is_added_once_and_renewed(store, facts):
    first = store.put_dataset(facts)
    assert store.put_dataset(replace(facts, extent=(16, 9, 10))) == first
    (found,) = store.datasets()
    assert (found.file, found.path, found.extent) == ("/data/run.h5", "/cube", (16, 9, 10))
    assert (found.n_reads, found.n_patterns, found.first_read_ns) == (0, 0, None)


def test_patterns_of_the_same_shape_add_up(store, facts, plane):
    for start in (0, 100):
        loop = replace(plane, n_calls=3 * plane.n_reads)
        assert store.record_ingest([advance(start, start + 100)], [(facts, loop)])
    (found,) = store.patterns()
    assert found.pattern.n_reads == 2 * plane.n_reads
    assert found.pattern.bytes_read == 2 * plane.bytes_read
    assert found.pattern.typical == plane.typical
    (dataset,) = store.datasets()
    assert (dataset.n_reads, dataset.n_patterns) == (6 * plane.n_reads, 1), "as traces count"


def test_times_of_a_dataset_that_is_stored_anew_are_forgotten(store, facts, plane):
    times = ReadTimes(
        served_by=BY_HDF5, n=5, total_s=2.0, least_s=0.1, most_s=0.9, histogram=((28, 5),)
    )
    traced = replace(plane, stated=False, elapsed_s=2.0, time_lost_s=1.5, times=(times,))
    store.record_ingest([advance(0, 100)], [(facts, traced)])
    for same in (replace(facts, storage="unknown"), facts, replace(facts, data_offset_bytes=4096)):
        store.put_dataset(same)
        assert store.patterns()[0].pattern.times == (times,)
    chunked = replace(facts, storage="chunked", chunk_shape=(4, 9, 10), data_offset_bytes=None)
    store.record_ingest([advance(100, 200)], [(chunked, replace(traced, elapsed_s=0.5))])
    (found,) = store.patterns()
    assert (found.pattern.n_reads, found.pattern.elapsed_s) == (2 * plane.n_reads, 0.5)
    assert found.pattern.times == (times,)  # of the new storage alone
    (dataset,) = store.datasets()
    assert dataset.elapsed_s == 0.5
    store.put_dataset(replace(chunked, chunk_shape=(8, 9, 5)))
    (found,) = store.patterns()
    assert (found.pattern.n_reads, found.pattern.times) == (2 * plane.n_reads, ())


def test_many_files_and_datasets_of_one_step_count_as_one_by_one(store, facts, plane, tmp_path):
    """Also where some of them are known, and where one dataset comes more than once."""
    every = [
        replace(facts, file=f"/data/{i % 300}.h5", path=f"/d{i % 7}", extent=(i, 9, 10))
        for i in range(1, 700)
    ]
    known, new = every[:100], every[100:]
    batched, single = store, Store.open(sqlite_url(tmp_path / "single.db"))
    for i, some in enumerate((known, new)):
        steps = [advance(0, 9, name=f"host-{i}-{j}.sdst-spool") for j in range(len(some))]
        assert batched.record_ingest(steps, [(one, plane) for one in some])
        for step, one in zip(steps, some, strict=True):
            assert single.record_ingest([step], [(one, plane)])

    def held(of):
        return sorted((d.file, d.path, d.extent, d.n_reads, d.n_patterns) for d in of.datasets())

    assert held(batched) == held(single)
    assert batched.read_totals() == single.read_totals()
    assert batched.read_totals().n_reads == 699 * plane.n_calls
    names = [f"host-1-{j}.sdst-spool" for j in range(len(new))]
    assert len(batched.spool_records(names)) == len(new)
    single.close()


def test_a_step_counts_only_from_where_the_last_one_ended(store, facts, plane):
    assert store.record_ingest([advance(0, 100)], [(facts, plane)])
    assert not store.record_ingest([advance(0, 100)], [(facts, plane)])
    assert not store.record_ingest([advance(50, 200)], [(facts, plane)])
    (found,) = store.patterns()
    assert found.pattern.n_reads == plane.n_reads
    (counted,) = store.spool_records(["host-1-2.sdst-spool"])
    assert (counted.inode, counted.offset_bytes) == (5, 100)


def test_one_step_that_was_counted_before_keeps_the_others_out_too(store, facts, plane):
    store.record_ingest([advance(0, 100)], [])
    steps = [advance(0, 10, name="other-1-2.sdst-spool"), advance(0, 100)]
    assert not store.record_ingest(steps, [(facts, plane)])
    assert store.patterns() == ()
    assert store.spool_records(["other-1-2.sdst-spool"]) == []


def test_the_same_name_with_another_inode_is_another_file(store, facts, plane):
    assert store.record_ingest([advance(0, 100)], [(facts, plane)])
    assert store.record_ingest([advance(0, 100, inode=6)], [(facts, plane)])
    assert {record.inode for record in store.spool_records(["host-1-2.sdst-spool"])} == {5, 6}


def test_inodes_of_64_bits_without_sign_are_kept(store):
    store.record_ingest([advance(0, 1, inode=2**64 - 1)], [])
    (counted,) = store.spool_records(["host-1-2.sdst-spool"])
    assert counted.inode == 2**64 - 1


def test_a_replica_s_life_is_a_row_of_events(store, facts):
    begun = store.begin_replica(facts, layout=whole((2, 0, 1)), path="/r/a.h5", size_bytes=2880)
    assert (begun.state, begun.order, begun.source_identity) == (
        ReplicaState.BUILDING,
        (2, 0, 1),
        facts.identity,
    )
    store.set_replica(begun.id, ReplicaState.ACTIVE, "verified", build_s=1.5, numbers={"s": 1.5})
    store.set_replica(begun.id, ReplicaState.DAMAGED, "block 3 differs")
    assert [event.kind for event in store.events(10)] == ["damaged", "active", "building"]
    assert store.events(10)[1].numbers == {"s": 1.5}
    assert store.replica(begun.id).reason == "block 3 differs"
    assert store.replica(begun.id).build_s == 1.5


def test_the_same_replica_keeps_its_id_and_another_source_replaces_it(store, facts):
    first = store.begin_replica(facts, layout=whole((1, 0, 2)), path="/r/a.h5", size_bytes=1)
    again = store.begin_replica(facts, layout=whole((1, 0, 2)), path="/r/a.h5", size_bytes=1)
    assert again.id == first.id
    changed = replace(facts, identity=replace(facts.identity, mtime_ns=99))
    newer = store.begin_replica(changed, layout=whole((1, 0, 2)), path="/r/a.h5", size_bytes=1)
    assert newer.id != first.id
    assert store.replica(first.id).state is ReplicaState.RETIRED
    assert [record.id for record in store.replicas()] == [newer.id]


def test_a_second_order_adds(store, facts):
    store.begin_replica(facts, layout=whole((1, 0, 2)), path="/r/a.h5", size_bytes=1)
    store.begin_replica(facts, layout=whole((2, 0, 1)), path="/r/b.h5", size_bytes=1)
    assert [record.order for record in store.replicas("/data/run.h5", "/cube")] == [
        (1, 0, 2),
        (2, 0, 1),
    ]
    assert store.replicas("/data/other.h5") == ()


def test_an_unknown_replica_is_named(store):
    with pytest.raises(NotFoundError, match="no replica 7"):
        store.replica(7)


def test_records_are_json(store, facts, plane):
    store.record_ingest([advance(0, 100)], [(facts, plane)])
    (pattern,) = store.patterns()
    assert as_json(pattern)["pattern"]["n_reads"] == plane.n_reads
    assert as_json(store.datasets())[0]["path"] == "/cube"


def trail_of_planes(first_ns, n, extent=(8, 9, 10)):
    rank = len(extent)
    start = np.zeros((n, rank), dtype=np.int64)
    start[:, 2] = np.arange(n) % extent[2]
    ones = np.ones((n, rank), dtype=np.int64)
    return ReadTrail(
        extent=extent,
        processes=("host-1-2",),
        process=np.zeros(n, dtype=np.int64),
        time_ns=first_ns + np.arange(n, dtype=np.int64),
        n_reads=ones[:, 0],
        selection=Slabs(start=start, stride=ones, count=ones * (extent[0], 9, 1), block=ones),
    )


def same(one, other):
    """Whether two trails hold the same reads."""
    return encode_trail(one) == encode_trail(other)


def test_a_trail_grows_with_what_is_counted_and_only_then(store, facts):
    assert store.trail("/data/run.h5", "/cube") is None
    first, second = trail_of_planes(10, 20), trail_of_planes(100, 5)
    assert store.record_ingest([advance(0, 100)], [], [(facts, first)])
    assert same(store.trail("/data/run.h5", "/cube"), first)
    assert not store.record_ingest([advance(0, 100)], [], [(facts, second)])
    assert same(store.trail("/data/run.h5", "/cube"), first)
    assert store.record_ingest([advance(100, 200)], [], [(facts, second)])
    assert same(store.trail("/data/run.h5", "/cube"), join_trails([second, first]))
    assert store.trail("/data/run.h5", "/other") is None


def test_a_trail_of_another_extent_replaces_the_one_there_is(store, facts):
    store.record_ingest([advance(0, 1)], [], [(facts, trail_of_planes(1, 3))])
    grown = replace(facts, extent=(16, 9, 10))
    newer = trail_of_planes(9, 2, extent=(16, 9, 10))
    store.record_ingest([advance(1, 2)], [], [(grown, newer)])
    assert same(store.trail("/data/run.h5", "/cube"), newer)


def test_a_late_trail_of_an_old_extent_replaces_nothing(store, facts):
    grown = replace(facts, extent=(16, 9, 10))
    newer = trail_of_planes(9, 2, extent=(16, 9, 10))
    store.record_ingest([advance(0, 1)], [], [(grown, newer)])
    store.record_ingest([advance(1, 2)], [], [(facts, trail_of_planes(1, 3))])
    assert same(store.trail("/data/run.h5", "/cube"), newer)


def test_a_trail_goes_with_its_dataset(store, facts):
    store.record_ingest([advance(0, 1)], [], [(facts, trail_of_planes(1, 3))])
    with store.writing() as session:
        session.execute(delete(DatasetRow))
        assert session.scalars(select(TrailRow)).all() == []


@given(
    st.integers(1, 4),
    st.lists(st.integers(0, 2**62), min_size=1, max_size=5),
    st.text(min_size=1),
)
def test_a_trail_is_stored_whole(rank, numbers, process):
    n = len(numbers)
    column = np.array(numbers, dtype=np.int64)
    block = np.stack([column] * rank, axis=1)
    trail = ReadTrail(
        extent=(2**40,) * rank,
        processes=(process,),
        process=np.zeros(n, dtype=np.int64),
        time_ns=np.sort(column),
        n_reads=column,
        selection=Slabs(start=block, stride=block + 1, count=block[::-1], block=block // 2),
    )
    again = decode_trail(encode_trail(trail))
    assert (again.extent, again.processes) == (trail.extent, trail.processes)
    for name in ("process", "time_ns", "n_reads"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trail, name))
    for name in ("start", "stride", "count", "block"):
        part = getattr(again.selection, name)
        np.testing.assert_array_equal(part, getattr(trail.selection, name))


def test_the_largest_trail_takes_some_ten_thousand_bytes():
    rng = np.random.default_rng(5)
    trail = trail_of_planes(10**18, MAX_TRAIL_READS, extent=(1000, 400, 400))
    start = trail.selection.start
    start[:, 1:] = rng.integers(0, 400, (MAX_TRAIL_READS, 2))
    times = np.cumsum(rng.integers(10**5, 10**7, MAX_TRAIL_READS))
    stored = encode_trail(replace(trail, time_ns=times))
    assert len(stored) < 40_000
