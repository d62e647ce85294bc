"""Reads as traces tell of them: how far each spool file is counted, and their patterns."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import func, select

from sds.catalog import records
from sds.catalog.database import Database
from sds.catalog.datasets import dataset_rows, of_dataset
from sds.catalog.events import add_event_row
from sds.catalog.rows import DatasetRow, PatternRow, SourceFileRow, SpoolFileRow, TrailRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy.orm import Session

    from sds.analyzer import AccessPattern, ReadTrail
    from sds.catalog.model_records import PatternRecord

_ROWS_AT_ONCE = 256
_SPOOL_COLUMNS = [getattr(SpoolFileRow, one.name) for one in fields(records.SpoolRecord)]

_Value = TypeVar("_Value")


class Reads(Database):
    """Queries of traced reads."""

    def spool_records(self, names: Sequence[str]) -> list[records.SpoolRecord]:
        """Return how far spool files of some names are counted; of a new one there is no record."""
        found = []
        with self.reading() as session:
            for some in _portions(names):
                query = select(*_SPOOL_COLUMNS).where(SpoolFileRow.name.in_(some))
                found += [records.SpoolRecord(**row) for row in session.execute(query).mappings()]
        return found

    def spool_problems(self, limit: int) -> tuple[str, ...]:
        """Return what is wrong with spool files, each with its name, the newest first."""
        query = (
            select(SpoolFileRow.name, SpoolFileRow.problem)
            .where(SpoolFileRow.problem != "")
            .order_by(SpoolFileRow.id.desc())
            .limit(limit)
        )
        with self.reading() as session:
            return tuple(f"{row.name}: {row.problem}" for row in session.execute(query))

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
            steps = list(advances)
            rows = _spool_rows(session, steps)
            if any(
                row.offset_bytes != step.start_bytes for row, step in zip(rows, steps, strict=True)
            ):
                session.rollback()
                return False
            for row, advance in zip(rows, steps, strict=True):
                row.offset_bytes = advance.end_bytes
                row.size_bytes = advance.size_bytes
                row.complete = advance.complete
                row.n_reads += advance.n_reads
                row.dropped_reads = advance.dropped_reads
                row.changed_ns = now_ns
                if advance.problem and advance.problem != row.problem:
                    add_event_row(session, "spool", row.id, "damaged", advance.problem, {})
                row.problem = advance.problem
            found, laid = list(patterns), list(trails)
            known = dataset_rows(session, [facts for facts, _ in (*found, *laid)])
            _add_patterns(session, [(known[facts].id, pattern) for facts, pattern in found])
            _add_trails(session, [(known[facts].id, trail) for facts, trail in laid])
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

    def newest_read_ns(self) -> int:
        """Return when the newest traced read of all began, ns since 1970; 0 without any."""
        with self.reading() as session:
            return session.scalar(select(func.max(PatternRow.last_ns))) or 0

    def patterns(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[PatternRecord, ...]:
        """Return access patterns, those that lose most time first."""
        query = of_dataset(
            select(PatternRow, SourceFileRow.path, DatasetRow.path.label("dataset"))
            .join(PatternRow.dataset)
            .join(DatasetRow.source),
            file,
            dataset,
        ).order_by(PatternRow.time_lost_s.desc(), PatternRow.id)
        from sds.catalog.model_records import PatternRecord  # noqa: PLC0415

        with self.reading() as session:
            return tuple(
                PatternRecord(
                    id=row.PatternRow.id,
                    file=row.path,
                    dataset=row.dataset,
                    pattern=row.PatternRow.pattern,
                )
                for row in session.execute(query)
            )


def _portions(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    """Yield values in portions that one query may name."""
    for i in range(0, len(values), _ROWS_AT_ONCE):
        yield values[i : i + _ROWS_AT_ONCE]


def _spool_rows(session: Session, advances: Sequence[records.SpoolAdvance]) -> list[SpoolFileRow]:
    """Return the rows of spool files, in their order, added where they are missing."""
    rows: dict[tuple[str, int], SpoolFileRow] = {}
    for some in _portions([advance.name for advance in advances]):
        query = select(SpoolFileRow).where(SpoolFileRow.name.in_(some))
        rows |= {(row.name, row.inode): row for row in session.scalars(query)}
    found = []
    for advance in advances:
        key = advance.name, advance.inode
        if key not in rows:
            rows[key] = SpoolFileRow(
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
            session.add(rows[key])
        found.append(rows[key])
    session.flush()
    return found


def _add_patterns(session: Session, patterns: Sequence[tuple[int, AccessPattern]]) -> None:
    """Merge patterns into those that there are, by the ids of datasets."""
    from sds.analyzer import merge_patterns  # noqa: PLC0415  (NumPy)

    for some in _portions(patterns):
        query = select(PatternRow).where(
            PatternRow.dataset_id.in_({number for number, _ in some}),
            PatternRow.shape.in_({pattern.shape_key for _, pattern in some}),
        )
        rows = {(row.dataset_id, row.shape): row for row in session.scalars(query)}
        for number, pattern in some:
            key = number, pattern.shape_key
            if key in rows:
                whole = merge_patterns(rows[key].pattern, pattern)
            else:
                whole = pattern
                rows[key] = PatternRow(dataset_id=number, shape=key[1])
                session.add(rows[key])
            row = rows[key]
            row.pattern = whole
            row.n_reads = whole.n_calls
            row.bytes_read = whole.bytes_read
            row.elapsed_s = whole.elapsed_s
            row.time_lost_s = whole.time_lost_s
            row.first_ns = whole.first_ns
            row.last_ns = whole.last_ns
        session.flush()


def _add_trails(session: Session, trails: Sequence[tuple[int, ReadTrail]]) -> None:
    """Join trails to those that there are, by the ids of datasets."""
    from sds.analyzer import join_trails  # noqa: PLC0415  (NumPy)

    for some in _portions(trails):
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
