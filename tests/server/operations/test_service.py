import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.calibration.models_in_use import models_for_table
from sds.calibration.results import CalibrationSettings
from sds.calibration.run import calibrate
from sds.calibration.trace_fit import LeftOut
from sds.catalog.records import JobState, ReplicaState
from sds.catalog.requests import (
    CalibrateRequest,
    IngestRequest,
    RefitRequest,
    ReorganizeRequest,
    VerifyRequest,
)
from sds.errors import (
    BusyError,
    ConfigurationError,
    DatasetNotFoundError,
    FileMissingError,
    LayoutError,
    NotFoundError,
    NotHdf5Error,
    SdsValueError,
    SelectionError,
    UnsupportedError,
)
from sds.geometry import ReplicaLayout
from sds.hdf5.identity import source_identity, trusted_directories
from sds.home import Home
from sds.mounts import filesystem_of
from sds.redirect.tables import read_table, table_path
from sds.server.lock import HomeLock
from sds.server.operations.advice_reports import AdviceRequest, NamedDataset, WhatIfRequest
from sds.server.operations.refit import TracedReads
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.server.conftest import EXTENT


def request(source, order=(2, 0, 1), **options):
    return ReorganizeRequest(file=str(source), dataset="/cube", order=order, **options)


def flip(path, offset):
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xFF
    path.write_bytes(content)


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    """Return what a short calibration found, which takes as long as a busy machine makes it."""
    settings = CalibrationSettings(space_bytes=1 << 20, budget_s=8.0, max_rounds=1)
    return calibrate(tmp_path_factory.mktemp("calibrated"), settings=settings)


@pytest.fixture
def calibrated(calibration, tmp_path):
    """Return a function that gives a service the calibration of this file system."""

    def calibrated(service):
        return service._store.add_calibration(
            mount_point=str(filesystem_of(tmp_path).mount_point),
            device=tmp_path.stat().st_dev,
            calibration=calibration,
        )

    return calibrated


def test_a_replica_serves_at_once_and_is_the_transpose(service, source):
    steps = []
    record = service.reorganize(request(source), lambda share, what: steps.append((share, what)))
    assert record.state is ReplicaState.ACTIVE
    assert record.order == (2, 0, 1)
    with h5py.File(source) as original, h5py.File(record.path) as replica:
        assert np.array_equal(replica["cube"][...], original["cube"][...].transpose(2, 0, 1))
        assert replica["cube"].attrs["unit"] == "counts"
    table = read_table(service.home, source)
    (dataset,) = table.datasets
    assert (dataset.path, dataset.extent, dataset.element_size_bytes) == ("/cube", EXTENT, 4)
    assert dataset.data_offset_bytes is not None
    (candidate,) = dataset.candidates
    assert (candidate.replica_id, candidate.order) == (record.id, (2, 0, 1))
    assert steps
    assert steps[-1][0] == 1.0


def test_a_second_order_adds_and_the_same_order_stays(service, source):
    first = service.reorganize(request(source))
    second = service.reorganize(request(source, (1, 2, 0)))
    again = service.reorganize(request(source))
    assert again.id == first.id
    assert [r.id for r in service.replicas(str(source))] == [first.id, second.id]
    (dataset,) = read_table(service.home, source).datasets
    assert {c.order for c in dataset.candidates} == {(2, 0, 1), (1, 2, 0)}


KINDS = {
    "chunked": {"chunks": (4, 12, 10), "compress": "shuffle,gzip:1"},
    "partial": {"region": "[2:20, :, 5]"},
    "both": {"chunks": "auto", "compress": "gzip", "region": "[2:20, 3:, :]"},
}


def reads_of(source, dataset=None, **options):
    """Return a question about the reads of a file, or of one dataset."""
    return AdviceRequest(datasets=(NamedDataset(file=str(source), dataset=dataset),), **options)


def advice_request(source, n_reads=10**6, **options):
    return reads_of(source, "/cube", selection="[:, :, 3]", n_reads=n_reads, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_replicas_of_every_kind_are_built_and_published(service, source, kind):
    record = service.reorganize(request(source, **KINDS[kind]))
    assert record.state is ReplicaState.ACTIVE
    assert service.replica(record.id) == record
    region = record.region
    box = zip(region.start, region.extent, strict=True)
    with h5py.File(source) as original, h5py.File(record.path) as replica:
        expected = original["cube"][tuple(slice(a, a + n) for a, n in box)]
        assert np.array_equal(replica["cube"][...], expected.transpose(2, 0, 1))
    (dataset,) = read_table(service.home, source).datasets
    (candidate,) = dataset.candidates
    assert dataset.extent == EXTENT
    assert candidate.region_in(EXTENT) == region
    assert candidate.chunk_shape == record.chunk_shape
    assert candidate.decode_s_per_byte == record.replica.decode_s_per_byte
    if record.storage == "chunked":
        assert (candidate.data_offset_bytes, candidate.metadata_crc32c) == (0, 0)
        assert candidate.stored_bytes == record.stored_bytes > 0
        assert service.status().replica_bytes == record.stored_bytes
    else:
        assert candidate.data_offset_bytes > 0
        assert candidate.decode_s_per_byte == 0


def test_each_kind_of_one_order_is_a_replica_of_its_own(service, source):
    made = [service.reorganize(request(source))]
    made += [service.reorganize(request(source, **kind)) for kind in KINDS.values()]
    assert len({record.path for record in made}) == len({record.id for record in made}) == 4
    again = [service.reorganize(request(source, **kind)) for kind in KINDS.values()]
    assert [record.id for record in again] == [record.id for record in made[1:]]
    (dataset,) = read_table(service.home, source).datasets
    assert [c.replica_id for c in dataset.candidates] == [record.id for record in made]


def test_a_chunked_source_is_published_with_what_its_chunks_cost(service, tmp_path):
    path = tmp_path / "chunked.h5"
    cube = np.arange(np.prod(EXTENT), dtype="<f4").reshape(EXTENT)
    with h5py.File(path, "w") as handle:
        handle.create_dataset("cube", data=cube, chunks=(8, 8, 8), compression="gzip")
        stored_bytes = handle["cube"].id.get_storage_size()
    record = service.reorganize(request(path))
    (dataset,) = read_table(service.home, path).datasets
    assert (dataset.chunk_shape, dataset.stored_bytes) == ((8, 8, 8), stored_bytes)
    assert dataset.decode_s_per_byte == record.replica.source_decode_s_per_byte > 0
    before = table_path(service.home, path).read_bytes()
    service.recover()
    assert table_path(service.home, path).read_bytes() == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_replica_of_any_kind_is_found(service, source, kind):
    record = service.reorganize(request(source, **KINDS[kind]))
    assert service.verify().ok
    flip(Path(record.path), Path(record.path).stat().st_size // 2)
    assert not service.verify().ok
    assert service.replica(record.id).state is ReplicaState.DAMAGED
    assert not table_path(service.home, source).exists()


def test_advice_counts_whole_contiguous_replicas_alone_as_there(service, source):
    def considered():
        found = service.advise(advice_request(source)).portfolio
        return [one.layout for one in (*found.layouts, *found.declined)]

    whole = ReplicaLayout.whole(EXTENT, order=(2, 0, 1))
    assert whole in considered()
    for kind in KINDS.values():
        service.reorganize(request(source, **kind))
    service.reorganize(request(source))
    assert whole not in considered()


def test_an_output_is_registered_too(service, source, tmp_path):
    record = service.reorganize(request(source, output=str(tmp_path / "mine.h5")))
    assert record.path == str(tmp_path / "mine.h5")
    assert service.replicas() == (record,)


def test_a_flipped_byte_is_found_and_not_served_from_then_on(service, source):
    damaged = service.reorganize(request(source))
    whole = service.reorganize(request(source, (1, 2, 0)))
    flip(Path(damaged.path), damaged.replica.data_offset_bytes + 100)
    report = service.verify()
    assert not report.ok
    assert [(c.replica.id, c.ok) for c in report.checks] == [(damaged.id, False), (whole.id, True)]
    assert service.replica(damaged.id).state is ReplicaState.DAMAGED
    (dataset,) = read_table(service.home, source).datasets
    assert [c.replica_id for c in dataset.candidates] == [whole.id]
    assert not service.verify(damaged.id).ok
    rebuilt = service.reorganize(request(source))
    assert rebuilt.state is ReplicaState.ACTIVE
    assert service.verify().ok


def test_a_replica_whose_file_is_gone_is_retired(service, source):
    record = service.reorganize(request(source))
    Path(record.path).unlink()
    report = service.verify()
    assert (report.ok, report.checks[0].replica.state) == (False, ReplicaState.RETIRED)
    assert not table_path(service.home, source).exists()


def test_removing_takes_file_and_table(service, source):
    record = service.reorganize(request(source))
    removed = service.remove(record.id)
    assert removed.state is ReplicaState.RETIRED
    assert not Path(record.path).exists()
    assert not table_path(service.home, source).exists()
    assert service.replicas() == ()
    assert [r.id for r in service.replicas(all_states=True)] == [record.id]
    service.remove(record.id)
    with pytest.raises(NotFoundError, match="no replica 99"):
        service.remove(99)


def test_removing_leaves_alone_what_is_another_file_now(service, source, tmp_path):
    record = service.reorganize(request(source, output=str(tmp_path / "mine.h5")))
    Path(record.path).unlink()
    Path(record.path).write_text("my notes")
    service.remove(record.id)
    assert Path(record.path).read_text() == "my notes"


def test_a_changed_source_retires_its_replicas(service, own_source):
    record = service.reorganize(request(own_source))
    with h5py.File(own_source, "r+") as handle:
        handle["cube"][0, 0, 0] = -1
    (retired,) = service.collect_garbage().replicas_retired
    assert (retired.id, retired.state) == (record.id, ReplicaState.RETIRED)
    assert "changed" in retired.reason
    assert not Path(record.path).exists()
    assert not table_path(service.home, own_source).exists()


@pytest.mark.parametrize("kind", [{}, *KINDS.values()])
def test_a_source_that_was_only_touched_is_compared_again_and_served_again(
    service, own_source, kind
):
    record = service.reorganize(request(own_source, **kind))
    own_source.chmod(0o640)
    assert service.collect_garbage().replicas_retired == ()
    again = service.replica(record.id)
    assert again.state is ReplicaState.ACTIVE
    now = source_identity(own_source, trusted=trusted_directories(service.home))
    assert again.source_identity == now != record.source_identity
    assert "compared again" in again.reason
    assert read_table(service.home, own_source).source_identity == now


@pytest.mark.parametrize("kind", [{}, KINDS["chunked"]])
def test_a_source_with_other_bytes_under_the_same_mtime_is_found_out(service, own_source, kind):
    record = service.reorganize(request(own_source, **kind))
    before = own_source.stat()
    flip(own_source, service.datasets()[0].data_offset_bytes + 100)
    os.utime(own_source, ns=(before.st_atime_ns, before.st_mtime_ns))
    (retired,) = service.collect_garbage().replicas_retired
    assert (retired.id, "differs" in retired.reason) == (record.id, True)


def test_a_touched_source_is_not_served_before_it_is_compared(service, own_source):
    service.reorganize(request(own_source))
    own_source.chmod(0o640)
    service.reorganize(request(own_source, (1, 2, 0)))
    (dataset,) = read_table(service.home, own_source).datasets
    assert [c.order for c in dataset.candidates] == [(1, 2, 0)]


# 1960, and 2300, which fits no int64 of nanoseconds.
STRANGE_TIMES_NS = (-315_000_000 * 10**9, 10_414_000_000 * 10**9)


@pytest.mark.parametrize("time_ns", STRANGE_TIMES_NS)
def test_times_that_no_table_holds_are_refused_in_words(service, own_source, time_ns):
    os.utime(own_source, ns=(0, time_ns))
    if own_source.stat().st_mtime_ns != time_ns:
        pytest.skip("this file system does not keep the time")
    with pytest.raises(UnsupportedError, match=r"modification time of .*own.h5 is .* with touch"):
        service.reorganize(request(own_source))
    assert service.replicas() == ()


@pytest.mark.parametrize("time_ns", STRANGE_TIMES_NS)
def test_a_source_that_cannot_be_published_stops_no_other(service, own_source, source, time_ns):
    first = service.reorganize(request(own_source))
    os.utime(own_source, ns=(0, time_ns))
    if own_source.stat().st_mtime_ns != time_ns:
        pytest.skip("this file system does not keep the time")
    other = service.reorganize(request(source))
    service.collect_garbage()
    assert service.replica(other.id).state is ReplicaState.ACTIVE
    assert read_table(service.home, source) is not None
    assert not table_path(service.home, own_source).exists()
    assert service.reorganize(request(source, (1, 2, 0))).state is ReplicaState.ACTIVE
    assert [record.id for record in service.replicas()] != [first.id]


def test_names_that_are_not_utf8_are_refused_in_words(service, own_source, source):
    latin = own_source.rename(own_source.with_name(os.fsdecode(b"\xe9t\xe9.h5")))
    with pytest.raises(UnsupportedError, match=r"udce9t.*is not UTF-8.*another name"):
        service.reorganize(request(latin))
    assert service.reorganize(request(source)).state is ReplicaState.ACTIVE


def test_a_source_that_is_gone_retires_its_replicas_but_not_the_user_s_files(
    service, own_source, tmp_path
):
    inside = service.reorganize(request(own_source))
    outside = service.reorganize(request(own_source, (0, 2, 1), output=str(tmp_path / "b.h5")))
    own_source.unlink()
    assert len(service.collect_garbage().replicas_retired) == 2
    assert not Path(inside.path).exists()
    assert Path(outside.path).exists()
    assert service.replicas() == ()


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ({"file": "/nowhere/run.h5"}, FileMissingError, "/nowhere/run.h5"),
        ({"dataset": "/nothing"}, DatasetNotFoundError, "/cube"),
        ({"order": (1, 0)}, LayoutError, "3 axes"),
        ({"chunks": (5, 5)}, LayoutError, "'5,5' have 2 axes"),
        ({"chunks": (99, 5, 5)}, LayoutError, "length 99"),
        ({"compress": "rle"}, ConfigurationError, "'rle'"),
        ({"region": "[::2]"}, SelectionError, "step 2"),
    ],
)
def test_bad_requests_leave_nothing_behind(service, source, fault, error, message):
    asked = {"file": str(source), "dataset": "/cube", "order": (2, 0, 1)} | fault
    with pytest.raises(error, match=message):
        service.reorganize(ReorganizeRequest(**asked))
    assert service.replicas(all_states=True) == ()
    assert not list(service.home.tables.iterdir())


def test_no_hdf5_is_said_so(service, tmp_path):
    (tmp_path / "notes.txt").write_text("not HDF5")
    with pytest.raises(NotHdf5Error, match=r"notes\.txt"):
        service.reorganize(request(tmp_path / "notes.txt"))
    with pytest.raises(NotHdf5Error, match=r"notes\.txt"):
        service.advise(reads_of(tmp_path / "notes.txt"))


def test_advice_from_traces_is_kept(service, source, write_spool):
    write_spool(10_000)
    service.ingest()
    advice = service.advise(reads_of(source))
    (given,) = service.recommendations(str(source))
    assert (given.file, given.dataset) == (str(source), "/cube")
    assert (given.recommendation,) == advice.portfolio.of_each()
    assert given.recommendation.seconds_now == advice.portfolio.seconds_now > 0


def test_advice_on_a_stated_pattern_needs_no_trace(service, source):
    service.advise(advice_request(source))
    (given,) = service.recommendations()
    assert given.recommendation.seconds_now > 0


def test_advice_without_traces_says_what_to_do(service, source):
    assert "sds run" in service.advise(reads_of(source)).notes[0]
    assert "state a selection" in service.advise(reads_of(source, "/cube")).notes[0]


@pytest.mark.parametrize(
    ("dataset", "options", "error"),
    [
        (None, {"selection": "[0]"}, SdsValueError),
        ("/cube", {"n_reads": 5}, SdsValueError),
        ("/cube", {"selection": "[99]"}, SelectionError),
        ("/cube", {"selection": "what?"}, SelectionError),
        ("/nothing", {}, DatasetNotFoundError),
    ],
)
def test_bad_questions_are_refused(service, source, dataset, options, error):
    with pytest.raises(error):
        service.advise(reads_of(source, dataset, **options))


def test_a_calibration_is_used_for_its_file_system(service, source, tmp_path):
    service.reorganize(request(source))
    service.reorganize(request(source, **KINDS["chunked"]))
    assert not read_table(service.home, source).datasets[0].model.calibrated
    settings = CalibrationSettings(space_bytes=1 << 20, budget_s=8.0, max_rounds=1)
    record = service.calibrate(CalibrateRequest(path=str(tmp_path), settings=settings))
    assert record.device == tmp_path.stat().st_dev
    assert service.calibrations() == (record,)
    assert service.status().calibrated == (record.mount_point,)
    expected, _ = models_for_table(record.calibration)
    model = read_table(service.home, source).datasets[0].model
    assert (model.calibrated, model.coefficients) == (expected.calibrated, expected.coefficients)
    # A replica in chunks is read through HDF5, a contiguous one by the engine.
    for candidate in read_table(service.home, source).datasets[0].candidates:
        chunked = candidate.chunk_shape is not None
        _, expected = models_for_table(record.calibration, chunked=chunked)
        assert candidate.model.coefficients == expected.coefficients


def test_traces_are_compared_with_calibrations_and_fitted(
    service, calibrated, tmp_path, write_spool
):
    before = calibrated(service)
    write_spool(16)
    first = service.refit(str(tmp_path)).file_systems[0]
    assert first.n_reads > 0
    assert first.changed == ""
    assert first.refitted == (first.n_fitted > 0)
    # Every traced read is either fitted or left out for a reason that is said.
    left_out = {one.reason: one.n_reads for one in first.left_out}
    assert first.n_fitted + sum(left_out.values()) == first.n_reads
    assert all(one.n_reads > 0 for one in first.left_out)
    (after,) = service.calibrations()
    assert after.id == before.id
    n_traced = sum(m.n_traced for m in after.calibration.measurements)  # a loop is one of them
    assert n_traced <= first.n_fitted
    assert (n_traced > 0) == (first.n_fitted > 0)
    again = service.perform(RefitRequest(), lambda *_: None).file_systems[0]
    assert not again.refitted
    assert service.calibrations() == (after,)


@pytest.mark.parametrize("region", [None, "[:, :, 0:4]"])
def test_of_replicas_only_those_of_whole_datasets_are_fitted_to(
    service, calibrated, source, write_spool, region
):
    """What a read of a part touched does not follow from the extent of the dataset."""
    options = {} if region is None else {"region": region}
    replica = service.reorganize(request(source, **options))
    record = calibrated(service)
    write_spool(1, served_by=replica.id)
    traced = TracedReads(service.home, service._store, service._models)
    assert len(traced.on(record)) == (1 if region is None else 0)
    assert traced.left_out == ({} if region is None else {LeftOut.REPLICA: 1})


def test_every_traced_read_is_counted_however_few_records_hold_them(
    service, calibrated, write_spool
):
    record = calibrated(service)
    write_spool(16)
    traced = TracedReads(service.home, service._store, service._models)
    reads = traced.on(record)
    assert len(reads) < 16
    assert sum(read.n_reads for read in reads) + sum(traced.left_out.values()) == 16
    assert all(read.seconds == pytest.approx(500e-6) for read in reads)
    (found,) = service.refit().file_systems
    assert found.n_fitted + sum(one.n_reads for one in found.left_out) == 16


def test_another_file_system_is_told_once_and_not_fitted(service, calibrated, source, write_spool):
    record = calibrated(service)
    was = replace(record.calibration.file_system, source="/dev/another", kind="otherfs")
    service._store.replace_calibration(record.id, replace(record.calibration, file_system=was))
    write_spool(16)
    for _ in range(2):
        (found,) = service.refit().file_systems
        assert "its kind was otherfs" in found.changed
        assert not found.refitted
    changed = [e for e in service.events() if (e.subject, e.kind) == ("calibration", "changed")]
    assert len(changed) == 1
    (note,) = service.calibration_report().notes
    assert "sds calibrate" in note
    service.ingest()
    assert note in service.advise(reads_of(source)).notes
    # Calibrated again, nothing is said any more.
    calibrated(service)
    assert service.calibration_report().notes == ()


def test_file_systems_that_were_never_calibrated_are_not_refitted(service, tmp_path):
    assert service.refit().file_systems == ()
    with pytest.raises(NotFoundError, match="never calibrated"):
        service.refit(str(tmp_path))


def test_calibrating_nowhere_is_refused(service):
    with pytest.raises(FileMissingError, match="/nowhere"):
        service.calibrate(CalibrateRequest(path="/nowhere"))


def test_status_counts(service, source, write_spool):
    write_spool(16)
    before = service.status()
    assert (before.spool_files, before.reads) == (1, 0)
    assert before.spool_pending_bytes > 0
    service.ingest()
    service.reorganize(request(source))
    service.submit(IngestRequest())
    after = service.status()
    assert (after.reads, after.spool_pending_bytes, after.datasets) == (16, 0, 1)
    assert (after.replicas["active"], after.jobs["queued"]) == (1, 1)
    assert after.server is None


def test_another_process_that_works_is_waited_for_and_then_named(service, home):
    other = HomeLock(home, wait_s=0)
    with other.held(), pytest.raises(BusyError, match="works with"):
        service.ingest()
    service.ingest()


def test_reading_needs_no_lock(service, home):
    with HomeLock(home, wait_s=0).held():
        assert service.replicas() == ()
        assert service.status().replica_bytes == 0


def test_every_operation_can_be_a_job(service, source):
    for asked in (IngestRequest(), VerifyRequest(), request(source)):
        assert service.perform(asked, lambda *_: None) is not None
        assert service.cancel(service.submit(asked).id).state is JobState.CANCELLED
    assert [job.state for job in service.jobs()] == [JobState.CANCELLED] * 3


@pytest.mark.parametrize("kind", [{}, *KINDS.values()])
def test_a_whole_replica_whose_builder_was_killed_is_adopted(service, source, kind):
    record = service.reorganize(request(source, **kind))
    with service._store.writing() as session:
        from sqlalchemy import text

        session.execute(text("UPDATE replica SET state = 'building', replica = NULL"))
    service.home.tables.joinpath(table_path(service.home, source).name).unlink()
    report = service.recover()
    assert report.replicas_finished == (record.id,)
    assert service.replica(record.id).state is ReplicaState.ACTIVE
    assert read_table(service.home, source).datasets[0].candidates[0].replica_id == record.id


def test_a_replica_that_is_not_whole_is_never_adopted(service, source):
    record = service.reorganize(request(source))
    flip(Path(record.path), record.replica.data_offset_bytes + 1)
    with service._store.writing() as session:
        from sqlalchemy import text

        session.execute(text("UPDATE replica SET state = 'building', replica = NULL"))
    report = service.recover()
    assert report.replicas_dropped == (record.id,)
    assert service.replica(record.id).state is ReplicaState.RETIRED
    assert not Path(record.path).exists()
    assert not table_path(service.home, source).exists()


def test_recovering_twice_changes_nothing(service, source):
    service.reorganize(request(source))
    first = service.recover()
    before = table_path(service.home, source).read_bytes()
    assert service.recover() == first
    assert table_path(service.home, source).read_bytes() == before


def test_calibrations_are_read_anew_where_any_process_changed_them_and_only_there(home, calibrated):
    """Each table asks for them, twice for each replica."""
    with Service.open(home, Settings()) as one, Service.open(home, Settings()) as other:
        assert other.calibrations() == ()
        record = calibrated(one)
        found = other.calibrations()
        assert [each.id for each in found] == [record.id]
        assert other.calibrations() is found
        one._store.replace_calibration(record.id, record.calibration)
        again = other.calibrations()
        assert again == found
        assert again is not found


def test_a_table_that_nobody_stands_behind_is_withdrawn(service, source):
    service.reorganize(request(source))
    table = table_path(service.home, source)
    stray = service.home.tables / ("0" * 32 + ".sdst")
    shutil.copy(table, stray)
    assert service.recover().tables_withdrawn == (stray.name,)
    assert table.exists()


def test_deleting_the_whole_home_loses_no_data(source, tmp_path):
    before = source.read_bytes()
    for _ in range(2):
        with Service.open(Home(tmp_path / "h"), Settings()) as service:
            assert service.reorganize(request(source)).id == 1
        shutil.rmtree(tmp_path / "h")
    assert source.read_bytes() == before


def test_settings_of_striping_and_raid_reach_the_table(home, source):
    settings = Settings(
        stripe_size_bytes=65536,
        stripe_count=4,
        raid_unit_bytes=512,
        raid_data_disks=8,
        raid_min_request_bytes=8192,
    )
    with Service.open(home, settings) as service:
        service.reorganize(request(source))
        (dataset,) = read_table(service.home, source).datasets
    assert (dataset.stripes.stripe_size_bytes, dataset.stripes.stripe_count) == (65536, 4)
    raid = dataset.raid
    assert (raid.unit_bytes, raid.data_disks, raid.min_request_bytes) == (512, 8, 8192)
    assert dataset.candidates[0].raid == raid


def test_a_setting_puts_the_catalog_elsewhere(home, tmp_path):
    with Service.open(home, Settings(database_url=f"sqlite:///{tmp_path}/elsewhere.db")) as service:
        assert service.status().database.endswith("elsewhere.db")
    assert (tmp_path / "elsewhere.db").exists()
    assert not home.database.exists()


def test_a_setting_says_how_often_a_job_is_begun(home):
    with Service.open(home, Settings(job_attempts=1)) as service:
        job = service.submit(IngestRequest())
        service.queue.claim()
        assert service.recover().jobs_failed == (job.id,)


def test_a_command_puts_in_order_what_a_killed_one_left(home, source):
    with Service.open(home, Settings()) as service:
        job = service.submit(IngestRequest())
        service.queue.claim()
    with Service.open(home, Settings()) as service:
        service.reorganize(request(source))
        assert service.job(job.id).state is JobState.QUEUED


def test_events_tell_the_life_of_a_replica(service, source):
    service.remove(service.reorganize(request(source)).id)
    kinds = [event.kind for event in service.events() if event.subject == "replica"]
    assert kinds == ["retired", "active", "building"]
    assert all(event.time_ns <= time.time_ns() for event in service.events())


def test_a_portfolio_counts_replicas_that_exist(service, wide):
    first = service.advise(advice_request(wide))
    (layout,) = first.portfolio.layouts
    assert layout.layout.order == (2, 0, 1)
    service.reorganize(request(wide, chunks=(16, 16, 16)))
    chunked = service.advise(advice_request(wide))
    assert chunked.portfolio.seconds_now < first.portfolio.seconds_now
    service.reorganize(request(wide))
    after = service.advise(advice_request(wide))
    assert not after.portfolio.layouts
    assert after.portfolio.seconds_now == pytest.approx(first.portfolio.seconds_then)


def test_the_budget_is_that_of_the_setting_and_never_beyond_the_disk_unsaid(home, wide):
    with Service.open(home, Settings(replica_budget_bytes=1000)) as service:
        advice = service.advise(advice_request(wide))
        assert advice.portfolio.budget_bytes == 1000
        assert not advice.portfolio.layouts
        given = service.advise(advice_request(wide, budget_bytes=2**40))
        assert given.portfolio.budget_bytes == 2**40
    with Service.open(home, Settings()) as service:
        free = shutil.disk_usage(home.root).free
        budget = service.advise(advice_request(wide)).portfolio.budget_bytes
        assert 0.5 * free < budget < 2 * free


def test_stripes_are_advised_only_where_the_site_has_and_allows_them(home, wide):
    for settings, words in (
        (Settings(), "no stripes to choose"),
        (Settings(ost_count=100, stripe_advice=False), "does not let users"),
        (Settings(ost_count=100), "cannot tell from no gain"),
    ):
        with Service.open(home, settings) as service:
            stripes = service.advise(advice_request(wide)).stripes
            assert stripes.command is None
            assert words in stripes.reason


def test_what_if_takes_away_active_replicas_of_the_dataset_alone(service, wide, tmp_path):
    def without(*numbers):
        return service.what_if(
            WhatIfRequest(
                file=str(wide),
                dataset="/cube",
                without=numbers,
                selection="[:, :, 3]",
                n_reads=1000,
            )
        )

    whole = service.reorganize(request(wide))
    assert without(whole.id).saving.seconds < 0
    assert without(whole.id, whole.id) == without(whole.id)
    alike = service.reorganize(request(wide, output=str(tmp_path / "alike.h5")))
    assert without(whole.id).saving.seconds == without(alike.id, alike.id).saving.seconds == 0
    assert without(whole.id, alike.id).saving.seconds < 0
    service.remove(alike.id)
    service.remove(whole.id)
    elsewhere = service.reorganize(request(wide, region="[:, :, 4:8]"))
    assert without(elsewhere.id).saving.seconds == 0
    part = service.reorganize(request(wide, region="[:, :, 0:4]"))
    lost = without(part.id)
    assert lost.saving.seconds < 0
    assert (lost.patterns[0].from_now, lost.patterns[0].from_then) == (
        "order 2,0,1, of [0:64, 0:64, 0:4]",
        "original",
    )
    with pytest.raises(SdsValueError, match="serves no reads"):
        without(whole.id)
    with pytest.raises(SdsValueError, match="nothing to predict"):
        service.what_if(WhatIfRequest(file=str(wide), dataset="/cube", order=(2, 0, 1)))


def test_a_portfolio_needs_something_to_choose_for(service, source):
    with pytest.raises(SdsValueError, match="at least one"):
        service.advise(AdviceRequest(datasets=()))
    name = NamedDataset(file=str(source), dataset="/cube")
    with pytest.raises(SdsValueError, match="one dataset at a time"):
        service.advise(AdviceRequest(datasets=(name, name), selection="[0]"))
    advice = service.advise(AdviceRequest(datasets=(name,)))
    assert not advice.portfolio.layouts
    assert any("sds run" in note for note in advice.notes)
