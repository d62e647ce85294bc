"""The one table from errors to HTTP, and how an error looks on the wire.

Clients see what happened, the value and the remedy; never a stack trace.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from sds import errors
from sds.catalog.records import as_json
from sds.extras import missing_extra

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI, Request

log = logging.getLogger(__name__)


class UnauthorizedError(errors.SdsError):
    """A request without a token that is known."""


class ForbiddenError(errors.SdsError):
    """A request whose token does not allow it, or from a host name that is not ours."""


class BodyTooLargeError(errors.SdsError):
    """A request with a body of more bytes than any needs."""


class BodyTooSlowError(errors.SdsError):
    """A request whose body did not arrive in time."""


STATUS: dict[type[Exception], HTTPStatus] = {
    UnauthorizedError: HTTPStatus.UNAUTHORIZED,
    ForbiddenError: HTTPStatus.FORBIDDEN,
    errors.NotFoundError: HTTPStatus.NOT_FOUND,
    errors.PermissionDeniedError: HTTPStatus.FORBIDDEN,
    errors.UnreachableError: HTTPStatus.GATEWAY_TIMEOUT,
    BodyTooSlowError: HTTPStatus.REQUEST_TIMEOUT,
    BodyTooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.QueueFullError: HTTPStatus.TOO_MANY_REQUESTS,
    errors.BusyError: HTTPStatus.CONFLICT,
    errors.SourceChangedError: HTTPStatus.CONFLICT,
    errors.VerificationError: HTTPStatus.CONFLICT,
    errors.InsufficientSpaceError: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.SdsValueError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.FormatError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.UnsupportedError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.RankDeficientError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.CatalogError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ServerUnreachableError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ServerError: HTTPStatus.BAD_GATEWAY,
    errors.RequestTimeoutError: HTTPStatus.GATEWAY_TIMEOUT,
    errors.SdsError: HTTPStatus.INTERNAL_SERVER_ERROR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error on the wire.

    Attributes
    ----------
    error
        Name of the class of ``sds.errors``.
    message
        What happened and the value.
    remedy
        What to do about it; None where the message has no such part.
    """

    error: str
    message: str
    remedy: str | None


# What every operation may answer besides its result, for OpenAPI.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status.value: {"model": Problem, "description": status.phrase}
    for status in sorted(set(STATUS.values()))
}


def status_of(error: Exception) -> HTTPStatus:
    """Return the status of an error: that of the nearest class in the table."""
    for kind in type(error).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return HTTPStatus.INTERNAL_SERVER_ERROR


def problem_of(error: errors.SdsError) -> Problem:
    """Return an error of SDS as it looks on the wire."""
    what = str(error)
    _, separator, remedy = what.rpartition("; ")
    return Problem(error=type(error).__name__, message=what, remedy=remedy if separator else None)


def response(error: errors.SdsError) -> JSONResponse:
    """Return the HTTP response to an error of SDS."""
    status = status_of(error)
    challenge = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return _response(status, problem_of(error), challenge)


def add_error_handlers(app: FastAPI) -> None:
    """Make an app answer every error as a `Problem`."""

    @app.exception_handler(errors.SdsError)
    async def sds_error(request: Request, error: errors.SdsError) -> JSONResponse:
        if status_of(error) >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("%s %s: %s", request.method, request.url.path, error)
        return response(error)

    @app.exception_handler(ModuleNotFoundError)
    async def missing(request: Request, error: ModuleNotFoundError) -> JSONResponse:
        explained = missing_extra(error)
        return await unexpected(request, error) if explained is None else response(explained)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:  # noqa: ARG001
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, errors.SdsError):
            return response(cause)
        place = ".".join(str(part) for part in first["loc"])
        problem = Problem(
            error="SdsValueError",
            message=f"{place}: {first['msg']} (got {first.get('input')!r})",
            remedy="see /docs for what this takes",
        )
        return _response(HTTPStatus.UNPROCESSABLE_ENTITY, problem)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == HTTPStatus.BAD_REQUEST:  # a body whose bytes are no text
            return response(
                errors.SdsValueError("the body cannot be read as JSON; send JSON in UTF-8")
            )
        headers = error.headers
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            # The framework names the methods of the first route alone.
            methods = ", ".join(sorted(method.upper() for method in described(request)))
            headers = {"Allow": methods}
        problem = Problem(
            error="NotFoundError" if error.status_code == HTTPStatus.NOT_FOUND else "ServerError",
            message=f"{request.method} {request.url.path}: {error.detail}",
            remedy="see /docs for what there is",
        )
        return _response(HTTPStatus(error.status_code), problem, headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s", request.method, request.url.path, exc_info=error)
        problem = Problem(
            error="ServerError",
            message=f"unexpected {type(error).__name__}",
            remedy="look into the server's log, and report what it says",
        )
        return _response(HTTPStatus.INTERNAL_SERVER_ERROR, problem)


def described(request: Request) -> dict[str, Any]:
    """Return the operations at the path of a request, by method, as OpenAPI describes them."""
    found: dict[str, Any] = {}
    for template, operations in request.app.openapi()["paths"].items():
        if compile_path(template)[0].match(request.scope["path"]):
            found |= operations
    return found


def _response(
    status: HTTPStatus, problem: Problem, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(as_json(problem), status_code=status, headers=headers)
