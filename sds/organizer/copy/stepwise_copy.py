"""Copy in steps: read one while the one before is written, and record progress in the journal."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from sds.organizer.copy.targets import Target
    from sds.organizer.protocol import Checkpoint, Progress

# Work that a kill may cost; each checkpoint waits for the disk.
_CHECKPOINT_S = 5.0
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

    def step_bytes(self, index: int) -> int:
        """Return the bytes of the elements that a step copies."""

    def read(self, index: int) -> None:
        """Read what a step needs from the source."""

    def arrange(self, index: int) -> Callable[[], None]:
        """Put what was read last in the order of the replica; return what writes it.

        What the step before has to write is written by then.
        """


def copy_in_steps(
    steps: Steps, target: Target, checkpoint: Checkpoint, progress: Progress | None
) -> None:
    """Carry out the steps that are not yet on disk, and note how far they are."""
    first = checkpoint.steps_done
    done_bytes = sum(steps.step_bytes(index) for index in range(first))
    noted_s = time.monotonic()
    pause_s = _CHECKPOINT_S
    with ThreadPoolExecutor(1, thread_name_prefix="sds-write") as pool:
        writing: Future[None] | None = None
        for index in range(first, steps.n_steps):
            steps.read(index)
            if writing is not None:
                writing.result()
            if time.monotonic() - noted_s > pause_s:
                begun_s = time.monotonic()
                target.note(checkpoint, index, share_done=done_bytes / steps.total_bytes)
                noted_s = time.monotonic()
                pause_s = max(_CHECKPOINT_S, _NOTES_SHARE * (noted_s - begun_s))
            if progress is not None:
                progress("copy", done_bytes, steps.total_bytes)
            writing = pool.submit(steps.arrange(index))
            done_bytes += steps.step_bytes(index)
        if writing is not None:
            writing.result()
    if progress is not None:
        progress("copy", steps.total_bytes, steps.total_bytes)
