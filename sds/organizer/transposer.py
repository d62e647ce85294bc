"""The organizer that gives a dataset another axis order and storage; in one process."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from sds.organizer.container import create_container
from sds.organizer.filters import require_filters
from sds.organizer.plan import plan_transposition
from sds.organizer.replica import describe_replica
from sds.organizer.slabs import permute_slab
from sds.organizer.source_reader import SourceReader
from sds.organizer.stepwise import copy_in_steps
from sds.organizer.targets import ChunkedTarget, ContiguousTarget
from sds.organizer.verify import compare_with_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sds.organizer.plan import ReorganizationPlan, ReorganizationRequest, Source
    from sds.organizer.protocol import Checkpoint, Progress
    from sds.organizer.replica import Replica
    from sds.organizer.targets import Target
    from sds.organizer.verify import VerificationReport


class Transposer:
    """Copies slab by slab: reads one while the one before, permuted, is being written."""

    name = "transposer"

    def plan(self, source: Source, request: ReorganizationRequest) -> ReorganizationPlan:
        """Return the plan; see :func:`sds.organizer.plan.plan_transposition`."""
        return plan_transposition(source, request, organizer=self.name)

    def execute(
        self,
        plan: ReorganizationPlan,
        staged: Path,
        *,
        checkpoint: Checkpoint,
        progress: Progress | None = None,
    ) -> Replica:
        """Write the replica into the file `staged`, synced to disk; returns its description.

        Raises
        ------
        UnsupportedError
            If a filter of the source or of the replica is not installed.
        TruncatedFileError, FormatError
            If the source ends before its data, or is damaged.
        OSError
            If a file cannot be read or written.
        """
        began_s = time.monotonic()
        # HDF5 would leave out a filter that is missing, and store the chunks as they are.
        require_filters(plan.layout.filters, "the replica", encode=True)
        if not checkpoint.steps_done:
            create_container(staged, plan)
        with SourceReader(plan, decode_bytes=plan.decode_bytes) as reader:
            kind = ContiguousTarget if plan.layout.chunk_shape is None else ChunkedTarget
            with kind(staged, plan) as target:
                copy_in_steps(_Slabs(plan, reader, target), target, checkpoint, progress)
                target.finish(began_s=began_s, source_decode_s_per_byte=reader.decode_s_per_byte())
        return describe_replica(staged)

    def verify(
        self, replica: Replica, plan: ReorganizationPlan, *, progress: Progress | None = None
    ) -> VerificationReport:
        """Compare every byte of the replica, read back from disk, with the original."""
        return compare_with_source(replica, plan, progress=progress)


class _Slabs:
    """The slabs of a plan as steps."""

    def __init__(self, plan: ReorganizationPlan, reader: SourceReader, target: Target) -> None:
        self._plan = plan
        self._reader = reader
        self._target = target
        slab_bytes = plan.slab_elements * plan.element_size_bytes
        self._read = np.empty(slab_bytes, np.uint8)
        self._permuted = np.empty(slab_bytes, np.uint8)

    @property
    def n_steps(self) -> int:
        """One each."""
        return self._plan.n_slabs

    @property
    def total_bytes(self) -> int:
        """Of the replica."""
        return self._plan.size_bytes

    def step_bytes(self, index: int) -> int:
        """Return the bytes of a slab."""
        return math.prod(self._plan.slab(index).shape) * self._plan.element_size_bytes

    def read(self, index: int) -> None:
        """Read a slab."""
        self._reader.read(self._plan.slab(index), self._read)

    def arrange(self, index: int) -> Callable[[], None]:
        """Permute it."""
        plan = self._plan
        slab = plan.slab(index)
        permute_slab(slab, plan.order, plan.element_size_bytes, self._read, self._permuted)
        elements = self._permuted[: self.step_bytes(index)]
        return lambda: self._target.write(plan.in_replica(slab), elements)
