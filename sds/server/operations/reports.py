"""Results of operations that the catalog does not keep: plain values that serialise to JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import Field

from sds.server.rest import LONGEST_PAGE

PAGE_LENGTH = 100
"""Entries of a page unless a request says otherwise."""
PageLength: TypeAlias = Annotated[int, Field(ge=1, le=LONGEST_PAGE)]
EventLimit: TypeAlias = Annotated[int, Field(ge=1, le=10_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """Result of one look into the spool.

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
class RecoveryReport:
    """Unfinished work that a start found, and its outcome."""

    jobs_requeued: tuple[int, ...]
    jobs_failed: tuple[int, ...]
    replicas_finished: tuple[int, ...]
    replicas_dropped: tuple[int, ...]
    files_removed: tuple[str, ...]
    tables_published: tuple[str, ...]
    tables_withdrawn: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAdvice:
    """Advice on all that was read, as the server found it last.

    Attributes
    ----------
    found_ns
        When, ns since 1970.
    n_layouts, saves_s
        Replicas to build, and what they are predicted to save a day.
    commands
        What a user types to build them, those first that save most; a few of them.
    """

    found_ns: int
    n_layouts: int
    saves_s: float
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of one home.

    Attributes
    ----------
    mode
        Of the evaluator: off, observe or auto.
    advice
        None where nothing was evaluated.
    server
        URL of the server that says this, else its socket; None without a server.
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
    mode: str
    advice: KeptAdvice | None
    calibrated: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutReads:
    """Traced reads that models are not fitted to, for one reason.

    Attributes
    ----------
    n_reads
        Their number.
    reason, remedy
        Why, and what to do about it; the latter is empty where nothing need be done.
    """

    n_reads: int
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    """Comparison of one calibration with traces.

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
    """Comparisons of calibrations with traces."""

    file_systems: tuple[Refit, ...]
