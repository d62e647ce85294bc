"""What the catalog answers: plain values, safe to keep, that serialise to JSON as they are.

A row never leaves :mod:`sds.catalog`; these do. The REST interface sends them and ``sds --json``
prints them, so the names of their fields are part of both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BeforeValidator, Field, JsonValue

from sds.analyzer import AccessPattern
from sds.dataset import Filter
from sds.errors import LayoutError, SdsValueError
from sds.geometry import Box, SegmentList
from sds.identity import FileIdentity
from sds.organizer.layout import ReplicaLayout, SortOrder
from sds.organizer.replica import Replica
from sds.recommender import QueryRecommendation, Recommendation
from sds.recommender.calibration import Calibration, CalibrationSettings

MIN_MEMORY_BYTES = 1 << 20
AbsolutePath: TypeAlias = Annotated[str, Field(json_schema_extra={"pattern": "^/[^\\x00]*$"})]
"""A path in a request over REST, as its description has it; the server says what is wrong."""
Whole: TypeAlias = Annotated[int, Field(strict=True)]
"""A number in a request: neither a truth value nor text, which Python would take for one."""
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
Id: TypeAlias = Annotated[int, Field(ge=1, le=2**63 - 1)]
"""A number that the catalog gives; SQLite's integers end there."""


def _whole(kind: Any) -> BeforeValidator:  # noqa: ANN401  (a type)
    """Return what checks JSON of a type that knows no pydantic: whole numbers are such, as `Whole`.

    Raises ValueError where JSON has a truth value, a fraction or text for one.
    """

    def check(value: Any) -> Any:  # noqa: ANN401  (JSON, or the value itself)
        _check_whole(kind, value, "")
        return value

    return BeforeValidator(check)


def _check_whole(hint: Any, value: Any, name: str) -> None:  # noqa: ANN401
    if hint in {int, bool} and type(value) is not hint and isinstance(value, int | float | str):
        message = (
            f"{name} is {value!r}; give {'a whole number' if hint is int else 'true or false'}"
        )
        raise ValueError(message)
    if is_dataclass(hint) and isinstance(value, dict):
        for field_name, field_hint in get_type_hints(hint).items():
            if field_name in value:
                _check_whole(field_hint, value[field_name], field_name)
    elif isinstance(value, list):
        for part in value:
            _check_whole(get_args(hint)[0] if get_args(hint) else None, part, name)
    elif get_origin(hint) in {Union, UnionType}:
        for option in get_args(hint):
            if not isinstance(value, bool | float | str) or option is not int:
                _check_whole(option, value, name)


class ReplicaState(StrEnum):
    """Where a replica is in its life."""

    PLANNED = "planned"
    BUILDING = "building"
    VERIFIED = "verified"
    ACTIVE = "active"
    REVERTED = "reverted"
    RETIRED = "retired"
    DAMAGED = "damaged"


class JobState(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """True where the job will not change again."""
        return self in {JobState.DONE, JobState.FAILED, JobState.CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    """What the catalog keeps of a dataset, as a trace or the file itself tells it.

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
class PatternRecord:
    """One way in which a dataset is read, summed over all ingested traces."""

    id: int
    file: str
    dataset: str
    pattern: AccessPattern


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationRecord:
    """Advice for one dataset, as it was given."""

    id: int
    file: str
    dataset: str
    created_ns: int
    recommendation: Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRecommendationRecord:
    """Advice on sorting one table, as it was given."""

    id: int
    file: str
    table: str
    created_ns: int
    recommendation: QueryRecommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRecord:
    """A reorganized copy of one dataset, or a sorted one of a table.

    Attributes
    ----------
    order
        Replica axis i is source axis ``order[i]``.
    storage
        ``contiguous`` or ``chunked``.
    chunk_shape
        In the axes of the replica; None unless chunked.
    filters
        Of the chunks, in the order in which writing applies them, without the checksum.
    region
        The box of the source that it holds, in the axes of the source.
    path
        The replica file.
    size_bytes
        Of its elements, decoded.
    stored_bytes
        What the file spends on them; None until built.
    reason
        Why it is in its state.
    source_identity
        Of the source as it was copied.
    build_s
        Time that planning, writing and verifying took; None until built.
    verified_ns
        When every byte was last found sound, ns since 1970; None: to be verified next.
    replica
        What the organizer built; None until then.
    sort
        Of a table whose rows are sorted, else None. Such a replica answers queries; no read is
        redirected to it.
    segments
        The tiles that it holds, else None; its region is then the box around them.
    """

    id: int
    file: str
    dataset: str
    order: tuple[int, ...]
    storage: Literal["contiguous", "chunked"]
    chunk_shape: tuple[int, ...] | None
    filters: tuple[Filter, ...]
    region: Box
    state: ReplicaState
    path: str
    size_bytes: int
    stored_bytes: int | None
    created_ns: int
    changed_ns: int
    reason: str
    source_identity: FileIdentity
    build_s: float | None
    verified_ns: int | None
    replica: Replica | None
    sort: SortOrder | None = None
    segments: SegmentList | None = None

    @property
    def layout(self) -> ReplicaLayout:
        """What tells it apart from other replicas of the dataset."""
        return ReplicaLayout(
            order=self.order,
            chunk_shape=self.chunk_shape,
            filters=self.filters,
            region=self.region,
            sort=self.sort,
            segments=self.segments,
        )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """The measured models of one file system."""

    id: int
    mount_point: str
    device: int
    created_ns: int
    calibration: Calibration


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
class ReorganizeRequest:
    """Build, verify and publish a replica.

    Attributes
    ----------
    order
        Replica axis i is source axis ``order[i]``.
    chunks
        Chunk shape in the axes of the replica, or ``auto``; None: contiguous, or ``auto`` where
        there are filters.
    compress
        Filters such as ``shuffle,gzip:4``; ``source``: those of the source.
    region
        The box of the source to copy, as a selection such as ``[0:100, :, :]``; None: all.
    segments
        The tiles of the source to copy, and nothing else of it; None: all, or the region. Such a
        replica is contiguous.
    output
        Where to write it; None: in the home.
    force
        Build it also where replicas then take more than the setting ``replica_budget_bytes``.
    """

    file: AbsolutePath
    dataset: str
    order: tuple[Whole, ...]
    chunks: tuple[Whole, ...] | Literal["auto", "contiguous"] | None = None
    compress: str = "none"
    region: str | None = None
    segments: Annotated[SegmentList | None, _whole(SegmentList)] = None
    memory_bytes: Whole = 512 << 20
    output: AbsolutePath | None = None
    force: Flag = False
    kind: Literal["reorganize"] = "reorganize"

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))) or not self.order:
            message = (
                f"axis order {','.join(map(str, self.order)) or '(empty)'} is no permutation; "
                "name each axis once, counted from 0, for example 2,0,1"
            )
            raise LayoutError(message)
        if isinstance(self.chunks, tuple) and min(self.chunks, default=0) < 1:
            shown = ",".join(map(str, self.chunks)) or "(none)"
            message = (
                f"chunks {shown!r}: name a length of at least 1 for each axis of the replica, "
                "for example 64,64,64"
            )
            raise LayoutError(message)
        if self.segments is not None:
            self._check_segments(self.segments)
        _check_memory(self.memory_bytes)

    def _check_segments(self, segments: SegmentList) -> None:
        if len(segments.tile_shape) != len(self.order):
            message = (
                f"tiles of {len(segments.tile_shape)} axes and an order of {len(self.order)}: "
                "both name every axis of the dataset"
            )
            raise LayoutError(message)
        given = {
            "chunks": self.chunks not in {None, "contiguous"},
            "compress": self.compress.strip().lower() != "none",
            "region": self.region is not None,
        }
        excluded = [name for name, is_given in given.items() if is_given]
        if excluded:
            message = (
                f"{', '.join(excluded)} and segments exclude each other: tiles are stored "
                "contiguously, one behind the other, and say themselves what is copied"
            )
            raise LayoutError(message)


def _check_memory(memory_bytes: int) -> None:
    if memory_bytes < MIN_MEMORY_BYTES:
        message = f"memory of {memory_bytes} bytes is too small; give at least 1M"
        raise SdsValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortRequest:
    """Build, verify and publish a replica of a table with its rows sorted.

    Attributes
    ----------
    dataset
        HDF5 path of the table: a one-dimensional dataset of compound type, or a group of equally
        long one-dimensional datasets.
    key
        The column to sort by.
    columns
        What to copy besides; None: all columns that can be copied.
    output
        Where to write it; None: in the home.
    force
        Build it also where replicas then take more than the setting ``replica_budget_bytes``.
    """

    file: AbsolutePath
    dataset: str
    key: str
    columns: tuple[str, ...] | None = None
    memory_bytes: Whole = 512 << 20
    output: AbsolutePath | None = None
    force: Flag = False
    kind: Literal["sort"] = "sort"

    def __post_init__(self) -> None:
        _check_memory(self.memory_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """Read what the spool holds."""

    kind: Literal["ingest"] = "ingest"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """Compare replicas with their checksums; ``replica_id`` None: all of them."""

    replica_id: Annotated[Id, Field(strict=True)] | None = None
    kind: Literal["verify"] = "verify"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateRequest:
    """Measure the file system that holds a directory."""

    path: AbsolutePath
    settings: Annotated[CalibrationSettings, _whole(CalibrationSettings)] = field(
        default_factory=CalibrationSettings
    )
    kind: Literal["calibrate"] = "calibrate"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefitRequest:
    """Compare traced reads with calibrations, and fit models to them as well.

    path: a directory of the file system; None: all that were calibrated.
    """

    path: AbsolutePath | None = None
    kind: Literal["refit"] = "refit"


JobRequest: TypeAlias = Annotated[
    ReorganizeRequest
    | SortRequest
    | IngestRequest
    | VerifyRequest
    | CalibrateRequest
    | RefitRequest,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """Long work, its progress and its end.

    Attributes
    ----------
    progress
        Share done, 0 to 1.
    attempts
        How often it was begun; more than once after a crash of the server.
    error
        Why it failed, or why it runs again; empty otherwise.
    result
        What the operation answered, as JSON; None until done.
    """

    id: int
    state: JobState
    request: JobRequest
    progress: float
    attempts: int
    error: str
    result: dict[str, JsonValue] | None
    created_ns: int
    started_ns: int | None
    finished_ns: int | None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.progress) and 0 <= self.progress <= 1):
            message = f"progress {self.progress} of job {self.id} is outside 0 to 1"
            raise SdsValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolRecord:
    """How far one spool file has been ingested.

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
