"""Work of one rank of a build.

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
import traceback
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from sds.errors import ConfigurationError, SdsError
from sds.organizer.collective.agreement import OtherRankError, is_raised_on_all, on_all
from sds.organizer.copy.slab_steps import SlabSteps
from sds.organizer.copy.source_reader import SourceReader
from sds.organizer.copy.stepwise_copy import CHECKPOINT_S, StepCopier, pause_after
from sds.organizer.copy.targets import ChunkedTarget, ContiguousTarget
from sds.organizer.journal import NO_LOCKS
from sds.organizer.parallel.chunk_exchange import ChunkSender, copy_batch
from sds.organizer.parallel.rank_jobs import (
    Compared,
    CompareJob,
    Copied,
    CopyJob,
    SortJob,
    event_line,
)
from sds.organizer.parallel.rank_sort import compare_rows, sort_rows
from sds.organizer.plans.segment_plan import SegmentPlan
from sds.organizer.plans.sort_plan import SortPlan
from sds.organizer.reorganizers.segment_verify import compare_tiles, problem_uncompared
from sds.organizer.reorganizers.segmenter import TileSteps
from sds.organizer.replica_file.filters import require_filters
from sds.organizer.verify import (
    checksums_on_disk,
    drop_from_page_cache,
    first_difference,
    place_of_checksums,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mpi4py.MPI import Comm
    from numpy.typing import NDArray

    from sds.organizer.copy.stepwise_copy import Steps
    from sds.organizer.parallel.rank_jobs import EventKind, Job
    from sds.organizer.plans.reorganization_plan import ReorganizationPlan
    from sds.organizer.replica_file.replica import Replica

# An mpiexec that ends its ranks forwards nothing more of what they said.
_SAID_S = 1.0
# Of each rank between two agreements: the threads of a rank are busy with half of them.
_BATCHES_OF_THREADS = 2


def main() -> None:
    """Take the job from standard input, and report events of it on standard output."""
    world = MPI.COMM_WORLD
    try:
        _work(world)
    except BaseException:  # noqa: BLE001  (the other ranks wait for this one)
        os.write(2, traceback.format_exc().encode(errors="replace"))
        time.sleep(_SAID_S)
        world.Abort(1)


def _work(world: Comm) -> None:
    starter = Starter(world)
    job = starter.take_job() if world.rank == 0 else None
    wanted = int(sys.argv[1])
    try:
        if world.size != wanted:
            message = (
                f"mpiexec started {wanted} processes that are {world.size} MPI program each: it is "
                "of another MPI than mpi4py; set SDS_MPIEXEC to the one that fits"
            )
            raise ConfigurationError(message)
        job = world.bcast(job)
        returned = _carry_out(starter, job)
    except OtherRankError as error:
        starter.report("raised", error.original)
    except (SdsError, OSError, MemoryError) as error:
        starter.report("raised", error)
        if not is_raised_on_all(error) and world.size > 1:
            raise  # the others may wait for this one
    else:
        starter.report("returned", returned)


def _carry_out(starter: Starter, job: Job) -> Copied | Compared | int:
    if isinstance(job, CopyJob):
        return _copy(starter, job)
    if isinstance(job, SortJob):
        return _sort(starter, job)
    return _compare(starter, job)


class Starter:
    """The process that started the ranks, as they see it: the first alone speaks with it."""

    def __init__(self, world: Comm) -> None:
        self.world = world
        self._notes = threading.Semaphore(0)
        # What libraries print goes to standard error, not between the events.
        sys.stdout.flush()
        self._events = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def take_job(self) -> Job:
        """Return the job; from then on this rank, and so all, end when the starter is gone."""
        job: Job = pickle.load(sys.stdin.buffer)  # noqa: S301  (of the process that started us)
        threading.Thread(target=self._listen, daemon=True).start()
        return job

    def _listen(self) -> None:
        while os.read(sys.stdin.fileno(), 1):
            self._notes.release()
        try:
            self.world.Abort(1)
        finally:
            os._exit(1)

    def report(self, kind: EventKind, value: Any) -> None:  # noqa: ANN401
        """Report an event, on the first rank."""
        if self.world.rank == 0:
            self._events.write(event_line(kind, value))
            self._events.flush()

    @property
    def steps_done(self) -> int:
        """Not known to ranks; see `CopyJob`."""
        return 0

    def reached(
        self, steps_done: int, *, overwritable: Sequence[tuple[int, int | None]] = ()
    ) -> None:
        """Have the journal note how many steps are on disk, and wait until it has."""
        if self.world.rank == 0:
            self.report("steps", (steps_done, tuple(overwritable)))
            self._notes.acquire()


def _copy(starter: Starter, job: CopyJob) -> Copied:
    plan = job.plan
    with ExitStack() as stack:
        on_all(starter.world, lambda: stack.enter_context(_locked(job.staged)))
        reader = on_all(
            starter.world,
            lambda: stack.enter_context(SourceReader(plan, decode_bytes=plan.decode_bytes)),
        )
        if isinstance(plan, SegmentPlan) or plan.layout.chunk_shape is None:
            checksums = _copy_contiguous(starter, job, reader)
        else:
            checksums = None
            _copy_chunks(starter, job, replace(plan, n_buffers=1), reader)
        decode_s_per_byte = reader.decode_s_per_byte() if starter.world.rank == 0 else 0.0
    return Copied(checksums=checksums, decode_s_per_byte=decode_s_per_byte)


def _sort(starter: Starter, job: SortJob) -> int:
    with ExitStack() as stack:
        on_all(starter.world, lambda: stack.enter_context(_locked(job.staged)))
        return sort_rows(
            starter.world,
            job.plan,
            job.staged,
            lambda done_bytes: starter.report("bytes", done_bytes),
        )


def _copy_contiguous(starter: Starter, job: CopyJob, reader: SourceReader) -> NDArray[np.uint32]:
    """Copy: every rank writes its own; return the checksums of all blocks."""
    world, plan = starter.world, job.plan
    share = (world.rank, world.size)
    with ExitStack() as stack:
        target = on_all(
            world,
            lambda: stack.enter_context(ContiguousTarget(job.staged, plan, takes_space=False)),
        )
        steps: Steps
        if isinstance(plan, SegmentPlan):
            steps = TileSteps(plan, reader, target)
        else:
            steps = SlabSteps(plan, reader, target)

        def copy(copier: StepCopier, batch: range) -> None:
            on_all(world, lambda: _copy_all(copier, _share(batch, world)))

        def note(steps_done: int, _: float) -> None:
            on_all(world, target.sync)
            starter.reached(steps_done)

        _in_batches(starter, steps, job.first, copy, note)
        mine = on_all(world, lambda: target.checksums(share=share))
    return _joined(world, mine)


def _copy_chunks(
    starter: Starter, job: CopyJob, plan: ReorganizationPlan, reader: SourceReader
) -> None:
    """Copy: every rank makes its own chunks, and the first writes all of them."""
    world = starter.world
    with ExitStack() as stack:
        sender = on_all(world, lambda: stack.enter_context(ChunkSender(world, plan)))
        target: ChunkedTarget | None = None
        if world.rank == 0:
            target = ChunkedTarget(job.staged, plan)
        on_all(world, lambda: None if target is None else stack.enter_context(target))

        def copy(copier: StepCopier, batch: range) -> None:
            copy_batch(world, copier, sender, target, batch)

        def note(steps_done: int, share_done: float) -> None:
            if target is None:
                on_all(world, lambda: None)
            else:
                on_all(world, lambda: target.note(starter, steps_done, share_done=share_done))

        _in_batches(starter, SlabSteps(plan, reader, sender), job.first, copy, note)


def _in_batches(
    starter: Starter,
    steps: Steps,
    first: int,
    copy: Callable[[StepCopier, range], None],
    note: Callable[[int, float], None],
) -> None:
    """Carry out all steps from number `first` on.

    Parameters
    ----------
    copy
        Carries out the steps of a batch, on all ranks together.
    note
        Syncs what is written, and notes the steps done, and their share of all.
    """
    world = starter.world
    done_bytes = 0

    def advance(n_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += n_bytes

    before = sum(steps.step_bytes(index) for index in range(first))
    most = world.size * 2 * steps.n_buffers * _BATCHES_OF_THREADS
    noted_s, pause_s = time.monotonic(), CHECKPOINT_S
    with ExitStack() as stack:
        copier = on_all(world, lambda: stack.enter_context(StepCopier(steps, advance)))
        for begin in range(first, steps.n_steps, most):
            batch = range(begin, min(begin + most, steps.n_steps))
            copy(copier, batch)
            all_bytes = before + world.allreduce(done_bytes)
            starter.report("bytes", all_bytes)
            if world.bcast(time.monotonic() - noted_s > pause_s):
                begun_s = time.monotonic()
                note(batch.stop, all_bytes / steps.total_bytes)
                noted_s = time.monotonic()
                pause_s = pause_after(noted_s - begun_s)


def _share(steps: range, world: Comm) -> range:
    """Return the steps of this rank: neighbors, so that few stripes are written by two ranks."""
    n = len(steps)
    return steps[n * world.rank // world.size : n * (world.rank + 1) // world.size]


def _copy_all(copier: StepCopier, steps: range) -> None:
    for index in steps:
        copier.begin(index)
    copier.finish()


@contextmanager
def _locked(staged: Path) -> Iterator[None]:
    """Hold a lock on a file that is shared with the other ranks."""
    descriptor = os.open(staged, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)


def _joined(world: Comm, mine: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the checksums of all blocks."""
    return np.concatenate(world.allgather(mine))


def _compare(starter: Starter, job: CompareJob) -> Compared:
    world, plan, replica = starter.world, job.plan, job.replica
    share = (world.rank, world.size)
    name = f"{plan.dataset_path} in {plan.source_path}"
    on_all(world, lambda: require_filters(plan.source_filters, name, encode=False))
    on_all(world, lambda: require_filters(replica.filters, str(replica.path), encode=False))
    done_bytes = 0

    def advance(n_bytes: int) -> None:
        # The other ranks are as far, about.
        nonlocal done_bytes
        done_bytes = min(done_bytes + n_bytes * world.size, 2 * plan.size_bytes)
        starter.report("bytes", done_bytes)

    def checksums() -> NDArray[np.uint32]:
        drop_from_page_cache(replica.path)
        hole = place_of_checksums(replica)
        descriptor = os.open(replica.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return checksums_on_disk(replica, descriptor, hole=hole, share=share, advance=advance)
        finally:
            os.close(descriptor)

    found = _joined(world, on_all(world, checksums))
    if isinstance(plan, SortPlan):
        problems = compare_rows(world, replica, plan, advance)
    elif isinstance(plan, SegmentPlan):
        problems = _differing_tiles(world, replica, plan, advance)
    else:
        own = on_all(world, lambda: first_difference(replica, plan, advance, share))
        problems = _of_all(world, own)
    starter.report("bytes", 2 * plan.size_bytes)
    return Compared(checksums=found, problems=problems)


def _differing_tiles(
    world: Comm, replica: Replica, plan: SegmentPlan, advance: Callable[[int], None]
) -> tuple[str, ...]:
    problem, n_bytes = on_all(
        world, lambda: compare_tiles(replica, plan, advance, (world.rank, world.size))
    )
    problems = _of_all(world, (problem,) if problem else ())
    uncompared = problem_uncompared(plan, world.allreduce(n_bytes))
    return problems or ((uncompared,) if uncompared else ())


def _of_all(world: Comm, problems: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(problem for of_rank in world.allgather(problems) for problem in of_rank)
