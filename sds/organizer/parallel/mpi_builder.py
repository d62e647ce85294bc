"""Builders whose work is done by the ranks of an MPI program."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sds.organizer.copy.targets import ChunkedTarget, ContiguousTarget
from sds.organizer.parallel.mpi_ranks import run_ranks
from sds.organizer.parallel.rank_jobs import CompareJob, CopyJob, SortJob
from sds.organizer.plans.segment_plan import SegmentPlan
from sds.organizer.reorganizers.segment_verify import problem_of_layout
from sds.organizer.reorganizers.sorted_container import create_sorted, finish_sorted
from sds.organizer.replica_file.container import create_container
from sds.organizer.replica_file.filters import require_filters
from sds.organizer.replica_file.replica import describe_replica
from sds.organizer.verify import (
    VerificationReport,
    check_stored,
    drop_from_page_cache,
    source_problems,
)

if TYPE_CHECKING:
    from pathlib import Path

    from sds.organizer.parallel.rank_jobs import Compared, Copied, EventKind
    from sds.organizer.plans.sort_plan import SortPlan
    from sds.organizer.progress import AnyPlan, Checkpoint, DatasetPlan, Progress
    from sds.organizer.replica_file.replica import Replica


class MpiCopier:
    """Carries out plans of the transposer and the segmenter by several ranks.

    What they build, and the journal, are those of one process: either goes on with what the other
    began.
    """

    ORGANIZERS = frozenset({"transposer", "segmenter"})
    """Entry point names of those whose plans these are."""

    def __init__(self, n_ranks: int) -> None:
        self._n_ranks = n_ranks

    def execute(
        self,
        plan: DatasetPlan,
        staged: Path,
        *,
        checkpoint: Checkpoint,
        progress: Progress | None = None,
    ) -> Replica:
        """Write the replica; see :class:`sds.organizer.protocol.Builder`.

        Errors also as of :func:`sds.organizer.parallel.mpi_ranks.run_ranks`.
        """
        began_s = time.monotonic()
        require_filters(plan.layout.filters, "the replica", encode=True)
        if not checkpoint.steps_done:
            create_container(staged, plan)
        total_bytes = plan.copied_bytes if isinstance(plan, SegmentPlan) else plan.size_bytes

        def on_event(kind: EventKind, value: Any) -> None:  # noqa: ANN401
            if kind == "steps":
                steps_done, overwritable = value
                checkpoint.reached(steps_done, overwritable=overwritable)
            elif progress is not None:
                progress("copy", value, total_bytes)

        def copy() -> Copied:
            job = CopyJob(plan=plan, staged=staged, first=checkpoint.steps_done)
            copied: Copied = run_ranks(job, self._n_ranks, on_event)
            return copied

        if isinstance(plan, SegmentPlan) or plan.layout.chunk_shape is None:
            with ContiguousTarget(staged, plan) as target:
                copied = copy()
                target.finish(
                    began_s=began_s,
                    source_decode_s_per_byte=copied.decode_s_per_byte,
                    checksums=copied.checksums,
                )
        else:
            copied = copy()
            with ChunkedTarget(staged, plan) as chunks:
                chunks.finish(began_s=began_s, source_decode_s_per_byte=copied.decode_s_per_byte)
        return describe_replica(staged)

    def verify(
        self, replica: Replica, plan: DatasetPlan, *, progress: Progress | None = None
    ) -> VerificationReport:
        """Compare every byte of the replica, read back from disk, with the original."""
        if isinstance(plan, SegmentPlan):
            problem = problem_of_layout(replica, plan)
            if problem:
                return VerificationReport(
                    path=replica.path, problems=(problem,), damaged_blocks=(), checked_bytes=0
                )
        return _compare(replica, plan, self._n_ranks, progress)


class MpiSorter:
    """Sorts tables by several ranks: with the rows of one process, and without its memory."""

    def __init__(self, n_ranks: int) -> None:
        self._n_ranks = n_ranks

    def execute(
        self,
        plan: SortPlan,
        staged: Path,
        *,
        checkpoint: Checkpoint,  # noqa: ARG002  (a sort that was killed begins anew)
        progress: Progress | None = None,
    ) -> Replica:
        """Write the replica; errors as of :meth:`MpiCopier.execute`."""
        began_s = time.monotonic()
        what = f"{plan.dataset_path} in {plan.source_path}"
        require_filters(plan.source_filters, what, encode=False)
        create_sorted(staged, plan)

        def on_event(_: EventKind, value: Any) -> None:  # noqa: ANN401
            if progress is not None:
                progress("copy", value, plan.size_bytes)

        n_nan: int = run_ranks(SortJob(plan=plan, staged=staged), self._n_ranks, on_event)
        finish_sorted(staged, plan, n_nan=n_nan, build_s=time.monotonic() - began_s)
        return describe_replica(staged)

    def verify(
        self, replica: Replica, plan: SortPlan, *, progress: Progress | None = None
    ) -> VerificationReport:
        """Compare every row of the replica, read back from disk, with the original."""
        return _compare(replica, plan, self._n_ranks, progress)


def _compare(
    replica: Replica, plan: AnyPlan, n_ranks: int, progress: Progress | None
) -> VerificationReport:
    def on_event(_: EventKind, value: Any) -> None:  # noqa: ANN401
        if progress is not None:
            progress("verify", value, 2 * plan.size_bytes)

    compared: Compared = run_ranks(CompareJob(plan=plan, replica=replica), n_ranks, on_event)
    drop_from_page_cache(replica.path)  # ranks may be elsewhere
    report = check_stored(replica, progress=None, checksums=compared.checksums)
    if not report.ok:
        return report
    return replace(report, problems=(*compared.problems, *source_problems(replica)))
