"""What operations answer that the catalog does not keep: plain values that serialise to JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import Field

from sds.analyzer import MIN_READS
from sds.catalog.records import (
    AbsolutePath,
    CalibrationRecord,
    DatasetRecord,
    EventRecord,
    Flag,
    Id,
    JobRecord,
    PatternRecord,
    QueryRecommendationRecord,
    RecommendationRecord,
    ReplicaRecord,
    Whole,
)
from sds.recommender import Portfolio, StripeAdvice
from sds.sort_advice import AskedQuery

Bytes: TypeAlias = Annotated[Whole, Field(ge=0, le=2**63 - 1)]
Count: TypeAlias = Annotated[Whole, Field(ge=1, le=2**63 - 1)]
PAGE_LENGTH = 100
"""Entries of a page where nobody asks for more or fewer."""
Selections: TypeAlias = str | tuple[str, ...] | None
"""A typical read, or several, stated; None: what was traced."""
Counts: TypeAlias = Count | tuple[Count, ...] | None
"""Reads a day of each selection stated, or of all of them alike; None: 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """What one look into the spool brought.

    Attributes
    ----------
    files
        Spool files with something new.
    files_complete
        Those whose process has ended: nothing more will come.
    reads, bytes_read
        Newly counted.
    dropped_reads
        Reads that the cap on a process's trace left out.
    problems
        One sentence per file that is damaged or is no spool file.
    """

    files: int
    files_complete: int
    reads: int
    bytes_read: int
    dropped_reads: int
    problems: tuple[str, ...]

    @classmethod
    def nothing(cls) -> IngestReport:
        """Return the report of a look that found nothing new."""
        return cls(files=0, files_complete=0, reads=0, bytes_read=0, dropped_reads=0, problems=())

    def __add__(self, other: IngestReport) -> IngestReport:
        return IngestReport(
            files=self.files + other.files,
            files_complete=self.files_complete + other.files_complete,
            reads=self.reads + other.reads,
            bytes_read=self.bytes_read + other.bytes_read,
            dropped_reads=self.dropped_reads + other.dropped_reads,
            problems=self.problems + other.problems,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Recommendations for the datasets of one file, the greatest benefit first.

    Attributes
    ----------
    notes
        Why a dataset has none.
    """

    file: str
    recommendations: tuple[RecommendationRecord, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAdvice:
    """What sorting a table would save of stated queries.

    Attributes
    ----------
    notes
        Why there is nothing to build, and what predictions are worth.
    """

    file: str
    table: str
    recommendation: QueryRecommendationRecord
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioAdvice:
    """The replicas to build, of several datasets and tables.

    Attributes
    ----------
    portfolio
        The set, and what each saves.
    stripes
        How the directory of replicas should be striped before; only advice.
    notes
        What was left out, and why.
    """

    portfolio: Portfolio
    stripes: StripeAdvice
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCheck:
    """Whether one replica holds what was written into it.

    Attributes
    ----------
    problem
        What is wrong with it; empty where nothing is.
    """

    replica: ReplicaRecord
    ok: bool
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """Checks of replicas; ``ok`` where all passed."""

    ok: bool
    checks: tuple[ReplicaCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What a start found unfinished, and what became of it."""

    jobs_requeued: tuple[int, ...]
    jobs_failed: tuple[int, ...]
    replicas_finished: tuple[int, ...]
    replicas_dropped: tuple[int, ...]
    files_removed: tuple[str, ...]
    tables_published: tuple[str, ...]
    tables_withdrawn: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageReport:
    """What is of no use any more, and was removed."""

    replicas_retired: tuple[ReplicaRecord, ...]
    spool_files_removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of one home.

    Attributes
    ----------
    server
        URL of the server that says this, else its socket; None where no server was asked.
    enabled
        False where the file ``disabled`` turns the connector off.
    spool_pending_bytes
        Bytes of traces that are not counted yet.
    replica_bytes
        What the elements of all replicas take on the disk.
    tiles
        That replicas of segments hold, of all datasets.
    """

    version: str
    home: str
    database: str
    server: str | None
    server_pid: int | None
    enabled: bool
    spool_files: int
    spool_pending_bytes: int
    datasets: int
    reads: int
    elapsed_s: float
    time_lost_s: float
    replicas: dict[str, int]
    replica_bytes: int
    tiles: int
    jobs: dict[str, int]
    calibrated: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasets:
    """Datasets, those that lose most time first."""

    datasets: tuple[DatasetRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns:
    """Access patterns, those that lose most time first."""

    patterns: tuple[PatternRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendations:
    """The newest advice for each dataset."""

    recommendations: tuple[RecommendationRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """The newest advice on sorting each table for queries."""

    queries: tuple[QueryRecommendationRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Replicas, oldest first: a page of them.

    Attributes
    ----------
    total
        How many there are on all pages.
    next
        Where the next page begins: its ``after``; None: this is the last page.
    """

    replicas: tuple[ReplicaRecord, ...]
    total: int
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Jobs, newest first."""

    jobs: tuple[JobRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """What happened, newest first."""

    events: tuple[EventRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrations:
    """The newest calibration of each file system."""

    calibrations: tuple[CalibrationRecord, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutReads:
    """Traced reads that models are not fitted to, for one reason.

    Attributes
    ----------
    n_reads
        So many.
    reason, remedy
        Why, and what to do about it; the latter is empty where nothing need be done.
    """

    n_reads: int
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    """What traces said of one calibration.

    Attributes
    ----------
    mount_point
        Of the file system.
    n_reads
        Traced reads that could be compared with predictions; a record of the trace counts as all
        the reads that it stands for.
    n_fitted
        Of them, those that the models are now fitted to; 0 where the file system has changed.
    changed
        Why the file system has to be calibrated again; empty where it need not.
    refitted
        Whether the models are others than before.
    left_out
        Traced reads that could not be compared or are not fitted, by the reason, most first.
    """

    mount_point: str
    n_reads: int
    n_fitted: int
    changed: str
    refitted: bool
    left_out: tuple[LeftOutReads, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefitReport:
    """What traces said of calibrations."""

    file_systems: tuple[Refit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRequest:
    """What advice is asked for; see `Service.advise`."""

    file: AbsolutePath
    dataset: str | None = None
    selection: Selections = None
    n_reads: Counts = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDataset:
    """A dataset, or with ``dataset`` None every dataset of a file that was read."""

    file: AbsolutePath
    dataset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriedTable:
    """A table, and the queries that programs ask of it.

    Attributes
    ----------
    table
        HDF5 path of a group of equally long datasets, or of a compound dataset.
    """

    file: AbsolutePath
    table: str
    queries: tuple[AskedQuery, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurringTiles:
    """Tiles of a dataset that are read again and again.

    Attributes
    ----------
    tiles
        Elements per axis of the dataset.
    min_reads
        Tiles that were read less often, among the newest reads of the dataset, are not meant.
    """

    file: AbsolutePath
    dataset: str
    tiles: tuple[Whole, ...]
    min_reads: Whole = MIN_READS


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioRequest:
    """What a portfolio is asked for.

    Attributes
    ----------
    budget_bytes
        Space for new replicas, of all datasets and tables together; None: the setting
        ``replica_budget_bytes``, else what is free in the home.
    tables
        With their queries, for which sorted replicas are considered; of a compound dataset the
        traced reads as well.
    selection, n_reads
        A typical read, stated, of the one dataset named, and how many there are a day; None: what
        was traced.
    """

    datasets: tuple[NamedDataset, ...] = ()
    budget_bytes: Bytes | None = None
    selection: Selections = None
    n_reads: Counts = None
    tables: tuple[QueriedTable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRequest:
    """Which layout to suppose, and which replicas not to.

    Attributes
    ----------
    order, chunks, filtered
        Of a replica that does not exist: its axis order (None: suppose none), its chunk shape in
        its own axes (None: contiguous), whether its chunks have the source's filters.
    region
        The box of the source that it holds, as a selection such as ``[0:100, :, :]``; None: all.
    tiles, min_reads
        Instead of that, the tiles of this shape that were read at least so often; see
        `RecurringTiles`.
    without
        Replicas that exist, by their numbers.
    selection, n_reads
        As of `PortfolioRequest`.
    queries
        That are asked of the dataset, a table: then sorted replicas are supposed, and no reads are
        looked at.
    sort, columns
        With queries, of a sorted replica that does not exist: its key (None: suppose none), and
        what it holds besides (None: what the queries need that compare the key).
    """

    file: AbsolutePath
    dataset: str
    order: tuple[Whole, ...] | None = None
    chunks: tuple[Whole, ...] | None = None
    filtered: Flag = False
    region: str | None = None
    tiles: tuple[Whole, ...] | None = None
    min_reads: Whole = MIN_READS
    without: tuple[Annotated[Id, Field(strict=True)], ...] = ()
    selection: Selections = None
    n_reads: Counts = None
    queries: tuple[AskedQuery, ...] = ()
    sort: str | None = None
    columns: tuple[str, ...] | None = None
