"""Which file this is, and whether it is still the same one."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from sds.errors import FileMissingError, PermissionDeniedError, SourceChangedError

log = logging.getLogger(__name__)

SETTLED_S = 2.0
"""A file's identity is trusted once its last write is this old: clocks of file systems are coarse,
and two writes within one tick leave the same time behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """What stat(2) says of a file; any write, replacement or change of mode changes it.

    Attributes
    ----------
    instance
        Of a source, the file system in which it was identified: another one after a restart of the
        machine, or where another disk or image is mounted. 0: not compared.
    """

    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    instance: int = 0

    def difference(self, now: FileIdentity) -> str:
        """Return what differs in `now`, in words; empty where nothing does."""
        names = {"inode": "inode", "size_bytes": "size", "mtime_ns": "mtime", "ctime_ns": "ctime"}
        return ", ".join(
            f"{name} {getattr(self, field)} -> {getattr(now, field)}"
            for field, name in names.items()
            if getattr(self, field) != getattr(now, field)
        )


def identity_of(file: str | os.PathLike[str] | int) -> FileIdentity:
    """Return the identity of a path (links followed) or of an open file descriptor.

    Raises
    ------
    FileMissingError, PermissionDeniedError
        If there is no such file, or a directory on the way may not be searched.
    """
    try:
        found = os.stat(file)  # noqa: PTH116  (also of an open descriptor)
    except FileNotFoundError as error:
        message = f"no such file: {file}; check the name and the directory"
        raise FileMissingError(message) from error
    except PermissionError as error:
        message = f"may not reach {file}; ask its owner for permission"
        raise PermissionDeniedError(message) from error
    return identity_from(found)


def identity_from(found: os.stat_result) -> FileIdentity:
    """Return the identity that stat(2) told."""
    return FileIdentity(
        inode=found.st_ino,
        size_bytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
    )


def settled_identity(file: str | os.PathLike[str]) -> FileIdentity:
    """Return a file's identity once its last write is :data:`SETTLED_S` old; waits for that.

    A write time in the future (a clock that is ahead) counts as now.

    Raises
    ------
    SourceChangedError
        If the file was written while this waited: a program is busy with it.
    FileMissingError, PermissionDeniedError
        As :func:`identity_of`.
    """
    first = identity_of(file)
    remaining_s = SETTLED_S - max(0.0, time.time() - first.mtime_ns / 1e9)
    if remaining_s <= 0:
        return first
    log.info("waiting %.1f s: %s was written just now", remaining_s, file)
    time.sleep(remaining_s)
    second = identity_of(file)
    if first != second:
        message = (
            f"{Path(os.fspath(file))} is being written ({first.difference(second)}); "
            "try again when the program that writes it has finished"
        )
        raise SourceChangedError(message)
    return second
