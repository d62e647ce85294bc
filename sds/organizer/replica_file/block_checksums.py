"""Checksums of a replica: one CRC-32C per block of elements, and one of everything else.

The elements are cut into blocks; the last may be shorter. Blocks are 1 MiB, larger (a power of two)
for large datasets, so that all checksums together stay small. The file of a chunked replica, whose
elements lie here and there, is cut into blocks as a whole.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
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
# Of a file on disk: enough for it to read without a pause.
_AHEAD_BYTES = 16 << 20
_N_THREADS = 2

_of_thread = threading.local()


def n_blocks(size_bytes: int, block_bytes: int) -> int:
    """Return how many blocks there are."""
    return -(-size_bytes // block_bytes)


def block_checksums(
    descriptor: int,
    offset_bytes: int,
    size_bytes: int,
    block_bytes: int,
    *,
    share: tuple[int, int] = (0, 1),
    advance: Callable[[int], None] | None = None,
) -> NDArray[np.uint32]:
    """Return the CRC-32C of each block of a byte range of a file.

    Parameters
    ----------
    share
        Number of a part of the blocks, and number of all parts: only of that part.
    advance
        Called with the number of bytes read since its last call.

    Raises
    ------
    TruncatedFileError
        If the file ends before the range.
    """

    def checksum(first: int, end: int) -> int:
        return range_checksum(descriptor, first, end - first)

    return _of_blocks(
        checksum, _Blocks(descriptor, offset_bytes, size_bytes, block_bytes, share), advance
    )


def file_checksums(
    descriptor: int,
    block_bytes: int,
    *,
    hole: tuple[int, int],
    share: tuple[int, int] = (0, 1),
    advance: Callable[[int], None] | None = None,
) -> NDArray[np.uint32]:
    """Return the CRC-32C of each block of a whole file.

    Parameters
    ----------
    hole
        First byte and end of a range that counts as zero: where these checksums are stored.
    share
        As of :func:`block_checksums`.
    advance
        Called with the number of bytes read since its last call.
    """

    def checksum(first: int, end: int) -> int:
        within = max(first, min(hole[0], end)), min(end, max(hole[1], first))
        crc = range_checksum(descriptor, first, within[0] - first)
        crc = _zeros_checksum(within[1] - within[0], crc)
        return range_checksum(descriptor, within[1], end - within[1], crc)

    size_bytes = os.fstat(descriptor).st_size
    return _of_blocks(checksum, _Blocks(descriptor, 0, size_bytes, block_bytes, share), advance)


def _of_blocks(
    checksum: Callable[[int, int], int],
    blocks: _Blocks,
    advance: Callable[[int], None] | None,
) -> NDArray[np.uint32]:
    """Return the checksums of blocks, computed in several threads while the next are read ahead.

    Parameters
    ----------
    checksum
        Of a block, by its first byte and its end in the file.
    """
    checksums = np.empty(len(blocks.firsts), np.uint32)
    under_way: deque[Future[int]] = deque()
    n_done = 0
    with ThreadPoolExecutor(_N_THREADS, thread_name_prefix="sds-checksum") as pool:
        try:
            for index, first in enumerate(blocks.firsts):
                end = blocks.end_of(index)
                blocks.read_ahead(end + _AHEAD_BYTES)
                under_way.append(pool.submit(checksum, first, end))
                is_last = index + 1 == len(blocks.firsts)
                while len(under_way) > (0 if is_last else 2 * _N_THREADS):
                    checksums[n_done] = under_way.popleft().result()
                    if advance is not None:
                        advance(blocks.end_of(n_done) - blocks.firsts[n_done])
                    n_done += 1
        finally:
            for computing in under_way:
                computing.cancel()
    return checksums


class _Blocks:
    """A part of the blocks of a byte range of a file."""

    def __init__(
        self,
        descriptor: int,
        offset_bytes: int,
        size_bytes: int,
        block_bytes: int,
        share: tuple[int, int],
    ) -> None:
        number, n_parts = share
        n = n_blocks(size_bytes, block_bytes)
        first, end = (block_bytes * (n * part // n_parts) for part in (number, number + 1))
        self._descriptor = descriptor
        self._end = offset_bytes + min(end, size_bytes)
        offset_bytes += first
        self.firsts = range(offset_bytes, self._end, block_bytes)
        is_past_cache = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT
        self._announced = self._end if is_past_cache else offset_bytes

    def end_of(self, index: int) -> int:
        """Return the end of a block."""
        return min(self.firsts[index] + self.firsts.step, self._end)

    def read_ahead(self, end: int) -> None:
        """Have the file read into the page cache up to a byte; nobody waits for it."""
        while self._announced < min(end, self._end):
            os.posix_fadvise(
                self._descriptor, self._announced, _WINDOW_BYTES, os.POSIX_FADV_WILLNEED
            )
            self._announced += _WINDOW_BYTES


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
    with memoryview(_window()) as view:
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
    return crc


def _window() -> mmap.mmap:
    """Return memory to read into, aligned, of this thread."""
    found: mmap.mmap | None = getattr(_of_thread, "window", None)
    if found is None:
        # Private: a child of fork has its own.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        found = _of_thread.window = mmap.mmap(-1, _WINDOW_BYTES, flags=flags)
    return found


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
