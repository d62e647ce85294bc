"""Work of one rank of a build: ``mpiexec -n N python -m sds.organizer.parallel.rank_main N``.

Ranks take the slabs of a copy in batches, each of as many neighbors as its threads keep busy with.
Between batches they agree on errors, and from time to time all sync, so that the number of slabs on
disk is known at any moment: the journal is that of a build by one process, and either continues
what the other began.

Every rank holds a lock on the staged file, shared with the others: as long as one lives, nobody
else goes on with that file (:func:`sds.organizer.journal.require_unused`).
"""

from __future__ import annotations

import fcntl
import os
import pickle
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from sds.errors import ConfigurationError, SdsError
from sds.organizer.collective.agreement import on_all
from sds.organizer.copy.slab_steps import SlabSteps
from sds.organizer.copy.source_reader import SourceReader
from sds.organizer.copy.stepwise_copy import CHECKPOINT_S, StepCopier
from sds.organizer.copy.targets import ContiguousTarget
from sds.organizer.parallel.rank_jobs import Compared, CompareJob, Copied, CopyJob, event_line
from sds.organizer.replica_file.block_checksums import block_checksums
from sds.organizer.replica_file.filters import require_filters
from sds.organizer.verify import drop_from_page_cache, first_difference

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mpi4py.MPI import Comm

    from sds.organizer.parallel.rank_jobs import EventKind, Job

# Of each rank between two agreements: the threads of a rank are busy with half of them.
_BATCHES_OF_THREADS = 2


def main() -> None:
    """Take the job from standard input, and report events of it on standard output."""
    world = MPI.COMM_WORLD
    if world.rank == 0:
        job = pickle.load(sys.stdin.buffer)  # noqa: S301  (of the process that started the ranks)
        threading.Thread(target=_end_with_starter, daemon=True).start()
    try:
        wanted = int(sys.argv[1])
        if world.size != wanted:
            message = (
                f"mpiexec started {wanted} processes that are {world.size} MPI program each: it is "
                "of another MPI than mpi4py; set SDS_MPIEXEC to the one that fits"
            )
            raise ConfigurationError(message)
        returned = run(world, world.bcast(job if world.rank == 0 else None))
    except (SdsError, OSError, MemoryError) as error:
        _report(world, "raised", error.__cause__ if world.rank == 0 and error.__cause__ else error)
    else:
        _report(world, "returned", returned)


def _end_with_starter() -> None:
    """End this rank, and so all, when the process that started them is gone."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def _report(world: Comm, kind: EventKind, value: Any) -> None:  # noqa: ANN401
    """Report an event, on the first rank."""
    if world.rank == 0:
        sys.stdout.buffer.write(event_line(kind, value))
        sys.stdout.buffer.flush()


def run(world: Comm, job: Job) -> Copied | Compared:
    """Do a job, on all ranks together; what one raises is raised on all."""
    return _copy(world, job) if isinstance(job, CopyJob) else _compare(world, job)


def _copy(world: Comm, job: CopyJob) -> Copied:
    plan = job.plan
    done_bytes = 0

    def advance(n_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += n_bytes

    with ExitStack() as stack:
        on_all(world, lambda: stack.enter_context(_locked(job.staged)))
        reader = on_all(
            world, lambda: stack.enter_context(SourceReader(plan, decode_bytes=plan.decode_bytes))
        )
        target = on_all(
            world,
            lambda: stack.enter_context(ContiguousTarget(job.staged, plan, takes_space=False)),
        )
        steps = SlabSteps(plan, reader, target)
        before = sum(steps.step_bytes(index) for index in range(job.first))
        copier = stack.enter_context(StepCopier(steps, advance))
        noted_s = time.monotonic()
        for first, end in _batches(plan.n_slabs, job.first, world.size, 2 * steps.n_buffers):
            on_all(world, lambda: _copy_batch(copier, _share(first, end, world)))  # noqa: B023
            _report(world, "bytes", before + world.allreduce(done_bytes))
            if world.bcast(time.monotonic() - noted_s > CHECKPOINT_S):
                on_all(world, target.sync)
                _report(world, "steps", end)
                noted_s = time.monotonic()
        mine = on_all(world, lambda: target.checksums(share=(world.rank, world.size)))
        decode_s_per_byte = reader.decode_s_per_byte() if world.rank == 0 else 0.0
    return Copied(checksums=_joined(world, mine), decode_s_per_byte=decode_s_per_byte)


def _batches(n_steps: int, first: int, n_ranks: int, n_threads: int) -> Iterator[tuple[int, int]]:
    """Yield first and end of the steps between two agreements."""
    most = n_ranks * n_threads * _BATCHES_OF_THREADS
    for begin in range(first, n_steps, most):
        yield begin, min(begin + most, n_steps)


def _share(first: int, end: int, world: Comm) -> range:
    """Return the steps of this rank: neighbors, so that few stripes are written by two ranks."""
    n = end - first
    return range(
        first + n * world.rank // world.size,
        first + n * (world.rank + 1) // world.size,
    )


def _copy_batch(copier: StepCopier, steps: range) -> None:
    for index in steps:
        copier.begin(index)
    copier.finish()


@contextmanager
def _locked(staged: Path) -> Iterator[None]:
    """Hold a lock on a file that is shared with the other ranks."""
    descriptor = os.open(staged, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _joined(world: Comm, mine: np.ndarray) -> np.ndarray:
    """Return the checksums of all blocks."""
    return np.concatenate(world.allgather(mine))


def _compare(world: Comm, job: CompareJob) -> Compared:
    plan, replica = job.plan, job.replica
    share = (world.rank, world.size)
    name = f"{plan.dataset_path} in {plan.source_path}"
    on_all(world, lambda: require_filters(plan.source_filters, name, encode=False))
    done_bytes = 0

    def advance(n_bytes: int) -> None:
        # The other ranks are as far, about.
        nonlocal done_bytes
        done_bytes = min(done_bytes + n_bytes * world.size, 2 * plan.size_bytes)
        _report(world, "bytes", done_bytes)

    def checksums() -> np.ndarray:
        drop_from_page_cache(replica.path)
        descriptor = os.open(replica.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return block_checksums(
                descriptor,
                replica.data_offset_bytes,
                replica.size_bytes,
                replica.block_size_bytes,
                share=share,
                advance=advance,
            )
        finally:
            os.close(descriptor)

    found = _joined(world, on_all(world, checksums))
    problems = on_all(world, lambda: first_difference(replica, plan, advance, share))
    _report(world, "bytes", 2 * plan.size_bytes)
    every = [problem for of_rank in world.allgather(problems) for problem in of_rank]
    return Compared(checksums=found, problems=tuple(every))


if __name__ == "__main__":
    main()
