"""Find the file system of a path, whether a database may live on it, and whether it answers."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sds.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

ANSWER_S = 5.0
"""Seconds after which the file system of a file that is looked at counts as unresponsive."""

_MOUNTS = Path("/proc/self/mountinfo")

# SQLite's write-ahead log lives in memory shared by processes of one host; on these file systems
# another host would see half of it.
NETWORK_TYPES = frozenset(
    {"9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "daos", "fhgfs", "gfs", "gfs2"}
    | {"glusterfs", "gpfs", "lustre", "mmfs", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs"}
    | {"panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"}
)
_FUSE_NETWORK = frozenset(
    {"beegfs", "ceph-fuse", "cvmfs2", "dfuse", "gcsfuse", "glusterfs", "goofys", "juicefs", "mfs"}
    | {"nfs", "rclone", "s3fs", "sshfs", "wekafs"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """One mounted file system.

    Attributes
    ----------
    number
        Of the mount, and of its device: another one in its place has another.
    """

    mount_point: Path
    kind: str
    source: str
    number: str = ""

    @property
    def is_network(self) -> bool:
        """True where other hosts may hold the same files."""
        family, _, member = self.kind.partition(".")
        return self.kind in NETWORK_TYPES or (family == "fuse" and member in _FUSE_NETWORK)

    @property
    def may_hang(self) -> bool:
        """True where another process or host answers, which may have stopped."""
        return self.is_network or self.kind.partition(".")[0] in {"fuse", "autofs"}


def parse_mounts(mountinfo: str) -> tuple[FileSystem, ...]:
    """Return the mounted file systems that a text in the form of /proc/self/mountinfo lists."""
    found = []
    for line in filter(None, mountinfo.split("\n")):  # other ends of lines are in names as they are
        fields = line.split(" ")
        separator = fields.index("-")
        kind, source = fields[separator + 1 : separator + 3]
        found.append(
            FileSystem(
                mount_point=Path(_unescape(fields[4])),
                kind=kind,
                source=_unescape(source),
                number=f"{fields[0]} {fields[2]}",
            )
        )
    return tuple(found)


def _unescape(text: str) -> str:
    """Return a path of mountinfo, which writes blanks as octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def filesystem_of(path: Path, mountinfo: Path = _MOUNTS) -> FileSystem:
    """Return the file system that holds a path, which need not exist yet.

    Of kind ``unknown`` where the system does not tell: without /proc, or in another root.

    Raises
    ------
    UnreachableError
        If it does not answer.
    """
    mounts = _mounts(mountinfo)
    canonical = Path(resolved(path, mountinfo=mountinfo))
    found = (mounts[place] for place in (canonical, *canonical.parents) if place in mounts)
    return next(found, FileSystem(mount_point=Path("/"), kind="unknown", source=""))


def _mounts(mountinfo: Path) -> dict[Path, FileSystem]:
    """Return file systems by where they are mounted; none where the system does not tell."""
    try:
        return _by_mount_point(os.fsdecode(mountinfo.read_bytes()))
    except OSError:
        return {}


@lru_cache(maxsize=4)
def _by_mount_point(mountinfo: str) -> dict[Path, FileSystem]:
    """Return file systems by where they are mounted: the last one, which hides those below it."""
    return {mount.mount_point: mount for mount in parse_mounts(mountinfo)}


_lock = threading.Lock()
_late: Counter[FileSystem | str] = Counter()  # looks that have not come back in time


def resolved(
    path: str | os.PathLike[str], *, within_s: float = ANSWER_S, mountinfo: Path = _MOUNTS
) -> str:
    """Return a path without links, wherever these lead; else as `look_at`."""
    if not any(mount.may_hang for mount in _mounts(mountinfo).values()):
        return os.path.realpath(path)
    named = os.path.abspath(path)  # noqa: PTH100  (without links)
    where = _first_that_may_hang(Path(named), mountinfo) or named
    return _look_in_time(path, where, lambda: os.path.realpath(path), within_s)


def resolved_or_named(path: str | os.PathLike[str]) -> str:
    """Return a path without links; as it is named, absolute, where its links do not answer."""
    try:
        return resolved(path)
    except UnreachableError:
        return os.path.abspath(path)  # noqa: PTH100  (without links)


def look_at(
    path: str | os.PathLike[str],
    look: Callable[[], Answer],
    *,
    within_s: float = ANSWER_S,
    mountinfo: Path = _MOUNTS,
) -> Answer:
    """Return what a look at a file finds, if its file system answers in time.

    Where another process or host has to answer, the look runs in a thread of its own. One that is
    late goes on there, and no caller waits for it. Until it comes back, nothing else is looked at
    there.

    Parameters
    ----------
    path
        Of the file, without links (`resolved`): its mount point is found by name.
    look
        What to do; it must let other threads run meanwhile.

    Raises
    ------
    UnreachableError
        If no answer comes in time.
    """
    where = _first_that_may_hang(Path(os.path.abspath(path)), mountinfo)  # noqa: PTH100
    return look() if where is None else _look_in_time(path, where, look, within_s)


def _first_that_may_hang(path: Path, mountinfo: Path) -> FileSystem | None:
    """Return the outermost file system on the way to a path that may not answer."""
    mounts = _mounts(mountinfo)
    on_the_way = (mounts.get(place) for place in (*reversed(path.parents), path))
    return next((mount for mount in on_the_way if mount is not None and mount.may_hang), None)


def _look_in_time(
    path: str | os.PathLike[str],
    where: FileSystem | str,
    look: Callable[[], Answer],
    within_s: float,
) -> Answer:
    place = where if isinstance(where, str) else where.mount_point
    message = f"{os.fspath(path)} is on {place}, which does not answer; see whether its server runs"
    found: list[Answer] = []
    failed: list[BaseException] = []
    ended = threading.Event()
    is_late = False

    def run() -> None:
        try:
            found.append(look())
        except BaseException as error:  # noqa: BLE001  (raised by who waits)
            failed.append(error)
        with _lock:
            if is_late:
                _late[where] -= 1
            ended.set()

    with _lock:
        if _late[where] > 0:
            raise UnreachableError(message)
    try:
        threading.Thread(target=run, name="sds-look", daemon=True).start()
    except RuntimeError:  # as many as the system allows
        return look()
    if not ended.wait(within_s):
        with _lock:
            if not ended.is_set():
                is_late = True
                _late[where] += 1
                log.warning("%s", message)
                raise UnreachableError(message)
    if failed:
        raise failed[0]
    return found[0]
