"""The operations of SDS, through a running server or, without one, in this process.

:func:`connect` chooses: where ``SDS_HOME/server.json`` names a server that answers, requests go to
its Unix socket; otherwise :class:`sds.server.service.Service` does the work here. Both return the
same records. No token is sent: each end knows by the kernel which account the other one is.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sds import errors
from sds.errors import PermissionDeniedError, SdsError, ServerError, ServerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sds.catalog.records import (
        CalibrateRequest,
        CalibrationRecord,
        DatasetRecord,
        JobRecord,
        JobRequest,
        PatternRecord,
        RecommendationRecord,
        ReorganizeRequest,
        ReplicaRecord,
        SortRequest,
    )
    from sds.geometry import SegmentList
    from sds.home import Home
    from sds.recommender import WhatIf
    from sds.server.reports import (
        Advice,
        Counts,
        IngestReport,
        PortfolioAdvice,
        PortfolioRequest,
        QueriedTable,
        QueryAdvice,
        RecurringTiles,
        RefitReport,
        Replicas,
        Selections,
        Status,
        VerifyReport,
        WhatIfRequest,
    )

    Progress = Callable[[float, str], None]

_Record = TypeVar("_Record")
_PROBE_TIMEOUT_S = 10.0  # a busy machine is no reason to work past a server
_REQUEST_TIMEOUT_S = 120.0
_FIRST_POLL_S = 0.05
_LONGEST_POLL_S = 1.0
_LONGEST_PAGE = 1000


class Operations(Protocol):
    """What the command line asks for; met by `Service` and by `RemoteService`."""

    def status(self) -> Status:
        """Return how the installation stands."""

    def ingest(self) -> IngestReport:
        """Count what the spool holds."""

    def datasets(self, file: str | None = None) -> tuple[DatasetRecord, ...]:
        """Return the datasets that the catalog knows."""

    def patterns(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[PatternRecord, ...]:
        """Return the access patterns found so far."""

    def recommendations(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[RecommendationRecord, ...]:
        """Return the advice given so far."""

    def advise(
        self,
        file: str,
        dataset: str | None = None,
        *,
        selection: Selections = None,
        n_reads: Counts = None,
    ) -> Advice:
        """Return the layouts that would pay, for one dataset or all of a file."""

    def advise_queries(self, request: QueriedTable) -> QueryAdvice:
        """Return what each sorted replica of a table would save of stated queries."""

    def portfolio(self, request: PortfolioRequest) -> PortfolioAdvice:
        """Return the replicas to build, of several datasets and tables, under one budget."""

    def what_if(self, request: WhatIfRequest) -> WhatIf:
        """Return what reads would take with other replicas."""

    def recurring(self, request: RecurringTiles) -> SegmentList:
        """Return the tiles of a dataset that are read again and again, in segments."""

    def reorganize(
        self, request: ReorganizeRequest | SortRequest, progress: Progress | None = None
    ) -> ReplicaRecord:
        """Build, verify and publish a replica."""

    def replicas(
        self,
        file: str | None = None,
        dataset: str | None = None,
        *,
        path: str | None = None,
        all_states: bool = False,
    ) -> tuple[ReplicaRecord, ...]:
        """Return the replicas."""

    def replica_page(
        self,
        file: str | None = None,
        dataset: str | None = None,
        *,
        all_states: bool = False,
        limit: int,
    ) -> Replicas:
        """Return the first of the replicas, and how many there are."""

    def replica(self, replica_id: int) -> ReplicaRecord:
        """Return one replica."""

    def verify(
        self, replica_id: int | None = None, progress: Progress | None = None
    ) -> VerifyReport:
        """Compare replicas with their checksums."""

    def remove(self, replica_id: int) -> ReplicaRecord:
        """Withdraw a replica and delete its file."""

    def calibrate(
        self, request: CalibrateRequest, progress: Progress | None = None
    ) -> CalibrationRecord:
        """Measure a file system and fit its models."""

    def refit(self, path: str | None = None, progress: Progress | None = None) -> RefitReport:
        """Compare traced reads with calibrations, and fit models to them as well."""

    def calibrations(self) -> tuple[CalibrationRecord, ...]:
        """Return the newest calibration of each file system."""


@contextmanager
def connect(home: Home) -> Iterator[Operations]:
    """Yield the operations of the installation at a home.

    Raises
    ------
    PermissionDeniedError
        If another account may write the home, or answers in place of its server.
    """
    remote = _find_server(home)
    if remote is not None:
        yield RemoteService(remote)
        return
    from sds.server.service import Service

    with Service.open(home) as service:
        yield service


def known_calibrations(home: Home) -> tuple[CalibrationRecord, ...]:
    """Return the newest calibration of each file system, from the server or the catalog.

    Creates and writes nothing: a home may be another's, or on a file system that is read-only.

    Raises
    ------
    PermissionDeniedError
        As :func:`connect`.
    CatalogError
        If the catalog may not be read, or is of another revision.
    """
    remote = _find_server(home)
    if remote is not None:
        return RemoteService(remote).calibrations()
    from sds.catalog.engine import sqlite_url
    from sds.catalog.store import Store
    from sds.server.settings import load_settings

    store = Store.open_to_read(load_settings(home).database_url or sqlite_url(home.database))
    if store is None:
        return ()
    with closing(store):
        return store.calibrations()


def server_address(home: Home) -> str | None:
    """Return where the server of a home answers: its URL, else its socket; None: nowhere."""
    remote = _find_server(home)
    return None if remote is None else remote.shown


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket, to a server of this account or of the home's owner, else to none."""

    def __init__(self, socket: Path, *, users: frozenset[int], timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = socket
        self._users = users

    def connect(self) -> None:
        """Connect, and see who is there before anything is sent.

        Raises
        ------
        PermissionDeniedError
            If another account answers.
        """
        from sds.server.local_socket import connect_to, peer_user

        connection = connect_to(self._path, self.timeout or _REQUEST_TIMEOUT_S)
        user = peer_user(connection)
        if user not in self._users:
            connection.close()
            message = (
                f"account {user} answers at {self._path}, which is neither yours nor the owner of "
                "the home: nothing was sent; remove that socket, and see who may write there"
            )
            raise PermissionDeniedError(message)
        self.sock = connection


class _Server:
    """A server that answered; each request has a connection of its own."""

    def __init__(self, socket: Path, shown: str, users: frozenset[int]) -> None:
        self.shown = shown
        self._socket = socket
        self._users = users

    def ask(
        self, method: str, target: str, body: bytes | None = None, *, timeout_s: float
    ) -> tuple[int, bytes]:
        """Return status and body of an answer; OSError or HTTPException where none comes."""
        headers = {"Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        with closing(
            Connection(self._socket, users=self._users, timeout_s=timeout_s)
        ) as connection:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()


def _find_server(home: Home) -> _Server | None:
    """Return the server at a home, or None where none answers."""
    from sds.server.lock import read_address

    home.check()
    address = read_address(home)
    if address is None:
        return None
    users = frozenset({os.geteuid(), home.root.stat().st_uid})
    server = _Server(Path(address.socket), address.shown, users)
    try:
        status, _ = server.ask("GET", "/healthz", timeout_s=_PROBE_TIMEOUT_S)
    except PermissionDeniedError:
        raise
    except (OSError, http.client.HTTPException):
        return None
    return server if status == http.HTTPStatus.OK else None


class RemoteService:
    """The operations, asked of a server over HTTP."""

    def __init__(self, server: _Server) -> None:
        self._server = server

    def status(self) -> Status:
        """Return how the installation stands."""
        from sds.server.reports import Status

        return _parse(Status, self._get("status"))

    def ingest(self) -> IngestReport:
        """Count what the spool holds."""
        from sds.catalog.records import IngestRequest
        from sds.server.reports import IngestReport

        return _parse(IngestReport, self._run(IngestRequest(), None))

    def datasets(self, file: str | None = None) -> tuple[DatasetRecord, ...]:
        """Return the datasets that the catalog knows."""
        from sds.catalog.records import DatasetRecord

        return self._list("datasets", DatasetRecord, file=file)

    def patterns(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[PatternRecord, ...]:
        """Return the access patterns found so far."""
        from sds.catalog.records import PatternRecord

        return self._list("patterns", PatternRecord, file=file, dataset=dataset)

    def recommendations(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[RecommendationRecord, ...]:
        """Return the advice given so far."""
        from sds.catalog.records import RecommendationRecord

        return self._list("recommendations", RecommendationRecord, file=file, dataset=dataset)

    def advise(
        self,
        file: str,
        dataset: str | None = None,
        *,
        selection: Selections = None,
        n_reads: Counts = None,
    ) -> Advice:
        """Return the layouts that would pay, for one dataset or all of a file."""
        from sds.server.reports import Advice

        question = {"file": file, "dataset": dataset, "selection": selection, "n_reads": n_reads}
        return _parse(Advice, self._send("POST", "advise", question))

    def advise_queries(self, request: QueriedTable) -> QueryAdvice:
        """Return what each sorted replica of a table would save of stated queries."""
        from sds.catalog.records import as_json
        from sds.server.reports import QueryAdvice

        return _parse(QueryAdvice, self._send("POST", "advise/queries", as_json(request)))

    def portfolio(self, request: PortfolioRequest) -> PortfolioAdvice:
        """Return the replicas to build, of several datasets and tables, under one budget."""
        from sds.catalog.records import as_json
        from sds.server.reports import PortfolioAdvice

        return _parse(PortfolioAdvice, self._send("POST", "portfolio", as_json(request)))

    def what_if(self, request: WhatIfRequest) -> WhatIf:
        """Return what reads would take with other replicas."""
        from sds.catalog.records import as_json
        from sds.recommender import WhatIf

        return _parse(WhatIf, self._send("POST", "what-if", as_json(request)))

    def recurring(self, request: RecurringTiles) -> SegmentList:
        """Return the tiles of a dataset that are read again and again, in segments."""
        from sds.catalog.records import as_json
        from sds.geometry import SegmentList

        return _parse(SegmentList, self._send("POST", "recurring", as_json(request)))

    def reorganize(
        self, request: ReorganizeRequest | SortRequest, progress: Progress | None = None
    ) -> ReplicaRecord:
        """Build, verify and publish a replica."""
        from sds.catalog.records import ReplicaRecord

        return _parse(ReplicaRecord, self._run(request, progress))

    def replicas(
        self,
        file: str | None = None,
        dataset: str | None = None,
        *,
        path: str | None = None,
        all_states: bool = False,
    ) -> tuple[ReplicaRecord, ...]:
        """Return the replicas, page after page."""
        found: list[ReplicaRecord] = []
        after: int | None = 0
        while after is not None:
            page = self.replica_page(
                file, dataset, path=path, all_states=all_states, after=after, limit=_LONGEST_PAGE
            )
            found += page.replicas
            after = page.next
        return tuple(found)

    def replica_page(
        self,
        file: str | None = None,
        dataset: str | None = None,
        *,
        path: str | None = None,
        all_states: bool = False,
        after: int = 0,
        limit: int,
    ) -> Replicas:
        """Return some of the replicas, and how many there are."""
        from sds.server.reports import Replicas

        query = {
            "file": file,
            "dataset": dataset,
            "path": path,
            "all_states": "true" if all_states else None,
            "after": str(after),
            "limit": str(limit),
        }
        return _parse(Replicas, self._get("replicas", **query))

    def replica(self, replica_id: int) -> ReplicaRecord:
        """Return one replica."""
        from sds.catalog.records import ReplicaRecord

        return _parse(ReplicaRecord, self._get(f"replicas/{replica_id}"))

    def verify(
        self, replica_id: int | None = None, progress: Progress | None = None
    ) -> VerifyReport:
        """Compare replicas with their checksums."""
        from sds.catalog.records import VerifyRequest
        from sds.server.reports import VerifyReport

        return _parse(VerifyReport, self._run(VerifyRequest(replica_id=replica_id), progress))

    def remove(self, replica_id: int) -> ReplicaRecord:
        """Withdraw a replica and delete its file."""
        from sds.catalog.records import ReplicaRecord

        return _parse(ReplicaRecord, self._send("DELETE", f"replicas/{replica_id}"))

    def calibrate(
        self, request: CalibrateRequest, progress: Progress | None = None
    ) -> CalibrationRecord:
        """Measure a file system and fit its models."""
        from sds.catalog.records import CalibrationRecord

        return _parse(CalibrationRecord, self._run(request, progress))

    def refit(self, path: str | None = None, progress: Progress | None = None) -> RefitReport:
        """Compare traced reads with calibrations, and fit models to them as well."""
        from sds.catalog.records import RefitRequest
        from sds.server.reports import RefitReport

        return _parse(RefitReport, self._run(RefitRequest(path=path), progress))

    def calibrations(self) -> tuple[CalibrationRecord, ...]:
        """Return the newest calibration of each file system."""
        from sds.catalog.records import CalibrationRecord

        return self._list("calibrations", CalibrationRecord)

    def _list(self, what: str, kind: type[_Record], **query: str | None) -> tuple[_Record, ...]:
        """Return the records of a collection."""
        return tuple(_parse(kind, item) for item in self._get(what, **query)[what])

    def _run(self, request: JobRequest, progress: Progress | None) -> Mapping[str, object]:
        """Submit a job, wait for its end and return its result.

        Interrupted by Ctrl-C, it cancels the job: who stops the command wants the work stopped.
        """
        from sds.catalog.records import JobRecord, JobState, as_json

        job: JobRecord = _parse(JobRecord, self._send("POST", "jobs", as_json(request)))
        pause_s = _FIRST_POLL_S
        try:
            while not job.state.is_final:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_POLL_S)
                job = _parse(JobRecord, self._get(f"jobs/{job.id}"))
                if progress is not None:
                    progress(job.progress, "")
        except KeyboardInterrupt:
            self._send("POST", f"jobs/{job.id}/cancel")
            raise
        if job.state is not JobState.DONE or job.result is None:
            raise _job_error(job)
        result: Mapping[str, object] = job.result
        return result

    def _get(self, what: str, **query: str | None) -> Any:  # noqa: ANN401  (JSON of any shape)
        """Return the JSON of a GET request."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._send("GET", what, query=given)

    def _send(
        self,
        method: str,
        what: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Any:  # noqa: ANN401  (JSON of any shape)
        """Return the JSON that the server answers.

        Raises
        ------
        SdsError
            The error of the server, in its class.
        ServerUnreachableError
            If the server went away.
        """
        from urllib.parse import urlencode

        target = f"/api/v1/{what}" + (f"?{urlencode(query)}" if query else "")
        content = None if body is None else json.dumps(body).encode()
        try:
            status, answer = self._server.ask(method, target, content, timeout_s=_REQUEST_TIMEOUT_S)
        except PermissionDeniedError:
            raise
        except (OSError, http.client.HTTPException) as error:
            message = (
                f"the server at {self._server.shown} went away ({error or type(error).__name__}); "
                "start sds-server again, or repeat the command without it"
            )
            raise ServerUnreachableError(message) from error
        if status >= http.HTTPStatus.BAD_REQUEST:
            raise _answered_error(f"{method} {target}", status, answer)
        return json.loads(answer)


def _parse(kind: type[_Record], value: object) -> _Record:
    """Return the record that a JSON value stands for."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(json.dumps(value))
    except ValidationError as error:
        message = f"the server's answer is no {kind.__name__}; is it of another version? {error}"
        raise ServerError(message) from error


def _answered_error(request: str, status: int, answer: bytes) -> SdsError:
    """Return the error that an answer stands for."""
    try:
        body = json.loads(answer)
        return _named_error(str(body["error"]), str(body["message"]))
    except (ValueError, KeyError, TypeError):
        text = answer[:500].decode("utf-8", "replace")
        return ServerError(f"the server answered {status} to {request}: {text}")


def _job_error(job: JobRecord) -> SdsError:
    """Return the error that ended a job; its text begins with the name of the class."""
    kind, colon, message = job.error.partition(": ")
    if colon and kind.isidentifier():
        return _named_error(kind, message)
    reason = job.error or "no reason was recorded; see the server's log"
    return ServerError(f"job {job.id} ended {job.state}: {reason}")


def _named_error(kind: str, message: str) -> SdsError:
    """Return an error of the class that a name of :mod:`sds.errors` stands for."""
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, SdsError):
        return found(message)
    return ServerError(f"{kind}: {message}")
