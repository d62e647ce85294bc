"""Check free disk space before and while a replica is written."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

from sds.errors import InsufficientSpaceError

if TYPE_CHECKING:
    from pathlib import Path

# Of the work; what is foreseen from less is a guess.
_LEAST_SHARE = 0.02


def free_space_bytes(directory: Path) -> int:
    """Return how many bytes one file of this account may have there, quotas not considered."""
    found = os.statvfs(directory)
    free_bytes = found.f_bavail * found.f_frsize
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return free_bytes if limit_bytes == resource.RLIM_INFINITY else min(free_bytes, limit_bytes)


def foresee_space(staged: Path, share_done: float) -> None:
    """Look whether a file that grows as its work goes on will find room for the rest.

    Raises
    ------
    InsufficientSpaceError
        If the rest, at the size of what is done, is more than the disk has.
    """
    if share_done < _LEAST_SHARE:
        return
    size_bytes = staged.stat().st_size
    rest_bytes = int(size_bytes / share_done) - size_bytes
    free_bytes = free_space_bytes(staged.parent)
    if rest_bytes > free_bytes:
        message = (
            f"the replica would need {rest_bytes} more bytes in {staged.parent}, going by the "
            f"{size_bytes} that {share_done:.0%} of it took; this account has {free_bytes}: free "
            "some, compress more, or name a file on another disk as the output"
        )
        raise InsufficientSpaceError(message)
