"""Source files and their datasets."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import func, select

from sds.catalog import records
from sds.catalog.engine import Database
from sds.catalog.records import ReplicaState
from sds.catalog.rows import DatasetRow, PatternRow, ReplicaRow, SourceFileRow

if TYPE_CHECKING:
    from sqlalchemy import Select
    from sqlalchemy.orm import Session

    from sds.identity import FileIdentity


_Query = TypeVar("_Query", bound="Select[*tuple[Any, ...]]")


class Datasets(Database):
    """Queries of datasets."""

    def put_dataset(self, facts: records.DatasetFacts) -> int:
        """Return the id of a dataset, adding it or renewing what is known of it."""
        with self.writing() as session:
            return dataset_row(session, facts).id

    def datasets(self, file: str | None = None) -> tuple[records.DatasetRecord, ...]:
        """Return datasets, those that lose most time first."""
        read = (
            select(
                PatternRow.dataset_id,
                func.sum(PatternRow.n_reads).label("n_reads"),
                func.sum(PatternRow.bytes_read).label("bytes_read"),
                func.sum(PatternRow.elapsed_s).label("elapsed_s"),
                func.sum(PatternRow.time_lost_s).label("time_lost_s"),
                func.count().label("n_patterns"),
                func.min(PatternRow.first_ns).label("first_ns"),
                func.max(PatternRow.last_ns).label("last_ns"),
            )
            .group_by(PatternRow.dataset_id)
            .subquery()
        )
        active = (
            select(ReplicaRow.dataset_id, func.count().label("n_replicas"))
            .where(ReplicaRow.state == ReplicaState.ACTIVE)
            .group_by(ReplicaRow.dataset_id)
            .subquery()
        )
        query = (
            select(DatasetRow, SourceFileRow.path, read, active.c.n_replicas)
            .join(DatasetRow.source)
            .outerjoin(read, read.c.dataset_id == DatasetRow.id)
            .outerjoin(active, active.c.dataset_id == DatasetRow.id)
            .order_by(func.coalesce(read.c.time_lost_s, 0).desc(), DatasetRow.id)
        )
        if file is not None:
            query = query.where(SourceFileRow.path == file)
        with self.reading() as session:
            return tuple(
                records.DatasetRecord(
                    id=row.DatasetRow.id,
                    file=row.path,
                    path=row.DatasetRow.path,
                    extent=row.DatasetRow.extent,
                    element_size_bytes=row.DatasetRow.element_size_bytes,
                    storage=row.DatasetRow.storage,
                    data_offset_bytes=row.DatasetRow.data_offset_bytes,
                    chunk_shape=row.DatasetRow.chunk_shape,
                    n_reads=row.n_reads or 0,
                    bytes_read=row.bytes_read or 0,
                    elapsed_s=row.elapsed_s or 0.0,
                    time_lost_s=row.time_lost_s or 0.0,
                    n_patterns=row.n_patterns or 0,
                    n_replicas=row.n_replicas or 0,
                    first_read_ns=row.first_ns,
                    last_read_ns=row.last_ns,
                )
                for row in session.execute(query)
            )


def of_dataset(query: _Query, file: str | None, dataset: str | None) -> _Query:
    """Return a query restricted to one source file, or one dataset of it; None: to none."""
    if file is not None:
        query = query.where(SourceFileRow.path == file)
    if dataset is not None:
        query = query.where(DatasetRow.path == dataset)
    return query


def _source_row(session: Session, path: str, identity: FileIdentity) -> SourceFileRow:
    identity = replace(identity, instance=0)  # traces do not tell it
    row = session.scalars(select(SourceFileRow).filter_by(path=path)).one_or_none()
    if row is None:
        row = SourceFileRow(path=path, identity=identity, seen_ns=time.time_ns())
        session.add(row)
    elif row.identity != identity:
        row.identity = identity
        row.seen_ns = time.time_ns()
    return row


def dataset_row(session: Session, facts: records.DatasetFacts) -> DatasetRow:
    """Return the row of a dataset, added or renewed."""
    source = _source_row(session, facts.file, facts.identity)
    session.flush()
    query = select(DatasetRow).filter_by(source_file_id=source.id, path=facts.path)
    row = session.scalars(query).one_or_none()
    if row is None:
        row = DatasetRow(source=source, path=facts.path)
        session.add(row)
    row.extent = facts.extent
    row.element_size_bytes = facts.element_size_bytes
    row.storage = facts.storage
    row.data_offset_bytes = facts.data_offset_bytes
    row.chunk_shape = facts.chunk_shape
    session.flush()
    return row
