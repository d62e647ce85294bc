"""Files that are replaced whole: who opens one finds the old content or the new, never a part."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_whole(path: Path, content: bytes) -> None:
    """Put a file in place at once, on disk when this returns, for its owner alone.

    Raises
    ------
    PermissionError
        If its directory may not be written.
    OSError
        If the disk is full or fails; the old file is then still in place.
    """
    # mkstemp: mode 0600, and a name that no other writer uses.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  (of a descriptor)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make a rename or removal in it survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
