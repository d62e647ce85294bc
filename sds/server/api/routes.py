"""The routes of the operations, made of their table and of the methods that declare them.

Parameters, answer and description of a route are those of the method of
:class:`~sds.server.operations.service.Service`; what its record or its parameters name as a file is
checked before the method is called, and looked at in a process of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from fastapi import APIRouter, Request

from sds.catalog import model_records, records, replica_records, requests
from sds.geometry import SegmentList
from sds.recommender.portfolio.what_if import WhatIf
from sds.server.api.dependencies import call, check_paths
from sds.server.operations import advice_reports, replica_reports, reports, savings
from sds.server.operations.service import Service
from sds.server.operations.stages import Progress
from sds.server.rest import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sds.server.rest import Operation

# Parameters that have no place in a request, or are the evaluator's alone.
_NOT_SENT = frozenset({"self", "progress", "mode", "may_go"})
_SECTIONS = ("Parameters", "Returns", "Raises")
# What annotations of the service name: it imports them for type checkers alone.
_NAMES = {
    "Mapping": Mapping,
    "Progress": Progress,
    "SegmentList": SegmentList,
    "WhatIf": WhatIf,
    "records": records,
    "reports": reports,
    **vars(model_records),
    **vars(replica_records),
    **vars(requests),
    **vars(advice_reports),
    **vars(replica_reports),
    **vars(reports),
    **vars(savings),
}


def operations_router() -> APIRouter:
    """Return the routes of all operations but jobs, which are submitted."""
    router = APIRouter()
    for operation in OPERATIONS.values():
        if operation.method != "JOB":
            method = getattr(Service, operation.name)
            router.add_api_route(
                operation.path,
                _endpoint(operation, method),
                methods=[operation.method],
                status_code=operation.status,
                response_model=_answer(operation, method),
                description=_description(method),
                tags=[operation.path.split("/")[1]],
            )
    return router


def _endpoint(operation: Operation, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the parameters of a method, as FastAPI calls it."""
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(method).parameters.items()
        if name not in _NOT_SENT
    }
    hints = get_type_hints(method, localns=_NAMES, include_extras=True)

    def endpoint(http_request: Request, **given: Any) -> Any:  # noqa: ANN401
        check_paths(given)
        opens_files = operation.opens_files or given.get("file") is not None
        found = call(http_request, operation.name, given, opens_files=opens_files)
        return {operation.resource: found} if operation.is_list else found

    def sent(parameter: inspect.Parameter) -> inspect.Parameter:
        return parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[parameter.name])

    http_request = inspect.Parameter(
        "http_request", inspect.Parameter.KEYWORD_ONLY, annotation=Request
    )
    endpoint.__name__ = operation.name
    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [http_request, *map(sent, parameters.values())]
    )
    return endpoint


def _answer(operation: Operation, method: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Return the class of a route's answer."""
    found = get_type_hints(method, localns=_NAMES, include_extras=True)["return"]
    if not operation.is_list:
        return found
    name = operation.resource
    return make_dataclass(name.capitalize(), [(name, found)], frozen=True, kw_only=True)


def _description(method: Callable[..., Any]) -> str:
    """Return a method's docstring up to the sections on parameters, results and errors."""
    text = inspect.getdoc(method) or ""
    for section in _SECTIONS:
        text = text.partition(f"\n\n{section}\n")[0]
    return text
