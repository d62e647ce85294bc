"""Requests for long work, and the record of a job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, is_dataclass
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

from sds.calibration.results import CalibrationSettings
from sds.catalog.records import (
    AbsolutePath,
    Bytes,
    Flag,
    Id,
    JobState,
    Mode,
    Number,
    Whole,
)
from sds.errors import LayoutError, SdsError, SdsValueError
from sds.geometry import SegmentList

MIN_MEMORY_BYTES = 1 << 20
MAX_RANKS = 1 << 16


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
    n_ranks
        Processes that build it: several are ranks of an MPI program, each with its own
        ``memory_bytes``.
    shadow
        Let it serve half of its reads until they are measured: faster, and it serves all; slower,
        or no faster, and it is deleted.
    pinned
        False: the server may remove it to make room for others, in mode auto.
    predicted_saving_s_per_read
        What it is to save of each read that it serves; None: what the newest advice says, where
        that names it.
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
    n_ranks: Whole = 1
    shadow: Flag = False
    pinned: Flag = True
    predicted_saving_s_per_read: Number | None = None
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
        _check_ranks(self.n_ranks)
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


def _check_ranks(n_ranks: int) -> None:
    if not 1 <= n_ranks <= MAX_RANKS:
        raise SdsValueError(f"n_ranks is {n_ranks}; give 1 to {MAX_RANKS}")


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
    n_ranks
        As of :class:`ReorganizeRequest`.
    """

    file: AbsolutePath
    dataset: str
    key: str
    columns: tuple[str, ...] | None = None
    memory_bytes: Whole = 512 << 20
    output: AbsolutePath | None = None
    force: Flag = False
    n_ranks: Whole = 1
    kind: Literal["sort"] = "sort"

    def __post_init__(self) -> None:
        _check_ranks(self.n_ranks)
        _check_memory(self.memory_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """Mode of the evaluator for a directory and all below it, a file, or a dataset of it.

    `budget_bytes`: space for its replicas; None: no more than that of what it is part of.
    """

    path: AbsolutePath
    mode: Mode
    dataset: str | None = None
    budget_bytes: Bytes | None = None

    def __post_init__(self) -> None:
        if self.budget_bytes is not None and not 0 <= self.budget_bytes < 1 << 63:
            message = f"a budget of {self.budget_bytes} bytes: give 0 or more, below 8 EiB"
            raise SdsValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedReadsRequest:
    """Reads of a dataset that programs are going to make; `selection`: a typical one."""

    file: AbsolutePath
    dataset: str
    selection: str
    n_reads_per_day: Whole = 1


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
    priority
        Of jobs that wait, one of a lower number runs first: 0 of people, 1 of the evaluator.
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
    priority: int
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

    def was_ended_by(self, kind: type[SdsError]) -> bool:
        """Return whether it failed by an error of exactly this kind."""
        return self.state is JobState.FAILED and self.error.startswith(f"{kind.__name__}: ")
