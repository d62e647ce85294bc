"""Builds of the evaluator make way: for jobs of people, and when their hours end."""

import threading

import pytest

from sds.catalog.records import JobState
from sds.catalog.requests import IngestRequest, ReorganizeRequest
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
    with Service.open(home, Settings(), run=child_runner(stop)) as service, service.lock.held():
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
    asked = service.submit(IngestRequest())
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
    second = service.submit(IngestRequest())
    allow(service)
    comes_to(service, second, JobState.DONE)
    ended = [service.queue.job(job.id).finished_ns for job in (first, second)]
    assert ended == sorted(ended)


def test_the_evaluator_builds_within_its_hours_alone(service, source, monkeypatch):
    hours = threading.Event()
    monkeypatch.setattr(jobs, "is_within", lambda _: hours.is_set())
    request = ReorganizeRequest(file=str(source), dataset="/cube", order=(2, 0, 1))
    build = service.queue.submit(request, priority=PRIORITY)
    comes_to(service, service.submit(IngestRequest()), JobState.DONE)
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
    service.submit(IngestRequest())
    comes_to(service, build, JobState.CANCELLED)
