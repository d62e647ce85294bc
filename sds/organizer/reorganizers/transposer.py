"""Organizer that gives a dataset another axis order and storage, in one process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sds.organizer.copy.slab_steps import SlabSteps
from sds.organizer.copy.source_reader import SourceReader
from sds.organizer.copy.stepwise_copy import copy_in_steps
from sds.organizer.copy.targets import ChunkedTarget, ContiguousTarget
from sds.organizer.plans.reorganization_plan import plan_transposition
from sds.organizer.replica_file.container import create_container
from sds.organizer.replica_file.filters import require_filters
from sds.organizer.replica_file.replica import describe_replica
from sds.organizer.verify import compare_with_source

if TYPE_CHECKING:
    from pathlib import Path

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
                copy_in_steps(SlabSteps(plan, reader, target), target, checkpoint, progress)
                target.finish(began_s=began_s, source_decode_s_per_byte=reader.decode_s_per_byte())
        return describe_replica(staged)

    def verify(
        self, replica: Replica, plan: ReorganizationPlan, *, progress: Progress | None = None
    ) -> VerificationReport:
        """Compare every byte of the replica, read back from disk, with the original."""
        return compare_with_source(replica, plan, progress=progress)
