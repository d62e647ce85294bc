"""Copy in steps: read some while others are written, and record progress in the journal."""

from __future__ import annotations

import queue
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sds.organizer.copy.targets import Target
    from sds.organizer.progress import Checkpoint, Progress

    Buffers = queue.SimpleQueue[NDArray[np.uint8]]

# Work that a kill may cost; each checkpoint waits for the disk.
CHECKPOINT_S = 5.0
# Checkpoints of many chunks are slow: they take at most one part in 20 of the time.
_NOTES_SHARE = 20


class Steps(Protocol):
    """A copy, cut into steps; each can be repeated."""

    @property
    def n_steps(self) -> int:
        """Number of steps."""

    @property
    def total_bytes(self) -> int:
        """Bytes of the elements that all steps copy."""

    @property
    def n_buffers(self) -> int:
        """Number of steps that are read, and that are written, at the same time.

        With one, steps are read one after the other and written one after the other, in their
        order.
        """

    @property
    def buffer_bytes(self) -> int:
        """Bytes that the largest step reads, and that it writes."""

    def step_bytes(self, index: int) -> int:
        """Return the bytes of the elements that a step copies."""

    def read(self, index: int, out: NDArray[np.uint8]) -> None:
        """Read what a step needs from the source."""

    def arrange(
        self, index: int, elements: NDArray[np.uint8], out: NDArray[np.uint8]
    ) -> Callable[[], None]:
        """Put what was read in the order of the replica; return the function that writes it."""


def copy_in_steps(
    steps: Steps, target: Target, checkpoint: Checkpoint, progress: Progress | None
) -> None:
    """Carry out the steps that are not yet on disk, and note how far they are."""
    first = checkpoint.steps_done
    done_bytes = sum(steps.step_bytes(index) for index in range(first))
    noted_s = time.monotonic()
    pause_s = CHECKPOINT_S

    def advance(n_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += n_bytes
        if progress is not None:
            progress("copy", done_bytes, steps.total_bytes)

    advance(0)
    with StepCopier(steps, advance) as copier:
        for index in range(first, steps.n_steps):
            copier.wait_for_room()
            if time.monotonic() - noted_s > pause_s:
                copier.finish()
                begun_s = time.monotonic()
                target.note(checkpoint, index, share_done=done_bytes / steps.total_bytes)
                noted_s = time.monotonic()
                pause_s = pause_after(noted_s - begun_s)
            copier.begin(index)
        copier.finish()


def pause_after(note_s: float) -> float:
    """Return the seconds to the next checkpoint after one that took so long."""
    return max(CHECKPOINT_S, _NOTES_SHARE * note_s)


class StepCopier:
    """Carries out steps, several at a time, in threads with buffers of their own.

    When a step fails, those behind it are cancelled, and nothing is at work any more.

    Parameters
    ----------
    advance
        Called with the bytes of each step that is written, in the order in which they were begun.
    """

    def __init__(self, steps: Steps, advance: Callable[[int], None]) -> None:
        self._steps = steps
        self._advance = advance
        self._copier = _Copier(steps)
        self._under_way: deque[tuple[int, Future[None]]] = deque()
        self._n_threads = 2 * steps.n_buffers  # half of them read while half of them write
        self._pool = ThreadPoolExecutor(self._n_threads, thread_name_prefix="sds-copy")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._abandon()
        finally:
            self._pool.shutdown()

    def _abandon(self) -> None:
        """Cancel what has not begun, and wait for all else."""
        under_way = [copying for _, copying in self._under_way]
        self._under_way.clear()
        _end(under_way)

    def begin(self, index: int) -> None:
        """Begin a step, when there is room for it."""
        self.wait_for_room()
        read = self._copier.take_buffer()
        self._under_way.append((index, self._pool.submit(self._copier.copy, index, read)))

    def wait_for_room(self) -> None:
        """Wait until another step may begin."""
        self._finish(self._n_threads - 1)

    def finish(self) -> None:
        """Wait until all steps that were begun are written."""
        self._finish(0)

    def _finish(self, most: int) -> None:
        while len(self._under_way) > most:
            index, copying = self._under_way.popleft()
            try:
                copying.result()
            except BaseException:
                self._abandon()
                raise
            self._advance(self._steps.step_bytes(index))


def _end(under_way: list[Future[None]]) -> None:
    """Cancel what has not begun, and wait for all else: it uses what is closed next.

    An interrupt meanwhile is raised when nothing is at work any more.
    """
    interrupt: KeyboardInterrupt | None = None
    running = [copying for copying in under_way if not copying.cancel()]
    while running:
        try:
            running = list(wait(running).not_done)
        except KeyboardInterrupt as again:
            interrupt = again
    if interrupt is not None:
        raise interrupt


class _Copier:
    """Copies steps in several threads, with as many buffers to read into as to write from."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._to_read = _buffers(steps)
        self._to_write = _buffers(steps)

    def take_buffer(self) -> NDArray[np.uint8]:
        """Return a buffer to read into, when one is free."""
        return self._to_read.get()

    def copy(self, index: int, read: NDArray[np.uint8]) -> None:
        """Read a step into a buffer that was taken, arrange it, and write it."""
        try:
            self._steps.read(index, read)
            arranged = self._to_write.get()
        except BaseException:
            self._to_read.put(read)
            raise
        try:
            try:
                write = self._steps.arrange(index, read, arranged)
            finally:
                self._to_read.put(read)
            write()
        finally:
            self._to_write.put(arranged)


def _buffers(steps: Steps) -> Buffers:
    buffers: Buffers = queue.SimpleQueue()
    for _ in range(steps.n_buffers):
        buffers.put(np.empty(steps.buffer_bytes, np.uint8))
    return buffers
