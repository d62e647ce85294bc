"""Evaluation of what was read: advice kept ready, and what mode auto makes of it."""

import itertools
import os
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds import _native, _spool_writer
from sds.catalog.records import JobState, ReplicaState
from sds.catalog.requests import (
    IngestRequest,
    PolicyRequest,
    ReorganizeRequest,
    StatedReadsRequest,
)
from sds.errors import CatalogError, NotFoundError
from sds.organizer import build
from sds.server.operations import dataset_workloads
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.organizer.sources import settle
from tests.server.conftest import add_planes
from tests.waiting import wait_until

N_READS = 40
EXTENT = (64, 64, 256)
pids = itertools.count(2**22 + 1)


@pytest.fixture
def cube(tmp_path):
    return write_cube(tmp_path / "cube.h5")


def write_cube(path):
    with h5py.File(path, "w") as file:
        file["cube"] = np.zeros(EXTENT, "<f4")
    settle(path)
    return path


@pytest.fixture
def open_service(home):
    """Open the service of the home with some settings."""
    opened = []

    def open_service(**settings):
        given = {"mode": "auto", "quiet_source_s": 0.0, "lock_wait_s": 0.2} | settings
        opened.append(Service.open(home, Settings(**given)))
        return opened[-1]

    yield open_service
    for service in opened:
        service.close()


@pytest.fixture
def trace(home):
    """Trace a program that reads planes across the cube, slowly."""

    def trace(service, *sources, took_ns=30_000_000, n_reads=N_READS, **how):
        home.create()
        for source in sources:
            writer = _spool_writer.SpoolWriter(
                home.spool, pid=next(pids), start_ns=1_000, host=os.uname().nodename,
                executable="/usr/bin/python3",
            )  # fmt: skip
            now = {"first_ns": time.time_ns(), "extent": EXTENT}
            add_planes(writer, source, n_reads, took_ns=took_ns, **(now | how))
            writer.close()
        service.ingest()

    return trace


def work(service):
    """Do the jobs that wait, as the server's worker would; return what each built."""
    built = []
    while (job := service.queue.claim()) is not None:
        built.append(service.perform(job.request, lambda *_: None))
        service.queue.finish(job.id, {})
    return built


def test_observed_reads_are_advised_on_and_nothing_is_built(open_service, trace, cube):
    service = open_service(mode="observe")
    assert service.evaluate() is None, "nothing was read"
    trace(service, cube)
    evaluated = service.evaluate()
    assert (evaluated.jobs, evaluated.is_final) == ((), True)
    (recommendation,) = service.recommendations()
    assert recommendation.recommendation.layouts
    status = service.status()
    assert (status.mode, status.jobs["queued"]) == ("observe", 0)
    assert status.advice.n_layouts == len(recommendation.recommendation.layouts)
    assert status.advice.commands[0].startswith(f"sds reorganize {cube}:/cube --order 2,")
    assert 0 <= time.time_ns() - status.advice.found_ns < 6e11


def test_nothing_is_evaluated_in_mode_off(open_service, trace, cube):
    service = open_service(mode="off")
    trace(service, cube)
    assert service.evaluate() is None
    assert (service.status().mode, service.status().advice) == ("off", None)


def test_what_pays_is_built_in_shadow_and_once(open_service, trace, cube):
    service = open_service()
    trace(service, cube)
    (job,) = service.evaluate().jobs
    assert (job.priority, job.request.shadow, job.request.order[0]) == (1, True, 2)
    (event,) = [one for one in service.events() if one.kind == "planned"]
    assert event.reason.startswith(f"sds reorganize {cube}:/cube --order 2,")
    assert "--shadow: " in event.reason
    assert event.numbers["saves_s_per_day"] > 0
    assert service.evaluate().jobs == (), "it waits"
    (replica,) = work(service)
    assert replica.state is ReplicaState.SHADOW
    trace(service, cube)
    assert service.evaluate().jobs == (), "it is there"
    assert service.recommendations()[0].recommendation.layouts == ()


def test_what_was_not_faster_is_not_built_again_until_its_source_changes(open_service, trace, cube):
    service = open_service()
    trace(service, cube)
    service.evaluate()
    (replica,) = work(service)
    for _ in range(8):
        trace(service, cube, served_by=replica.id, took_ns=90_000_000)
        trace(service, cube, left_by=replica.id)
    assert service.replica(replica.id).state is ReplicaState.REVERTED
    evaluated = service.evaluate()
    assert all(job.request.order != replica.order for job in evaluated.jobs)
    (recommendation,) = service.recommendations()
    advised = [one.layout for one in recommendation.recommendation.layouts]
    assert replica.layout not in advised, "what was measured beats what is predicted"

    with h5py.File(cube, "r+") as file:
        file["cube"][0, 0, 0] = 7
    settle(cube)
    service.collect_garbage()
    for job in evaluated.jobs:
        service.cancel(job.id)
    assert replica.order in [job.request.order for job in service.evaluate().jobs]


def test_a_replica_of_a_source_that_changed_is_built_anew_once_it_is_quiet(
    open_service, trace, cube
):
    """Without further reads."""
    service = open_service(quiet_source_s=30.0)
    long_ago_s = time.time() - 3600
    os.utime(cube, (long_ago_s, long_ago_s))
    trace(service, cube)
    service.evaluate()
    (replica,) = work(service)
    with h5py.File(cube, "r+") as file:
        file["cube"][0, 0, 0] = 7
    service.to_evaluate.clear()
    service.collect_garbage()
    assert service.replica(replica.id).state is ReplicaState.RETIRED
    assert service.to_evaluate.is_set()
    assert not service.evaluate().is_final, "it was written a moment ago"
    os.utime(cube, (long_ago_s, long_ago_s))
    assert [job.request.order for job in service.evaluate().jobs] == [replica.order]
    (again,) = work(service)
    assert (again.state, again.id == replica.id) == (ReplicaState.SHADOW, False)


def test_what_a_person_removed_is_not_built_again(open_service, trace, cube):
    service = open_service()
    trace(service, cube)
    service.evaluate()
    (replica,) = work(service)
    service.remove(replica.id)
    assert all(job.request.order != replica.order for job in service.evaluate().jobs)


@pytest.mark.parametrize("how", ["removed", "reverted"])
def test_what_is_like_what_was_tried_is_not_built_either(open_service, trace, cube, how):
    """Regions follow the reads, and change with each: a budget for a part lets parts be built."""
    service = open_service(replica_budget_bytes=3 << 20)
    trace(service, cube)
    (job,) = service.evaluate().jobs
    assert job.request.region is not None
    (replica,) = work(service)
    if how == "removed":
        service.remove(replica.id)
    else:
        service._store.set_replica(replica.id, ReplicaState.REVERTED, "measured slower")
    for last in (41, 45, 60):
        trace(service, cube, n_reads=last)
        assert all(job.request.order != replica.order for job in service.evaluate().jobs)
        for other in service.jobs(JobState.QUEUED):
            service.cancel(other.id)


def test_while_it_builds_nothing_more_is_queued(open_service, trace, cube, tmp_path):
    """So that what is built counts in the budget before more is planned."""
    service = open_service()
    trace(service, cube)
    assert service.evaluate().jobs
    trace(service, write_cube(tmp_path / "other.h5"))
    evaluated = service.evaluate()
    assert (evaluated.jobs, evaluated.is_final) == ((), False)
    work(service)
    assert [job.request.file for job in service.evaluate().jobs] == [str(tmp_path / "other.h5")]


def test_half_of_the_queue_is_for_people(open_service, trace, cube):
    service = open_service(max_queued_jobs=2)
    trace(service, cube)
    service.submit(IngestRequest())
    evaluated = service.evaluate()
    assert (evaluated.jobs, evaluated.is_final) == ((), False)
    service.submit(IngestRequest())


def test_a_time_in_the_future_is_no_reason_to_wait(open_service, trace, cube):
    service = open_service(quiet_source_s=3600.0)
    os.utime(cube, (time.time() + 10**6,) * 2)
    trace(service, cube)
    assert service.evaluate().is_final


def test_something_is_evaluated_after_whatever_may_change_advice(open_service, trace, cube):
    service = open_service()

    def is_due():
        found = service.to_evaluate.is_set()
        service.to_evaluate.clear()
        return found

    assert is_due(), "at the start"
    assert not is_due()
    trace(service, cube)  # also where a command has the server count
    assert is_due()
    service.ingest()
    assert not is_due()
    service.set_policy(PolicyRequest(path=str(cube), mode="auto"))
    assert is_due()
    service.unset_policy(str(cube))
    assert is_due()


def test_what_failed_is_not_tried_again_on_the_same_day(open_service, trace, cube):
    service = open_service()
    trace(service, cube)
    (job,) = service.evaluate().jobs
    service.queue.claim()
    service.queue.fail(job.id, "the disk is full")
    assert service.evaluate().jobs == ()


def test_what_failed_on_an_earlier_state_of_the_source_is_tried_on_the_next(
    open_service, trace, cube
):
    service = open_service()
    trace(service, cube)
    (job,) = service.evaluate().jobs
    begun_ns = service.queue.claim().started_ns

    def is_changed():
        with h5py.File(cube, "r+") as file:
            file["cube"][0, 0, 0] = 7
        return cube.stat().st_mtime_ns > begun_ns

    wait_until(is_changed, "file systems count time in steps")
    service.queue.fail(job.id, "the source changed while it was copied")
    assert [again.request for again in service.evaluate().jobs] == [job.request]


def test_reads_that_are_to_come_are_built_for(open_service, cube):
    service = open_service()
    assert service.evaluate() is None, "nothing was read"
    stated = service.state_reads(
        StatedReadsRequest(
            file=str(cube), dataset="/cube", selection="[:, :, 3]", n_reads_per_day=10**6
        )
    )
    assert 0 < service.newest_statement_ns() <= time.time_ns()
    (job,) = service.evaluate().jobs
    assert job.request.order[0] == 2
    service.cancel(job.id)
    service.forget_reads(stated.id)
    assert service.evaluate() is None


def test_what_a_person_could_not_build_says_nothing(open_service, trace, cube):
    service = open_service()
    trace(service, cube)
    asked = service.submit(
        ReorganizeRequest(file=str(cube), dataset="/cube", order=(2, 0, 1), chunks=None)
    )
    service.cancel(asked.id)
    assert service.evaluate().jobs


def test_a_source_that_is_being_written_is_left_for_later(open_service, trace, cube):
    service = open_service(quiet_source_s=3600.0)
    trace(service, cube)
    evaluated = service.evaluate()
    assert (evaluated.jobs, evaluated.is_final) == ((), False)
    long_ago_s = time.time() - 7200
    os.utime(cube, (long_ago_s, long_ago_s))
    assert [job.request.file for job in service.evaluate().jobs] == [str(cube)]


def test_a_file_that_cannot_be_looked_at_leaves_the_others(
    open_service, trace, cube, tmp_path, monkeypatch
):
    gone, broken, odd = (write_cube(tmp_path / name) for name in ("gone.h5", "broken.h5", "odd.h5"))
    service = open_service()
    trace(service, gone, broken, odd, cube)
    gone.unlink()
    broken.write_text("this is text")
    described = dataset_workloads.describe_dataset

    def describe(file, dataset):
        if file == str(odd):
            raise RuntimeError("h5py, of a file with a wrong byte")
        return described(file, dataset)

    monkeypatch.setattr(dataset_workloads, "describe_dataset", describe)
    assert [job.request.file for job in service.evaluate().jobs] == [str(cube)]
    advice = service.advise_all()
    for path in (gone, broken, odd):
        assert any(note.startswith(f"{path}:/cube is left out: ") for note in advice.notes)


@pytest.mark.parametrize("budget", [1000, 1 << 22])
def test_no_more_is_built_than_the_budget_holds(open_service, trace, cube, tmp_path, budget):
    service = open_service(replica_budget_bytes=budget)
    trace(service, cube, write_cube(tmp_path / "other.h5"))
    for _ in range(3):
        service.evaluate()
        work(service)
        trace(service, cube)
    sizes = [one.size_bytes for one in service.replicas()]
    assert sum(sizes) <= budget
    assert bool(sizes) == (budget > 1000)


def test_people_come_first(open_service, trace, cube):
    service = open_service()
    trace(service, cube)
    (own,) = service.evaluate().jobs
    asked = service.submit(IngestRequest())
    assert own.id < asked.id
    assert [service.queue.claim().id for _ in range(2)] == [asked.id, own.id]


def test_a_restart_finds_what_waits_and_queues_nothing_twice(open_service, trace, cube):
    service = open_service()
    trace(service, cube)
    (job,) = service.evaluate().jobs
    service.queue.claim()
    service.close()
    again = open_service()
    again.recover()
    assert again.queue.job(job.id).state is JobState.QUEUED
    assert again.evaluate().jobs == ()
    (replica,) = work(again)
    assert Path(replica.path).exists()


def test_a_request_builds_what_was_advised(open_service, trace, cube):
    service = open_service()
    trace(service, cube)
    (job,) = service.evaluate().jobs
    (advised,) = service.recommendations()[0].recommendation.layouts
    assert isinstance(job.request, ReorganizeRequest)
    (replica,) = work(service)
    assert replica.layout == advised.layout


def test_a_note_that_cannot_be_read_is_a_damaged_catalog(open_service):
    service = open_service()
    service._store.set_stamp("evaluated", "?")
    with pytest.raises(CatalogError, match="is no KeptAdvice"):
        service.status()


def test_policies_say_what_is_built(open_service, trace, tmp_path):
    """By directory, file and dataset; the setting counts for the rest."""
    service = open_service(mode="observe")
    sources = []
    for name in ("built", "seen", "left"):
        (tmp_path / name).mkdir()
        sources.append(write_cube(tmp_path / name / "cube.h5"))
    built, seen, left = sources
    service.set_policy(PolicyRequest(path=str(built.parent), mode="auto"))
    service.set_policy(PolicyRequest(path=str(left), dataset="/cube", mode="off"))
    trace(service, *sources)
    jobs = service.evaluate().jobs
    assert [job.request.file for job in jobs] == [str(built)]
    assert {one.file for one in service.recommendations()} == {str(built), str(seen)}
    service.set_policy(PolicyRequest(path=str(tmp_path), mode="off"))
    assert service.policies()[0].mode == "off"
    service.unset_policy(str(tmp_path))
    with pytest.raises(NotFoundError, match="has no policy"):
        service.unset_policy(str(tmp_path))


def test_where_all_is_off_nothing_is_looked_at(open_service, trace, cube):
    service = open_service(mode="off")
    trace(service, cube)
    service.set_policy(PolicyRequest(path="/nowhere", mode="off"))
    assert service.evaluate() is None
    service.set_policy(PolicyRequest(path=str(cube), mode="observe"))
    assert service.evaluate().jobs == ()
    assert service.recommendations()


def test_what_is_observed_takes_nothing_of_the_budget_of_what_is_built(
    open_service, trace, cube, tmp_path
):
    """A reader that loses more is only observed."""
    service = open_service(mode="observe", replica_budget_bytes=1 << 22)
    other = write_cube(tmp_path / "other.h5")
    service.set_policy(PolicyRequest(path=str(cube), mode="auto"))
    trace(service, other, took_ns=300_000_000)
    trace(service, cube)
    assert {job.request.file for job in service.evaluate().jobs} == {str(cube)}


def test_builds_of_mode_auto_are_the_last_to_read_and_write(open_service, trace, cube, monkeypatch):
    seen = []
    reorganize = build.reorganize

    def noted(*given, **named):
        seen.append(_native.io_priority())
        return reorganize(*given, **named)

    monkeypatch.setattr(build, "reorganize", noted)
    service = open_service()
    before = _native.io_priority()
    service.reorganize(ReorganizeRequest(file=str(cube), dataset="/cube", order=(1, 0, 2)))
    trace(service, cube)
    assert service.evaluate().jobs
    work(service)
    assert seen == [before, _native.IDLE_IO_PRIORITY]
    assert _native.io_priority() == before
