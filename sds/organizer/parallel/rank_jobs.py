"""Jobs of ranks, and the events that the first rank reports of them.

The process that starts the ranks writes one job to the first rank's standard input, and then one
byte for each event "steps" when it has taken note of it; it keeps it open as long as it lives.
Events come back on standard output, a line each, among what libraries may print there.
"""

from __future__ import annotations

import base64
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sds.organizer.plans.reorganization_plan import ReorganizationPlan
from sds.organizer.plans.segment_plan import SegmentPlan
from sds.organizer.plans.sort_plan import SortPlan
from sds.organizer.replica_file.replica import Replica

DatasetPlan: TypeAlias = ReorganizationPlan | SegmentPlan
AnyPlan: TypeAlias = DatasetPlan | SortPlan

_MARK = b"sds-event "

EventKind: TypeAlias = Literal["bytes", "steps", "returned", "raised"]
"""Kind of an event: bytes done in all; steps on disk, and what later ones may overwrite, as of
:meth:`sds.organizer.progress.Checkpoint.reached`; what the job returned; what it raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyJob:
    """Copy the steps of a plan from number `first` on into a file that `create_container` made.

    A contiguous one has room for all of them.
    """

    plan: DatasetPlan
    staged: Path
    first: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Copied:
    """Result of a copy.

    Attributes
    ----------
    checksums
        Of the blocks of a contiguous replica; None of others.
    decode_s_per_byte
        See :meth:`sds.organizer.copy.source_reader.SourceReader.decode_s_per_byte`.
    """

    checksums: NDArray[np.uint32] | None
    decode_s_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SortJob:
    """Sort the rows of a table into a file that `create_sorted` made; how many keys are NaN."""

    plan: SortPlan
    staged: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareJob:
    """Read a replica back from disk, and compare it with its source."""

    plan: AnyPlan
    replica: Replica


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compared:
    """Result of a comparison.

    Attributes
    ----------
    checksums
        Of the blocks of the replica, as they are on disk.
    problems
        A sentence for each element that was found to differ.
    """

    checksums: NDArray[np.uint32]
    problems: tuple[str, ...]


Job: TypeAlias = "CopyJob | SortJob | CompareJob"


def event_line(kind: EventKind, value: Any) -> bytes:  # noqa: ANN401  (a number, result or error)
    """Return the line of an event."""
    return _MARK + base64.b64encode(pickle.dumps((kind, value))) + b"\n"


def read_event(line: bytes) -> tuple[EventKind, Any] | None:
    """Return the event of a line; None where it is none."""
    if not line.startswith(_MARK):
        return None
    found: tuple[EventKind, Any] = pickle.loads(  # noqa: S301  (of a process that this one started)
        base64.b64decode(line.removeprefix(_MARK))
    )
    return found
