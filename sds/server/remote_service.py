"""The operations of SDS, through a running server or, without one, in this process.

:func:`connect` chooses: where ``SDS_HOME/server.json`` names a server that answers, requests go to
its Unix socket; otherwise :class:`sds.server.operations.service.Service` does the work here. Both
return the same records. No token is sent: each end knows by the kernel which account the other
one is.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlencode

from sds import errors
from sds.errors import PermissionDeniedError, SdsError, ServerError, ServerUnreachableError
from sds.files import canonical_path
from sds.server.rest import LONGEST_PAGE, OPERATIONS, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sds.catalog.model_records import CalibrationRecord, PatternRecord
    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.store import Store
    from sds.home import Home
    from sds.server.operations.service import Service
    from sds.server.rest import Operation

    Progress = Callable[[float, str], None]

Known = TypeVar("Known")

_PROBE_TIMEOUT_S = 10.0  # a busy machine is no reason to work past a server
_REQUEST_TIMEOUT_S = 120.0
_FIRST_POLL_S = 0.05
_LONGEST_POLL_S = 1.0
_FINAL_STATES = frozenset({"done", "failed", "cancelled"})


@contextmanager
def connect(home: Home) -> Iterator[Service]:
    """Yield the service of a home: that of its running server, else one opened in this process.

    Raises
    ------
    PermissionDeniedError
        If another account may write the home, or answers in place of its server.
    """
    remote = _find_server(home)
    if remote is not None:
        yield cast("Service", RemoteService(remote))
        return
    from sds.server.operations.service import Service

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
    return _known(
        home,
        lambda service: service.calibration_report().calibrations,
        lambda store: store.calibrations(),
    )


def known_patterns(home: Home, file: str | os.PathLike[str]) -> tuple[PatternRecord, ...]:
    """Return the access patterns of a file, as :func:`known_calibrations` does calibrations."""
    path = canonical_path(file)
    return _known(home, lambda service: service.patterns(path), lambda store: store.patterns(path))


def _known(
    home: Home,
    of_service: Callable[[Service], tuple[Known, ...]],
    of_store: Callable[[Store], tuple[Known, ...]],
) -> tuple[Known, ...]:
    """Return what the server knows, or else the catalog, which is opened to read."""
    remote = _find_server(home)
    if remote is not None:
        return of_service(cast("Service", RemoteService(remote)))
    from sds.catalog.database import sqlite_url
    from sds.catalog.store import Store
    from sds.server.settings import load_settings

    store = Store.open_to_read(load_settings(home).database_url or sqlite_url(home.database))
    if store is None:
        return ()
    with closing(store):
        return of_store(store)


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
        """Connect, and check the account at the other end before anything is sent.

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

    def send(
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
    if address is None or _is_stopped(address.pid):
        return None
    users = frozenset({os.geteuid(), home.root.stat().st_uid})
    server = _Server(Path(address.socket), address.shown, users)
    try:
        status, _ = server.send("GET", "/healthz", timeout_s=_PROBE_TIMEOUT_S)
    except PermissionDeniedError:
        raise
    except (OSError, http.client.HTTPException):
        return None
    return server if status == http.HTTPStatus.OK else None


def _is_stopped(pid: int) -> bool:
    """Return whether a process is stopped (SIGSTOP), and will answer nothing until it goes on."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2]
    except OSError:
        return False
    return after_name.split()[:1] == ["T"]


class RemoteService:
    """The operations of `OPERATIONS`, each as the method of `Service` of that name, over HTTP."""

    def __init__(self, server: _Server) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the operation of a name."""
        if name not in OPERATIONS:
            raise AttributeError(name)
        return functools.partial(self._call, OPERATIONS[name])

    def replicas(self, *names: str | None, **named: Any) -> tuple[ReplicaRecord, ...]:  # noqa: ANN401
        """Return replicas, page after page; parameters as of `Service.replicas`."""
        found: list[ReplicaRecord] = []
        after: int | None = 0
        while after is not None:
            page = self._call(
                OPERATIONS["replica_page"], *names, **named, after=after, limit=LONGEST_PAGE
            )
            found += page.replicas
            after = page.next
        return tuple(found)

    def _call(
        self,
        operation: Operation,
        *args: object,
        progress: Progress | None = None,
        **named: object,
    ) -> Any:  # noqa: ANN401  (as the operation says)
        """Return the answer to an operation."""
        if len(args) > len(operation.parameters):
            message = f"{operation.name} takes {len(operation.parameters)} values by position"
            raise TypeError(message)
        given = dict(zip(operation.parameters, args, strict=False)) | named
        if operation.method == "JOB":
            result = self._run({"kind": operation.path} | _body(given), progress)
            return _parse(operation, json.dumps(result))
        path = operation.path.format(**given)
        rest = {key: given[key] for key in given if f"{{{key}}}" not in operation.path}
        if operation.method == "POST":
            content = self._send("POST", path, _body(rest) or None)
        else:
            query = {key: value for key, value in rest.items() if value is not None}
            content = self._send(operation.method, path, query=query)
        return _parse(operation, content)

    def _run(self, request: Mapping[str, object], progress: Progress | None) -> object:
        """Submit a job, wait for its end and return its result.

        Interrupted by Ctrl-C, it cancels the job: who stops the command wants the work stopped.
        """
        job = _job_of(self._send("POST", "/jobs", request))
        pause_s = _FIRST_POLL_S
        try:
            while job["state"] not in _FINAL_STATES:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_POLL_S)
                job = _job_of(self._send("GET", f"/jobs/{job['id']}"))
                if progress is not None:
                    progress(job["progress"], "")
        except KeyboardInterrupt:
            self._send("POST", f"/jobs/{job['id']}/cancel")
            raise
        if job["state"] != "done" or job["result"] is None:
            raise _job_error(job)
        return job["result"]

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, object] | None = None,
    ) -> bytes:
        """Return the body of the server's answer.

        Raises
        ------
        SdsError
            The error of the server, in its class.
        ServerUnreachableError
            If the server went away.
        """
        target = PREFIX + path + (f"?{urlencode(query)}" if query else "")
        content = None if body is None else json.dumps(body).encode()
        try:
            status, answer = self._server.send(
                method, target, content, timeout_s=_REQUEST_TIMEOUT_S
            )
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
        return answer


def _body(given: Mapping[str, object]) -> dict[str, object]:
    """Return the body of a request: the record ``request``, or the parameters by name."""
    from sds.catalog.records import as_json

    body: dict[str, object] = as_json(given["request"]) if "request" in given else dict(given)
    return body


def _parse(operation: Operation, content: bytes | str) -> Any:  # noqa: ANN401
    """Return the value that the JSON of an answer stands for."""
    from pydantic import TypeAdapter, ValidationError

    kind: Any = operation.answer_class()
    whole: Any = dict[str, tuple[kind, ...]] if operation.is_list else kind
    try:
        found = TypeAdapter(whole).validate_json(content)
        return found[operation.resource] if operation.is_list else found
    except (ValidationError, KeyError) as error:
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


def _job_of(answer: bytes) -> dict[str, Any]:
    """Return a job's fields; the record itself would import what the requests of jobs are made of.

    Raises
    ------
    ServerError
        If they are not all there.
    """
    try:
        job = json.loads(answer)
        return {name: job[name] for name in ("id", "state", "progress", "result", "error")}
    except (ValueError, KeyError, TypeError) as error:
        text = answer[:200].decode(errors="replace")
        raise ServerError(
            f"the server answered no job but {text!r}: is it of another version?"
        ) from error


def _job_error(job: Mapping[str, Any]) -> SdsError:
    """Return the error that ended a job; its text begins with the name of the class."""
    kind, colon, message = str(job["error"]).partition(": ")
    if colon and kind.isidentifier():
        return _named_error(kind, message)
    reason = job["error"] or "no reason was recorded; see the server's log"
    return ServerError(f"job {job['id']} ended {job['state']}: {reason}")


def _named_error(kind: str, message: str) -> SdsError:
    """Return an error of the class that a name of :mod:`sds.errors` stands for."""
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, SdsError):
        return found(message)
    return ServerError(f"{kind}: {message}")
