"""One writer per home: whoever ingests, builds and publishes holds the lock file.

The lock is the kernel's (flock), so it ends with its process however that ends.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.errors import (
    BusyError,
    ConfigurationError,
    InsufficientSpaceError,
    PermissionDeniedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sds.home import Home

_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Address at which a server listens, as its home says.

    Attributes
    ----------
    socket
        Path of its Unix socket.
    url
        Of its TCP port; None where it has none.
    """

    pid: int
    socket: str
    url: str | None = None

    @property
    def shown(self) -> str:
        """The address to show to users: the URL, else the socket."""
        return self.url or self.socket


def read_address(home: Home) -> ServerAddress | None:
    """Return where the server of a home listens; None where no server says so.

    The file may be left over from a server that was killed: it is a hint where to ask.
    """
    try:
        written = json.loads(home.server_address.read_text(encoding="utf-8"))
        url = written.get("url")
        return ServerAddress(
            pid=int(written["pid"]),
            socket=str(written["socket"]),
            url=None if url is None else str(url),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        message = f"may not read {home.server_address}; set SDS_HOME to a directory of yours"
        raise PermissionDeniedError(message) from error
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # half written, or not by our hand; who needs the server finds none there


class HomeLock:
    """The right to write one home; threads of this process share it.

    Parameters
    ----------
    wait_s
        How long to wait for another process before giving up.
    """

    def __init__(self, home: Home, *, wait_s: float) -> None:
        self._home = home
        self._wait_s = wait_s
        self._threads = threading.Lock()
        self._holders = 0
        self._descriptor = -1

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock for the time of a block.

        Raises
        ------
        BusyError
            If another process holds it; says which.
        """
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        """Take the lock, or one more share of it; errors as `held`."""
        with self._threads:
            if self._holders == 0:
                self._descriptor = self._lock()
            self._holders += 1

    def release(self) -> None:
        """Give one share back."""
        with self._threads:
            self._holders -= 1
            if self._holders == 0:
                os.close(self._descriptor)

    def _lock(self) -> int:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self._home.lock, flags, 0o600)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.ELOOP, "is no regular file")  # noqa: TRY301
        except PermissionError as error:
            message = f"may not write {self._home.lock}; set SDS_HOME to a directory of yours"
            raise PermissionDeniedError(message) from error
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                message = f"no room for {self._home.lock}; free some space there"
                raise InsufficientSpaceError(message) from error
            # A link would have another file written, a pipe or a directory holds no lock.
            message = (
                f"{self._home.lock} cannot be the lock of the home: {error.strerror}; remove it"
            )
            raise ConfigurationError(message) from error
        give_up = time.monotonic() + self._wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                server = self._server(holder)
                if server is not None or time.monotonic() >= give_up:
                    os.close(descriptor)
                    raise BusyError(self._busy(holder, server)) from error
                time.sleep(_POLL_S)
            else:
                break
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor

    def _server(self, holder: str) -> ServerAddress | None:
        """Return the address of the holder where it is a server, which holds on for long."""
        address = read_address(self._home)
        return address if address is not None and str(address.pid) == holder else None

    def _busy(self, holder: str, server: ServerAddress | None) -> str:
        root = self._home.root
        if server is not None:
            return (
                f"a server at {server.shown} (process {holder}) works with {root}; "
                f"ask it, or end it: kill {holder}"
            )
        return f"process {holder or 'unknown'} works with {root}; wait until it has finished"
