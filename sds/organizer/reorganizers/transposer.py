"""Organizer that gives a dataset another axis order and storage, in one process."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from sds.organizer.copy.slabs import permute_slab
from sds.organizer.copy.source_reader import SourceReader
from sds.organizer.copy.stepwise_copy import copy_in_steps
from sds.organizer.copy.targets import ChunkedTarget, ContiguousTarget
from sds.organizer.plans.reorganization_plan import plan_transposition
from sds.organizer.replica_file.container import create_container
from sds.organizer.replica_file.filters import require_filters
from sds.organizer.replica_file.replica import describe_replica
from sds.organizer.verify import compare_with_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from sds.organizer.copy.targets import Target
    from sds.organizer.plans.reorganization_plan import (
        ReorganizationPlan,
        ReorganizationRequest,
        Source,
    )
    from sds.organizer.progress import Checkpoint, Progress
    from sds.organizer.replica_file.replica import Replica
    from sds.organizer.verify import VerificationReport


class Transposer:
    """Copies slab by slab: reads some while others, permuted, are written."""

    name = "transposer"

    def plan(self, source: Source, request: ReorganizationRequest) -> ReorganizationPlan:
        """Return the plan; see `reorganization_plan.plan_transposition`."""
        return plan_transposition(source, request, organizer=self.name)

    def execute(
        self,
        plan: ReorganizationPlan,
        staged: Path,
        *,
        checkpoint: Checkpoint,
        progress: Progress | None = None,
    ) -> Replica:
        """Write the replica; see :class:`sds.organizer.protocol.Builder`."""
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

    @property
    def n_steps(self) -> int:
        """Number of slabs."""
        return self._plan.n_slabs

    @property
    def total_bytes(self) -> int:
        """Bytes of the replica's elements."""
        return self._plan.size_bytes

    @property
    def n_buffers(self) -> int:
        """Number of slabs that are read, and that are written, at the same time."""
        return self._plan.n_buffers

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the largest slab."""
        return self._plan.slab_elements * self._plan.element_size_bytes

    def step_bytes(self, index: int) -> int:
        """Return the bytes of a slab."""
        return math.prod(self._plan.slab(index).shape) * self._plan.element_size_bytes

    def read(self, index: int, out: NDArray[np.uint8]) -> None:
        """Read a slab."""
        self._reader.read(self._plan.slab(index), out)

    def arrange(
        self, index: int, elements: NDArray[np.uint8], out: NDArray[np.uint8]
    ) -> Callable[[], None]:
        """Permute a slab; return the function that writes it."""
        plan = self._plan
        slab = plan.slab(index)
        permute_slab(slab, plan.order, plan.element_size_bytes, elements, out)
        arranged = out[: self.step_bytes(index)]
        return lambda: self._target.write(plan.in_replica(slab), arranged)
