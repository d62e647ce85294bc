"""Check a request, and call its operation."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Request  # noqa: TC002  (FastAPI looks at it)

from sds.errors import SdsValueError
from sds.server.api.error_responses import described

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATHS = ("file", "output", "path")


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


def call(request: Request, operation: str, given: Mapping[str, Any], *, opens_files: bool) -> Any:  # noqa: ANN401  (of any operation)
    """Return the result of a method of the service; in another process if it opens users' files."""
    state = request.app.state
    if opens_files and state.pool is not None:
        return state.pool.call(operation, **given)
    return getattr(state.service, operation)(**given)


def check_paths(given: Mapping[str, object]) -> None:
    """Refuse paths that mean something else in the server's working directory than in the client's.

    Parameters
    ----------
    given
        By name: values, records, or tuples of records, whose fields are looked at as well.

    Raises
    ------
    SdsValueError
        Names the field.
    """
    for name, value in given.items():
        if name in _PATHS and isinstance(value, str):
            _check_path(name, value)
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part):
                check_paths({field.name: getattr(part, field.name) for field in fields(part)})


def _check_path(field: str, named: str) -> None:
    """Refuse one path; errors as of `check_paths`."""
    if not Path(named).is_absolute():
        message = f"{field} {named!r} is relative; send an absolute path"
        raise SdsValueError(message)
    if "\0" in named:
        message = f"{field} {named!r} is no path: it holds a null byte; send one without"
        raise SdsValueError(message)
