"""Interface of organizers, and discovery of the installed ones.

An organizer makes one kind of replica. SDS finds organizers by entry point, so a package of its own
can add one::

    [project.entry-points."sds.organizers"]
    tiler = "my_package.tiler:Tiler"

The division of labor: an organizer plans, fills one file and compares it with the original.
:func:`sds.organizer.build.reorganize` does what must be the same for all: temporary name, space,
journal, the source's identity, verification before the atomic rename, permissions.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from sds.errors import ConfigurationError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sds.organizer.plans.reorganization_plan import (
        ReorganizationPlan,
        ReorganizationRequest,
        Source,
    )
    from sds.organizer.plans.segment_plan import SegmentPlan
    from sds.organizer.plans.sort_plan import SortPlan
    from sds.organizer.replica_file.replica import Replica
    from sds.organizer.verify import VerificationReport

    DatasetPlan: TypeAlias = ReorganizationPlan | SegmentPlan
    """Plans that organizers make."""
    AnyPlan: TypeAlias = DatasetPlan | SortPlan
    """Plans that :func:`sds.organizer.build.reorganize` carries out."""

ENTRY_POINT_GROUP = "sds.organizers"


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


PlanT_contra = TypeVar("PlanT_contra", contravariant=True)


class Builder(Protocol[PlanT_contra]):
    """Carries out plans of one kind."""

    def execute(
        self,
        plan: PlanT_contra,
        staged: Path,
        *,
        checkpoint: Checkpoint,
        progress: Progress | None = None,
    ) -> Replica:
        """Write the whole replica into the file `staged`, synced to disk, and describe it.

        Where ``checkpoint.steps_done`` is 0, `staged` is an empty file of mode 0600.

        Raises
        ------
        UnsupportedError
            If a filter of the source or of the replica is not installed.
        TruncatedFileError, FormatError
            If the source ends before its data, or is damaged.
        OSError
            If a file cannot be read or written.
        """

    def verify(
        self, replica: Replica, plan: PlanT_contra, *, progress: Progress | None = None
    ) -> VerificationReport:
        """Compare every byte of the replica, read back from disk, with the original."""


@runtime_checkable
class Organizer(Builder[Any], Protocol):
    """Makes one kind of replica of datasets; carries out the plans that it makes."""

    def plan(self, source: Source, request: ReorganizationRequest) -> DatasetPlan:
        """Return what would be done; touches no file.

        Raises
        ------
        LayoutError, UnsupportedError, ConfigurationError
            If the request cannot be met.
        """


def find_organizers() -> dict[str, str]:
    """Return the installed organizers: name and where each comes from (``module:Class``)."""
    return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINT_GROUP)}


def load_organizer(name: str = "transposer") -> Organizer:
    """Return the organizer of that entry point name.

    Raises
    ------
    NotFoundError
        If none of that name is installed; names those that are.
    ConfigurationError
        If it cannot be imported, or is no organizer.
    """
    found = list(entry_points(group=ENTRY_POINT_GROUP, name=name))
    if not found:
        known = ", ".join(sorted(find_organizers())) or "none"
        message = f"no organizer {name!r} is installed (installed: {known}); install its package"
        raise NotFoundError(message)
    entry = found[0]
    try:
        organizer = entry.load()()
    except Exception as error:  # a third party's module may raise anything
        message = f"organizer {name!r} ({entry.value}) cannot be loaded: {error}; reinstall it"
        raise ConfigurationError(message) from error
    if not isinstance(organizer, Organizer):
        message = f"organizer {name!r} ({entry.value}) lacks plan, execute or verify; update it"
        raise ConfigurationError(message)
    return organizer
