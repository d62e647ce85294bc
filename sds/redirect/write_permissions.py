"""Check that only the owner of a source may write what serves reads of it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_trusted(path: str | Path, found: os.stat_result, source_owner: int) -> None:
    """Raise PermissionError unless a file belongs to someone trusted, who alone may write it."""
    if found.st_uid != source_owner and found.st_uid != os.geteuid():
        service = os.environ.get("SDS_SERVICE_UID", "")
        if not service.isdecimal() or found.st_uid != int(service):
            message = f"{path} belongs to neither the source's owner nor this user"
            raise PermissionError(message)
    if found.st_mode & OTHERS_MAY_WRITE:
        message = f"{path} may be written by others; remove group and world write permission"
        raise PermissionError(message)
