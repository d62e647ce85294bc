"""Chunks of a replica, made by all ranks and written by the first.

HDF5 without MPI has one writer. The steps are dealt to the ranks in turn; each reads, permutes and
filters its own, and sends them in their order. The first rank takes them in the order of all steps,
so that the file is the one that a single process writes.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Self, TypeAlias

from sds.organizer.collective.agreement import raise_on_all
from sds.organizer.copy.chunk_encoder import ChunkEncoder

if TYPE_CHECKING:
    import numpy as np
    from mpi4py.MPI import Comm
    from numpy.typing import NDArray

    from sds.organizer.copy.stepwise_copy import StepCopier
    from sds.organizer.copy.targets import ChunkedTarget
    from sds.organizer.plans.reorganization_plan import ReorganizationPlan, Slab

Chunk: TypeAlias = tuple[tuple[int, ...], bytes]
"""First index of a chunk, and its bytes as they are stored."""


class ChunkSender:
    """Target of a rank's steps, which are written one after the other: sends them to the first."""

    def __init__(self, world: Comm, plan: ReorganizationPlan) -> None:
        self._world = world
        self._encoder: ChunkEncoder | None = None
        if plan.encode_bytes:
            self._encoder = ChunkEncoder(plan.layout, plan.element_size_bytes, plan.encode_bytes)
        self._own: queue.SimpleQueue[object] = queue.SimpleQueue()
        # Of the first rank's own messages: the next is made when the one before is taken.
        self._room = threading.Semaphore(1)
        self._n_sent = 0

    def __enter__(self) -> Self:
        if self._encoder is not None:
            self._encoder.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._encoder is not None:
            self._encoder.__exit__()

    def write(self, slab: Slab, elements: NDArray[np.uint8]) -> None:
        """Send a box of the replica: chunks as they are stored, or elements for HDF5 to filter."""
        is_own = self._world.rank == 0
        if is_own:
            self._room.acquire()
        try:
            if self._encoder is None:
                self._send((slab, elements.copy() if is_own else elements))
            else:
                self._send(list(self._encoder.encode(slab, elements)))
        except BaseException:
            if is_own:
                self._room.release()  # nothing was sent that could be taken
            raise

    def _send(self, message: object) -> None:
        if self._world.rank == 0:
            self._own.put(message)
        else:
            self._world.send(message, dest=0)
        self._n_sent += 1

    def take_own(self) -> object:
        """Return what the first rank itself sent next."""
        message = self._own.get()
        self._room.release()
        return message

    def produce(self, copier: StepCopier, steps: range) -> Exception | None:
        """Carry out steps; in place of those that fail, send nothing. Return the error."""
        before = self._n_sent
        error: Exception | None = None
        try:
            for index in steps:
                copier.begin(index)
            copier.finish()
        except Exception as raised:  # noqa: BLE001  (returned: the others must not wait)
            error = raised
        for _ in range(len(steps) - (self._n_sent - before)):
            self._send(None)
        return error


def copy_batch(
    world: Comm,
    copier: StepCopier,
    sender: ChunkSender,
    target: ChunkedTarget | None,
    steps: range,
) -> None:
    """Carry out neighboring steps, on all ranks together.

    Parameters
    ----------
    target
        Of the first rank.
    """
    mine = steps[world.rank :: world.size]
    if target is None:
        raise_on_all(world, sender.produce(copier, mine))
        return
    errors: list[Exception | None] = []
    producing = threading.Thread(target=lambda: errors.append(sender.produce(copier, mine)))
    producing.start()
    failed: Exception | None = None
    for number in range(len(steps)):
        owner = number % world.size
        message = sender.take_own() if owner == 0 else world.recv(source=owner)
        if message is None or failed is not None:
            continue  # taken all the same: who sends must not wait
        try:
            _write(target, message)
        except Exception as error:  # noqa: BLE001  (raised on all below)
            failed = error
    producing.join()
    raise_on_all(world, failed or errors[0])


def _write(target: ChunkedTarget, message: object) -> None:
    if isinstance(message, list):
        target.write_stored(message)
    elif isinstance(message, tuple):
        target.write(*message)
