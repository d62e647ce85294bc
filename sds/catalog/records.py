"""Values that the catalog returns: plain, safe to keep, serialised to JSON as they are.

A row never leaves :mod:`sds.catalog`; these do. The REST interface sends them and ``sds --json``
prints them, so the names of their fields are part of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    get_args,
)

from pydantic import Field

from sds.hdf5.identity import FileIdentity

AbsolutePath: TypeAlias = Annotated[str, Field(json_schema_extra={"pattern": "^/[^\\x00]*$"})]
"""A path in a request over REST, as its description has it; the server says what is wrong."""
Whole: TypeAlias = Annotated[int, Field(strict=True)]
"""A number in a request: neither a truth value nor text, which Python would take for one."""
Number: TypeAlias = Annotated[float, Field(strict=True)]
"""A number in a request that need not be whole."""
Bytes: TypeAlias = Annotated[Whole, Field(ge=0, le=2**63 - 1)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
Id: TypeAlias = Annotated[int, Field(ge=1, le=2**63 - 1)]
"""A number that the catalog gives; SQLite's integers end there."""
After: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""The number behind which a page begins; 0: the first page."""


class ReplicaState(StrEnum):
    """State of a replica in its life cycle."""

    PLANNED = "planned"
    BUILDING = "building"
    VERIFIED = "verified"
    SHADOW = "shadow"
    ACTIVE = "active"
    REVERTED = "reverted"
    RETIRED = "retired"
    DAMAGED = "damaged"


LIVE_STATES = frozenset({ReplicaState.ACTIVE, ReplicaState.SHADOW})
"""States of replicas to which programs are redirected, by all or some of their reads."""


class JobState(StrEnum):
    """State of a job in its life cycle."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    """Description of a dataset in the catalog, from a trace or from the file itself.

    Attributes
    ----------
    file
        Canonical path of the source.
    storage
        How HDF5 keeps it: contiguous, chunked, ...
    data_offset_bytes
        File offset of element 0; None unless contiguous.
    chunk_shape
        None unless chunked.
    """

    file: str
    identity: FileIdentity
    path: str
    extent: tuple[int, ...]
    element_size_bytes: int
    storage: str
    data_offset_bytes: int | None
    chunk_shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRecord:
    """A dataset that was read, advised on or reorganized.

    Attributes
    ----------
    file
        Canonical path of the source.
    path
        HDF5 path in it.
    extent
        Elements per axis.
    storage
        How HDF5 keeps it: contiguous, chunked, ...
    data_offset_bytes
        File offset of element 0; None unless contiguous.
    chunk_shape
        None unless chunked.
    n_reads, bytes_read, elapsed_s, time_lost_s
        Sums over all ingested traces. Reads are calls of HDF5, as in a trace: a loop over abutting
        columns is many, though one logical read of its pattern.
    n_patterns, n_replicas
        What the catalog holds for it (replicas: active ones).
    first_read_ns, last_read_ns
        Time of the first and last traced read, ns since 1970; None where it was never traced.
    """

    id: int
    file: str
    path: str
    extent: tuple[int, ...]
    element_size_bytes: int
    storage: str
    data_offset_bytes: int | None
    chunk_shape: tuple[int, ...] | None
    n_reads: int
    bytes_read: int
    elapsed_s: float
    time_lost_s: float
    n_patterns: int
    n_replicas: int
    first_read_ns: int | None
    last_read_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedSource:
    """A source that replicas serve, and what has to be seen of it from time to time.

    Attributes
    ----------
    replicas
        Of each its file, the source as it was copied, and the file as it was built.
    """

    id: int
    file: str
    replicas: tuple[tuple[str, FileIdentity, FileIdentity | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTotals:
    """All datasets that the catalog knows, and their reads, as in `DatasetRecord`."""

    n_datasets: int
    n_reads: int
    elapsed_s: float
    time_lost_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCounts:
    """Replicas by state, and what those that are not gone take.

    Attributes
    ----------
    stored_bytes
        What files spend on elements; of replicas not built yet, the size of these.
    tiles
        That replicas of segments hold.
    """

    by_state: dict[str, int]
    stored_bytes: int
    tiles: int


Mode: TypeAlias = Literal["off", "observe", "auto"]
"""Mode of the evaluator: no advice, advice that is kept, or advice that is built in shadow."""


def as_mode(text: str) -> Mode | None:
    """Return the mode of a name; None of another word."""
    return next((mode for mode in get_args(Mode) if mode == text), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecord:
    """The mode of the evaluator for a directory and all below it, a file, or a dataset.

    Attributes
    ----------
    path
        Canonical.
    dataset
        Of the file; None: all of it.
    set_ns
        When it was set, ns since 1970.
    budget_bytes
        Space for the replicas of all of it; None: no more than that of what it is part of.
    """

    path: str
    dataset: str | None
    mode: Mode
    set_ns: int
    budget_bytes: int | None = None

    @property
    def name(self) -> str:
        """The path, or ``FILE:/DATASET``."""
        return self.path if self.dataset is None else f"{self.path}:{self.dataset}"

    def covers(self, file: str, dataset: str) -> bool:
        """Return whether it is of a dataset, by the canonical path of its file."""
        if self.dataset is not None:
            return (self.path, self.dataset) == (file, dataset)
        return self.path == file or self.path in map(str, PurePath(file).parents)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedReadsRecord:
    """Reads of a dataset that programs are going to make, as a person says.

    Attributes
    ----------
    selection
        Of a typical one.
    stated_ns
        When it was said, ns since 1970.
    """

    id: int
    file: str
    dataset: str
    selection: str
    n_reads_per_day: int
    stated_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """One thing that happened to one thing, why, and the numbers behind it."""

    id: int
    time_ns: int
    subject: str
    subject_id: int | None
    kind: str
    reason: str
    numbers: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolRecord:
    """Progress of ingesting one spool file.

    Attributes
    ----------
    offset_bytes
        End of the last whole block whose reads are counted.
    size_bytes
        How long it was when it was last read.
    complete
        True where its process has ended and everything whole is counted.
    """

    name: str
    inode: int
    offset_bytes: int
    size_bytes: int
    complete: bool
    n_reads: int
    dropped_reads: int
    changed_ns: int
    problem: str

    @property
    def settled_bytes(self) -> int:
        """Bytes that are counted, or damaged in a complete file: nothing more comes of them."""
        return self.size_bytes if self.complete else self.offset_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolAdvance:
    """One step of ingest: the bytes of one spool file that are counted together.

    Attributes
    ----------
    start_bytes
        Where the step begins: what the catalog must hold for it to count.
    end_bytes
        End of the last whole block.
    size_bytes
        How long the file was before all of it was read: what is longer later may hold more. Where
        it was not read to its end, `end_bytes`.
    problem
        What is wrong with the file; empty where nothing is.
    """

    name: str
    inode: int
    start_bytes: int
    end_bytes: int
    size_bytes: int
    complete: bool
    n_reads: int
    dropped_reads: int = 0
    problem: str = ""


def as_json(value: Any) -> Any:  # noqa: ANN401  (any record or tuple of records)
    """Return a record as the JSON value that REST sends: dicts, lists, text, numbers."""
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(type(value)).dump_python(value, mode="json")
