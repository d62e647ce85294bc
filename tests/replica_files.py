"""Replica files as tests read and change them: the HDF5 file, and the arrays behind its end."""

from contextlib import contextmanager

import h5py
import numpy as np

from sds import _native
from sds.hdf5.trailer import CHECKSUMS, SEGMENTS, TILES, append_trailer, stored_array

_TYPES = {CHECKSUMS: "<u4", TILES: "<i8", SEGMENTS: "<i8"}


def trailer_of(path):
    """Return the arrays behind the end of a replica's HDF5 file, by name."""
    content = path.read_bytes()
    with path.open("rb") as stream:
        places = _native.read_trailer(stream.fileno())
    return {
        name: np.frombuffer(content[at : at + size], _TYPES.get(name, "u1")).copy()
        for name, (at, size) in places.items()
    }


def block_ends(path, name, dtype):
    """Return minima or maxima of a sorted replica, in the type in which they are stored."""
    with h5py.File(path, "r", locking=False) as copy:
        return stored_array(copy, name, dtype)[1]


@contextmanager
def edited(path):
    """Yield a replica, open to be changed, and its arrays: what HDF5 cuts off is written again."""
    arrays = trailer_of(path)
    with h5py.File(path, "r+", locking=False) as copy:
        yield copy, arrays
    with path.open("r+b") as stream:
        append_trailer(stream.fileno(), arrays)
