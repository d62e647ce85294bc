"""Checksums of a replica: one CRC-32C per block of elements, and one of everything else.

The elements are cut into blocks; the last may be shorter. Blocks are 1 MiB, larger (a power of two)
for large datasets, so that all checksums together stay small. The file of a chunked replica, whose
elements lie here and there, is cut into blocks as a whole.
"""

from __future__ import annotations

import errno
import mmap
import os
from typing import TYPE_CHECKING

import numpy as np

from sds import _native
from sds.errors import TruncatedFileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

_WINDOW_BYTES = 1 << 20
_ALIGNMENT_BYTES = 4096
_WINDOW_PAGES = _WINDOW_BYTES // _ALIGNMENT_BYTES


def n_blocks(size_bytes: int, block_bytes: int) -> int:
    """Return how many blocks there are."""
    return -(-size_bytes // block_bytes)


def block_checksums(
    descriptor: int,
    offset_bytes: int,
    size_bytes: int,
    block_bytes: int,
    *,
    advance: Callable[[int], None] | None = None,
) -> NDArray[np.uint32]:
    """Return the CRC-32C of each block of a byte range of a file.

    Parameters
    ----------
    advance
        Called with the number of bytes read since its last call.

    Raises
    ------
    TruncatedFileError
        If the file ends before the range.
    """
    checksums = np.empty(n_blocks(size_bytes, block_bytes), np.uint32)
    for index in range(len(checksums)):
        first = index * block_bytes
        length = min(block_bytes, size_bytes - first)
        checksums[index] = range_checksum(descriptor, offset_bytes + first, length)
        if advance is not None:
            advance(length)
    return checksums


def file_checksums(
    descriptor: int,
    block_bytes: int,
    *,
    hole: tuple[int, int],
    advance: Callable[[int], None] | None = None,
) -> NDArray[np.uint32]:
    """Return the CRC-32C of each block of a whole file.

    Parameters
    ----------
    hole
        First byte and end of a range that counts as zero: where these checksums are stored.
    advance
        Called with the number of bytes read since its last call.
    """
    size_bytes = os.fstat(descriptor).st_size
    checksums = np.empty(n_blocks(size_bytes, block_bytes), np.uint32)
    for index in range(len(checksums)):
        first = index * block_bytes
        end = min(first + block_bytes, size_bytes)
        within = max(first, min(hole[0], end)), min(end, max(hole[1], first))
        crc = range_checksum(descriptor, first, within[0] - first)
        crc = _zeros_checksum(within[1] - within[0], crc)
        checksums[index] = range_checksum(descriptor, within[1], end - within[1], crc)
        if advance is not None:
            advance(end - first)
    return checksums


def _zeros_checksum(size_bytes: int, crc: int) -> int:
    """Continue a CRC-32C over zeros."""
    zeros = bytes(min(_WINDOW_BYTES, max(0, size_bytes)))
    for done in range(0, size_bytes, _WINDOW_BYTES):
        crc = _native.crc32c(zeros[: size_bytes - done], crc)
    return crc


def range_checksum(descriptor: int, offset_bytes: int, size_bytes: int, crc: int = 0) -> int:
    """Continue a CRC-32C over a byte range of a file.

    Raises
    ------
    TruncatedFileError
        If the file ends before the range.
    """
    window = mmap.mmap(-1, _WINDOW_BYTES)
    with memoryview(window) as view:
        done = 0
        while done < size_bytes:
            at = offset_bytes + done
            skipped = at % _ALIGNMENT_BYTES  # as reads past the page cache have to be aligned
            wanted = min(-(-(skipped + size_bytes - done) // _ALIGNMENT_BYTES), _WINDOW_PAGES)
            got = os.preadv(descriptor, [view[: wanted * _ALIGNMENT_BYTES]], at - skipped) - skipped
            if got <= 0:
                message = f"file ends at byte {at}, {size_bytes - done} bytes before its data does"
                raise TruncatedFileError(message)
            n_bytes = min(got, size_bytes - done)
            crc = _native.crc32c(view[skipped : skipped + n_bytes], crc)
            done += n_bytes
    window.close()
    return crc


def open_past_cache(path: Path) -> int | None:
    """Return a descriptor that reads a file past the page cache; None where that cannot be."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None
    try:
        range_checksum(descriptor, 0, 1)
    except (TruncatedFileError, OSError):  # empty, or aligned otherwise: an ordinary read tells
        os.close(descriptor)
        return None
    return descriptor


def metadata_checksum(
    descriptor: int,
    *,
    data_offset_bytes: int,
    size_bytes: int,
    zeroed_offset_bytes: int | None = None,
) -> int:
    """Return the CRC-32C of every byte of a file outside its elements.

    Parameters
    ----------
    zeroed_offset_bytes
        Four bytes there count as zero: where this very checksum is stored in the file.
    """
    file_size = os.fstat(descriptor).st_size
    data_end = data_offset_bytes + size_bytes
    ranges = [(0, data_offset_bytes), (data_end, file_size)]
    if zeroed_offset_bytes is None:
        return _ranges_checksum(descriptor, ranges, 0)
    hole = (zeroed_offset_bytes, zeroed_offset_bytes + 4)
    before = [(a, min(b, hole[0])) for a, b in ranges if a < hole[0]]
    after = [(max(a, hole[1]), b) for a, b in ranges if b > hole[1]]
    crc = _native.crc32c(bytes(4), _ranges_checksum(descriptor, before, 0))
    return _ranges_checksum(descriptor, after, crc)


def _ranges_checksum(descriptor: int, ranges: list[tuple[int, int]], crc: int) -> int:
    for first, end in ranges:
        crc = range_checksum(descriptor, first, max(0, end - first), crc)
    return crc
