"""Layout of a replica: the part of its source that it holds, and its storage.

Everything here is a value or arithmetic on values: no file is touched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sds import _native
from sds.errors import LayoutError, SelectionError, UnsupportedError
from sds.geometry.chunk_selection import MAX_CHUNKS
from sds.geometry.dataspace import Box, check_chunks, check_order
from sds.geometry.segments import SegmentList
from sds.geometry.selection import parse_selection
from sds.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.geometry.dataspace import Hyperslab

MAX_CHUNK_BYTES = _native.MAX_CHUNK_BYTES
"""Elements of a chunk, decoded. HDF5 decodes whole chunks, in the memory of the program that reads:
the connector leaves replicas in larger ones alone."""

_N_COLUMNS_NAMED = 4
CHECKSUM_BYTES = 4
"""Bytes that the Fletcher-32 filter adds to each chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """One filter of a chunked dataset's pipeline.

    Attributes
    ----------
    code
        Its number in HDF5's registry.
    options
        What HDF5 hands to it, such as the level of compression.
    """

    code: int
    name: str
    options: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SortOrder:
    """Order of the rows in a sorted replica of a table.

    Attributes
    ----------
    key
        The column by which rows are ordered; equal keys keep the order of the source.
    columns
        Those that it holds, the key among them.
    """

    key: str
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.key not in self.columns:
            message = (
                f"rows sorted by {self.key!r} need that column too: add it to "
                f"{', '.join(self.columns) or 'the columns'}"
            )
            raise LayoutError(message)

    @property
    def name(self) -> str:
        """Description, e.g. ``sorted by energy, with x, id``."""
        others = [name for name in self.columns if name != self.key]
        text = f"sorted by {self.key}"
        if len(others) > _N_COLUMNS_NAMED:
            return f"{text}, with {len(others)} columns"
        return f"{text}, with {', '.join(others)}" if others else text


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLayout:
    """Layout that distinguishes replicas of a dataset; the organizer builds every one of these.

    Attributes
    ----------
    order
        Replica axis i is source axis ``order[i]``, as in :func:`numpy.transpose`.
    chunk_shape
        In the axes of the replica; None where it is contiguous.
    filters
        In the order in which writing applies them, without the checksum that is always the last.
    region
        The box of the source that it holds, in the axes of the source; around all tiles where it
        holds segments.
    sort
        Of a table whose rows are sorted, else None. Such a replica answers queries, not reads.
    segments
        The tiles that it holds, else None. Such a replica is contiguous: tiles one behind the
        other, the elements of each in `order`.
    """

    order: tuple[int, ...]
    chunk_shape: tuple[int, ...] | None = None
    filters: tuple[Filter, ...] = ()
    region: Box
    sort: SortOrder | None = None
    segments: SegmentList | None = None

    def __post_init__(self) -> None:
        rank = len(self.region.extent)
        check_order(self.order, rank)
        if self.segments is not None:
            if self.chunk_shape is not None or self.sort is not None:
                raise LayoutError(
                    "segments are stored contiguously and unsorted: leave out chunks and sort"
                )
            if len(self.segments.tile_shape) != rank:
                raise LayoutError(
                    f"tiles of {len(self.segments.tile_shape)} axes in an order of {rank}: give "
                    "one length for each"
                )
        if self.chunk_shape is None:
            if self.filters:
                raise LayoutError("filters work on chunks: give a chunk shape, or no filters")
        elif len(self.chunk_shape) != rank or min(self.chunk_shape, default=0) < 1:
            shown = ",".join(map(str, self.chunk_shape))
            raise LayoutError(
                f"chunks {shown!r} do not fit {rank} axes: give a length of at least 1 for each, "
                "in the axis order of the replica"
            )

    @classmethod
    def whole(
        cls,
        extent: Sequence[int],
        *,
        order: Sequence[int] | None = None,
        chunk_shape: tuple[int, ...] | None = None,
        filters: tuple[Filter, ...] = (),
    ) -> ReplicaLayout:
        """Return the layout of a replica of all of a dataset; order None: as in the source."""
        return cls(
            order=tuple(range(len(extent)) if order is None else order),
            chunk_shape=chunk_shape,
            filters=filters,
            region=Box.whole(extent),
        )

    @classmethod
    def of_tiles(
        cls, segments: SegmentList, extent: Sequence[int], *, order: Sequence[int] | None = None
    ) -> ReplicaLayout:
        """Return the layout of a replica of tiles of a dataset; order None: as in the source."""
        return cls(
            order=tuple(range(len(extent)) if order is None else order),
            region=segments.around(extent),
            segments=segments,
        )

    def holds_all(self, extent: Sequence[int]) -> bool:
        """Return whether it holds all elements of a source of an extent, by rows and columns."""
        return self.segments is None and self.region == Box.whole(extent)

    def holds(self, slab: Hyperslab, extent: Sequence[int]) -> bool:
        """Return whether it holds all that is selected of a source of an extent."""
        if self.segments is not None:
            return self.segments.holds(slab, extent)
        return self.region.holds(slab)

    def describe(self, extent: Sequence[int]) -> str:
        """Return it in words, e.g. ``order 2,0,1`` or ``order 0,1 in chunks 32x64, of [0:9, 5:6]``.

        extent: of the source.
        """
        if self.sort is not None:
            return self.sort.name
        text = f"order {','.join(map(str, self.order))}"
        if self.segments is not None:
            shape = "x".join(map(str, self.segments.tile_shape))
            n_tiles, n_segments = len(self.segments.tiles), len(self.segments.lengths)
            return f"{text}, {counted(n_tiles, 'tile')} {shape} in {counted(n_segments, 'segment')}"
        if self.chunk_shape is not None:
            text += f" in chunks {'x'.join(map(str, self.chunk_shape))}"
        if self.filters:
            text += ", filtered"
        return text if self.holds_all(extent) else f"{text}, of {self.region}"

    @property
    def storage(self) -> Literal["contiguous", "chunked"]:
        """HDF5 storage layout of the elements."""
        return "contiguous" if self.chunk_shape is None else "chunked"

    @property
    def replica_extent(self) -> tuple[int, ...]:
        """Elements per axis of the replica; of one of segments the first axis counts tiles."""
        if self.segments is not None:
            shape = self.segments.tile_shape
            return (len(self.segments.tiles), *(shape[axis] for axis in self.order))
        return tuple(self.region.extent[axis] for axis in self.order)

    @property
    def chunk_in_source_axes(self) -> tuple[int, ...] | None:
        """The shape of a chunk with its axes in the order of the source."""
        if self.chunk_shape is None:
            return None
        shape = [0] * len(self.order)
        for axis, length in zip(self.order, self.chunk_shape, strict=True):
            shape[axis] = length
        return tuple(shape)

    @property
    def n_chunks(self) -> int:
        """Chunks in all; 0 where contiguous."""
        return 0 if self.chunk_shape is None else n_chunks(self.replica_extent, self.chunk_shape)


def n_chunks(extent: Sequence[int], chunk_shape: Sequence[int]) -> int:
    """Return how many chunks hold an array."""
    return math.prod(-(-n // c) for n, c in zip(extent, chunk_shape, strict=True))


def parse_region(text: str, extent: tuple[int, ...]) -> Box:
    """Return the box that a selection such as ``[0:100, :, 7]`` names.

    Raises
    ------
    SelectionError
        If it is no selection, reaches outside, has gaps or is empty.
    """
    slab = parse_selection(text, extent)
    for axis, (stride, count) in enumerate(zip(slab.stride, slab.count, strict=True)):
        if count > 1 and stride != 1:
            message = (
                f"region {text!r}: axis {axis} has step {stride}, and a replica holds a box "
                "without gaps: leave the step out"
            )
            raise SelectionError(message)
    region = Box(start=slab.start, extent=slab.count)
    check_region(region, extent)
    return region


def check_region(region: Box, extent: Sequence[int]) -> None:
    """Raise SelectionError unless a region is a box of a dataset of that extent, not empty."""
    if len(region.start) != len(extent) or len(region.extent) != len(extent):
        message = (
            f"a region of {len(region.start)} axes does not fit a dataset of {len(extent)}: "
            f"its extent is {'x'.join(map(str, extent))}"
        )
        raise SelectionError(message)
    for axis, (first, length, n) in enumerate(
        zip(region.start, region.extent, extent, strict=True)
    ):
        if length < 1:
            message = (
                f"the region is empty: it holds no index of axis {axis}, which has 0 to {n - 1}; "
                "name at least one"
            )
            raise SelectionError(message)
        if first < 0 or first + length > n:
            message = (
                f"the region {region} reaches outside axis {axis}, which has {n} "
                f"elements: stay within 0:{n}"
            )
            raise SelectionError(message)


def automatic_chunk_shape(
    replica_extent: Sequence[int], element_size_bytes: int
) -> tuple[int, ...]:
    """Return chunks of about 1 MiB whose elements are consecutive in the replica's order.

    The axis order was chosen for reads that run along the last axes, so those stay whole and the
    first ones are cut: such a read touches as few chunks as a contiguous replica has pieces of
    1 MiB. An axis that is cut is cut evenly.

    >>> automatic_chunk_shape((4096, 256, 256), 4)
    (4, 256, 256)
    >>> automatic_chunk_shape((3, 1_000_000), 8)
    (1, 125000)
    """
    budget = max(1, MAX_CHUNK_BYTES // element_size_bytes)
    shape = list(replica_extent)
    for axis, length in enumerate(replica_extent):
        behind = math.prod(shape[axis + 1 :])
        if length * behind <= budget:
            break
        most = max(1, budget // behind)
        n_pieces = -(-length // most)
        shape[axis] = -(-length // n_pieces)
        if most > 1:
            break
    return tuple(shape)


def check_chunk_shape(
    chunk_shape: Sequence[int], replica_extent: Sequence[int], element_size_bytes: int
) -> tuple[int, ...]:
    """Return a chunk shape as a tuple.

    Raises
    ------
    LayoutError
        If HDF5 could not store a dataset of that extent in such chunks, or programs would not be
        served from them.
    """
    check_chunks(chunk_shape, replica_extent)
    shown = ",".join(map(str, chunk_shape))
    chunk_bytes = math.prod(chunk_shape) * element_size_bytes
    if chunk_bytes > MAX_CHUNK_BYTES:
        smaller = ",".join(map(str, automatic_chunk_shape(replica_extent, element_size_bytes)))
        message = (
            f"chunks {shown!r} hold {chunk_bytes} bytes each, and programs are served from chunks "
            f"of at most {MAX_CHUNK_BYTES}, since HDF5 decodes whole ones in their memory: make "
            f"them smaller, such as {smaller}"
        )
        raise LayoutError(message)
    n = n_chunks(replica_extent, chunk_shape)
    if n > MAX_CHUNKS:
        message = (
            f"chunks {shown!r} would be {n} in number, and SDS handles {MAX_CHUNKS}: "
            f"make them larger, up to {MAX_CHUNK_BYTES} bytes each, name a smaller region, or "
            "build a contiguous replica"
        )
        raise LayoutError(message)
    return tuple(int(length) for length in chunk_shape)


def choose_chunk_shape(
    chunks: Sequence[int] | Literal["auto", "contiguous"] | None,
    filters: Sequence[Filter],
    replica_extent: Sequence[int],
    element_size_bytes: int,
) -> tuple[int, ...] | None:
    """Return the chunk shape that a request comes to; None: contiguous.

    Parameters
    ----------
    chunks
        None: contiguous, or "auto" where there are filters.

    Raises
    ------
    LayoutError
        If the shape does not fit, or filters are given without chunks.
    UnsupportedError
        If one element is larger than a chunk may be.
    """
    if chunks == "contiguous" and filters:
        names = ",".join(step.name for step in filters)
        message = (
            f"filters ({names}) work on chunks, and the replica is to be contiguous: "
            "leave one of the two out"
        )
        raise LayoutError(message)
    if chunks == "contiguous" or (chunks is None and not filters):
        return None
    if element_size_bytes > MAX_CHUNK_BYTES:
        message = (
            f"one element of {element_size_bytes} bytes is larger than a chunk may be, "
            f"{MAX_CHUNK_BYTES}: build a contiguous replica, without chunks and filters"
        )
        raise UnsupportedError(message)
    if chunks is None or isinstance(chunks, str):
        if chunks not in {None, "auto"}:
            message = f"chunks {chunks!r}: write lengths such as 64,64,64, auto, or contiguous"
            raise LayoutError(message)
        chunks = automatic_chunk_shape(replica_extent, element_size_bytes)
    return check_chunk_shape(chunks, replica_extent, element_size_bytes)
