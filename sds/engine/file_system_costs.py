"""Measured costs of file systems, in a file that every reading program finds.

One small file of SDS_HOME, replaced whole; the connector reads the same one. Its bytes are defined
in native/include/sds/measured_format.h.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sds import _native
from sds.atomic_file import replace_whole
from sds.engine.io_parameters import IoParameters
from sds.errors import FormatError, PermissionDeniedError
from sds.files import canonical_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sds.home import Home

_MAX_BYTES = 1 << 20  # a larger file is no such file


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFileSystem:
    """The costs of one file system.

    Attributes
    ----------
    mount_point
        Files below it are meant.
    kind
        f_type of statfs(2): elsewhere something else may be mounted there.
    """

    mount_point: str
    kind: int
    parameters: IoParameters


def publish_measured(home: Home, file_systems: Sequence[MeasuredFileSystem]) -> Path:
    """Put the file in place at once and whole, and return its path.

    Programs read it when they first read from a file, and go by what they found until they end.

    Raises
    ------
    PermissionDeniedError
        If SDS_HOME may not be written.
    OSError
        If the disk is full or fails; the old file is then still in place.
    """
    encoded = _native.encode_measured(
        [(found.mount_point, found.kind, found.parameters.native()) for found in file_systems]
    )
    path = measured_path(home)
    try:
        replace_whole(path, encoded)
    except PermissionError as error:
        message = (
            f"cannot write {path}: permission denied; "
            "set SDS_HOME to a directory that you can write"
        )
        raise PermissionDeniedError(message) from error
    return path


def read_measured(home: Home) -> tuple[MeasuredFileSystem, ...]:
    """Return the published costs; empty where none are.

    Raises
    ------
    FormatError
        If the file is damaged, or of another version: calibrate again.
    """
    path = measured_path(home)
    try:
        encoded = path.read_bytes()
    except FileNotFoundError:
        return ()
    try:
        found = _native.Measured(encoded).file_systems()
    except FormatError as error:
        message = f"{path}: {error}; run sds calibrate to have it written again"
        raise type(error)(message) from error
    return tuple(
        MeasuredFileSystem(
            mount_point=mount_point, kind=kind, parameters=IoParameters.from_native(parameters)
        )
        for mount_point, kind, parameters in found
    )


@cache
def load_measured(home: Home) -> _native.Measured | None:
    """Return the published costs for reads; None where none can be relied on.

    Looked at once per process. As in the connector, what others may write, what cannot be read and
    what is of another version counts for nothing: then built-in figures serve.
    """
    try:
        descriptor = os.open(
            measured_path(home), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        others_may_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if found.st_uid != os.geteuid() or others_may_write or not stat.S_ISREG(found.st_mode):
            return None
        return _native.Measured(os.pread(descriptor, _MAX_BYTES, 0))
    except (FormatError, OSError):
        return None
    finally:
        os.close(descriptor)


def measured_parameters(home: Home, file: str | os.PathLike[str]) -> IoParameters | None:
    """Return the measured costs of reads of a file; None where its file system has none."""
    measured = load_measured(home)
    if measured is None or not os.path.isfile(file):  # noqa: PTH113  (any path)
        return None
    kind = _native.ReadFile(file).file_system_type
    found = measured.find(canonical_path(file), kind)
    return None if found is None else IoParameters.from_native(found)


def measured_path(home: Home) -> Path:
    """Return where the file of a home is, or would be."""
    return home.root / _native.MEASURED_NAME
