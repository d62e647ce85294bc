"""Transposer whose slabs are copied and compared by the ranks of an MPI program."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

from sds.organizer.copy.targets import ContiguousTarget
from sds.organizer.parallel.mpi_ranks import run_ranks
from sds.organizer.parallel.rank_jobs import CompareJob, CopyJob
from sds.organizer.plans.reorganization_plan import ReorganizationPlan
from sds.organizer.replica_file.container import create_container
from sds.organizer.replica_file.replica import describe_replica
from sds.organizer.verify import check_stored, source_problems

if TYPE_CHECKING:
    from pathlib import Path

    from sds.organizer.parallel.rank_jobs import Compared, Copied, EventKind
    from sds.organizer.progress import AnyPlan, Checkpoint, Progress
    from sds.organizer.replica_file.replica import Replica
    from sds.organizer.verify import VerificationReport


def is_for_ranks(plan: AnyPlan) -> TypeGuard[ReorganizationPlan]:
    """Return whether ranks can build the replica of a plan: it is contiguous, of whole slabs."""
    return isinstance(plan, ReorganizationPlan) and plan.layout.chunk_shape is None


class MpiTransposer:
    """Copies and compares a plan of the transposer by several ranks.

    What it builds, and the journal, are those of :class:`sds.organizer.reorganizers.transposer.
    Transposer`: either goes on with what the other began.
    """

    def __init__(self, n_ranks: int) -> None:
        self._n_ranks = n_ranks

    def execute(
        self,
        plan: ReorganizationPlan,
        staged: Path,
        *,
        checkpoint: Checkpoint,
        progress: Progress | None = None,
    ) -> Replica:
        """Write the replica; see :class:`sds.organizer.protocol.Builder`.

        Errors also as of :func:`sds.organizer.parallel.mpi_ranks.run_ranks`.
        """
        began_s = time.monotonic()
        if not checkpoint.steps_done:
            create_container(staged, plan)

        def on_event(kind: EventKind, value: Any) -> None:  # noqa: ANN401
            if kind == "steps":
                checkpoint.reached(value)
            elif progress is not None:
                progress("copy", value, plan.size_bytes)

        with ContiguousTarget(staged, plan) as target:
            job = CopyJob(plan=plan, staged=staged, first=checkpoint.steps_done)
            copied: Copied = run_ranks(job, self._n_ranks, on_event)
            target.finish(
                began_s=began_s,
                source_decode_s_per_byte=copied.decode_s_per_byte,
                checksums=copied.checksums,
            )
        return describe_replica(staged)

    def verify(
        self, replica: Replica, plan: ReorganizationPlan, *, progress: Progress | None = None
    ) -> VerificationReport:
        """Compare every byte of the replica, read back from disk, with the original."""

        def on_event(_: EventKind, value: Any) -> None:  # noqa: ANN401
            if progress is not None:
                progress("verify", value, 2 * plan.size_bytes)

        compared: Compared = run_ranks(
            CompareJob(plan=plan, replica=replica), self._n_ranks, on_event
        )
        report = check_stored(replica, progress=None, checksums=compared.checksums)
        if not report.ok:
            return report
        return replace(report, problems=(*compared.problems, *source_problems(replica)))
