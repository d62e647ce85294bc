"""Unix sockets between processes of one account: short addresses, and who is at the other end.

The kernel takes no address of 108 bytes or more. A directory's descriptor gives every path a short
one, and what is then used is the very directory that was opened.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group


def listen_at(path: Path) -> socket.socket:
    """Return a socket that listens at a path, for this account alone (mode 0600).

    A socket already there is replaced: the caller knows that no server uses it.

    Raises
    ------
    OSError
        If the file system has no sockets, the directory may not be written, or something else
        is there.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o177)  # no moment at which others can connect
    try:
        with _address(path) as address:
            remove_socket(path)
            listener.bind(address)
        listener.listen()
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(previous)
    return listener


def remove_socket(path: Path) -> None:
    """Remove a socket; what is none stays."""
    try:
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    except FileNotFoundError:
        return


def connect_to(path: Path, timeout_s: float) -> socket.socket:
    """Return a connection to the socket at a path; OSError where no process listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        with _address(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def peer_user(connection: socket.socket) -> int:
    """Return the user id of the process at the other end: of a server, when it began to listen."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(credentials)
    return int(user)


@contextmanager
def _address(path: Path) -> Iterator[str]:
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
