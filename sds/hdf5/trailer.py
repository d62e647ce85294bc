"""Arrays of SDS's own behind the end of a replica's HDF5 file.

Checksums and lists are no data of the user's: as datasets they would be variables, and their
lengths dimensions, to every program that looks through a file. HDF5 opens a file that is longer
than its superblock says, and looks no further. native/include/sds/trailer.h defines the bytes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from sds import _native
from sds.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import h5py
    from numpy.typing import NDArray

FORMAT = "sds_format"
"""Root attribute of a replica: the version of its format."""
FIRST_FORMAT = 5
"""First replica format with a trailer; before, each array was a dataset ``/sds_<name>``."""

CHECKSUMS = "checksums"
TILES = "tiles"
SEGMENTS = "segments"
BLOCK_MINIMA = "block_minima"
BLOCK_MAXIMA = "block_maxima"

_MAGIC = b"SDSTRAIL"
_ENTRY = np.dtype([("name", "S16"), ("offset_bytes", "<i8"), ("size_bytes", "<i8")])
_END = np.dtype([("n_entries", "<i8"), ("magic", "S8")])
_ALIGNMENT_BYTES = 8


def end_with_trailer(file_bytes: int, sizes_bytes: Mapping[str, int]) -> int:
    """Return the size of a file of `file_bytes` bytes with a trailer of arrays of these sizes."""
    arrays = sum(_padded(size) for size in sizes_bytes.values())
    return _padded(file_bytes) + arrays + len(sizes_bytes) * _ENTRY.itemsize + _END.itemsize


def append_trailer(
    descriptor: int, arrays: Mapping[str, NDArray[Any]]
) -> dict[str, tuple[int, int]]:
    """Write arrays behind the end of a file; returns offset and size of each, in bytes."""
    first = _padded(os.fstat(descriptor).st_size)
    places: dict[str, tuple[int, int]] = {}
    content = b""
    for name, array in arrays.items():
        places[name] = (first + len(content), array.nbytes)
        content += array.tobytes().ljust(_padded(array.nbytes), b"\0")
    entries = np.array([(name.encode(), *place) for name, place in places.items()], _ENTRY)
    content += entries.tobytes() + np.array((len(places), _MAGIC), _END).tobytes()
    done = 0
    while done < len(content):
        done += os.pwrite(descriptor, content[done:], first + done)
    return places


def stored_array(replica: h5py.File, name: str, dtype: str) -> tuple[int, NDArray[Any]]:
    """Return where an array of an open replica lies in its file, and the array.

    Raises
    ------
    FormatError
        If the replica holds no such array of such elements.
    OSError
        If the file cannot be read.
    """
    try:
        if int(replica.attrs[FORMAT]) >= FIRST_FORMAT:
            return _read_array(replica.id.get_vfd_handle(), name, dtype)
        return _read_dataset(replica[f"/sds_{name}"], dtype)
    except (FormatError, KeyError) as error:
        message = (
            f"{replica.filename} is a damaged SDS replica (its {name}: {error}): "
            "remove it and build it again"
        )
        raise FormatError(message) from error


def widest(key: np.dtype[Any]) -> str:
    """Return the type in which minima and maxima of a sort key are stored: exact, 8 bytes wide."""
    return {"f": "<f8", "i": "<i8"}.get(key.kind, "<u8")


def block_ends(replica: h5py.File, name: str, key: np.dtype[Any]) -> NDArray[Any]:
    """Return the minima or maxima of an open sorted replica in the type of its key.

    Errors as of :func:`stored_array`.
    """
    return stored_array(replica, name, widest(key))[1].astype(key)


def _read_array(descriptor: int, name: str, dtype: str) -> tuple[int, NDArray[Any]]:
    offset_bytes, size_bytes = _native.read_trailer(descriptor)[name]
    if size_bytes % np.dtype(dtype).itemsize:
        message = f"{size_bytes} bytes are no array of {dtype}"
        raise FormatError(message)
    content = b""
    while len(content) < size_bytes:
        part = os.pread(descriptor, size_bytes - len(content), offset_bytes + len(content))
        if not part:
            message = f"the file ends at byte {offset_bytes + len(content)}"
            raise FormatError(message)
        content += part
    return offset_bytes, np.frombuffer(content, dtype)


def _read_dataset(stored: h5py.Dataset | h5py.Group, dtype: str) -> tuple[int, NDArray[Any]]:
    element = getattr(stored, "dtype", None)
    if element is None or stored.ndim != 1 or not np.can_cast(element, dtype):
        message = f"{stored.name} is no list of {dtype}"
        raise FormatError(message)
    offset_bytes = stored.id.get_offset()
    if offset_bytes is None:
        message = f"{stored.name} is not contiguous"
        raise FormatError(message)
    return int(offset_bytes), stored[...].astype(dtype)


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
