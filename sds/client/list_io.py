"""List I/O: many regions of a file to or from many regions of memory, in one call.

Both lists name bytes one region after the other. The first byte that the one names belongs to the
first that the other names, and so on; the lists may be cut differently, in any order. Source:
Ching 2002, Sec. 3.3.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sds import _native
from sds.client.open_files import engine_of, find_opened, keep, open_file
from sds.errors import FileMissingError, PermissionDeniedError, SdsValueError
from sds.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    Regions = Sequence[int] | NDArray[np.integer]

_SHORT_LIST = 350
_EXAMPLE = "for example np.array([0, 4096])"


ReadReport = _native.ListReport
"""Report on a read of lists: docs/reference/python.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """Report on a write of lists.

    Attributes
    ----------
    pieces
        Of the file and of memory, after both lists were cut and neighbours joined.
    requests
        System calls; neighbours in the file are written by one.
    bytes_written
        Fewer than the lists name where regions of the file overlap.
    memory_bytes
        Of buffers, besides 24 to 96 bytes per region.
    """

    pieces: int
    requests: int
    bytes_written: int
    memory_bytes: int


def read_list(  # noqa: PLR0917  (Ching 2002: two lists of two, by position)
    file: str | os.PathLike[str] | int,
    file_offsets: Regions,
    file_lengths: Regions | int,
    mem_offsets: Regions | None,
    mem_lengths: Regions | int | None,
    out: Buffer,
    strategy: str = "auto",
    *,
    regions_per_request: int = 64,
    sieve_buffer_bytes: int = 32 << 20,
) -> ReadReport:
    """Read regions of a file into regions of memory; returns what it took.

    Memory then holds what reading the regions one after the other would leave there; bytes of `out`
    outside of its regions stay as they are. Regions may overlap, in the file and in memory.

    Parameters
    ----------
    file
        A path, whose file stays open for the next call (see :func:`sds.forget`), or a descriptor
        open for reading, whose position does not matter.
    file_offsets, file_lengths
        Bytes, shape (n,); one integer for lengths that are all the same. Arrays of int64 are
        used as they are.
    mem_offsets, mem_lengths
        Bytes in `out`, shape (m,). Both None: the bytes go one region after the other from the
        first byte of `out` on.
    out
        A contiguous buffer that can be written, for example a NumPy array.
    strategy
        "auto" plans what is predicted to be fastest. To compare with: "multiple", one request per
        region; "sieve", the whole range, in windows of `sieve_buffer_bytes`; "list", up to
        `regions_per_request` regions per request; "pmd", sieving directed by a performance model
        (Chen 2014).
    regions_per_request, sieve_buffer_bytes
        For "list" and "sieve"; as in Ching 2002.

    Raises
    ------
    SdsValueError
        If offsets or lengths are negative, the sums of the lengths differ, or a region reaches
        outside of `out`; LayoutError if one ends beyond 2**63. Nothing is read then.
    TruncatedFileError
        If a region reaches outside of the file: nothing is read then. Or if the file becomes
        shorter meanwhile: the regions of `out` are then undefined.
    FileMissingError, PermissionDeniedError
        If the path cannot be opened.
    OSError
        As of ``os.pread``; the regions of `out` are then undefined.

    Notes
    -----
    Source: Ching 2002, Sec. 3.
    """
    if regions_per_request < 1 or sieve_buffer_bytes < 1:
        _refuse_counts(regions_per_request, sieve_buffer_bytes)
    # Nothing is kept of a descriptor: what a short list could gain from measured costs or from a
    # mapping is less than it takes to find the former and to make the latter.
    engine = (
        file if isinstance(file, int) and len(file_offsets) <= _SHORT_LIST else _reader_of(file)
    )
    try:
        return _native.read_list(
            engine, file_offsets, file_lengths, mem_offsets, mem_lengths, out,
            strategy, regions_per_request, sieve_buffer_bytes,
        )  # fmt: skip
    except TypeError:  # to be converted first
        in_file, in_memory = _lists(file_offsets, file_lengths, mem_offsets, mem_lengths)
        into = memoryview(_bytes_of(out, "out"))
    if into.readonly:
        raise BufferError("out is not writable; pass for example a bytearray")
    return _native.read_list(
        engine, *in_file, *in_memory, into, strategy, regions_per_request, sieve_buffer_bytes
    )


def _reader_of(file: str | os.PathLike[str] | int) -> _native.ReadFile:
    if isinstance(file, int):
        return engine_of(file)
    # What HDF5 holds back in this process is not in the file, whose bytes are read here.
    opened = find_opened(file, is_hdf5=False)
    if opened is None:
        opened = open_file(file)
        keep(opened)
    return opened.engine


def _refuse_counts(regions_per_request: int, sieve_buffer_bytes: int) -> None:
    for name, number in (
        ("regions_per_request", regions_per_request),
        ("sieve_buffer_bytes", sieve_buffer_bytes),
    ):
        if number < 1:
            message = f"{name} is {number}; pass at least 1"
            raise SdsValueError(message)


def write_list(  # noqa: PLR0917  (Ching 2002: two lists of two, by position)
    file: str | os.PathLike[str] | int,
    file_offsets: Regions,
    file_lengths: Regions | int,
    mem_offsets: Regions | None,
    mem_lengths: Regions | int | None,
    data: Buffer,
) -> WriteReport:
    """Write regions of memory to regions of a file; returns what it took.

    The file then holds what writing the regions one after the other would leave there. No byte
    between them is read or written, so others may write those at the same time; neighbours in the
    file are written together. The file is not synced to disk.

    Parameters
    ----------
    file
        A file that exists, or a descriptor open for writing, whose position does not matter.
    file_offsets, file_lengths
        Bytes, shape (n,); one integer for lengths that are all the same. Arrays of int64 are
        used as they are.
    mem_offsets, mem_lengths
        Bytes in `data`, shape (m,). Both None: the bytes lie one region after the other from the
        first byte of `data` on.
    data
        A contiguous buffer, for example a NumPy array.

    Raises
    ------
    SdsValueError
        If offsets or lengths are negative, the sums of the lengths differ, or a region reaches
        outside of `data`; LayoutError if one ends beyond 2**63. Nothing is written then.
    FileMissingError, PermissionDeniedError
        If the path cannot be opened for writing.
    OSError
        As of ``os.pwrite``: the disk is full, or the like. Some regions may be written then; the
        message says how many bytes.

    Notes
    -----
    Source: Ching 2002, Sec. 3.3. Of its strategies, sieving has no place here: it would write back
    the bytes between the regions, and so undo what others wrote there meanwhile.
    """
    in_file, in_memory = _lists(file_offsets, file_lengths, mem_offsets, mem_lengths)
    with _opened(file, os.O_WRONLY) as descriptor:
        found = _native.write_list(descriptor, *in_file, *in_memory, _bytes_of(data, "data"))
    return WriteReport(**found)


def _lists(
    file_offsets: Regions,
    file_lengths: Regions | int,
    mem_offsets: Regions | None,
    mem_lengths: Regions | int | None,
) -> tuple[
    tuple[NDArray[np.int64], NDArray[np.int64] | int],
    tuple[NDArray[np.int64] | None, NDArray[np.int64] | int],
]:
    """Return both lists as the core takes them."""
    in_file = (_numbers(file_offsets, "file_offsets"), _lengths(file_lengths, "file_lengths"))
    if mem_offsets is None and mem_lengths is None:
        return in_file, (None, 0)
    if mem_offsets is None or mem_lengths is None:
        raise SdsValueError("pass both mem_offsets and mem_lengths, or None for both")
    return in_file, (_numbers(mem_offsets, "mem_offsets"), _lengths(mem_lengths, "mem_lengths"))


def _lengths(values: Regions | int, name: str) -> NDArray[np.int64] | int:
    if isinstance(values, int):
        return values
    if isinstance(values, np.integer):
        return int(values)
    return _numbers(values, name)


def _numbers(values: Regions, name: str) -> NDArray[np.int64]:
    """Return integers as a contiguous array of int64, itself where it is one."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)  # an empty list is one of floats
    if array.ndim != 1 or array.dtype.kind not in "iu":
        message = (
            f"{name} are of type {array.dtype} and shape {array.shape}; pass one-dimensional "
            f"integers, {_EXAMPLE}"
        )
        raise SdsValueError(message)
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 1 << 63:
        message = f"{name} has {int(array.max())}, beyond 2**63 bytes; pass offsets within a file"
        raise SdsValueError(message)
    return np.ascontiguousarray(array, np.int64)


def _bytes_of(memory: Buffer, name: str) -> Buffer:
    """Return the bytes of a contiguous buffer, where they are."""
    if isinstance(memory, np.ndarray):
        if memory.dtype.hasobject:
            message = f"{name} is of type {memory.dtype}: its bytes are addresses; pass numbers"
            raise SdsValueError(message)
        if not memory.flags.c_contiguous:
            message = f"{name} is not C-contiguous; pass np.ascontiguousarray of it, or a copy"
            raise SdsValueError(message)
        return memory.reshape(-1).view(np.uint8).data
    try:
        return memoryview(memory).cast("B")
    except (TypeError, ValueError) as error:
        message = f"{name} is no contiguous buffer of bytes ({error}); pass for example a bytearray"
        raise SdsValueError(message) from error


@contextmanager
def _opened(file: str | os.PathLike[str] | int, flags: int) -> Iterator[int]:
    """Open a path for as long as the block runs; a descriptor stays the caller's."""
    if isinstance(file, int):
        yield file
        return
    try:
        descriptor = open_regular(file, flags)
    except FileNotFoundError as error:
        message = f"no such file: {os.fspath(file)}; create it, or check the name"
        raise FileMissingError(message) from error
    except PermissionError as error:
        access = "read" if flags == os.O_RDONLY else "write"
        message = f"may not {access} {os.fspath(file)}; ask its owner for permission"
        raise PermissionDeniedError(message) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
