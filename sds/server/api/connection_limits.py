"""Limits of unauthenticated connections: their number, and the time of a request's head.

uvicorn bounds the size of a request's head (64 KiB) and the idle time between requests. Here come
the time that a head may take, the number of TCP connections, and the account at the other end of
the Unix socket. :mod:`sds.server.api.admission` bounds bodies.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from sds.server.local_socket import peer_user

if TYPE_CHECKING:
    import asyncio

HEAD_S = 10.0
"""Seconds from a connection, or from the last answer on it, to the end of a request's head."""
MAX_TCP_CONNECTIONS = 100
BACKLOG = 64
"""Connections accepted in one step of the event loop; with the cap, well below 1024 descriptors."""
PEER = "sds_peer_user"
ADMITTED = "sds_admitted"


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 whose clients cannot hold the server.

    In ``scope["state"]``, `PEER` is the user id at the other end of a Unix socket, None over TCP,
    and `ADMITTED` a function that the application calls once a request may be answered. When too
    many connect over TCP, the oldest whose request was not admitted is cut off.
    """

    _open: ClassVar[set[BoundedProtocol]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note who connects, and give the head of the first request its time."""
        super().connection_made(transport)
        self._head_timer: asyncio.TimerHandle | None = None
        self.since_s = time.monotonic()
        self.is_admitted = False
        connection = transport.get_extra_info("socket")
        peer = peer_user(connection) if connection.family == socket.AF_UNIX else None
        self.app_state: dict[str, Any] = {**self.app_state, PEER: peer, ADMITTED: self._admit}
        if peer is None:
            self._open.add(self)
            if len(self._open) > MAX_TCP_CONNECTIONS:
                self._make_room()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._open.discard(self)
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; the head's time ends with the head."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Give the next request's head its time; what is left of a body refused is in it too."""
        before = self.cycle
        self.is_admitted = False
        self._await_head()
        super().on_response_complete()
        if self.cycle is not before:
            self._stop_timer()

    def _admit(self) -> None:
        self.is_admitted = True

    def _await_head(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _make_room(self) -> None:
        waiting = [other for other in self._open if not other.is_admitted]
        oldest = min(waiting, key=lambda other: other.since_s)
        self._open.discard(oldest)
        oldest.transport.abort()
