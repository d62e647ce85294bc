"""What requests are given: the service, and the right to use it."""

from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from sds.errors import SdsValueError
from sds.server.auth import Scope, Tokens
from sds.server.errors import ForbiddenError, UnauthorizedError
from sds.server.jobs import Background
from sds.server.service import Service

_bearer = HTTPBearer(auto_error=False, description="a token of the file `token` in SDS_HOME")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _background(request: Request) -> Background:
    background: Background = request.app.state.background
    return background


def _scope(request: Request, credentials: Credentials) -> Scope:
    tokens: Tokens = request.app.state.tokens
    given = None if credentials is None else f"{credentials.scheme} {credentials.credentials}"
    scope = tokens.scope_of(given)
    if scope is None:
        path = request.app.state.service.home.token
        message = f"this needs a token; send Authorization: Bearer with one of {path}"
        raise UnauthorizedError(message)
    return scope


def may_read(scope: Annotated[Scope, Depends(_scope)]) -> Scope:
    """Let pass whoever has a token."""
    return scope


def may_operate(scope: Annotated[Scope, Depends(_scope)]) -> Scope:
    """Let pass whoever has the token of scope operate."""
    if scope is not Scope.OPERATE:
        message = f"a token of scope {scope.value} may only look; use the one of scope operate"
        raise ForbiddenError(message)
    return scope


def require_absolute(request: object) -> None:
    """Refuse paths that mean something else in the server's working directory than in the client's.

    Raises
    ------
    SdsValueError
        Names the field.
    """
    for field in ("file", "output", "path"):
        named = getattr(request, field, None)
        if named is not None and not Path(named).is_absolute():
            message = f"{field} {named!r} is relative; send an absolute path"
            raise SdsValueError(message)


ServiceOf = Annotated[Service, Depends(_service)]
BackgroundOf = Annotated[Background, Depends(_background)]
READ = [Depends(may_read)]
OPERATE = [Depends(may_operate)]
