"""Plan of gathering tiles: what it reads, holds and writes, decided before it touches a file.

The source is read in boxes of whole chunks, so that each chunk is decoded once, or of whole tiles
where it is not chunked, and in the order in which it lies in its file
(:mod:`sds.organizer.plans.tile_boxes`). A step reads as many boxes as its memory holds; what they
hold of tiles goes to its places in the replica.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.errors import LayoutError, UnsupportedError
from sds.geometry import check_order
from sds.geometry.least_memory import COPIES_OF_A_CELL, FIXED_BYTES, chunk_buffer_bytes
from sds.geometry.replica_layout import ReplicaLayout
from sds.geometry.storage_layout import MIB
from sds.organizer.plans.reorganization_plan import (
    MAX_RANK,
    METADATA_ROOM_BYTES,
    CopyPlan,
    check_reorganizable,
    decode_buffer_bytes,
    shown,
    too_little_memory,
)
from sds.organizer.plans.tile_boxes import GatheredBox, TilePlaces, boxes_of_tiles, slab_of_cells

if TYPE_CHECKING:
    from sds.geometry import SegmentList
    from sds.hdf5.dataset import DatasetDescription
    from sds.organizer.plans.reorganization_plan import ReorganizationRequest, Source

# Of all that a step holds. More at once is read no faster, and a kill costs a step.
_STEP_BYTES = 96 * MIB
# As read, on the way there, and in the order of the replica.
# Of a contiguous piece of a source that is read with others.
_RUN_BYTES = 128
# Of a chunk that HDF5 reads with others.
_CHUNK_BYTES = 1024
_MAX_ELEMENTS = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPlan(CopyPlan):
    """The gathering of tiles, whole.

    Attributes
    ----------
    cell_shape
        In the axes of the source, which is cut into cells from its first element on: whole chunks
        where it is chunked.
    cells_of_step
        A step reads boxes of no more cells in all.
    decode_bytes
        Memory for undoing the source's filters without HDF5; 0 where HDF5 is to.
    """

    cell_shape: tuple[int, ...]
    cells_of_step: int
    decode_bytes: int

    @property
    def segments(self) -> SegmentList:
        """The tiles to gather."""
        if self.layout.segments is None:
            message = f"the plan of {self.dataset_path} names no tiles"
            raise UnsupportedError(message)
        return self.layout.segments

    @property
    def step_bytes(self) -> int:
        """Bytes that the largest step holds."""
        return self.cells_of_step * math.prod(self.cell_shape) * self.element_size_bytes

    @property
    def copied_bytes(self) -> int:
        """Bytes of all tiles, without what lies beyond the end of the source."""
        segments = self.segments
        held = sum(segments.box(number, self.extent).n_elements for number in segments.tiles)
        return held * self.element_size_bytes

    def steps(self) -> SegmentSteps:
        """Return what is done one after the other."""
        return SegmentSteps(self)

    def to_json(self) -> dict[str, object]:
        """Return the plan as values that JSON knows; of many tiles a digest, for files hold it."""
        segments = self.segments
        listed = json.dumps([segments.tiles, segments.lengths]).encode()
        fields = CopyPlan.to_json(self)  # super() does not know a class with slots
        layout = fields["layout"]
        if isinstance(layout, dict):
            layout["segments"] = {
                "tile_shape": list(segments.tile_shape),
                "n_tiles": len(segments.tiles),
                "n_segments": len(segments.lengths),
                "sha256": hashlib.sha256(listed).hexdigest(),
            }
        return fields


class SegmentSteps:
    """The steps of a plan: which boxes each reads, and what of which tiles they hold."""

    def __init__(self, plan: SegmentPlan) -> None:
        self._plan = plan
        self._tiles = TilePlaces(plan.segments, plan.extent)
        self._first, self._count = boxes_of_tiles(
            plan.segments,
            plan.extent,
            cell_shape=plan.cell_shape,
            cells_of_box=plan.cells_of_step,
        )
        self._begins = [0]
        taken = 0
        for box, n_cells in enumerate(self._count.prod(axis=1).tolist()):
            if taken + n_cells > plan.cells_of_step:
                self._begins.append(box)
                taken = 0
            taken += n_cells
        self._begins.append(len(self._first))

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self._begins) - 1

    def step(self, index: int) -> list[GatheredBox]:
        """Return the boxes of a step in the order of the source."""
        plan = self._plan
        boxes = slice(self._begins[index], self._begins[index + 1])
        return [
            self._tiles.gathered(slab_of_cells(first, count, plan.cell_shape, plan.extent))
            for first, count in zip(
                self._first[boxes].tolist(), self._count[boxes].tolist(), strict=True
            )
        ]


def plan_gathering(
    source: Source, request: ReorganizationRequest, *, organizer: str
) -> SegmentPlan:
    """Return the plan that gathers tiles of a dataset.

    Raises
    ------
    LayoutError
        If the order is no permutation of the axes, there are no such tiles, or the
        request names what tiles do not have: chunks, filters or a region.
    UnsupportedError
        If the dataset cannot be reorganized, has too many axes, or tiles lie across too many
        chunks.
    ConfigurationError
        If the memory cannot hold what one step needs.
    """
    described = source.description
    check_reorganizable(described)
    order = check_order(request.order, len(described.extent))
    segments = _checked(described, request)
    layout = ReplicaLayout(
        order=order,
        chunk_shape=None,
        filters=(),
        region=segments.around(described.extent),
        segments=segments,
    )
    element = described.element_size_bytes
    decode_bytes = decode_buffer_bytes(described, request.memory_bytes)
    fixed_bytes = (
        FIXED_BYTES + decode_bytes + chunk_buffer_bytes(described.chunk_shape, None, element)
    )
    cell_shape = _choose_cells(described, segments, request.memory_bytes, fixed_bytes)
    of_cell = _cell_bytes(cell_shape, described)
    cells_of_step = max(1, min(request.memory_bytes - fixed_bytes, _STEP_BYTES) // of_cell)
    _, count = boxes_of_tiles(
        segments, described.extent, cell_shape=cell_shape, cells_of_box=cells_of_step
    )
    cells_of_step = min(cells_of_step, int(count.prod(axis=1).sum()))
    size_bytes = segments.n_elements * element
    return SegmentPlan(
        **source.plan_fields(),
        organizer=organizer,
        layout=layout,
        cell_shape=cell_shape,
        cells_of_step=cells_of_step,
        decode_bytes=decode_bytes,
        output=request.output,
        memory_bytes=fixed_bytes + cells_of_step * of_cell,
        size_bytes=size_bytes,
        space_needed_bytes=size_bytes + METADATA_ROOM_BYTES,
    )


def _checked(described: DatasetDescription, request: ReorganizationRequest) -> SegmentList:
    """Return the tiles of a request."""
    segments = request.segments
    if segments is None:
        message = f"no tiles of {described.path} given to gather: name segments"
        raise LayoutError(message)
    if request.chunks not in {None, "contiguous"} or request.filters or request.region is not None:
        message = (
            "chunks, filters, a region and segments exclude each other: tiles are stored "
            "contiguously, one behind the other, and say themselves what is copied"
        )
        raise LayoutError(message)
    rank = len(described.extent)
    if rank >= MAX_RANK:
        message = (
            f"{described.path} in {described.file} has {rank} axes: a replica of segments has one "
            f"more, and HDF5 knows at most {MAX_RANK}; build one of a region"
        )
        raise UnsupportedError(message)
    if described.n_elements > _MAX_ELEMENTS:
        message = (
            f"{described.path} in {described.file} has {described.n_elements} elements: tiles are "
            f"numbered in datasets of up to {_MAX_ELEMENTS}; build a replica of a region"
        )
        raise UnsupportedError(message)
    segments.check_within(described.extent)
    return segments


def _choose_cells(
    described: DatasetDescription, segments: SegmentList, allowed_bytes: int, fixed_bytes: int
) -> tuple[int, ...]:
    """Return the shape of cells that are as large as a tile where the memory allows that."""
    unit = described.chunk_shape or (1,) * len(described.extent)
    # In units, as many as a tile needs.
    counts = [-(-n // u) for n, u in zip(segments.tile_shape, unit, strict=True)]

    def cell() -> tuple[int, ...]:
        lengths = (n * u for n, u in zip(counts, unit, strict=True))
        return tuple(min(n, end) for n, end in zip(lengths, described.extent, strict=True))

    budget = min(allowed_bytes - fixed_bytes, _STEP_BYTES)
    for axis in range(len(counts)):
        while counts[axis] > 1 and _cell_bytes(cell(), described) > budget:
            counts[axis] = -(-counts[axis] // 2)
    needed = _cell_bytes(cell(), described)
    if needed > allowed_bytes - fixed_bytes:
        holds = "one element" if described.chunk_shape is None else f"one chunk of {shown(unit)}"
        purpose = (
            f"for {described.path}: {fixed_bytes} bytes for the work itself and for filters, and "
            f"{holds} in {COPIES_OF_A_CELL} places, {needed} bytes"
        )
        raise too_little_memory(allowed_bytes, purpose, needed + fixed_bytes)
    return cell()


def _cell_bytes(cell_shape: tuple[int, ...], described: DatasetDescription) -> int:
    """Return the memory that a cell takes at most while it is copied."""
    if described.chunk_shape is None:
        listed_bytes = _RUN_BYTES * math.prod(cell_shape[:-1])
    else:
        chunks = zip(cell_shape, described.chunk_shape, strict=True)
        listed_bytes = _CHUNK_BYTES * math.prod(-(-n // chunk) for n, chunk in chunks)
    return COPIES_OF_A_CELL * math.prod(cell_shape) * described.element_size_bytes + listed_bytes
