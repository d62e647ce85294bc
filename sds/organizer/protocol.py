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
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from sds.errors import ConfigurationError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from sds.organizer.plans.reorganization_plan import ReorganizationRequest, Source
    from sds.organizer.progress import Checkpoint, DatasetPlan, Progress
    from sds.organizer.replica_file.replica import Replica
    from sds.organizer.verify import VerificationReport

ENTRY_POINT_GROUP = "sds.organizers"

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
