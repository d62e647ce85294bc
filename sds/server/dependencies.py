"""What requests are given: the service, its background, and processes that look into files."""

from pathlib import Path
from typing import Annotated

from fastapi import Depends, Query, Request

from sds.catalog.records import AbsolutePath
from sds.errors import SdsValueError
from sds.server.asker import Ask, InProcess
from sds.server.errors import described
from sds.server.jobs import Background
from sds.server.service import Service

FileName = Annotated[AbsolutePath | None, Query()]


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _background(request: Request) -> Background:
    background: Background = request.app.state.background
    return background


def _ask(request: Request) -> Ask:
    ask: Ask = request.app.state.ask
    return ask


def _about(request: Request, file: FileName = None) -> Ask:
    """Return who looks up what is known of a file: another process, since links are followed."""
    if file is None:
        return InProcess(request.app.state.service)
    check_path("file", file)
    return _ask(request)


def only_known_parameters(request: Request) -> None:
    """Refuse parameters of a query that the operation does not have: a mistyped one does nothing.

    Raises
    ------
    SdsValueError
        Names the first, and those that there are.
    """
    if not request.query_params:
        return
    parameters = described(request)[request.method.lower()].get("parameters", ())
    known = [parameter["name"] for parameter in parameters if parameter["in"] == "query"]
    for name in request.query_params:
        if name not in known:
            there = ", ".join(known) or "none"
            message = f"no parameter {name!r} here; those that there are: {there}"
            raise SdsValueError(message)


def require_absolute(request: object) -> None:
    """Refuse paths that mean something else in the server's working directory than in the client's.

    Raises
    ------
    SdsValueError
        Names the field.
    """
    for field in ("file", "output", "path"):
        named = getattr(request, field, None)
        if named is not None:
            check_path(field, named)


def check_path(field: str, named: str) -> None:
    """Refuse one path; errors as of `require_absolute`."""
    if not Path(named).is_absolute():
        message = f"{field} {named!r} is relative; send an absolute path"
        raise SdsValueError(message)
    if "\0" in named:
        message = f"{field} {named!r} is no path: it holds a null byte; send one without"
        raise SdsValueError(message)


ServiceOf = Annotated[Service, Depends(_service)]
BackgroundOf = Annotated[Background, Depends(_background)]
AskOf = Annotated[Ask, Depends(_ask)]
"""For what looks at a file that the request names; see `sds.server.asker`."""
About = Annotated[Ask, Depends(_about)]
"""The same, where naming a file is left to the client."""
