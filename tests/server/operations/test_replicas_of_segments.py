"""Replicas of segments in the service: listed, served, checked, removed as others; no box."""

import os
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.catalog.records import ReplicaState
from sds.catalog.requests import ReorganizeRequest
from sds.errors import LayoutError, SdsValueError
from sds.geometry import MAX_TILES, MAX_TILES_OF_FILE, Box, SegmentList
from sds.redirect.tables import read_table, table_path
from sds.server.operations import stages
from sds.server.operations.advice_reports import WhatIfRequest
from sds.server.operations.dataset_workloads import holds_all
from tests.organizer.sources import gathered
from tests.replica_files import edited
from tests.server.conftest import EXTENT

# Of the cube of 24x20x16 elements: around the first three is a part of it, around all all of it.
PART = SegmentList(tile_shape=(6, 5, 8), tiles=(9, 2, 1), lengths=(1, 2))
CORNERS = SegmentList(tile_shape=(6, 5, 8), tiles=(31, 0), lengths=(2,))
ORDER = (2, 0, 1)


def request(source, segments=PART, **options):
    return ReorganizeRequest(
        file=str(source), dataset="/cube", order=ORDER, segments=segments, **options
    )


def assert_holds(record, source, segments):
    with h5py.File(record.path) as copy, h5py.File(source) as original:
        expected = gathered(original["cube"][...], segments, ORDER)
        np.testing.assert_array_equal(copy["cube"][...], expected)


@pytest.mark.parametrize("segments", [PART, CORNERS])
def test_a_replica_of_segments_is_listed_and_its_table_names_its_tiles(
    service, source, home, segments
):
    record = service.reorganize(request(source, segments))
    assert (record.state, record.order, record.storage) == (
        ReplicaState.ACTIVE,
        ORDER,
        "contiguous",
    )
    assert record.segments == record.replica.segments == record.layout.segments == segments
    assert record.region == segments.around(EXTENT)
    assert record.replica.layout == record.layout
    assert service.replicas(str(source)) == (record,)
    assert_holds(record, source, segments)
    (dataset,) = read_table(home, source).datasets
    (candidate,) = dataset.candidates
    assert candidate.segments == segments
    assert (candidate.order, candidate.chunk_shape) == (ORDER, None)
    assert candidate.data_offset_bytes == record.replica.data_offset_bytes
    assert candidate.metadata_crc32c == record.replica.metadata_crc32c
    # It is there already.
    assert service.reorganize(request(source, segments)).id == record.id
    assert service.status().tiles == len(segments.tiles)


def test_other_tiles_are_another_replica_beside_the_first(service, source, home):
    first = service.reorganize(request(source))
    second = service.reorganize(request(source, replace(PART, tiles=(1, 2, 9))))
    whole = service.reorganize(ReorganizeRequest(file=str(source), dataset="/cube", order=ORDER))
    assert len({first.path, second.path, whole.path}) == 3
    (dataset,) = read_table(home, source).datasets
    assert [one.segments for one in dataset.candidates] == [first.segments, second.segments, None]
    service.remove(first.id)
    assert not Path(first.path).exists()
    (dataset,) = read_table(home, source).datasets
    assert [one.segments for one in dataset.candidates] == [second.segments, None]


def test_nothing_takes_it_for_the_box_around_its_tiles(service, source):
    record = service.reorganize(request(source, CORNERS))
    assert record.region == Box.whole(EXTENT)
    assert not holds_all(record)
    asked = {"file": str(source), "dataset": "/cube", "selection": "[:, :, 3]"}
    without = service.what_if(WhatIfRequest(**asked, without=(record.id,)))
    assert without.saving.seconds == 0
    # What is predicted for now is the original: no replica holds the plane.
    alone = service.what_if(WhatIfRequest(**asked, order=(2, 0, 1)))
    service.remove(record.id)
    again = service.what_if(WhatIfRequest(**asked, order=(2, 0, 1)))
    assert alone.seconds_now == again.seconds_now


def test_one_that_is_damaged_serves_no_more(service, source, home):
    record = service.reorganize(request(source))
    with Path(record.path).open("r+b") as stream:
        stream.seek(record.replica.data_offset_bytes + 17)
        stream.write(b"damage")
    report = service.verify(record.id)
    assert not report.ok
    assert "blocks" in report.checks[0].problem
    assert service.replica(record.id).state is ReplicaState.DAMAGED
    assert not table_path(home, source).exists()


def test_a_file_that_lies_about_its_tiles_serves_no_more(service, source, home):
    record = service.reorganize(request(source))
    with edited(Path(record.path)) as (_, arrays):
        arrays["tiles"][...] = [2, 9, 1]
    assert not service.verify(record.id).ok
    assert service.replica(record.id).state is ReplicaState.DAMAGED
    assert not table_path(home, source).exists()


def test_a_source_that_was_renamed_is_compared_and_served_again(service, own_source, home):
    record = service.reorganize(request(own_source))
    own_source.chmod(0o640)
    report = service.collect_garbage()
    assert report.replicas_retired == ()
    again = service.replica(record.id)
    assert again.state is ReplicaState.ACTIVE
    assert again.source_identity != record.source_identity
    (dataset,) = read_table(home, own_source).datasets
    assert dataset.candidates[0].segments == PART


def test_a_source_that_changed_behind_its_times_is_found(service, own_source):
    """The same size and mtime: only the comparison can tell, and tells of a tile."""
    record = service.reorganize(request(own_source))
    found = own_source.stat()
    with h5py.File(own_source, "r+") as handle:
        handle["cube"][1, 5, 3] = -1  # in tile 2
    os.utime(own_source, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert own_source.stat().st_size == found.st_size
    (retired,) = service.collect_garbage().replicas_retired
    assert retired.id == record.id
    assert "tile 2: element [1, 5, 3] differs" in retired.reason


def test_a_source_that_changed_elsewhere_is_not_noticed_by_its_tiles(service, own_source):
    """A replica answers for its tiles alone."""
    record = service.reorganize(request(own_source))
    found = own_source.stat()
    with h5py.File(own_source, "r+") as handle:
        handle["cube"][23, 19, 15] = -1
    os.utime(own_source, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert service.collect_garbage().replicas_retired == ()
    assert service.replica(record.id).state is ReplicaState.ACTIVE


@pytest.mark.parametrize("outcome", ["whole", "cut off"])
def test_what_a_crash_left_is_finished_or_dropped(service, source, outcome):
    record = service.reorganize(request(source))
    service._store.set_replica(record.id, ReplicaState.BUILDING, "a server was killed here")
    if outcome == "cut off":
        Path(record.path).unlink()
    report = service.recover()
    assert report.replicas_finished == ((record.id,) if outcome == "whole" else ())
    assert report.replicas_dropped == (() if outcome == "whole" else (record.id,))


def test_a_job_that_a_crash_cut_off_goes_on_beside_another_replica_of_its_order(service, source):
    """A replica that is being built is told by its tiles from others in the same order."""
    record = service.reorganize(request(source))
    other = service.reorganize(request(source, CORNERS))
    for each in (record, other):
        service._store.set_replica(each.id, ReplicaState.BUILDING, "a server was killed here")
    Path(record.path).unlink()
    Path(other.path).unlink()
    job = service.submit(request(source))
    assert service.queue.claim().id == job.id
    report = service.recover()
    assert report.jobs_requeued == (job.id,)
    assert report.replicas_dropped == (other.id,)
    assert service.replica(record.id).state is ReplicaState.BUILDING


def test_a_build_that_is_cancelled_leaves_nothing(service, source):
    class StopError(Exception):
        pass

    def stop(*_):
        raise StopError

    with pytest.raises(StopError):
        service.reorganize(request(source), progress=stop)
    (gone,) = service.replicas(str(source), all_states=True)
    assert (gone.state, gone.segments) == (ReplicaState.RETIRED, PART)
    assert not Path(gone.path).exists()
    assert not list(service.home.replicas.rglob("*.partial"))


@pytest.mark.parametrize(
    ("segments", "said"),
    [
        (replace(PART, tiles=(9, 2, 32)), "tile 32: the dataset has 32"),
        (replace(PART, tile_shape=(6, 5, 17)), "17"),
    ],
)
def test_tiles_that_the_dataset_does_not_have_are_refused(service, source, segments, said):
    with pytest.raises(LayoutError, match=said):
        service.reorganize(request(source, segments))
    assert service.replicas(all_states=True) == ()


def test_the_replicas_of_a_file_hold_so_many_tiles_in_all(service, tmp_path):
    # A list that programs have no memory for would take all replicas of its file from them.
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        for name in "abcde":
            file[name] = np.arange(1 << 15, dtype="u1").reshape(-1, 2)
    lists = [
        SegmentList(tile_shape=(1, 2), tiles=tuple(range(n)), lengths=(n,)) for n in (MAX_TILES, 1)
    ]

    def build(name, segments):
        return service.reorganize(
            ReorganizeRequest(file=str(path), dataset=f"/{name}", order=(0, 1), segments=segments)
        )

    built = [build(name, lists[0]) for name in "abcd"]
    assert sum(len(record.segments.tiles) for record in built) == MAX_TILES_OF_FILE
    with pytest.raises(LayoutError, match=r"^1 tile, and replicas of .* hold 65536 others: .*"):
        build("e", lists[1])
    assert build("d", lists[0]).id == built[3].id  # which is there already
    service.remove(built[0].id)
    assert build("e", lists[1]).state is ReplicaState.ACTIVE


def test_a_comparison_knows_its_tiles(source, service, home):
    record = service.reorganize(request(source))
    _, report = stages.compare(record.replica, home.root, progress=lambda *_: None)
    assert report.ok
    lied = replace(record.replica, segments=replace(PART, tiles=(2, 9, 1)))
    with pytest.raises(SdsValueError, match=r"is the replica of .* 3 tiles of 6x5x8"):
        stages.compare(lied, home.root, progress=lambda *_: None)
