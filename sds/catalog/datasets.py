"""Source files and their datasets."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import func, select

from sds.catalog import records
from sds.catalog.database import Database
from sds.catalog.records import LIVE_STATES
from sds.catalog.rows import DatasetRow, PatternRow, ReplicaRow, SourceFileRow, record_of, state_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Select
    from sqlalchemy.orm import Session

    from sds.hdf5.identity import FileIdentity


_ROWS_AT_ONCE = 256
_Query = TypeVar("_Query", bound="Select[*tuple[Any, ...]]")


class Datasets(Database):
    """Queries of datasets."""

    def put_dataset(self, facts: records.DatasetFacts) -> int:
        """Return the id of a dataset, adding it or renewing what is known of it."""
        with self.writing() as session:
            return dataset_row(session, facts).id

    def datasets(self, file: str | None = None) -> tuple[records.DatasetRecord, ...]:
        """Return datasets, those that lose most time first."""
        sums = {
            "n_reads": 0,
            "bytes_read": 0,
            "elapsed_s": 0.0,
            "time_lost_s": 0.0,
            "n_patterns": 0,
        }
        chosen = select(DatasetRow.id)
        if file is not None:
            chosen = chosen.join(DatasetRow.source).where(SourceFileRow.path == file)
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
            .where(PatternRow.dataset_id.in_(chosen))
            .group_by(PatternRow.dataset_id)
            .subquery()
        )
        active = (
            select(ReplicaRow.dataset_id, func.count().label("n_replicas"))
            .where(state_in(LIVE_STATES), ReplicaRow.dataset_id.in_(chosen))
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
                record_of(
                    records.DatasetRecord,
                    row.DatasetRow,
                    file=row.path,
                    **{name: getattr(row, name) or none for name, none in sums.items()},
                    n_replicas=row.n_replicas or 0,
                    first_read_ns=row.first_ns,
                    last_read_ns=row.last_ns,
                )
                for row in session.execute(query)
            )

    def data_offsets(self, file: str) -> dict[str, int | None]:
        """Return where the elements of each dataset of a file begin; None unless contiguous."""
        query = (
            select(DatasetRow.path, DatasetRow.data_offset_bytes)
            .join(DatasetRow.source)
            .where(SourceFileRow.path == file)
        )
        with self.reading() as session:
            return {row.path: row.data_offset_bytes for row in session.execute(query)}

    def read_totals(self) -> records.ReadTotals:
        """Return the sums over all datasets."""
        patterns = select(
            func.sum(PatternRow.n_reads),
            func.sum(PatternRow.elapsed_s),
            func.sum(PatternRow.time_lost_s),
        )
        with self.reading() as session:
            n_reads, elapsed_s, time_lost_s = session.execute(patterns).one()
            return records.ReadTotals(
                n_datasets=session.scalar(select(func.count()).select_from(DatasetRow)) or 0,
                n_reads=n_reads or 0,
                elapsed_s=elapsed_s or 0.0,
                time_lost_s=time_lost_s or 0.0,
            )


def of_dataset(query: _Query, file: str | None, dataset: str | None) -> _Query:
    """Return a query restricted to one source file, or one dataset of it; None: to none."""
    if file is not None:
        query = query.where(SourceFileRow.path == file)
    if dataset is not None:
        query = query.where(DatasetRow.path == dataset)
    return query


def _source_rows(
    session: Session, identities: Mapping[str, FileIdentity]
) -> dict[str, SourceFileRow]:
    """Return the rows of files by path, added or renewed."""
    query = select(SourceFileRow).where(SourceFileRow.path.in_(identities))
    rows = {row.path: row for row in session.scalars(query)}
    for path, found in identities.items():
        identity = replace(found, instance=0)  # traces do not tell it
        row = rows.get(path)
        if row is None:
            rows[path] = SourceFileRow(path=path, identity=identity, seen_ns=time.time_ns())
            session.add(rows[path])
        elif row.identity != identity:
            row.identity = identity
            row.seen_ns = time.time_ns()
    session.flush()
    return rows


def dataset_rows(
    session: Session, facts: Iterable[records.DatasetFacts]
) -> dict[records.DatasetFacts, DatasetRow]:
    """Return the rows of datasets, added or renewed; of one that is named twice, by the last."""
    every = list(dict.fromkeys(facts))
    found = {}
    for i in range(0, len(every), _ROWS_AT_ONCE):
        some = every[i : i + _ROWS_AT_ONCE]
        sources = _source_rows(session, {one.file: one.identity for one in some})
        query = select(DatasetRow).where(
            DatasetRow.source_file_id.in_([row.id for row in sources.values()]),
            DatasetRow.path.in_({one.path for one in some}),
        )
        rows = {(row.source_file_id, row.path): row for row in session.scalars(query)}
        for one in some:
            source = sources[one.file]
            row = rows.get((source.id, one.path))
            if row is None:
                row = rows[source.id, one.path] = DatasetRow(source=source, path=one.path)
                session.add(row)
            elif _is_stored_anew(row, one):
                _forget_times(row)
            row.extent = one.extent
            row.element_size_bytes = one.element_size_bytes
            row.storage = one.storage
            row.data_offset_bytes = one.data_offset_bytes
            row.chunk_shape = one.chunk_shape
            found[one] = row
        session.flush()
    return found


def _is_stored_anew(row: DatasetRow, now: records.DatasetFacts) -> bool:
    """Return whether a dataset is known to lie in its file in another way than it did."""
    known = {"contiguous", "chunked"}
    before = row.storage, row.chunk_shape
    return {row.storage, now.storage} <= known and before != (now.storage, now.chunk_shape)


def _forget_times(row: DatasetRow) -> None:
    """Forget what reads of a dataset took that lay in its file in another way; not the reads."""
    for pattern in row.patterns:
        pattern.pattern = replace(
            pattern.pattern, elapsed_s=0.0, time_lost_s=0.0, times=(), left_alone=()
        )
        pattern.elapsed_s = pattern.time_lost_s = 0.0


def dataset_row(session: Session, facts: records.DatasetFacts) -> DatasetRow:
    """Return the row of a dataset, added or renewed."""
    return dataset_rows(session, [facts])[facts]
