"""Checksums of a replica: one CRC-32C per block of elements, and one of everything else.

The elements are cut into blocks; the last may be shorter. Blocks are 1 MiB, larger (a power of two)
for large datasets, so that all checksums together stay small. The file of a chunked replica, whose
elements lie here and there, is cut into blocks as a whole.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from sds import _native
from sds.errors import TruncatedFileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_WINDOW_BYTES = 1 << 20


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
    window = bytearray(min(_WINDOW_BYTES, size_bytes))
    done = 0
    while done < size_bytes:
        part = memoryview(window)[: size_bytes - done]
        got = os.preadv(descriptor, [part], offset_bytes + done)
        if got == 0:
            message = (
                f"file ends at byte {offset_bytes + done}, "
                f"{size_bytes - done} bytes before its data does"
            )
            raise TruncatedFileError(message)
        crc = _native.crc32c(part[:got], crc)
        done += got
    return crc


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
