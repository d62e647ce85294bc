"""Organizer that gathers tiles from all over a dataset, in one process.

Boxes of the source are read, a step of them at a time. What they hold of tiles is put in the order
of the replica, and goes to its places there; what tiles that are cut off have beyond the end of the
source stays as the disk gives new space: zeros.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from sds import _native
from sds.organizer.copy.source_reader import SourceReader
from sds.organizer.copy.stepwise_copy import copy_in_steps
from sds.organizer.copy.targets import ContiguousTarget
from sds.organizer.plans.reorganization_plan import Slab
from sds.organizer.plans.segment_plan import plan_gathering
from sds.organizer.reorganizers.segment_verify import compare_with_tiles
from sds.organizer.replica_file.container import create_container
from sds.organizer.replica_file.replica import describe_replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from sds.organizer.plans.reorganization_plan import ReorganizationRequest, Source
    from sds.organizer.plans.segment_plan import SegmentPlan
    from sds.organizer.plans.tile_boxes import GatheredBox
    from sds.organizer.progress import Checkpoint, Progress
    from sds.organizer.replica_file.replica import Replica
    from sds.organizer.verify import VerificationReport

# Places of one list to write to: each takes memory.
_MAX_RUNS = 1 << 14


class Segmenter:
    """Copies the tiles of a list."""

    name = "segmenter"

    def plan(self, source: Source, request: ReorganizationRequest) -> SegmentPlan:
        """Return the plan; see :func:`sds.organizer.plans.segment_plan.plan_gathering`."""
        return plan_gathering(source, request, organizer=self.name)

    def execute(
        self,
        plan: SegmentPlan,
        staged: Path,
        *,
        checkpoint: Checkpoint,
        progress: Progress | None = None,
    ) -> Replica:
        """Write the replica; see :class:`sds.organizer.protocol.Builder`."""
        began_s = time.monotonic()
        if not checkpoint.steps_done:
            create_container(staged, plan)
        with (
            SourceReader(plan, decode_bytes=plan.decode_bytes) as reader,
            ContiguousTarget(staged, plan) as target,
        ):
            copy_in_steps(TileSteps(plan, reader, target), target, checkpoint, progress)
            target.finish(began_s=began_s, source_decode_s_per_byte=reader.decode_s_per_byte())
        return describe_replica(staged)

    def verify(
        self, replica: Replica, plan: SegmentPlan, *, progress: Progress | None = None
    ) -> VerificationReport:
        """Compare every byte of the replica, read back from disk, with the original."""
        return compare_with_tiles(replica, plan, progress=progress)


class TileSteps:
    """The steps of a plan, and what one holds in memory."""

    def __init__(self, plan: SegmentPlan, reader: SourceReader, target: ContiguousTarget) -> None:
        self._plan = plan
        self._reader = reader
        self._target = target
        self._steps = plan.steps()
        self._known: tuple[int, list[GatheredBox]] = (-1, [])  # the newest step
        self.total_bytes = plan.copied_bytes
        self.n_buffers = 1
        self.buffer_bytes = plan.step_bytes

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return len(self._steps)

    def _boxes(self, index: int) -> list[GatheredBox]:
        known, boxes = self._known  # other threads put another there
        if known != index:
            boxes = self._steps.step(index)
            self._known = index, boxes
        return boxes

    def step_bytes(self, index: int) -> int:
        """Return the bytes of what a step holds of tiles."""
        pieces = (piece for box in self._boxes(index) for piece in box.pieces)
        n_elements = sum(piece.in_source.n_elements for piece in pieces)
        return n_elements * self._plan.element_size_bytes

    def read(self, index: int, out: NDArray[np.uint8]) -> None:
        """Read the boxes of a step."""
        self._reader.read_all([gathered.box for gathered in self._boxes(index)], out)

    def arrange(
        self, index: int, elements: NDArray[np.uint8], out: NDArray[np.uint8]
    ) -> Callable[[], None]:
        """Put what was read of each tile in the order of the replica; return what writes it."""
        plan = self._plan
        element = np.dtype(f"V{plan.element_size_bytes}")
        to_write: list[tuple[int, Slab, NDArray[np.uint8]]] = []
        read_at = arranged_at = 0
        for gathered in self._boxes(index):
            n_bytes = gathered.box.n_elements * element.itemsize
            of_box = elements[read_at : read_at + n_bytes].view(element)
            of_box = of_box.reshape(gathered.box.shape)
            read_at += n_bytes
            for piece in gathered.pieces:
                in_tile = piece.in_tile.permuted(plan.order)
                n_bytes = in_tile.n_elements * element.itemsize
                arranged = out[arranged_at : arranged_at + n_bytes]
                arranged_at += n_bytes
                _native.copy_strided(
                    of_box[_relative(piece.in_source, gathered.box)].transpose(plan.order),
                    arranged.view(element).reshape(in_tile.shape),
                )
                to_write.append((piece.place, in_tile, arranged))
        to_write.sort(key=lambda of_piece: of_piece[0])
        return lambda: self._write(to_write)

    def _write(self, pieces: list[tuple[int, Slab, NDArray[np.uint8]]]) -> None:
        _, *tile_shape = self._plan.replica_extent
        size = self._plan.element_size_bytes
        for place, in_tile, elements in pieces:
            for part, at in _parts(in_tile, tuple(tile_shape)):
                of_part = Slab(start=(place, *part.start), shape=(1, *part.shape))
                self._target.write(of_part, elements[at * size : (at + part.n_elements) * size])


def _relative(slab: Slab, box: Slab) -> tuple[slice, ...]:
    """Return a slab of the source as an index expression of a box that holds it."""
    start = tuple(a - b for a, b in zip(slab.start, box.start, strict=True))
    return Slab(start=start, shape=slab.shape).slices


def _parts(slab: Slab, tile_shape: tuple[int, ...]) -> Iterator[tuple[Slab, int]]:
    """Yield a slab of a tile in parts of not too many runs, each with its first element there."""
    waiting = [(slab, 0)]
    while waiting:
        part, at = waiting.pop()
        if part.shape == tile_shape or math.prod(part.shape[:-1]) <= _MAX_RUNS:
            yield part, at
            continue
        before, after = part.halves()
        waiting += [(after, at + before.n_elements), (before, at)]
