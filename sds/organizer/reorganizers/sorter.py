"""Organizer that sorts the rows of a table, in one process, writing while it reads.

1. The table is read in runs of as many rows as the memory holds. Each is sorted, stably.
2. Where there are several, they go behind the end of the staged file, and are cut off when they are
   merged, in pieces that the memory holds. So a kill leaves no other file of them behind.

Rows with equal keys keep the order of the source, in runs and between them. Several processes sort
in the same way (:mod:`sds.organizer.parallel.rank_sort`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sds.organizer.reorganizers.sort_verify import compare_with_table
from sds.organizer.reorganizers.sorted_container import (
    create_sorted,
    find_places,
    finish_sorted,
)
from sds.organizer.reorganizers.sorted_runs import (
    ROW_NUMBERS,
    RunFile,
    RunReader,
    SortedOutput,
    choose_cuts,
    merge_pieces,
    piece_bounds,
    rows_before_cuts,
)
from sds.organizer.replica_file.filters import require_filters
from sds.organizer.replica_file.replica import describe_replica

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sds.organizer.plans.sort_plan import SortPlan
    from sds.organizer.progress import Checkpoint, Progress
    from sds.organizer.reorganizers.sorted_runs import SortedRun
    from sds.organizer.replica_file.replica import Replica
    from sds.organizer.verify import VerificationReport


class Sorter:
    """Sorts tables by one column."""

    name = "sorter"

    def execute(
        self,
        plan: SortPlan,
        staged: Path,
        *,
        checkpoint: Checkpoint,  # noqa: ARG002  (a sort that was killed begins anew)
        progress: Progress | None = None,
    ) -> Replica:
        """Write the replica; see :class:`sds.organizer.protocol.Builder`."""
        began_s = time.monotonic()
        what = f"{plan.dataset_path} in {plan.source_path}"
        require_filters(plan.source_filters, what, encode=False)
        create_sorted(staged, plan)
        places = find_places(staged, plan)
        with SortedOutput(staged, plan, places) as output, RunReader(plan) as reader:
            output.take_space()
            _sort(plan, reader, output, progress)
            n_nan = reader.n_nan
        finish_sorted(staged, plan, n_nan=n_nan, build_s=time.monotonic() - began_s)
        return describe_replica(staged)

    def verify(
        self, replica: Replica, plan: SortPlan, *, progress: Progress | None = None
    ) -> VerificationReport:
        """Compare every row of the replica, read back from disk, with the original."""
        return compare_with_table(replica, plan, progress=progress)


def _sort(
    plan: SortPlan, reader: RunReader, output: SortedOutput, progress: Progress | None
) -> None:
    """Sort the rows into the columns of the replica."""
    advance = rows_progress(plan, 1 if plan.n_runs == 1 else 2, progress)
    if plan.n_runs == 1:
        _write_run(reader.read(0), output)
        advance(plan.n_rows)
        return
    runs = RunFile(plan, output.descriptor, output.begin_of_runs, piece_rows=plan.run_rows)
    samples = {}
    for index in range(plan.n_runs):
        samples[index] = runs.store(index, reader.read(index))
        advance(plan.run(index)[1])
    cuts = choose_cuts(list(samples.values()), runs.step, plan.run_rows)
    bounds = piece_bounds(rows_before_cuts(runs, cuts, samples, plan.n_runs), plan)
    merge_pieces(runs, bounds, range(len(bounds) - 1), output, advance)
    output.drop_runs()


def rows_progress(
    plan: SortPlan, n_passes: int, progress: Progress | None
) -> Callable[[int], None]:
    """Return a function that adds rows that a pass of a sort has handled to its progress."""
    done = 0

    def advance(n_rows: int) -> None:
        nonlocal done
        done += n_rows
        if progress is not None:
            progress("copy", done * plan.size_bytes // (n_passes * plan.n_rows), plan.size_bytes)

    return advance


def _write_run(run: SortedRun, output: SortedOutput) -> None:
    """Write the only run to the replica."""
    output.write(ROW_NUMBERS, 0, run.rows)
    for name, elements in run.columns.items():
        output.write(name, 0, elements[run.place])
