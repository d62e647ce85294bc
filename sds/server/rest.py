"""The operations of the server over HTTP: one table, of which the client and the routes are made.

A method of :class:`sds.server.operations.service.Service` declares an operation: its parameters,
its answer and its text. This table adds where HTTP has it. Importing it loads nothing of what it
names.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

PREFIX = "/api/v1"
LONGEST_PAGE = 1000

_RECORDS = "sds.catalog.records:"
_MODELS = "sds.catalog.model_records:"
_REPLICA = "sds.catalog.replica_records:ReplicaRecord"
_ADVISED = _MODELS + "RecommendationRecord"
_POLICY = _RECORDS + "PolicyRecord"
_STATED = _RECORDS + "StatedReadsRecord"
_JOB = "sds.catalog.requests:JobRecord"
_REPORTS = "sds.server.operations.reports:"
_REPLICAS = "sds.server.operations.replica_reports:"
_ADVICE = "sds.server.operations.advice_reports:"
_SAVINGS = "sds.server.operations.savings:"


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of the service, as HTTP has it.

    Attributes
    ----------
    name
        Of the method.
    method, path
        Of the request; the path is below `PREFIX`. ``JOB``: the operation is a job of kind `path`,
        its answer the result of the job.
    answer
        Class of the answer, as ``module:name``.
    parameters
        Those that may be passed by position, in order. The single parameter ``request`` is the body
        itself; others are the fields of the body, or the query of a request without a body.
    is_list
        The method returns a tuple of `answer`; HTTP wraps it in an object with one key, the last
        part of the path.
    status
        Of an answer without error.
    opens_files
        The request names files of users, which are opened in a process of its own.
    """

    name: str
    method: Literal["GET", "POST", "DELETE", "JOB"]
    path: str
    answer: str
    parameters: tuple[str, ...] = ()
    is_list: bool = False
    status: HTTPStatus = HTTPStatus.OK
    opens_files: bool = False

    @property
    def resource(self) -> str:
        """Last part of the path."""
        return self.path.rpartition("/")[2]

    def answer_class(self) -> Any:  # noqa: ANN401  (a class)
        """Import the class of the answer."""
        return pkgutil.resolve_name(self.answer)


def _get(name: str, path: str, answer: str, *parameters: str) -> Operation:
    return Operation(name, "GET", path, answer, parameters)


def _list(name: str, path: str, record: str, *parameters: str) -> Operation:
    return Operation(name, "GET", path, record, parameters, is_list=True)


def _post(name: str, path: str, answer: str, *parameters: str) -> Operation:
    return Operation(name, "POST", path, answer, parameters or ("request",), opens_files=True)


def _job(name: str, answer: str, *parameters: str) -> Operation:
    return Operation(name, "JOB", name, answer, parameters)


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        _get("status", "/status", _REPORTS + "Status"),
        _list("events", "/events", _RECORDS + "EventRecord", "limit"),
        _get("calibration_report", "/calibrations", _ADVICE + "Calibrations"),
        _list("datasets", "/datasets", _RECORDS + "DatasetRecord", "file"),
        _list("patterns", "/patterns", _MODELS + "PatternRecord", "file", "dataset"),
        _list("recommendations", "/recommendations", _ADVISED, "file", "dataset"),
        _post("advise", "/advise", _ADVICE + "Advice"),
        Operation("advise_all", "GET", "/advice", _ADVICE + "Advice", opens_files=True),
        _post("what_if", "/what-if", "sds.recommender.portfolio.what_if:WhatIf"),
        _post("recurring", "/recurring", "sds.geometry:SegmentList"),
        _list("policies", "/policies", _POLICY),
        Operation("set_policy", "POST", "/policies", _POLICY, ("request",)),
        Operation("unset_policy", "DELETE", "/policies", _POLICY, ("path", "dataset")),
        _list("stated_reads", "/stated", _STATED, "file", "dataset"),
        _post("state_reads", "/stated", _STATED),
        Operation("forget_reads", "DELETE", "/stated/{number}", _STATED, ("number",)),
        _get("replica_page", "/replicas", _REPLICAS + "Replicas", "file", "dataset"),
        _get("savings", "/savings", _SAVINGS + "Savings", "file", "dataset"),
        _get("replica", "/replicas/{replica_id}", _REPLICA, "replica_id"),
        Operation("remove", "DELETE", "/replicas/{replica_id}", _REPLICA, ("replica_id",)),
        Operation("pin", "POST", "/replicas/{replica_id}/pin", _REPLICA, ("replica_id",)),
        Operation("unpin", "DELETE", "/replicas/{replica_id}/pin", _REPLICA, ("replica_id",)),
        Operation("submit", "POST", "/jobs", _JOB, ("request",), status=HTTPStatus.ACCEPTED),
        _list("jobs", "/jobs", _JOB, "state"),
        _get("job", "/jobs/{job_id}", _JOB, "job_id"),
        Operation("cancel", "POST", "/jobs/{job_id}/cancel", _JOB, ("job_id",)),
        _job("ingest", _REPORTS + "IngestReport"),
        _job("reorganize", _REPLICA, "request"),
        _job("verify", _REPLICAS + "VerifyReport", "replica_id"),
        _job("calibrate", _MODELS + "CalibrationRecord", "request"),
        _job("refit", _REPORTS + "RefitReport", "path"),
    )
}
"""Operations by name, in the order of the description of the interface."""
