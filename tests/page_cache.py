"""Bring files into and out of the page cache, until they are there or gone."""

import ctypes
import mmap
import os
import time
from pathlib import Path

import numpy as np
import pytest

_TRIES = 100
_PAUSE_S = 0.02


def pages_cached(path):
    """Return which pages of a file are in the page cache, shape (pages,), without loading any."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    with Path(path).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    state = ctypes.create_string_buffer(-(-len(mapped) // mmap.PAGESIZE))
    begin = np.frombuffer(mapped, np.uint8).ctypes.data
    if libc.mincore(begin, len(mapped), state) != 0:
        raise OSError(ctypes.get_errno(), f"cannot see what of {path} is cached")
    mapped.close()
    return (np.frombuffer(state, np.uint8) & 1).astype(bool)


def drop_from_page_cache(path):
    """Drop a file from the page cache, so that the next reads come from its device.

    The kernel keeps pages that are being written, or that another processor is about to list: the
    request is repeated until none is left. Skips the test where some stay, as on tmpfs.
    """
    with Path(path).open("rb") as file:
        os.fsync(file.fileno())
        for _ in range(_TRIES):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if not pages_cached(path).any():
                return
            time.sleep(_PAUSE_S)
    pytest.skip(f"{pages_cached(path).sum()} pages of {path} stay in the page cache")


def load_into_page_cache(path):
    """Read a file whole until all of it is cached. Skips the test where some is not kept."""
    for _ in range(_TRIES):
        Path(path).read_bytes()
        if pages_cached(path).all():
            return
        time.sleep(_PAUSE_S)
    pytest.skip(f"{(~pages_cached(path)).sum()} pages of {path} are not kept in the page cache")
