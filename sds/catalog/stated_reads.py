"""Reads that people state: programs are going to make them, or made them where nothing traces."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.orm import contains_eager

from sds.catalog import records
from sds.catalog.database import Database
from sds.catalog.datasets import dataset_row, of_dataset
from sds.catalog.rows import DatasetRow, StatedReadsRow, record_of
from sds.errors import NotFoundError

if TYPE_CHECKING:
    from sds.catalog.records import DatasetFacts, StatedReadsRecord


class StatedReads(Database):
    """Queries of stated reads."""

    def stated_reads(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[StatedReadsRecord, ...]:
        """Return what was stated, oldest first; of one file or dataset, or all."""
        query = (
            select(StatedReadsRow)
            .join(StatedReadsRow.dataset)
            .join(DatasetRow.source)
            .options(contains_eager(StatedReadsRow.dataset).contains_eager(DatasetRow.source))
            .order_by(StatedReadsRow.id)
        )
        with self.reading() as session:
            return tuple(map(_record, session.scalars(of_dataset(query, file, dataset))))

    def state_reads(
        self, facts: DatasetFacts, selection: str, n_reads_per_day: int
    ) -> StatedReadsRecord:
        """Keep reads of a dataset, in the place of those of the same selection."""
        with self.writing() as session:
            dataset = dataset_row(session, facts)
            same = select(StatedReadsRow).filter_by(dataset_id=dataset.id, selection=selection)
            row = session.scalars(same).one_or_none()
            if row is None:
                row = StatedReadsRow(dataset=dataset, selection=selection)
                session.add(row)
            row.n_reads_per_day = n_reads_per_day
            row.stated_ns = time.time_ns()
            session.flush()
            return _record(row)

    def forget_reads(self, number: int) -> StatedReadsRecord:
        """Forget stated reads, and return them.

        Raises
        ------
        NotFoundError
            If there are none of that number.
        """
        with self.writing() as session:
            row = session.get(StatedReadsRow, number)
            if row is None:
                message = f"no stated reads have number {number}; `sds reads` lists those there are"
                raise NotFoundError(message)
            found = _record(row)
            session.delete(row)
            return found

    def newest_statement_ns(self) -> int:
        """Return when reads were stated last, ns since 1970; 0: none are."""
        with self.reading() as session:
            return session.scalar(select(func.max(StatedReadsRow.stated_ns))) or 0


def _record(row: StatedReadsRow) -> StatedReadsRecord:
    return record_of(
        records.StatedReadsRecord, row, file=row.dataset.source.path, dataset=row.dataset.path
    )
