"""A client over HTTP is as good as the service itself: the same operations, the same answers."""

import inspect
import os
import signal
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from socketserver import UnixStreamServer
from typing import get_args, get_type_hints

import pytest

from sds.catalog.records import DatasetRecord, JobState
from sds.catalog.requests import IngestRequest, ReorganizeRequest
from sds.errors import BusyError, DatasetNotFoundError, NotFoundError, ServerError
from sds.server.api import routes
from sds.server.operations.advice_reports import RecurringTilesRequest, WhatIfRequest
from sds.server.operations.service import Service
from sds.server.remote_service import _FINAL_STATES, RemoteService, _Server, connect
from sds.server.rest import OPERATIONS
from tests.redirected import settle
from tests.server.running import Server
from tests.waiting import is_stopped, wait_until


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_the_table_says_what_the_service_declares(operation):
    method = getattr(Service, operation.name)
    declared = list(inspect.signature(method).parameters)[1:]
    assert declared[: len(operation.parameters)] == list(operation.parameters)
    answer = get_type_hints(method, localns=routes._NAMES)["return"]
    assert operation.answer_class() is (get_args(answer)[0] if operation.is_list else answer)


def test_a_job_that_neither_waits_nor_runs_is_waited_for_no_longer():
    assert set(JobState) - {JobState.QUEUED, JobState.RUNNING} == _FINAL_STATES


@pytest.fixture
def running(home, own_source, write_spool):
    """A server whose home has something of everything."""
    settle(own_source)
    with Service.open(home) as service:
        service.reorganize(
            ReorganizeRequest(file=str(own_source), dataset="/cube", order=(2, 0, 1))
        )
    write_spool(10)
    server = Server(home, SDS_INGEST_INTERVAL_S="3600")
    try:
        yield server.wait_until_it_listens()
    finally:
        server.kill()


def answers(service, source):
    """Return what every operation that changes nothing answers."""
    file = str(source)
    tiles = (4, 4, 4)
    found = {
        # Only a server says where it listens.
        "status": replace(service.status(), server=None, server_pid=None),
        "events": service.events(5),
        "calibrations": service.calibration_report(),
        "datasets": service.datasets(),
        "datasets of a file": service.datasets(file),
        "patterns": service.patterns(file, "/cube"),
        "recommendations": service.recommendations(),
        "replicas": service.replicas(all_states=True),
        "replicas of a file": service.replicas(file, "/cube"),
        "page": service.replica_page(file, limit=1),
        "replica": service.replica(1),
        "jobs": service.jobs(),
        "what-if": service.what_if(
            WhatIfRequest(file=file, dataset="/cube", order=(1, 2, 0), selection="[:, :, 3]")
        ),
    }
    for name, wrong, kind in (
        ("replica", lambda: service.replica(99), NotFoundError),
        ("job", lambda: service.job(99), NotFoundError),
        (
            "dataset",
            lambda: service.recurring(RecurringTilesRequest(file=file, dataset="/no", tiles=tiles)),
            DatasetNotFoundError,
        ),
    ):
        with pytest.raises(kind) as error:
            wrong()
        found[f"no such {name}"] = type(error.value), str(error.value)
    return found


def test_local_and_remote_give_the_same_answers(running, home, own_source):
    with connect(home) as remote:
        assert isinstance(remote, RemoteService)
        assert remote.ingest().reads == 10
        assert remote.verify(1).ok
        assert running.wait_for(remote.submit(IngestRequest()).id)["state"] == "done"
        of_server = answers(remote, own_source)
        with Service.open(home) as local:
            of_service = answers(local, own_source)
    assert all(isinstance(one, DatasetRecord) for one in of_server["datasets"])
    assert of_server == of_service


def test_what_has_no_place_in_an_operation_is_refused(running, home):
    with connect(home) as remote, pytest.raises(TypeError, match="job takes 1"):
        remote.job(1, 2)
    assert running.process.poll() is None


class OfAnotherVersion(BaseHTTPRequestHandler):
    """A server whose jobs have another form."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))  # lest the client's write fails
        body = b'{"job": 1}'
        self.send_response(202)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Say nothing."""


def test_a_job_of_a_server_of_another_version_is_an_error_in_words(tmp_path):
    socket = tmp_path / "socket"
    with UnixStreamServer(str(socket), OfAnotherVersion) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        remote = RemoteService(_Server(socket, str(socket), frozenset({os.geteuid()})))
        with pytest.raises(ServerError, match="of another version"):
            remote.ingest()
        server.shutdown()


def test_nobody_waits_for_a_server_that_is_stopped(home, monkeypatch):
    """Who reads the catalog does so without it; who writes is told which process holds it."""
    server = Server(home).wait_until_it_listens()
    server.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: is_stopped(server.process.pid), "the server stops")
        monkeypatch.setattr(_Server, "send", lambda *_, **__: pytest.fail("it is asked"))
        with connect(home) as service:
            assert isinstance(service, Service)
            assert service.replicas() == ()
            with pytest.raises(BusyError, match=f"process {server.process.pid}"):
                service.ingest()
    finally:
        server.process.send_signal(signal.SIGCONT)
        server.kill()
