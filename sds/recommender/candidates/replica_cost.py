"""Costs of a replica: space to keep it, and time to build it."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.errors import LayoutError, SdsValueError
from sds.geometry import Hyperslab, check_chunk_shape, check_order, check_region
from sds.geometry.least_memory import DEFAULT_MEMORY_BYTES
from sds.geometry.storage_layout import MIB
from sds.queries.column_names import format_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from sds.geometry import ReplicaLayout
    from sds.recommender.models.read_cost import StoredArray


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRates:
    """Bytes of elements that are reorganized per second, verification included.

    The defaults were measured with the organizer on ext4, two processors.

    Attributes
    ----------
    plain
        Where neither the source nor the replica is filtered.
    filtered
        Where one is, or both.
    of_rows
        Of tables, whose rows are sorted.
    """

    plain: float = 250e6
    filtered: float = 60e6
    of_rows: float = 250e6

    def __post_init__(self) -> None:
        for name in ("plain", "filtered", "of_rows"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SdsValueError(f"{name} must be a positive number, not {value}")


BUILD_START_S = 0.2
"""Seconds to build the smallest replica: to plan, verify, rename and publish it.

Measured with the organizer on ext4: 0.2 to 0.3 s for one of 256 KiB.
"""

GATHERED_BYTES = 32 << 20
"""Bytes of tiles that the organizer gathers in one pass through the source."""

GATHERED_RUN_S = 1.2e-6
"""Seconds per contiguous piece of a tile besides its bytes, to gather and to compare it.

Measured with the organizer on ext4, 0.1, 2 and 16 million pieces of 4 B out of 640 MB: 0.8, 3.6 and
20 s in all.
"""


def check_layout(layout: ReplicaLayout, array: StoredArray) -> None:
    """Raise LayoutError or SelectionError unless a replica of a dataset can be stored so."""
    rank = len(array.extent)
    check_order(layout.order, rank)
    if rank == 0:
        raise LayoutError("a scalar has one layout: there is no other to suppose")
    if layout.filters and layout.filters != array.filters:
        raise LayoutError("how well filters work that the source does not have is not known")
    if layout.segments is not None:
        layout.segments.check_within(array.extent)
    elif array.size_bytes:
        check_region(layout.region, array.extent)
    if layout.chunk_shape is not None:
        check_chunk_shape(layout.chunk_shape, layout.replica_extent, array.element_size_bytes)


def build_command(
    layout: ReplicaLayout,
    extent: tuple[int, ...],
    target: str,
    *,
    min_reads: int = 0,
    memory_bytes: int = 0,
) -> str:
    """Return what a user types to build a replica; segments anew, of what is known then.

    memory_bytes: that the build takes at least (`least_process_bytes`).
    """
    words = ["sds", "reorganize", target]
    if layout.sort is not None:
        columns = format_columns(layout.sort.columns)
        return shlex.join([*words, "--sort", layout.sort.key, "--columns", columns])
    words += ["--order", ",".join(map(str, layout.order))]
    if layout.chunk_shape is not None:
        words += ["--chunks", ",".join(map(str, layout.chunk_shape))]
    if layout.filters:
        words += ["--compress", "source"]
    if layout.segments is not None:
        words += ["--tiles", ",".join(map(str, layout.segments.tile_shape))]
        words += ["--min-reads", str(min_reads)] if min_reads else []
    elif not layout.holds_all(extent):
        words += ["--region", str(layout.region)]
    if memory_bytes > DEFAULT_MEMORY_BYTES:
        words += ["--memory", f"{-(-memory_bytes // MIB)}M"]
    return shlex.join(words)


def n_elements(layout: ReplicaLayout) -> int:
    """Return how many elements a replica holds, those of tiles that are cut off included."""
    return math.prod(layout.replica_extent)


def size_bytes(layout: ReplicaLayout, array: StoredArray) -> int:
    """Return the bytes that the elements of a replica take in its file.

    Chunks at the edges are stored whole; filtered ones are taken to shrink as the source's did.
    """
    if layout.chunk_shape is None:
        return n_elements(layout) * array.element_size_bytes
    chunk_bytes = math.prod(layout.chunk_shape) * array.element_size_bytes
    if layout.filters and array.stored_bytes is not None:
        share = array.stored_bytes / max(1, array.size_bytes)
        chunk_bytes = max(1, math.ceil(chunk_bytes * share))
    return layout.n_chunks * chunk_bytes


def build_seconds(size_bytes: int, bytes_per_s: float) -> float:
    """Return the time to build a replica of elements of `size_bytes`."""
    return BUILD_START_S + size_bytes / bytes_per_s


def replica_build_seconds(
    layout: ReplicaLayout,
    array: StoredArray,
    read_s: Callable[[Hyperslab], float],
    rates: BuildRates,
) -> float:
    """Return the time to build a replica; of segments, tile by tile, or all where that is less.

    read_s: seconds of a read of the dataset as it is stored.
    """
    held_bytes = n_elements(layout) * array.element_size_bytes
    is_filtered = array.stored_bytes is not None or bool(layout.filters)
    seconds = build_seconds(held_bytes, rates.filtered if is_filtered else rates.plain)
    if layout.segments is not None:
        n_tiles, tile = len(layout.segments.tiles), layout.segments.tile_shape
        tile_by_tile = n_tiles * read_s(Hyperslab.all(tile))
        forwards = -(-held_bytes // GATHERED_BYTES) * read_s(Hyperslab.all(array.extent))
        gathering = n_tiles * _runs_of_tile(tile, array) * GATHERED_RUN_S
        seconds += min(tile_by_tile, forwards + gathering)
    return seconds


def _runs_of_tile(tile_shape: tuple[int, ...], array: StoredArray) -> int:
    """Return in how many pieces a tile lies in a dataset; of one in chunks about as many."""
    last = len(tile_shape) - 1
    while last > 0 and tile_shape[last] == array.extent[last]:
        last -= 1
    return math.prod(tile_shape[:last])
