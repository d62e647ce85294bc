"""Ingestion of the spool into the catalog: each traced read is counted exactly once.

What a step counts and how far it has come are one transaction, so that a crash before it leaves
nothing and one after it leaves both. A spool file is known by name and inode; it may grow between
steps, and is complete once its process has ended.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sds.analyzer import ReadRecords, find_patterns, trail_of
from sds.catalog.records import DatasetFacts, SpoolAdvance
from sds.errors import FormatError, FormatVersionError
from sds.hdf5.identity import FileIdentity
from sds.server.operations.reports import IngestReport
from sds.server.operations.spool import has_ended, records_of
from sds.text import is_utf8
from sds.trace import read_spool

if TYPE_CHECKING:
    from pathlib import Path

    from sds.analyzer import AccessPattern
    from sds.catalog.records import SpoolRecord
    from sds.catalog.store import Store
    from sds.server.operations.file_system_models import Models
    from sds.server.operations.spool import Spool
    from sds.trace import SpoolFile, TraceDataset

_FILES_PER_STEP = 256
_RECORDS_PER_STEP = 100_000
# sds_storage_kind of native/include/sds/trace_format.h
_STORAGE = {0: "compact", 1: "contiguous", 2: "chunked", 3: "virtual", 4: "external"}


@dataclass(slots=True)
class _Step:
    """Reads, files and facts that one transaction will count."""

    report: IngestReport = field(default_factory=IngestReport.nothing)
    advances: list[SpoolAdvance] = field(default_factory=list)
    batches: dict[tuple[str, str], list[ReadRecords]] = field(
        default_factory=lambda: defaultdict(list)
    )
    facts: dict[tuple[str, str], DatasetFacts] = field(default_factory=dict)
    n_records: int = 0
    unread: list[str] = field(default_factory=list)


class Ingester:
    """Reads the spool of one home into its catalog.

    Parameters
    ----------
    idle_s
        A process of another host has ended when its file was not written for so long.
    """

    def __init__(self, spool: Spool, store: Store, models: Models, *, idle_s: float) -> None:
        self._spool = spool
        self._store = store
        self._models = models
        self._idle_s = idle_s

    def ingest(self, *, every_file: bool = True) -> IngestReport:
        """Count what the spool holds and was not counted before; see `Service.ingest`."""
        report = IngestReport.nothing()
        waiting = deque(self._spool.waiting(every_file=every_file))
        while waiting:
            step = self._count(waiting)
            report += step.report
            found = (self._spool.entry(name) for name in step.unread)
            waiting.extend(entry for entry in found if entry is not None)
        return report

    def _count(self, waiting: deque[tuple[Path, FileIdentity, SpoolRecord | None]]) -> _Step:
        """Read the first files and count them in one transaction; return what was counted."""
        step = _Step()
        files: list[tuple[Path, FileIdentity, SpoolRecord | None]] = []
        while waiting and len(files) < _FILES_PER_STEP and step.n_records < _RECORDS_PER_STEP:
            files.append(waiting.popleft())
            self._read(step, *files[-1])
        patterns = [
            (step.facts[name], pattern)
            for name, batches in step.batches.items()
            for pattern in self._patterns(name[0], batches)
        ]
        trails = [
            (facts, trail)
            for name, batches in step.batches.items()
            if (trail := trail_of(batches, (facts := step.facts[name]).extent)) is not None
        ]
        known = {path.name: record for path, _, record in files}
        moved = [a for a in step.advances if _is_news(a, known[a.name])]
        is_counted = bool(moved) and self._store.record_ingest(moved, patterns, trails)
        self._spool.renew(a.name for a in moved)
        if not is_counted:
            return _Step(unread=step.unread)
        step.report = IngestReport(
            files=len(moved),
            files_complete=sum(advance.complete for advance in moved),
            reads=sum(advance.n_reads for advance in moved),
            bytes_read=sum(pattern.bytes_read for _, pattern in patterns),
            dropped_reads=sum(_newly_dropped(a, known[a.name]) for a in moved),
            problems=tuple(f"{a.name}: {a.problem}" for a in moved if a.problem),
        )
        return step

    def _read(
        self, step: _Step, path: Path, identity: FileIdentity, record: SpoolRecord | None
    ) -> None:
        """Add to a step what a file holds beyond what is counted."""
        start = 0 if record is None else record.offset_bytes
        # Checked first: what a process wrote before it ended is then read.
        ended = has_ended(path, identity, idle_s=self._idle_s)
        if record is not None and not ended and identity.size_bytes == record.size_bytes:
            return  # all of it was read
        advance = SpoolAdvance(
            name=path.name,
            inode=identity.inode,
            start_bytes=start,
            end_bytes=start,
            size_bytes=identity.size_bytes,
            complete=ended,
            n_reads=0,
        )
        try:
            spool = read_spool(path, start, max_records=_RECORDS_PER_STEP)
        except (FileNotFoundError, PermissionError):
            return  # deleted, or not ours to read: nothing to count, nothing to note
        except FormatVersionError as error:
            step.advances.append(replace(advance, complete=False, problem=str(error)))
            return
        except FormatError as error:
            # A file is born empty: only of a process that has ended is that a fault.
            if ended:
                step.advances.append(replace(advance, problem=str(error)))
            return
        n_reads = int(spool.records.n_reads.sum())
        left_out = []
        for dataset, records in records_of(spool).items():
            name = dataset.file, dataset.path
            if not all(map(is_utf8, name)):
                # The catalog holds names as text; what concerns one file ends no work on others.
                n_left_out = int(records.repeat.prod(axis=1).sum())
                n_reads -= n_left_out
                left_out.append(f"{n_left_out} reads of {':'.join(name)!a}, which is not UTF-8")
                continue
            step.batches[name].append(records)
            step.facts[name] = _facts(dataset)
        finished = ended and spool.is_complete
        damage = _damage(spool) if finished else ""
        not_counted = f"not counted: {', '.join(left_out)}" if left_out else ""
        step.advances.append(
            replace(
                advance,
                end_bytes=spool.offset,
                size_bytes=identity.size_bytes if spool.is_complete else spool.offset,
                complete=finished,
                n_reads=n_reads,
                dropped_reads=spool.dropped_reads,
                problem="; ".join(filter(None, (damage, not_counted))),
            )
        )
        step.n_records += len(spool.records)
        if not spool.is_complete:
            step.unread.append(path.name)

    def _patterns(self, file: str, batches: list[ReadRecords]) -> list[AccessPattern]:
        """Return the patterns of one dataset's reads, counted against the speed of its disk."""
        rate = self._models.contiguous_bytes_per_s(file)
        return find_patterns(batches, contiguous_bytes_per_s=rate)


def _is_news(advance: SpoolAdvance, record: SpoolRecord | None) -> bool:
    """Return whether a step says anything that the catalog does not hold."""
    if record is None:
        return True
    return (
        advance.end_bytes > advance.start_bytes
        or advance.size_bytes != record.size_bytes
        or advance.complete != record.complete
        or advance.problem != record.problem
    )


def _newly_dropped(advance: SpoolAdvance, record: SpoolRecord | None) -> int:
    """Return the reads left out of a trace that were not known to be."""
    return max(0, advance.dropped_reads - (0 if record is None else record.dropped_reads))


def _damage(spool: SpoolFile) -> str:
    """Return what is wrong with a spool file to which nothing will be added."""
    lost = []
    if spool.skipped_bytes:
        lost.append(f"{spool.skipped_bytes} damaged bytes were passed over")
    if spool.torn_bytes:
        lost.append(f"its last {spool.torn_bytes} bytes are torn")
    return f"{' and '.join(lost)}; what is whole counts" if lost else ""


def _facts(dataset: TraceDataset) -> DatasetFacts:
    """Return what the catalog keeps of a traced dataset."""
    inode, size_bytes, mtime_ns, ctime_ns = dataset.identity
    return DatasetFacts(
        file=dataset.file,
        identity=FileIdentity(
            inode=inode, size_bytes=size_bytes, mtime_ns=mtime_ns, ctime_ns=ctime_ns
        ),
        path=dataset.path,
        extent=dataset.extent,
        element_size_bytes=dataset.element_bytes,
        storage=_STORAGE.get(dataset.storage, "unknown"),
        data_offset_bytes=None if dataset.data_offset_bytes < 0 else dataset.data_offset_bytes,
        chunk_shape=dataset.chunk,
    )
