"""Builds of the evaluator make way: for jobs of people, and when their hours end."""

import threading

import pytest

from sds.catalog.records import JobState, ReplicaState
from sds.catalog.requests import (
    IngestRequest,
    PolicyRequest,
    ReorganizeRequest,
    VerifyRequest,
)
from sds.server.operations import jobs, stages
from sds.server.operations.evaluation.tried_layouts import PRIORITY
from sds.server.operations.jobs import Background, child_runner
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.server.stages_for_tests import build_once_allowed
from tests.waiting import wait_until


@pytest.fixture
def service(home, monkeypatch):
    """A service whose background works, and whose builds wait for the file `allowed`."""
    monkeypatch.setattr(jobs, "_CANCEL_POLL_S", 0.02)
    monkeypatch.setattr(stages, "build", build_once_allowed)
    stop = threading.Event()
    with (
        Service.open(home, Settings(mode="auto"), run=child_runner(stop)) as service,
        service.lock.held(),
    ):
        service.recover()  # as a server does at its start
        background = Background(service, stop)
        background.start()
        yield service
        background.end(10)


@pytest.fixture
def build(service, source):
    request = ReorganizeRequest(file=str(source), dataset="/cube", order=(2, 0, 1))
    return service.queue.submit(request, priority=PRIORITY)


def comes_to(service, job, state):
    wait_until(lambda: service.queue.job(job.id).state is state, lambda: service.queue.job(job.id))


def allow(service):
    (service.home.root / "allowed").touch()


def test_a_job_of_people_does_not_wait_for_a_build_of_the_evaluator(service, build):
    comes_to(service, build, JobState.RUNNING)
    asked = service.submit(VerifyRequest())
    comes_to(service, asked, JobState.DONE)
    comes_to(service, build, JobState.RUNNING)
    allow(service)
    comes_to(service, build, JobState.DONE)
    assert service.queue.job(build.id).attempts == 1
    assert len(service.replicas()) == 1


def test_a_build_of_people_goes_on_whatever_else_waits(service, source):
    request = ReorganizeRequest(file=str(source), dataset="/cube", order=(2, 0, 1))
    first = service.submit(request)
    comes_to(service, first, JobState.RUNNING)
    second = service.submit(VerifyRequest())
    allow(service)
    comes_to(service, second, JobState.DONE)
    ended = [service.queue.job(job.id).finished_ns for job in (first, second)]
    assert ended == sorted(ended)


def test_the_evaluator_builds_within_its_hours_alone(service, source, monkeypatch):
    hours = threading.Event()
    monkeypatch.setattr(jobs, "is_within", lambda _: hours.is_set())
    request = ReorganizeRequest(file=str(source), dataset="/cube", order=(2, 0, 1))
    build = service.queue.submit(request, priority=PRIORITY)
    comes_to(service, service.submit(VerifyRequest()), JobState.DONE)
    assert service.queue.job(build.id).state is JobState.QUEUED
    hours.set()
    comes_to(service, build, JobState.RUNNING)
    hours.clear()
    comes_to(service, build, JobState.QUEUED)
    assert "build_hours" in service.queue.job(build.id).error
    allow(service)
    hours.set()
    comes_to(service, build, JobState.DONE)
    assert service.queue.job(build.id).error == ""


def test_a_build_that_was_cancelled_does_not_come_back(service, build, monkeypatch):
    comes_to(service, build, JobState.RUNNING)
    monkeypatch.setattr(jobs, "_CANCEL_LOOKS", 10**9)
    service.cancel(build.id)
    monkeypatch.setattr(service.queue, "is_cancel_requested", lambda _: False)
    service.submit(VerifyRequest())
    comes_to(service, build, JobState.CANCELLED)
    assert service._store.bytes_beside("") == 0


def test_a_job_that_takes_moments_waits_for_no_build_and_cuts_none_off(service, build):
    comes_to(service, build, JobState.RUNNING)
    begun_ns = service.queue.job(build.id).started_ns
    comes_to(service, service.submit(IngestRequest()), JobState.DONE)
    allow(service)
    comes_to(service, build, JobState.DONE)
    assert service.queue.job(build.id).started_ns == begun_ns


def test_what_was_begun_goes_with_the_job_that_would_go_on(service, build, monkeypatch):
    comes_to(service, build, JobState.RUNNING)
    wait_until(lambda: service._store.bytes_beside(""), "the build has begun")
    monkeypatch.setattr(jobs, "is_within", lambda _: False)
    comes_to(service, build, JobState.QUEUED)
    (begun,) = service.replicas()
    assert (begun.state, begun.build_s > 0) == (ReplicaState.BUILDING, True)
    service.cancel(build.id)
    assert service.replica(begun.id).state is ReplicaState.RETIRED
    assert service._store.bytes_beside("") == 0
    (left,) = service.savings().replicas
    assert left.replica.build_s == begun.build_s


def test_what_is_not_in_mode_auto_any_more_is_not_built(service, source, monkeypatch):
    monkeypatch.setattr(jobs, "is_within", lambda _: False)
    request = ReorganizeRequest(file=str(source), dataset="/cube", order=(2, 0, 1))
    build = service.queue.submit(request, priority=PRIORITY)
    service.set_policy(PolicyRequest(path=str(source), mode="observe"))
    monkeypatch.setattr(jobs, "is_within", lambda _: True)
    comes_to(service, build, JobState.CANCELLED)
    assert "not in mode auto any more" in service.queue.job(build.id).error
    assert service.replicas() == ()
