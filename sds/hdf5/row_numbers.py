"""The rows of the source that the rows of a sorted replica were.

They are no column of the user's: as a dataset they would be one to every program that looks through
the file. Their room in the file belongs to no object of it, and an attribute says where it is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import FormatError
from sds.hdf5.trailer import FORMAT

if TYPE_CHECKING:
    import h5py
    from numpy.typing import NDArray

FIRST_FORMAT = 6
"""First replica format with row numbers stored so; before, they are the dataset `OLDER_PATH`."""
OLDER_PATH = "/sds_row_numbers"
PLACE = "sds_sort_row_numbers"
"""Root attribute, int64[2]: first byte in the file, and bytes of each number."""

_SIZES_BYTES = (4, 8)


class RowNumbers:
    """The row numbers of an open sorted replica.

    Parameters
    ----------
    replica
        Open for as long as numbers are read.
    n_rows
        How many there are.

    Raises
    ------
    FormatError
        If the replica does not hold as many.
    KeyError
        If it does not say where they are.
    """

    def __init__(self, replica: h5py.File, n_rows: int) -> None:
        self._name = replica.filename
        self._descriptor: int = replica.id.get_vfd_handle()
        if int(replica.attrs[FORMAT]) >= FIRST_FORMAT:
            self.offset_bytes, size_bytes = (int(n) for n in replica.attrs[PLACE])
        else:
            stored = replica[OLDER_PATH]
            size_bytes = stored.dtype.itemsize
            offset_bytes = stored.id.get_offset()
            if stored.shape != (n_rows,) or offset_bytes is None:
                message = f"{self._name} does not hold the numbers of {n_rows} rows"
                raise FormatError(message)
            self.offset_bytes = int(offset_bytes)
        self.size_bytes = n_rows * size_bytes
        end = os.fstat(self._descriptor).st_size
        fits = 0 <= self.offset_bytes <= end - self.size_bytes
        if size_bytes not in _SIZES_BYTES or not fits:
            message = (
                f"{self._name} has no {n_rows} row numbers of {size_bytes} bytes at byte "
                f"{self.offset_bytes}"
            )
            raise FormatError(message)
        self._dtype = np.dtype(f"<u{size_bytes}")

    def read(self, first: int, n_rows: int) -> NDArray[np.uint64]:
        """Return the numbers of consecutive rows.

        Raises
        ------
        FormatError
            If the file ends before them.
        OSError
            If it cannot be read.
        """
        numbers = np.empty(n_rows, self._dtype)
        left = numbers.view(np.uint8).data
        at = self.offset_bytes + first * self._dtype.itemsize
        while left:
            n_read = os.preadv(self._descriptor, [left], at)
            if not n_read:
                message = f"{self._name} ends at byte {at}, amid its row numbers"
                raise FormatError(message)
            left = left[n_read:]
            at += n_read
        return numbers.astype(np.uint64)
