"""Memory that building a replica takes, at least."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sds.geometry.storage_layout import MIB

if TYPE_CHECKING:
    from sds.geometry.replica_layout import ReplicaLayout

DEFAULT_MEMORY_BYTES = 512 * MIB

PROCESS_BYTES = 144 * MIB
"""Memory of a process that builds a replica, without the plan's: Python, NumPy, HDF5, the catalog.
Measured are 110 to 125 MiB."""

FIXED_BYTES = 4 * MIB
"""Memory besides elements, bytes: a buffer of checksums, HDF5's own, the tile compared."""

# HDF5 holds a chunk twice while it runs the filters: before and after.
_COPIES_OF_A_CHUNK = 2

COPIES_OF_A_CELL = 3
"""Copies of a cell in memory while tiles are gathered: as read, as gathered, as compared."""


def chunk_buffer_bytes(
    of_source: tuple[int, ...] | None, of_replica: tuple[int, ...] | None, element: int
) -> int:
    """Return the memory of the chunks that HDF5 filters: one of the source, one of the replica."""
    return sum(
        _COPIES_OF_A_CHUNK * math.prod(chunk) * element
        for chunk in (of_source, of_replica)
        if chunk is not None
    )


def least_process_bytes(
    layout: ReplicaLayout, of_source: tuple[int, ...] | None, element: int
) -> int:
    """Return the memory with which a replica can be built, of the whole process.

    Parameters
    ----------
    of_source
        Elements per axis of a chunk of the source; None where it is not chunked.
    """
    if layout.segments is not None:
        cell_bytes = math.prod(of_source or (1,)) * element
        buffers_bytes = chunk_buffer_bytes(of_source, None, element)
        return PROCESS_BYTES + FIXED_BYTES + buffers_bytes + COPIES_OF_A_CELL * cell_bytes
    of_replica = layout.chunk_in_source_axes
    # One slab as read, one permuted.
    unit_bytes = math.prod(of_replica or of_source or (1,)) * element
    buffers_bytes = chunk_buffer_bytes(of_source, of_replica, element)
    return PROCESS_BYTES + FIXED_BYTES + buffers_bytes + 2 * unit_bytes
