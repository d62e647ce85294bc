"""Reads as traces tell of them: how far each spool file is counted, and their patterns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sqlalchemy import select

from sds.analyzer import join_trails, merge_patterns
from sds.catalog import records
from sds.catalog.datasets import dataset_row, of_dataset
from sds.catalog.engine import Database
from sds.catalog.events import add_event_row
from sds.catalog.rows import DatasetRow, PatternRow, SourceFileRow, SpoolFileRow, TrailRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy.orm import Session

    from sds.analyzer import AccessPattern, ReadTrail

_ROWS_AT_ONCE = 256


class Reads(Database):
    """Queries of traced reads."""

    def spool_file(self, name: str, inode: int) -> records.SpoolRecord | None:
        """Return how far a spool file is counted; None where it is new."""
        query = select(SpoolFileRow).filter_by(name=name, inode=inode)
        with self.reading() as session:
            row = session.scalars(query).one_or_none()
            return None if row is None else _spool_record(row)

    def spool_files(self) -> tuple[records.SpoolRecord, ...]:
        """Return every spool file ever seen."""
        with self.reading() as session:
            rows = session.scalars(select(SpoolFileRow).order_by(SpoolFileRow.id))
            return tuple(_spool_record(row) for row in rows)

    def record_ingest(
        self,
        advances: Iterable[records.SpoolAdvance],
        patterns: Iterable[tuple[records.DatasetFacts, AccessPattern]],
        trails: Iterable[tuple[records.DatasetFacts, ReadTrail]] = (),
    ) -> bool:
        """Count the reads of some spool files, and that they are counted, in one transaction.

        Returns
        -------
        False, and nothing is counted, where one of the files has moved on since it was read:
        another process counted it.
        """
        now_ns = time.time_ns()
        with self.writing() as session:
            rows = []
            for advance in advances:
                row = _spool_row(session, advance)
                if row.offset_bytes != advance.start_bytes:
                    session.rollback()
                    return False
                rows.append((row, advance))
            for row, advance in rows:
                row.offset_bytes = advance.end_bytes
                row.size_bytes = advance.size_bytes
                row.complete = advance.complete
                row.n_reads += advance.n_reads
                row.dropped_reads = advance.dropped_reads
                row.changed_ns = now_ns
                if advance.problem and advance.problem != row.problem:
                    add_event_row(session, "spool", row.id, "damaged", advance.problem, {})
                row.problem = advance.problem
            known: dict[records.DatasetFacts, DatasetRow] = {}

            def dataset_of(facts: records.DatasetFacts) -> DatasetRow:
                if facts not in known:
                    known[facts] = dataset_row(session, facts)
                return known[facts]

            for facts, pattern in patterns:
                _add_pattern(session, dataset_of(facts), pattern)
            _add_trails(session, [(dataset_of(facts).id, trail) for facts, trail in trails])
        return True

    def trail(self, file: str, dataset: str) -> ReadTrail | None:
        """Return where the newest reads of a dataset lay; None where that is not known."""
        query = of_dataset(
            select(TrailRow)
            .join(DatasetRow, DatasetRow.id == TrailRow.dataset_id)
            .join(DatasetRow.source),
            file,
            dataset,
        )
        with self.reading() as session:
            row = session.scalars(query).one_or_none()
            return None if row is None else row.trail

    def patterns(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[records.PatternRecord, ...]:
        """Return access patterns, those that lose most time first."""
        query = of_dataset(
            select(PatternRow, SourceFileRow.path, DatasetRow.path.label("dataset"))
            .join(PatternRow.dataset)
            .join(DatasetRow.source),
            file,
            dataset,
        ).order_by(PatternRow.time_lost_s.desc(), PatternRow.id)
        with self.reading() as session:
            return tuple(
                records.PatternRecord(
                    id=row.PatternRow.id,
                    file=row.path,
                    dataset=row.dataset,
                    pattern=row.PatternRow.pattern,
                )
                for row in session.execute(query)
            )


def _spool_row(session: Session, advance: records.SpoolAdvance) -> SpoolFileRow:
    query = select(SpoolFileRow).filter_by(name=advance.name, inode=advance.inode)
    row = session.scalars(query).one_or_none()
    if row is None:
        row = SpoolFileRow(
            name=advance.name,
            inode=advance.inode,
            offset_bytes=0,
            size_bytes=0,
            complete=False,
            n_reads=0,
            dropped_reads=0,
            changed_ns=0,
            problem="",
        )
        session.add(row)
        session.flush()
    return row


def _add_pattern(session: Session, dataset: DatasetRow, pattern: AccessPattern) -> None:
    shape = pattern.shape_key
    query = select(PatternRow).filter_by(dataset_id=dataset.id, shape=shape)
    row = session.scalars(query).one_or_none()
    if row is None:
        row = PatternRow(dataset_id=dataset.id, shape=shape)
        session.add(row)
    else:
        pattern = merge_patterns(row.pattern, pattern)
    row.pattern = pattern
    row.n_reads = pattern.n_calls
    row.bytes_read = pattern.bytes_read
    row.elapsed_s = pattern.elapsed_s
    row.time_lost_s = pattern.time_lost_s
    row.first_ns = pattern.first_ns
    row.last_ns = pattern.last_ns
    session.flush()


def _add_trails(session: Session, trails: Sequence[tuple[int, ReadTrail]]) -> None:
    """Join trails to those that there are, by the ids of datasets."""
    for i in range(0, len(trails), _ROWS_AT_ONCE):
        some = trails[i : i + _ROWS_AT_ONCE]
        query = select(TrailRow).where(TrailRow.dataset_id.in_([number for number, _ in some]))
        rows = {row.dataset_id: row for row in session.scalars(query)}
        for number, trail in some:
            row = rows.get(number)
            if row is None:
                session.add(TrailRow(dataset_id=number, trail=trail))
            elif row.trail.extent == trail.extent:
                row.trail = join_trails([row.trail, trail])
            elif trail.last_ns >= row.trail.last_ns:
                row.trail = trail  # what lay where is no longer there
        session.flush()


def _spool_record(row: SpoolFileRow) -> records.SpoolRecord:
    return records.SpoolRecord(
        name=row.name,
        inode=row.inode,
        offset_bytes=row.offset_bytes,
        size_bytes=row.size_bytes,
        complete=row.complete,
        n_reads=row.n_reads,
        dropped_reads=row.dropped_reads,
        changed_ns=row.changed_ns,
        problem=row.problem,
    )
