"""Opening files that others name: never a wait for a pipe's writer, never a device by mistake."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from sds.errors import FileMissingError, NotHdf5Error, PermissionDeniedError, SdsValueError

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES_READ = 1 << 30

LEADS_NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""Errors of a path that no file is at the end of, whatever is done about permissions."""

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
)


def path_error(file: object, error: OSError) -> Exception:
    """Return the error of SDS for an OSError of opening a file, or of stat(2); else that itself."""
    if error.errno in LEADS_NOWHERE:
        return FileMissingError(f"no such file: {file}; check the name and the directory")
    if isinstance(error, PermissionError):
        return PermissionDeniedError(f"may not reach {file}; ask its owner for permission")
    return error


def canonical_path(file: str | os.PathLike[str]) -> str:
    """Return the absolute path without links by which the catalog and the connector know a file.

    Of what is not there, or cannot be reached, the part that can be is without links.

    Raises
    ------
    SdsValueError
        If no path can be so.
    """
    try:
        return os.path.realpath(os.fspath(file))
    except ValueError as error:  # a null byte
        message = f"file {file!r} is no path ({error}); send one that the system can have"
        raise SdsValueError(message) from error


def require_regular(file: str | bytes | os.PathLike[str]) -> None:
    """Refuse what only looks like a file, before HDF5 opens it and waits.

    What is missing, closed or a directory is left to the open, which says so.

    Raises
    ------
    NotHdf5Error
        If it is a pipe, a socket or a device that is no disk.
    """
    try:
        mode = os.stat(file).st_mode  # noqa: PTH116  (also of bytes)
    except (OSError, ValueError):
        return
    kind = _special(mode)
    if kind:
        message = f"{os.fsdecode(file)} is {kind}, no regular file; name a file of data"
        raise NotHdf5Error(message)


def open_regular(file: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a file, opened without waiting for another process.

    Raises
    ------
    SdsValueError
        If it is a pipe, a socket or a device.
    OSError
        As os.open; IsADirectoryError also for reading.
    """
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(file, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a pipe without a reader
            _require_regular(file, os.stat(file).st_mode)  # noqa: PTH116  (of any kind of path)
        raise
    try:
        _require_regular(file, os.fstat(descriptor).st_mode)
        # With it, io_uring gives requests back that have to wait for the disk.
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(file: str | os.PathLike[str], mode: int) -> None:
    kind = _special(mode)
    if kind:
        message = f"{os.fsdecode(file)} is {kind}, no regular file; name one"
        raise SdsValueError(message)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(file))


def read_regular(file: Path) -> bytes:
    """Return what a small file holds: settings, a table, times.

    Errors as `open_regular`; SdsValueError also for more than 1 GiB.
    """
    with os.fdopen(open_regular(file), "rb") as stream:
        if (size := os.fstat(stream.fileno()).st_size) > _MAX_BYTES_READ:
            message = f"{file} holds {size} bytes, too many for a file of its kind; name another"
            raise SdsValueError(message)
        return stream.read()


def _special(mode: int) -> str:
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "")
