"""Plans that are carried out, and the progress of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.organizer.plans.reorganization_plan import ReorganizationPlan
    from sds.organizer.plans.segment_plan import SegmentPlan
    from sds.organizer.plans.sort_plan import SortPlan

    DatasetPlan: TypeAlias = ReorganizationPlan | SegmentPlan
    """Plans that organizers make."""
    AnyPlan: TypeAlias = DatasetPlan | SortPlan
    """Plans that :func:`sds.organizer.build.reorganize` carries out."""


class Progress(Protocol):
    """Called between steps of long work; what it raises abandons the work, cleanly."""

    def __call__(self, phase: str, done_bytes: int, total_bytes: int, /) -> None:
        """Report that `done_bytes` of `total_bytes` of this phase ("copy" or "verify") are done."""


class Checkpoint(Protocol):
    """Progress of an earlier, killed execution of the same plan."""

    @property
    def steps_done(self) -> int:
        """Steps (slabs) whose bytes are durably in the staged file; 0: begin anew."""

    def reached(
        self, steps_done: int, *, overwritable: Sequence[tuple[int, int | None]] = ()
    ) -> None:
        """Record durably that `steps_done` steps are on disk; the caller has synced them.

        Parameters
        ----------
        overwritable
            First byte and end (None: the end of the file) of the parts of the staged file that
            later steps may overwrite. Where there are any, their bytes are kept, and before a
            killed build is continued they are put back, and what the file has grown by is cut off.
        """
