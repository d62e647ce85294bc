"""Find the file system of a path, whether a database may live on it, and whether it answers."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sds.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")

ANSWER_S = 5.0
"""How long a look at a file may take before its file system counts as one that does not answer."""

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
    """One mounted file system."""

    mount_point: Path
    kind: str
    source: str

    @property
    def is_network(self) -> bool:
        """True where other hosts may hold the same files."""
        family, _, member = self.kind.partition(".")
        return self.kind in NETWORK_TYPES or (family == "fuse" and member in _FUSE_NETWORK)

    @property
    def may_hang(self) -> bool:
        """True where another process or host answers, which may have stopped."""
        return self.is_network or self.kind.partition(".")[0] == "fuse"


def parse_mounts(mountinfo: str) -> tuple[FileSystem, ...]:
    """Return the mounted file systems that a text in the form of /proc/self/mountinfo lists."""
    found = []
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        separator = fields.index("-")
        kind, source = fields[separator + 1 : separator + 3]
        found.append(
            FileSystem(mount_point=Path(_unescape(fields[4])), kind=kind, source=_unescape(source))
        )
    return tuple(found)


def _unescape(text: str) -> str:
    """Return a path of mountinfo, which writes blanks as octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def filesystem_of(path: Path, mountinfo: Path = _MOUNTS) -> FileSystem:
    """Return the file system that holds a path, which need not exist yet.

    Raises
    ------
    UnreachableError
        If it does not answer.
    """
    canonical = look_at(path, lambda: os.path.realpath(path), mountinfo=mountinfo)
    return _mounted_at(canonical, mountinfo)


def _mounted_at(path: str, mountinfo: Path) -> FileSystem:
    """Return the file system of a path without links; of the path itself nothing is looked at."""
    mounts = _by_mount_point(mountinfo.read_text(encoding="utf-8", errors="surrogateescape"))
    return next(mounts[place] for place in (Path(path), *Path(path).parents) if place in mounts)


@lru_cache(maxsize=4)
def _by_mount_point(mountinfo: str) -> dict[Path, FileSystem]:
    """Return file systems by where they are mounted: the last one, which hides those below it."""
    return {mount.mount_point: mount for mount in parse_mounts(mountinfo)}


_lock = threading.Lock()
_silent: set[Path] = set()  # mount points where a look has not come back


def look_at(
    path: str | os.PathLike[str],
    look: Callable[[], Answer],
    *,
    within_s: float = ANSWER_S,
    mountinfo: Path = _MOUNTS,
) -> Answer:
    """Return what a look at a file finds, if its file system answers in time.

    Where another process or host has to answer, the look runs in a thread of its own. One that is
    late goes on there, and nobody waits for it, not even the end of this process; until it comes
    back, nothing else is looked at there.

    Parameters
    ----------
    path
        Of the file, without links: its mount point is found by name.
    look
        What to do; it must let other threads run meanwhile.

    Raises
    ------
    UnreachableError
        If no answer comes in time.
    """
    try:
        mount = _mounted_at(os.path.abspath(path), mountinfo)  # noqa: PTH100  (without links)
    except (OSError, StopIteration):  # no /proc, or another root than the host's
        return look()
    if not mount.may_hang:
        return look()
    return _look_in_time(path, mount.mount_point, look, within_s)


def _look_in_time(
    path: str | os.PathLike[str], mount_point: Path, look: Callable[[], Answer], within_s: float
) -> Answer:
    message = (
        f"{os.fspath(path)} is on {mount_point}, which does not answer; see whether its server runs"
    )
    found: list[Answer] = []
    failed: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            found.append(look())
        except BaseException as error:  # noqa: BLE001  (raised by who waits)
            failed.append(error)
        with _lock:
            _silent.discard(mount_point)
            ended.set()

    with _lock:
        if mount_point in _silent:
            raise UnreachableError(message)
    threading.Thread(target=run, name="sds-look", daemon=True).start()
    if not ended.wait(within_s):
        with _lock:
            if not ended.is_set():
                _silent.add(mount_point)
                raise UnreachableError(message)
    if failed:
        raise failed[0]
    return found[0]
