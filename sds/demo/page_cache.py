"""Empty or fill the page cache of a file, and say how, and how well, that worked."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_CHUNK_BYTES = 8 << 20
_MOST_CACHED = 0.01
_LEAST_CACHED = 0.99


def cached_share(path: Path) -> float:
    """Return the share of a file's pages that are in memory, by mincore(2)."""
    size_bytes = path.stat().st_size
    if size_bytes == 0:
        return 0.0
    libc = ctypes.CDLL(None, use_errno=True)
    n_pages = -(-size_bytes // mmap.PAGESIZE)
    present = np.zeros(n_pages, np.uint8)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        failed = libc.mincore(
            ctypes.c_void_p(view.ctypes.data),
            ctypes.c_size_t(size_bytes),
            ctypes.c_void_p(present.ctypes.data),
        )
        del view  # the map cannot be closed while an array looks into it
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed", str(path))
    return float(np.mean(present & 1))


def empty(paths: Sequence[Path]) -> str:
    """Empty the cache of some files and return how: the meaning of ``cold`` in a measurement."""
    for path in paths:
        _advise_away(path)
    left = max((cached_share(path) for path in paths), default=0.0)
    if left <= _MOST_CACHED:
        return "posix_fadvise(DONTNEED)"
    if os.access(_DROP_CACHES, os.W_OK):
        os.sync()
        _DROP_CACHES.write_text("3\n")
        left = max(cached_share(path) for path in paths)
        if left <= _MOST_CACHED:
            return "drop_caches"
    return f"not emptied: {left:.0%} stayed in memory"


def fill(paths: Sequence[Path]) -> str:
    """Read some files into the cache and return how: the meaning of ``warm`` in a measurement."""
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.read(_CHUNK_BYTES):
                pass
    held = min((cached_share(path) for path in paths), default=1.0)
    return "read before" if held >= _LEAST_CACHED else f"read before: {held:.0%} stayed in memory"


def _advise_away(path: Path) -> None:
    """Drop a file from the page cache; pages not yet written stay, so they are synced first."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
