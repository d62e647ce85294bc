"""What a reorganization will read, move and write, decided before anything is touched.

A plan is a value: made without a file, a clock or an environment, printable as JSON, and the same
for the same source and request. The source is cut into slabs, boxes of one shape that tile it.
Each is read, its axes are permuted in memory, and its bytes go to their places in the replica.

The shape of a slab decides the speed: what it holds is contiguous in the source along the last
axes, in the replica along the last axes of the new order. It grows from a single element (from one
chunk, where the source is chunked, so that each chunk is decompressed once) along whichever side
has the shorter runs, until both are long enough for the disk or the memory is used up.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sds.dataset import DatasetDescription
from sds.errors import ConfigurationError, LayoutError, UnsupportedError
from sds.identity import FileIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


KIB = 1024
MIB = 1024 * KIB

DEFAULT_MEMORY_BYTES = 512 * MIB
MAX_RANK = 32

# Runs at least this long keep a disk streaming: reads wait for it, buffered writes do not
# (measured: 1 MiB reads and 64 KiB writes lose nothing against a sequential copy).
_READ_RUN_BYTES = 1 * MIB
_WRITE_RUN_BYTES = 64 * KIB
_GOOD_READ_RUN_BYTES = 256 * KIB
_GOOD_WRITE_RUN_BYTES = 8 * KIB
# Tried in this order, then the whole budget.
_SLAB_BYTES = (32 * MIB, 64 * MIB, 128 * MIB)
# Reads wait for the disk, writes go through the page cache: a read run is worth more.
_READ_RUNS_PER_WRITE_RUN = 8
# Interpreter-side buffers: a checksum window and the tile that is compared.
_FIXED_BYTES = 4 * MIB
# The replica's metadata stays below the 1 MiB that the connector is willing to check.
METADATA_ROOM_BYTES = 1 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A dataset to reorganize, and the file that it was described from."""

    description: DatasetDescription
    identity: FileIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class ReorganizationRequest:
    """What is asked of an organizer.

    Attributes
    ----------
    order
        Replica axis i is source axis ``order[i]``, as in :func:`numpy.transpose`.
    output
        Absolute path of the replica file.
    memory_bytes
        Private memory that the work may take.
    """

    order: tuple[int, ...]
    output: Path
    memory_bytes: int = DEFAULT_MEMORY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Slab:
    """A box of the source: first index and number of elements per axis."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as an index expression."""
        return tuple(slice(a, a + n) for a, n in zip(self.start, self.shape, strict=True))

    def permuted(self, order: Sequence[int]) -> Slab:
        """Return the same box in the axes of the replica."""
        return Slab(
            start=tuple(self.start[axis] for axis in order),
            shape=tuple(self.shape[axis] for axis in order),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReorganizationPlan:
    """One reorganization, whole.

    Attributes
    ----------
    organizer
        Entry point name of the organizer that made it and can execute it.
    source_path, dataset_path, source_identity
        The original: canonical path, HDF5 path, and which file it was.
    extent, order, element_size_bytes
        Of the source; the replica's extent follows.
    data_offset_bytes
        Where a contiguous source begins in its file, else None.
    chunk_shape
        Of a chunked source, else None.
    slab_shape
        In the axes of the source; slabs at the upper ends are cut off.
    output
        Where the replica will be.
    memory_bytes
        Bound of the private memory that the execution takes for elements.
    size_bytes
        Elements of the replica.
    space_needed_bytes
        Free space that the disk must have.
    """

    organizer: str
    source_path: Path
    dataset_path: str
    source_identity: FileIdentity
    extent: tuple[int, ...]
    order: tuple[int, ...]
    element_size_bytes: int
    data_offset_bytes: int | None
    chunk_shape: tuple[int, ...] | None
    slab_shape: tuple[int, ...]
    output: Path
    memory_bytes: int
    size_bytes: int
    space_needed_bytes: int

    @property
    def replica_extent(self) -> tuple[int, ...]:
        """Elements per axis of the replica."""
        return tuple(self.extent[axis] for axis in self.order)

    @property
    def slab_counts(self) -> tuple[int, ...]:
        """Slabs per axis of the source."""
        return tuple(-(-n // s) for n, s in zip(self.extent, self.slab_shape, strict=True))

    @property
    def n_slabs(self) -> int:
        """Slabs in all."""
        return math.prod(self.slab_counts)

    def slab(self, index: int) -> Slab:
        """Return slab `index`; they are numbered in the order of the source."""
        if not 0 <= index < self.n_slabs:
            message = f"slab {index} of a plan with {self.n_slabs}"
            raise IndexError(message)
        start = []
        for count, size in zip(reversed(self.slab_counts), reversed(self.slab_shape), strict=True):
            index, position = divmod(index, count)
            start.append(position * size)
        start.reverse()
        return Slab(
            start=tuple(start),
            shape=tuple(
                min(size, n - first)
                for size, n, first in zip(self.slab_shape, self.extent, start, strict=True)
            ),
        )

    def slabs(self, first: int = 0) -> Iterator[Slab]:
        """Yield the slabs from number `first` on."""
        return (self.slab(index) for index in range(first, self.n_slabs))

    def to_json(self) -> dict[str, object]:
        """Return the plan as values that JSON knows."""
        fields = asdict(self)
        fields["source_path"] = str(self.source_path)
        fields["output"] = str(self.output)
        return fields


def check_order(order: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the axis order as a tuple.

    Raises
    ------
    LayoutError
        If it is no permutation of the axes.
    """
    if sorted(order) != list(range(rank)):
        shown = ",".join(map(str, order))
        axes = ",".join(map(str, range(rank)))
        message = (
            f"order {shown!r} is no permutation of the {rank} axes: "
            f"name each of {axes} exactly once"
        )
        raise LayoutError(message)
    return tuple(int(axis) for axis in order)


def plan_transposition(
    source: Source, request: ReorganizationRequest, *, organizer: str
) -> ReorganizationPlan:
    """Return the plan that gives a dataset another axis order.

    Raises
    ------
    LayoutError
        If the order is no permutation of the axes.
    UnsupportedError
        If the dataset is a scalar, empty or null, or its elements are not of fixed size, or its
        bytes lie in other files.
    ConfigurationError
        If the memory cannot hold what one step needs.
    """
    described = source.description
    check_reorganizable(described)
    order = check_order(request.order, len(described.extent))
    chunk = described.chunk_shape
    element = described.element_size_bytes
    unit = (
        (1,) * len(order)
        if chunk is None
        else tuple(min(c, n) for c, n in zip(chunk, described.extent, strict=True))
    )
    # HDF5 holds a chunk twice while it runs the filters.
    chunk_bytes = 0 if chunk is None else 2 * math.prod(chunk) * element
    # One slab as read, one permuted.
    budget = (request.memory_bytes - _FIXED_BYTES - chunk_bytes) // 2
    unit_bytes = math.prod(unit) * element
    if budget < unit_bytes:
        needed = 2 * unit_bytes + chunk_bytes + _FIXED_BYTES
        holds = "one element" if chunk is None else f"one chunk of {'x'.join(map(str, chunk))}"
        message = (
            f"{request.memory_bytes} bytes of memory cannot hold {holds} of {described.path} "
            f"in both orders: allow at least {-(-needed // MIB)}M"
        )
        raise ConfigurationError(message)
    shape = _smallest_good_shape(described.extent, order, element, unit=unit, budget_bytes=budget)
    return ReorganizationPlan(
        organizer=organizer,
        source_path=described.file,
        dataset_path=described.path,
        source_identity=source.identity,
        extent=described.extent,
        order=order,
        element_size_bytes=element,
        data_offset_bytes=described.data_offset_bytes,
        chunk_shape=chunk,
        slab_shape=shape,
        output=request.output,
        memory_bytes=2 * math.prod(shape) * element + chunk_bytes + _FIXED_BYTES,
        size_bytes=described.size_bytes,
        space_needed_bytes=described.size_bytes + METADATA_ROOM_BYTES,
    )


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
    elif described.storage in {"external", "virtual"}:
        reason = (
            f"is stored in other files ({described.storage}): reorganize the datasets in those, "
            "or copy it into one file first"
        )
    elif len(described.extent) > MAX_RANK:
        reason = f"has {len(described.extent)} axes: HDF5 and SDS know at most {MAX_RANK}"
    else:
        return
    message = f"{name} {reason}"
    raise UnsupportedError(message)


def _smallest_good_shape(
    extent: tuple[int, ...],
    order: tuple[int, ...],
    element_size_bytes: int,
    *,
    unit: tuple[int, ...],
    budget_bytes: int,
) -> tuple[int, ...]:
    """Return slabs no larger than good runs need: small ones overlap better, and show progress."""
    for cap_bytes in _SLAB_BYTES:
        shape = slab_shape(
            extent, order, element_size_bytes, unit=unit, budget_bytes=min(cap_bytes, budget_bytes)
        )
        read_run = _run_bytes(shape, extent, range(len(extent)), element_size_bytes)
        write_run = _run_bytes(shape, extent, order, element_size_bytes)
        good = read_run >= _GOOD_READ_RUN_BYTES and write_run >= _GOOD_WRITE_RUN_BYTES
        if good or cap_bytes >= budget_bytes:
            return shape
    return slab_shape(extent, order, element_size_bytes, unit=unit, budget_bytes=budget_bytes)


def slab_shape(
    extent: tuple[int, ...],
    order: tuple[int, ...],
    element_size_bytes: int,
    *,
    unit: tuple[int, ...],
    budget_bytes: int,
) -> tuple[int, ...]:
    """Return the shape of the slabs, in the axes of the source.

    Parameters
    ----------
    unit
        Smallest shape; every axis of the result is a multiple of it, or the whole axis.
    budget_bytes
        A slab is at most this large; at least one unit.
    """
    shape = list(unit)
    source_axes = range(len(extent))
    while True:
        read_run = _run_bytes(shape, extent, source_axes, element_size_bytes)
        write_run = _run_bytes(shape, extent, order, element_size_bytes)
        reads_suffice = read_run >= _READ_RUN_BYTES
        writes_suffice = write_run >= _WRITE_RUN_BYTES
        if reads_suffice and writes_suffice:
            break
        read_first = not reads_suffice and (
            writes_suffice or read_run < _READ_RUNS_PER_WRITE_RUN * write_run
        )
        sides = (source_axes, order) if read_first else (order, source_axes)
        if not any(
            _grow(shape, extent, axes, unit, budget_bytes // element_size_bytes) for axes in sides
        ):
            break
    return tuple(shape)


def _run_bytes(
    shape: Sequence[int], extent: Sequence[int], axes: Sequence[int], element_size_bytes: int
) -> int:
    """Return the bytes of one contiguous run of the box where elements lie in order of `axes`."""
    run = element_size_bytes
    for axis in reversed(axes):
        run *= shape[axis]
        if shape[axis] < extent[axis]:
            break
    return run


def _grow(
    shape: list[int],
    extent: Sequence[int],
    axes: Sequence[int],
    unit: Sequence[int],
    budget_elements: int,
) -> bool:
    """Lengthen the runs in order of `axes`: the fastest axis not yet whole; False where full."""
    axis = next((axis for axis in reversed(axes) if shape[axis] < extent[axis]), None)
    if axis is None:
        return False
    across = math.prod(shape) // shape[axis]
    fits = budget_elements // across
    if fits >= extent[axis] and 2 * shape[axis] >= extent[axis]:
        wanted = extent[axis]
    else:
        wanted = min(2 * shape[axis], fits // unit[axis] * unit[axis])
    if wanted <= shape[axis]:
        return False
    shape[axis] = wanted
    return True
