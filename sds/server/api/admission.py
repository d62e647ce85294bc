"""Admission of requests: authorization and size limits, before the application sees any of them.

A request is refused by its head alone where that is enough, so that no client without a token
sends a body to be kept. The body is then read whole, within a size and a time.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers

from sds.errors import SdsError
from sds.server.api.auth import Scope
from sds.server.api.connection_limits import ADMITTED, PEER
from sds.server.api.error_responses import (
    BodyTooLargeError,
    BodyTooSlowError,
    ForbiddenError,
    UnauthorizedError,
    response,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Send
    from starlette.types import Scope as AsgiScope

    from sds.server.api.auth import Tokens

MAX_BODY_BYTES = 8 << 20
"""A list of a file's tiles at its longest takes less."""
BODY_S = 30.0


class Gate:
    """The application behind checks of host, right and body.

    Parameters
    ----------
    prefix
        Of the paths that need a right: GET one to read, everything else one to operate.
    tokens, token_file
        That give a right; the file is named to those who have none. This account, at the other end
        of the Unix socket, needs none, unless a browser speaks for it: pages of the web can make it
        send requests, but not without the header ``Origin``.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        prefix: str,
        tokens: Tokens,
        token_file: Path,
        allowed_hosts: Iterable[str],
    ) -> None:
        self._app = app
        self._prefix = f"{prefix}/"
        self._tokens = tokens
        self._token_file = token_file
        self._allowed = {name.lower() for name in allowed_hosts}

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = b""
            if self._is_admitted(scope):
                body = await _read_body(scope, receive)
        except SdsError as error:
            await response(error)(scope, receive, send)
            return
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, replay, send)

    def _is_admitted(self, scope: AsgiScope) -> bool:
        """Return whether a request has a right, False where it needs none; raise where it lacks it.

        Of what needs no right, nothing takes a body.
        """
        headers = Headers(scope=scope)
        # A page on the web can make a browser resolve its own name to 127.0.0.1: only requests
        # that name this server are for it.
        name = host_name(headers.get("host", ""))
        if name not in self._allowed:
            message = (
                f"host {name!r} is not served here; add it to the setting allowed_hosts "
                "if this server is known by that name"
            )
            raise ForbiddenError(message)
        if not scope["path"].startswith(self._prefix):
            return False
        state: dict[str, Any] = scope.get("state", {})
        is_own = state.get(PEER) in {os.geteuid(), 0} and "origin" not in headers
        right = Scope.OPERATE if is_own else self._tokens.scope_of(headers.get("authorization"))
        if right is None:
            message = (
                f"this needs a token; send Authorization: Bearer with one of {self._token_file}"
            )
            raise UnauthorizedError(message)
        if right is not Scope.OPERATE and scope["method"] not in {"GET", "HEAD"}:
            message = f"a token of scope {right.value} may only look; use the one of scope operate"
            raise ForbiddenError(message)
        if ADMITTED in state:
            state[ADMITTED]()
        return True


async def _read_body(scope: AsgiScope, receive: Receive) -> bytes:
    """Return the body of a request.

    Raises
    ------
    BodyTooLargeError, BodyTooSlowError
        Beyond what a request may take.
    """
    stated = Headers(scope=scope).get("content-length", "")
    if stated.isdigit() and int(stated) > MAX_BODY_BYTES:
        raise BodyTooLargeError(_too_large(f"{stated} bytes"))
    parts = []
    n_bytes = 0
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise BodyTooSlowError("the client went away before its body was whole")
                parts.append(message.get("body", b""))
                n_bytes += len(parts[-1])
                if n_bytes > MAX_BODY_BYTES:
                    raise BodyTooLargeError(_too_large("more"))
                if not message.get("more_body", False):
                    break
    except TimeoutError as error:
        message_text = f"the body did not arrive within {BODY_S:g} s; send it without pauses"
        raise BodyTooSlowError(message_text) from error
    return b"".join(parts)


def _too_large(given: str) -> str:
    return (
        f"a body has at most {MAX_BODY_BYTES} bytes, this one {given}; ask about fewer datasets "
        "or tiles at once"
    )


def host_name(header: str) -> str:
    """Return the name of a Host header, without port and brackets, in lower case."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
