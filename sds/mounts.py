"""Find the file system of a path, and whether a database may live on it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

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


def filesystem_of(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> FileSystem:
    """Return the file system that holds a path, which need not exist yet."""
    mounts = _by_mount_point(mountinfo.read_text(encoding="utf-8", errors="surrogateescape"))
    canonical = Path(os.path.realpath(path))
    return next(mounts[place] for place in (canonical, *canonical.parents) if place in mounts)


@lru_cache(maxsize=4)
def _by_mount_point(mountinfo: str) -> dict[Path, FileSystem]:
    """Return file systems by where they are mounted: the last one, which hides those below it."""
    return {mount.mount_point: mount for mount in parse_mounts(mountinfo)}
