from dataclasses import replace

import pytest

from sds.catalog.records import ReplicaState, SpoolAdvance, as_json
from sds.errors import NotFoundError
from sds.geometry import Box
from sds.organizer.layout import ReplicaLayout


def advance(start, end, *, name="host-1-2.sdst-spool", inode=5, complete=False):
    return SpoolAdvance(
        name=name,
        inode=inode,
        start_bytes=start,
        end_bytes=end,
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


def test_a_step_counts_only_from_where_the_last_one_ended(store, facts, plane):
    assert store.record_ingest([advance(0, 100)], [(facts, plane)])
    assert not store.record_ingest([advance(0, 100)], [(facts, plane)])
    assert not store.record_ingest([advance(50, 200)], [(facts, plane)])
    (found,) = store.patterns()
    assert found.pattern.n_reads == plane.n_reads
    assert store.spool_file("host-1-2.sdst-spool", 5).offset_bytes == 100


def test_one_step_that_was_counted_before_keeps_the_others_out_too(store, facts, plane):
    store.record_ingest([advance(0, 100)], [])
    steps = [advance(0, 10, name="other-1-2.sdst-spool"), advance(0, 100)]
    assert not store.record_ingest(steps, [(facts, plane)])
    assert store.patterns() == ()
    assert store.spool_file("other-1-2.sdst-spool", 5) is None


def test_the_same_name_with_another_inode_is_another_file(store, facts, plane):
    assert store.record_ingest([advance(0, 100)], [(facts, plane)])
    assert store.record_ingest([advance(0, 100, inode=6)], [(facts, plane)])
    assert len(store.spool_files()) == 2


def test_inodes_of_64_bits_without_sign_are_kept(store):
    store.record_ingest([advance(0, 1, inode=2**64 - 1)], [])
    assert store.spool_file("host-1-2.sdst-spool", 2**64 - 1).inode == 2**64 - 1


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
