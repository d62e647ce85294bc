"""A sort, and its comparison, by the ranks of an MPI program.

Every rank sorts runs of its own, side by side in the source, and stores them behind the end of the
staged file. From the samples of all runs every rank chooses the same cuts and counts what of its
runs precedes them. Then each merges pieces that are neighbors in the replica, from the runs of all.
The rows lie as one process sorts them.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from sds.organizer.collective.agreement import on_all
from sds.organizer.reorganizers.sort_verify import differences, draw_key, look_through
from sds.organizer.reorganizers.sorted_container import find_places
from sds.organizer.reorganizers.sorted_runs import (
    RunFile,
    RunReader,
    SortedOutput,
    choose_cuts,
    merge_pieces,
    piece_bounds,
    rows_before_cuts,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mpi4py.MPI import Comm
    from numpy.typing import NDArray

    from sds.organizer.plans.sort_plan import SortPlan
    from sds.organizer.reorganizers.sort_verify import Seen
    from sds.organizer.replica_file.replica import Replica

# Of each rank: so many that none has much more to merge than the others. There are as many samples
# as pieces times runs: of many ranks, whose runs are short anyway, each gets fewer.
_PIECES, _PIECES_OF_MANY, _MANY_RANKS = 4, 1, 64


def sort_rows(world: Comm, plan: SortPlan, staged: Path, report: Callable[[int], None]) -> int:
    """Sort the rows of a table into a file that `create_sorted` made; return how many keys are NaN.

    Parameters
    ----------
    report
        Called with the bytes of the replica that count as done.
    """
    plan = _dealt(plan, world.size)
    n_pieces = world.size * (_PIECES if world.size <= _MANY_RANKS else _PIECES_OF_MANY)
    piece_rows = min(plan.run_rows, -(-plan.n_rows // n_pieces))
    row_bytes = plan.size_bytes // plan.n_rows
    spans_nodes = _spans_nodes(world)
    done_bytes = 0

    def advance(n_rows: int) -> None:
        # The other ranks are as far, about. Every row is counted twice: sorted, and merged.
        nonlocal done_bytes
        done_bytes = min(done_bytes + n_rows * world.size * row_bytes // 2, plan.size_bytes)
        report(done_bytes)

    with ExitStack() as stack:
        places = on_all(world, lambda: find_places(staged, plan))
        output = on_all(world, lambda: stack.enter_context(SortedOutput(staged, plan, places)))
        on_all(world, lambda: output.take_space() if world.rank == 0 else None)
        reader = on_all(world, lambda: stack.enter_context(RunReader(plan)))
        own = RunFile(plan, output.descriptor, output.begin_of_runs, piece_rows=piece_rows)
        samples: dict[int, NDArray[np.unsignedinteger]] = {}

        def store() -> None:
            for index in _neighbors(plan.n_runs, world):
                samples[index] = own.store(index, reader.read(index))
                advance(plan.run(index)[1])
            if spans_nodes:
                os.fdatasync(output.descriptor)

        on_all(world, store)
        of_all = {run: keys for part in world.allgather(samples) for run, keys in part.items()}

        def count() -> NDArray[np.int64]:
            in_order = [of_all[run] for run in range(plan.n_runs)]
            cuts = choose_cuts(in_order, own.step, piece_rows)
            return rows_before_cuts(own, cuts, samples, plan.n_runs)

        before = on_all(world, count)
        world.Allreduce(MPI.IN_PLACE, before, op=MPI.SUM)
        bounds = on_all(world, lambda: piece_bounds(before, plan))

        def merge() -> None:
            # Opened now: what other nodes have written is seen.
            with SortedOutput(staged, plan, places) as again:
                runs = RunFile(plan, again.descriptor, again.begin_of_runs, piece_rows=piece_rows)
                merge_pieces(runs, bounds, _own_pieces(bounds, world), again, advance)
                if spans_nodes:
                    os.fdatasync(again.descriptor)

        on_all(world, merge)
        on_all(world, lambda: output.drop_runs() if world.rank == 0 else None)
        n_nan: int = world.allreduce(reader.n_nan)
    report(plan.size_bytes)
    return n_nan


def _dealt(plan: SortPlan, n_ranks: int) -> SortPlan:
    """Return a plan of as many runs for each rank; fewer where there are fewer rows than ranks."""
    n_each = -(-plan.n_rows // (n_ranks * plan.run_rows))
    return replace(plan, run_rows=-(-plan.n_rows // (n_ranks * n_each)))


def _neighbors(n: int, world: Comm) -> range:
    return range(n * world.rank // world.size, n * (world.rank + 1) // world.size)


def _own_pieces(bounds: NDArray[np.int64], world: Comm) -> list[int]:
    """Return the pieces whose middle lies in this rank's part of the replica."""
    first_rows = bounds.sum(axis=1)
    owners = (first_rows[:-1] + first_rows[1:]) * world.size // (2 * first_rows[-1])
    pieces: list[int] = np.flatnonzero(owners == world.rank).tolist()
    return pieces


def _spans_nodes(world: Comm) -> bool:
    """Return whether ranks are on several nodes: what they write for others has to be synced."""
    on_this = world.Split_type(MPI.COMM_TYPE_SHARED)
    n_here: int = on_this.size
    on_this.Free()
    return n_here < world.size


def compare_rows(
    world: Comm, replica: Replica, plan: SortPlan, advance: Callable[[int], None]
) -> tuple[str, ...]:
    """Compare the rows of a replica with the source, every rank a part; return what differs.

    Parameters
    ----------
    advance
        Called with the number of bytes compared since its last call.
    """
    key = world.bcast(draw_key())
    row_bytes = plan.size_bytes // plan.n_rows

    def look() -> Seen:
        # A row is read twice: in the source, and in the replica.
        return look_through(
            replica,
            plan,
            key,
            (world.rank, world.size),
            lambda n_rows: advance(n_rows * row_bytes // 2),
        )

    seen = world.allgather(on_all(world, look))
    return on_all(world, lambda: differences(replica, plan, seen) if world.rank == 0 else ())
