"""Identity of files: detect replacement and change, and when detection can be trusted.

This module alone decides when a source may be trusted: :func:`settled_identity` before bytes are
copied or compared, :func:`source_identity` when that is published. docs/reference/connector.md says
what follows on which file system, docs/decisions/0014 why.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sds import _native
from sds.errors import (
    ConfigurationError,
    SourceChangedError,
    UnsupportedError,
)
from sds.files import canonical_path, path_error
from sds.mounts import resolved_or_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.home import Home

log = logging.getLogger(__name__)

Version: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of bytes and of metadata, ns."""

SETTLED_S = 2.0
"""A file's identity is trusted once its last write is this old: clocks of file systems are coarse,
and two writes within one tick leave the same time behind."""

CLOCKS_AGREE_S = 60.0
"""Clocks of the machines that write to one file system agree within less. The change time of a file
must be this old where each of them stamps by its own clock: a later write then leaves a later time.
Clients of such file systems also answer from caches for some seconds, up to as long as this."""

_TICK_S = 0.1
"""Longer than any tick of a kernel's clock (10 ms at the most)."""

_OLD_S = 86400.0
"""A file that no clock calls younger is old whichever clock is right."""

_MAX_WAIT_S = 2 * CLOCKS_AGREE_S


class FileSystemKind(IntEnum):
    """Class of file system by the worth of its time stamps; native/include/sds/file_system.h."""

    UNKNOWN = 0
    MEMORY = 1
    DISK = 2
    IMAGE = 3
    SERVER = 4
    CLUSTER = 5


_INSTANCE_UNKNOWN = 1
# Tables and replicas hold times in int64, and none from before 1970.
_LATEST_NS = 2**63 - 1

_UNTRUSTED = {
    FileSystemKind.UNKNOWN: "SDS does not know whether every change shows in a file's times",
    FileSystemKind.MEMORY: "programs change mapped files without leaving a time stamp",
    FileSystemKind.IMAGE: "this system does not tell one mounted image from another "
    "(Linux 6.8 and newer do)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """Result of stat(2) for a file; any write, replacement or change of mode changes it.

    Attributes
    ----------
    instance
        Of a source, the file system in which it was identified: another one after a restart of the
        machine, or where another disk or image is mounted. 0: not compared, since many machines see
        the file system, or the user vouches for it; and of all other files.
    """

    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    instance: int = 0

    def difference(self, now: FileIdentity) -> str:
        """Describe the differences of `now`; empty where there are none.

        Instances are compared where both are known.
        """
        names = {"inode": "inode", "size_bytes": "size", "mtime_ns": "mtime", "ctime_ns": "ctime"}
        found = [
            f"{name} {getattr(self, field)} -> {getattr(now, field)}"
            for field, name in names.items()
            if getattr(self, field) != getattr(now, field)
        ]
        if self.instance and now.instance and self.instance != now.instance:
            found.append("file system mounted anew, or machine restarted")
        return ", ".join(found)


def identity_of(file: str | os.PathLike[str] | int) -> FileIdentity:
    """Return the identity of a path (links followed) or of an open file descriptor.

    Raises
    ------
    FileMissingError, PermissionDeniedError
        If there is no such file, or a directory on the way may not be searched.
    """
    try:
        found = os.stat(file)  # noqa: PTH116  (also of an open descriptor)
    except OSError as error:
        raise path_error(file, error) from error
    return identity_from(found)


def identity_from(found: os.stat_result) -> FileIdentity:
    """Return the identity in a result of stat(2)."""
    return FileIdentity(
        inode=found.st_ino,
        size_bytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
    )


def version_of(found: os.stat_result) -> Version:
    """Return what changes with any write to a file, and with another file in its place."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def source_identity(file: str | os.PathLike[str], *, trusted: Sequence[Path] = ()) -> FileIdentity:
    """Return the identity of a source, with the instance of its file system.

    It says which file this is, not whether it can be trusted: that is what its being equal to one
    of :func:`settled_identity` says.

    Parameters
    ----------
    trusted
        As in :func:`settled_identity`.

    Raises
    ------
    FileMissingError, PermissionDeniedError
        As :func:`identity_of`.
    """
    identity = identity_of(file)
    if _is_below(file, trusted):
        return identity
    try:
        _, instance = _native.instance(file)
    except OSError as error:  # it went meanwhile
        raise path_error(file, error) from error
    return replace(identity, instance=instance)


def is_same_source(noted: FileIdentity, found: os.stat_result, file: str | Path) -> bool:
    """Return whether a file with the stat(2) result `found` is the recorded source."""
    if replace(noted, instance=0) != identity_from(found):
        return False
    return noted.instance == 0 or _native.instance(file) == (found.st_dev, noted.instance)


def settled_identity(file: str | os.PathLike[str], *, trusted: Sequence[Path] = ()) -> FileIdentity:
    """Return a source's identity once every later change of its bytes must show in it.

    What was written is brought to disk (fsync), so that no loss of power takes the times back that
    are returned here, and so that the next store into a mapping of the file moves its times: until
    then, stores into pages that are dirty already leave no trace. Then this waits until the last
    change is old enough: :data:`SETTLED_S` by this machine's clock where its kernel stamps;
    unchanged for as long where a server does, by whichever clock; :data:`CLOCKS_AGREE_S` where many
    clocks do. Where times are whole seconds, that counts as how coarse they are.

    Parameters
    ----------
    trusted
        Absolute directories below which the user vouches that every change of a file shows in its
        size or times, whatever file system holds it; see :func:`trusted_directories`.

    Raises
    ------
    UnsupportedError
        If changes may leave no trace on that file system, or its times are before 1970 or after
        2262.
    SourceChangedError
        If the file was written while this waited: a program is busy with it. If its times lie in
        the future.
    FileMissingError, PermissionDeniedError
        As :func:`identity_of`.
    """
    began_s = time.monotonic()
    before: FileIdentity | None = None
    while True:
        now_s = time.time()  # of before the fsync: what is stored after it must look young
        now, kind = _look(file, trusted)
        _check_times(file, now)
        if before is not None and before != now:
            message = (
                f"{Path(os.fspath(file))} is being written ({before.difference(now)}); "
                "try again when the program that writes it has finished"
            )
            raise SourceChangedError(message)
        seen_s = time.monotonic() - began_s
        remaining_s = settling_s(now, kind, now_s=now_s, seen_s=seen_s)
        if remaining_s <= 0:
            return now
        if remaining_s > _MAX_WAIT_S:
            message = (
                f"the times of {Path(os.fspath(file))} lie in the future: by this clock, a "
                f"change in the next {remaining_s:.0f} s could leave the same ones; correct the "
                "clocks and touch the file, or try again then"
            )
            raise SourceChangedError(message)
        log.info("waiting %.1f s: %s was written just now", remaining_s, file)
        time.sleep(remaining_s)
        before = now


def _check_times(file: str | os.PathLike[str], found: FileIdentity) -> None:
    """Raise UnsupportedError for times that the formats of SDS cannot hold."""
    for name, time_ns in (("modification", found.mtime_ns), ("status change", found.ctime_ns)):
        if not 0 <= time_ns <= _LATEST_NS:
            message = (
                f"the {name} time of {Path(os.fspath(file))} is {time_ns // 10**9} s since "
                "1970-01-01: SDS identifies files by times of the years 1970 to 2262; set it right "
                "with touch"
            )
            raise UnsupportedError(message)


def _look(
    file: str | os.PathLike[str], trusted: Sequence[Path]
) -> tuple[FileIdentity, FileSystemKind]:
    """Sync a source; return its present identity, and how far its times can be trusted.

    The file is opened anew each time, which has clients of file servers ask for its attributes.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise path_error(file, error) from error
    try:
        _, number, instance = _native.file_system(descriptor)
        kind = FileSystemKind(number)
        if _is_below(file, trusted):
            instance = 0
        elif kind in {FileSystemKind.UNKNOWN, FileSystemKind.MEMORY} or (
            instance == _INSTANCE_UNKNOWN
        ):
            raise UnsupportedError(_refusal(file, kind))
        if kind is not FileSystemKind.IMAGE:
            _bring_to_disk(file, descriptor)
        return replace(identity_of(descriptor), instance=instance), kind
    finally:
        os.close(descriptor)


def _bring_to_disk(file: str | os.PathLike[str], descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        message = (
            f"cannot bring what was written to {os.fspath(file)} to disk ({error.strerror}): later "
            "changes might go unseen; see the system's log"
        )
        raise UnsupportedError(message) from error


def settling_s(found: FileIdentity, kind: FileSystemKind, *, now_s: float, seen_s: float) -> float:
    """Return the seconds until an identity can be trusted; 0 or less: now.

    Parameters
    ----------
    now_s
        This machine's clock before what was written was brought to disk, in seconds since 1970.
    seen_s
        For how long the file has been seen to have this identity.
    """
    mtime_s, ctime_s = found.mtime_ns / 1e9, found.ctime_ns / 1e9
    is_coarse = found.ctime_ns % 1_000_000_000 == 0
    if kind is FileSystemKind.IMAGE:
        return 0.0
    if kind is FileSystemKind.SERVER:
        if now_s - max(mtime_s, ctime_s) > _OLD_S:
            return 0.0
        return (2 * SETTLED_S if is_coarse else SETTLED_S) - seen_s
    if kind in {FileSystemKind.CLUSTER, FileSystemKind.UNKNOWN}:
        return CLOCKS_AGREE_S - (now_s - max(mtime_s, ctime_s))
    # Programs set mtime to what they like, even to the future; ctime is the kernel's.
    writing_s = SETTLED_S - (now_s - mtime_s) if mtime_s <= now_s else 0.0
    return max(writing_s, (SETTLED_S if is_coarse else _TICK_S) - (now_s - ctime_s))


def _is_below(file: str | os.PathLike[str], directories: Sequence[Path]) -> bool:
    """Return whether the user vouches for a file."""
    if not directories:
        return False
    canonical = Path(canonical_path(file))
    return any(canonical.is_relative_to(one) for one in directories)


def _refusal(file: str | os.PathLike[str], kind: FileSystemKind) -> str:
    reason = _UNTRUSTED.get(kind, "the system does not say when it was started (/proc)")
    return (
        f"{os.fspath(file)} lies on a file system where {reason}: a replica could answer with old "
        "bytes; if you know better, name its directory in the setting trusted_directories "
        "(docs/reference/settings.md)"
    )


def trusted_directories(home: Home) -> tuple[Path, ...]:
    """Return the directories, without links, for which the user of a home vouches.

    The setting of that name.

    Raises
    ------
    ConfigurationError
        If it is no list of absolute paths.
    PermissionDeniedError
        If config.toml may not be read.
    """
    said = os.environ.get("SDS_TRUSTED_DIRECTORIES")
    if said is None:
        origin: object = home.config
        found = home.read_config().get("trusted_directories", [])
    else:
        origin = "SDS_TRUSTED_DIRECTORIES"
        try:
            found = json.loads(said)
        except ValueError:
            found = said
    if isinstance(found, list) and all(isinstance(one, str) and one[:1] == "/" for one in found):
        # Nothing that answers lies below one that does not.
        return tuple(Path(resolved_or_named(one)) for one in found)
    message = (
        f"trusted_directories = {found!r} in {origin} is no list of absolute paths; write for "
        'example ["/data"]'
    )
    raise ConfigurationError(message)
