"""Plan of a reorganization: what it reads, moves and writes, decided before it touches a file.

A plan is a value: made without a file, a clock or an environment, printable as JSON, and the same
for the same source and request. The requested part of the source is cut into slabs, boxes
of one shape that tile it (:mod:`sds.organizer.plans.slab_shapes`). Each is read, its axes are
permuted in memory, and its bytes go to their places in the replica.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sds.errors import ConfigurationError, UnsupportedError
from sds.geometry import Box, SegmentList, check_order
from sds.geometry.least_memory import (
    DEFAULT_MEMORY_BYTES,
    FIXED_BYTES,
    PROCESS_BYTES,
    chunk_buffer_bytes,
)
from sds.geometry.replica_layout import (
    CHECKSUM_BYTES,
    Filter,
    ReplicaLayout,
    check_region,
    choose_chunk_shape,
)
from sds.geometry.storage_layout import MIB
from sds.hdf5.codecs import DEFLATE, SHUFFLE
from sds.hdf5.dataset import DatasetDescription
from sds.hdf5.identity import FileIdentity
from sds.organizer.plans.slab_shapes import shape_between_grids, smallest_good_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


MAX_RANK = 32

# The replica's metadata stays below the 1 MiB that the connector is willing to check.
METADATA_ROOM_BYTES = 1 * MIB
# Of all memory, for undoing filters in several threads, and for applying them; at least for 8
# chunks.
_DECODE_SHARE = 8
_DECODED_CHUNKS = 8
_MIN_DECODE_BYTES, _MAX_DECODE_BYTES = 8 * MIB, 64 * MIB
# Of a chunk's entry in its index, with its share of what pages of entries need.
_INDEX_ENTRY_BYTES = 24
# Slabs that are read at the same time, and as many that are written: a disk and two processors are
# kept busy with two (`python -m benchmarks.transpose`).
_MOST_BUFFERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A dataset to reorganize, and the file that it was described from."""

    description: DatasetDescription
    identity: FileIdentity

    def plan_fields(self) -> dict[str, Any]:
        """Return the fields of a `CopyPlan` that are of the source."""
        found = self.description
        return {
            "source_path": found.file,
            "dataset_path": found.path,
            "source_identity": self.identity,
            "extent": found.extent,
            "element_size_bytes": found.element_size_bytes,
            "data_offset_bytes": found.data_offset_bytes,
            "source_chunk_shape": found.chunk_shape,
            "source_filters": found.filters,
            "source_stored_bytes": found.stored_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReorganizationRequest:
    """Request to an organizer.

    Attributes
    ----------
    order
        Replica axis i is source axis ``order[i]``, as in :func:`numpy.transpose`.
    output
        Absolute path of the replica file; ``.`` where SDS places it by what is planned.
    memory_bytes
        Private memory that the work may take.
    chunks
        Chunk shape in the axes of the replica; ``"auto"``: SDS chooses; None: contiguous, or
        ``"auto"`` where there are filters.
    filters
        Of the chunks, in the order in which writing applies them; a checksum is always added.
    region
        What to copy; None: everything.
    segments
        The tiles to copy instead, contiguous; None: the region.
    stored_share
        Bytes that filtered chunks are expected to take, as a share of their elements.
    """

    order: tuple[int, ...]
    output: Path
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    chunks: tuple[int, ...] | Literal["auto", "contiguous"] | None = None
    filters: tuple[Filter, ...] = ()
    region: Box | None = None
    segments: SegmentList | None = None
    stored_share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slab:
    """A box of the source: first index and number of elements per axis."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def n_elements(self) -> int:
        """Elements in all."""
        return math.prod(self.shape)

    @property
    def end(self) -> tuple[int, ...]:
        """The index behind the last, per axis."""
        return tuple(a + n for a, n in zip(self.start, self.shape, strict=True))

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as an index expression."""
        return tuple(slice(a, a + n) for a, n in zip(self.start, self.shape, strict=True))

    def halves(self) -> tuple[Slab, Slab]:
        """Return a box of several elements in two, cut across its first axis that can be."""
        axis = next(axis for axis, n in enumerate(self.shape) if n > 1)
        before, after, begin = list(self.shape), list(self.shape), list(self.start)
        before[axis] = self.shape[axis] // 2
        after[axis] -= before[axis]
        begin[axis] += before[axis]
        return (
            Slab(start=self.start, shape=tuple(before)),
            Slab(start=tuple(begin), shape=tuple(after)),
        )

    def permuted(self, order: Sequence[int]) -> Slab:
        """Return the same box in the axes of the replica."""
        return Slab(
            start=tuple(self.start[axis] for axis in order),
            shape=tuple(self.shape[axis] for axis in order),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """Fields of every plan: the source, the replica, and the memory and space that it takes.

    Attributes
    ----------
    organizer
        Entry point name of the organizer that made it and can execute it.
    source_path, dataset_path, source_identity
        The original: canonical path, HDF5 path, and which file it was.
    extent, element_size_bytes
        Of the source.
    layout
        What the replica will hold, and how.
    data_offset_bytes
        Where a contiguous source begins in its file, else None.
    source_chunk_shape, source_filters
        Of a chunked source, else None and ().
    source_stored_bytes
        Bytes that the source's file spends on all its elements.
    output
        Where the replica will be.
    memory_bytes
        Bound of the private memory that the execution takes for elements.
    size_bytes
        Elements of the replica.
    space_needed_bytes
        Free space that the disk must have; an estimate where chunks are compressed.
    """

    organizer: str
    source_path: Path
    dataset_path: str
    source_identity: FileIdentity
    extent: tuple[int, ...]
    element_size_bytes: int
    layout: ReplicaLayout
    data_offset_bytes: int | None
    source_chunk_shape: tuple[int, ...] | None
    source_filters: tuple[Filter, ...]
    source_stored_bytes: int
    output: Path
    memory_bytes: int
    size_bytes: int
    space_needed_bytes: int

    @property
    def expected_bytes(self) -> int:
        """Estimate of what its elements will take in the file, as advice counts them."""
        of_index = 0
        if self.layout.chunk_shape is not None:
            of_index = self.layout.n_chunks * (CHECKSUM_BYTES + _INDEX_ENTRY_BYTES)
        return self.space_needed_bytes - METADATA_ROOM_BYTES - of_index

    @property
    def order(self) -> tuple[int, ...]:
        """Replica axis i is source axis ``order[i]``."""
        return self.layout.order

    @property
    def region(self) -> Box:
        """The box of the source that is copied."""
        return self.layout.region

    @property
    def replica_extent(self) -> tuple[int, ...]:
        """Elements per axis of the replica."""
        return self.layout.replica_extent

    def to_json(self) -> dict[str, object]:
        """Return the plan as values that JSON knows."""
        fields = asdict(self)
        fields["source_path"] = str(self.source_path)
        fields["output"] = str(self.output)
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ReorganizationPlan(CopyPlan):
    """One reorganization, whole.

    Attributes
    ----------
    slab_start, slab_shape
        In the axes of the source. Slabs lie side by side from `slab_start` on; those at the ends
        are cut off where the region ends.
    n_buffers
        Slabs that are read at the same time, and as many that are written.
    encode_bytes
        Memory for filtering chunks of the replica without HDF5; 0 where HDF5 is to.
    """

    slab_start: tuple[int, ...]
    slab_shape: tuple[int, ...]
    n_buffers: int
    encode_bytes: int

    @property
    def slab_counts(self) -> tuple[int, ...]:
        """Slabs per axis of the source."""
        return tuple(
            -(-(first + n - begin) // size)
            for first, n, begin, size in zip(
                self.region.start,
                self.region.extent,
                self.slab_start,
                self.slab_shape,
                strict=True,
            )
        )

    @property
    def slab_elements(self) -> int:
        """Elements of the largest slab."""
        within = zip(self.slab_shape, self.region.extent, strict=True)
        return math.prod(min(size, n) for size, n in within)

    @property
    def decode_bytes(self) -> int:
        """Memory for undoing the source's filters without HDF5; 0 where HDF5 is to."""
        element = self.element_size_bytes
        chunks = chunk_buffer_bytes(
            self.source_chunk_shape, self.layout.chunk_in_source_axes, element
        )
        slabs = 2 * self.n_buffers * self.slab_elements * element
        return self.memory_bytes - slabs - chunks - self.encode_bytes - FIXED_BYTES

    @property
    def n_slabs(self) -> int:
        """Slabs in all."""
        return math.prod(self.slab_counts)

    def slab(self, index: int) -> Slab:
        """Return slab `index`; they are numbered in the order of the source."""
        if not 0 <= index < self.n_slabs:
            message = f"slab {index} of a plan with {self.n_slabs}"
            raise IndexError(message)
        positions = []
        for count in reversed(self.slab_counts):
            index, position = divmod(index, count)
            positions.append(position)
        start, shape = [], []
        for axis, position in enumerate(reversed(positions)):
            first = self.region.start[axis]
            begin = self.slab_start[axis] + position * self.slab_shape[axis]
            end = min(begin + self.slab_shape[axis], first + self.region.extent[axis])
            start.append(max(begin, first))
            shape.append(end - max(begin, first))
        return Slab(start=tuple(start), shape=tuple(shape))

    def in_replica(self, slab: Slab) -> Slab:
        """Return the box of the replica that holds what a slab of the source does."""
        within = zip(slab.start, self.region.start, strict=True)
        shifted = Slab(start=tuple(at - first for at, first in within), shape=slab.shape)
        return shifted.permuted(self.order)

    def slabs(self, first: int = 0) -> Iterator[Slab]:
        """Yield the slabs from number `first` on."""
        return (self.slab(index) for index in range(first, self.n_slabs))


def plan_transposition(
    source: Source, request: ReorganizationRequest, *, organizer: str
) -> ReorganizationPlan:
    """Return the plan that gives a dataset, or a box of it, another axis order and storage.

    Raises
    ------
    LayoutError
        If the order is no permutation of the axes, or the chunks do not fit.
    SelectionError
        If the region is empty or reaches outside.
    UnsupportedError
        If the dataset is a scalar, empty or null, or its elements are not of fixed size, or its
        bytes lie in other files.
    ConfigurationError
        If the memory cannot hold what one step needs.
    """
    described = source.description
    check_reorganizable(described)
    order = check_order(request.order, len(described.extent))
    region = request.region or Box.whole(described.extent)
    check_region(region, described.extent)
    element = described.element_size_bytes
    chunk_shape = choose_chunk_shape(
        request.chunks,
        request.filters,
        tuple(region.extent[axis] for axis in order),
        element,
    )
    layout = ReplicaLayout(
        order=order, chunk_shape=chunk_shape, filters=request.filters, region=region
    )
    slabs = _choose_slabs(described, layout, request.memory_bytes)
    size_bytes = math.prod(region.extent) * element
    return ReorganizationPlan(
        **source.plan_fields(),
        organizer=organizer,
        layout=layout,
        slab_start=slabs.start,
        slab_shape=slabs.shape,
        n_buffers=slabs.n_buffers,
        encode_bytes=slabs.encode_bytes,
        output=request.output,
        memory_bytes=slabs.memory_bytes,
        size_bytes=size_bytes,
        space_needed_bytes=_space_needed_bytes(layout, element, request.stored_share),
    )


class _Slabs(NamedTuple):
    """The slabs of a plan, and the memory that the work takes with them."""

    start: tuple[int, ...]
    shape: tuple[int, ...]
    n_buffers: int
    encode_bytes: int
    memory_bytes: int


def _choose_slabs(
    described: DatasetDescription, layout: ReplicaLayout, allowed_bytes: int
) -> _Slabs:
    """Return the slabs for a dataset and its replica."""
    element = described.element_size_bytes
    region = layout.region
    of_source = described.chunk_shape
    of_replica = layout.chunk_in_source_axes
    chunk_bytes = chunk_buffer_bytes(of_source, of_replica, element)
    start = region.start
    span = region.extent
    if of_replica is not None:
        unit = of_replica
    elif of_source is None:
        unit = (1,) * len(span)
    else:
        # Slabs along the grid of the source's chunks, which need not begin where the region does.
        one = [
            first // chunk == (first + n - 1) // chunk
            for first, n, chunk in zip(region.start, region.extent, of_source, strict=True)
        ]
        start = tuple(
            first if alone else first // chunk * chunk
            for first, chunk, alone in zip(region.start, of_source, one, strict=True)
        )
        span = tuple(
            first + n - begin
            for first, n, begin in zip(region.start, region.extent, start, strict=True)
        )
        unit = tuple(
            n if alone else chunk for n, chunk, alone in zip(span, of_source, one, strict=True)
        )
    unit_bytes = math.prod(unit) * element
    decode_bytes = decode_buffer_bytes(described, allowed_bytes)
    encode_bytes = encode_buffer_bytes(layout, element, allowed_bytes)
    # What cannot be held besides one slab as read and one permuted, HDF5 does.
    for filtering_bytes in ((encode_bytes, decode_bytes), (0, decode_bytes), (0, 0)):
        encode_bytes, decode_bytes = filtering_bytes
        fixed_bytes = FIXED_BYTES + chunk_bytes + decode_bytes + encode_bytes
        budget = (allowed_bytes - fixed_bytes) // 2
        if budget >= unit_bytes:
            break
    if budget < unit_bytes:
        holds = "one element" if of_source is None else f"one chunk of {shown(of_source)}"
        if of_replica is not None:
            holds = f"one chunk of {shown(of_replica)}"
        needed = 2 * unit_bytes + fixed_bytes
        purpose = (
            f"for {described.path}: {FIXED_BYTES} bytes for the work itself, {chunk_bytes} for "
            f"filters, and {holds} in both orders, {2 * unit_bytes} bytes"
        )
        raise too_little_memory(allowed_bytes, purpose, needed)
    n_buffers = 1
    if of_source is not None and of_replica is not None:
        shape = shape_between_grids(
            region.start,
            span,
            unit=unit,
            source_chunk=of_source,
            budget_elements=budget // element,
        )
    else:
        # HDF5, which reads and writes chunks, has one thread at a time.
        past_hdf5 = of_source is None and of_replica is None
        for n_buffers in (_MOST_BUFFERS, 1) if past_hdf5 else (1,):
            shape, has_good_runs = smallest_good_shape(
                span,
                layout.order,
                element,
                unit=unit,
                budget_bytes=max(unit_bytes, budget // n_buffers),
                writes_whole_chunks=of_replica is not None,
            )
            if has_good_runs:
                break
    held = math.prod(min(size, n) for size, n in zip(shape, region.extent, strict=True))
    memory_bytes = 2 * n_buffers * held * element + fixed_bytes
    return _Slabs(start, shape, n_buffers, encode_bytes, memory_bytes)


def memory_for_elements(process_bytes: int) -> int:
    """Return the memory of a plan with which a whole process takes at most `process_bytes`."""
    return max(0, process_bytes - PROCESS_BYTES)


def too_little_memory(allowed_bytes: int, purpose: str, needed_bytes: int) -> ConfigurationError:
    """Return the error that says how much would be enough."""
    enough = -(-needed_bytes // MIB)
    return ConfigurationError(
        f"{allowed_bytes} bytes of memory are too few {purpose}; allow at least {enough}M "
        f"({enough + PROCESS_BYTES // MIB}M with all that the process takes, as --memory counts)"
    )


def decode_buffer_bytes(described: DatasetDescription, allowed_bytes: int) -> int:
    """Return the memory for undoing the source's filters in several threads; 0: HDF5 does that."""
    if not described.filters:
        return 0
    chunk_bytes = math.prod(described.chunk_shape or ()) * described.element_size_bytes
    return _codec_bytes(chunk_bytes, allowed_bytes)


def encode_buffer_bytes(layout: ReplicaLayout, element_size_bytes: int, allowed_bytes: int) -> int:
    """Return the memory for filtering a replica's chunks in several threads; 0: HDF5 does that."""
    known = all(
        step.code == SHUFFLE or (step.code == DEFLATE and len(step.options) == 1)
        for step in layout.filters
    )
    if layout.chunk_shape is None or not layout.filters or not known:
        return 0
    return _codec_bytes(math.prod(layout.chunk_shape) * element_size_bytes, allowed_bytes)


def _codec_bytes(chunk_bytes: int, allowed_bytes: int) -> int:
    """Return the memory for filters in several threads; 0 where there are too few chunks in it."""
    size_bytes = min(allowed_bytes // _DECODE_SHARE, _MAX_DECODE_BYTES)
    return size_bytes if size_bytes >= max(_MIN_DECODE_BYTES, _DECODED_CHUNKS * chunk_bytes) else 0


def shown(shape: Sequence[int]) -> str:
    """Return a shape as people read it."""
    return "x".join(map(str, shape))


def _space_needed_bytes(layout: ReplicaLayout, element_size_bytes: int, stored_share: float) -> int:
    """Return the size of the replica's file, and a little more."""
    if layout.chunk_shape is None:
        return math.prod(layout.region.extent) * element_size_bytes + METADATA_ROOM_BYTES
    chunk_bytes = math.prod(layout.chunk_shape) * element_size_bytes
    if layout.filters:
        chunk_bytes = math.ceil(chunk_bytes * stored_share)
    of_chunk = chunk_bytes + CHECKSUM_BYTES + _INDEX_ENTRY_BYTES
    return layout.n_chunks * of_chunk + METADATA_ROOM_BYTES


def check_reorganizable(described: DatasetDescription) -> None:
    """Raise UnsupportedError, naming the reason, for a dataset that no organizer can copy."""
    name = f"{described.path} in {described.file}"
    if described.is_null:
        reason = "has a null dataspace: there is nothing to reorganize"
    elif not described.extent:
        reason = "is a scalar: it has no axes to reorder"
    elif described.n_elements == 0:
        shape = "x".join(map(str, described.extent))
        reason = f"is empty (extent {shape}): there is nothing to reorganize"
    elif not described.is_fixed_size:
        reason = (
            f"holds elements of type {described.dtype} that lie outside the dataset "
            "(variable length or references): only types of fixed size can be reorganized"
        )
    elif described.type_problem:
        reason = f"would not be served from a replica: {described.type_problem}"
    elif described.storage in {"external", "virtual"}:
        reason = (
            f"is stored in other files ({described.storage}): reorganize the datasets in those, "
            "or copy it into one file first"
        )
    elif described.has_undefined_elements:
        reason = (
            "has elements that were never written and no fill value for them (fill time NEVER, or "
            "an undefined fill value): what a program reads there is not in the file, so that no "
            "replica can hold it; write them, or copy the dataset into one with a fill value"
        )
    elif len(described.extent) > MAX_RANK:
        reason = f"has {len(described.extent)} axes: HDF5 and SDS know at most {MAX_RANK}"
    else:
        return
    message = f"{name} {reason}"
    raise UnsupportedError(message)
