"""Modes of the evaluator that people set for directories, files and datasets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sqlalchemy import select

from sds.catalog import records
from sds.catalog.database import Database, damaged
from sds.catalog.events import add_event_row
from sds.catalog.rows import PolicyRow
from sds.errors import NotFoundError

if TYPE_CHECKING:
    from sqlalchemy import Select


class Policies(Database):
    """Queries of policies."""

    def policies(self) -> tuple[records.PolicyRecord, ...]:
        """Return all policies, by path and dataset."""
        query = select(PolicyRow).order_by(PolicyRow.path, PolicyRow.dataset)
        with self.reading() as session:
            return tuple(_record(row) for row in session.scalars(query))

    def set_policy(
        self, path: str, dataset: str | None, mode: records.Mode, budget_bytes: int | None = None
    ) -> records.PolicyRecord:
        """Set mode and budget of a directory, file or dataset, in the place of those it had."""
        with self.writing() as session:
            row = session.scalars(_policy(path, dataset)).one_or_none()
            if row is None:
                row = PolicyRow(path=path, dataset=dataset or "")
                session.add(row)
            row.mode = mode
            row.budget_bytes = budget_bytes
            row.set_ns = time.time_ns()
            session.flush()
            found = _record(row)
            said = "" if budget_bytes is None else f", its replicas within {budget_bytes} bytes"
            add_event_row(session, "policy", row.id, mode, f"{found.name} is {mode}{said}", {})
            return found

    def unset_policy(self, path: str, dataset: str | None) -> records.PolicyRecord:
        """Forget the mode of a directory, file or dataset, and return it.

        Raises
        ------
        NotFoundError
            If it has none.
        """
        with self.writing() as session:
            row = session.scalars(_policy(path, dataset)).one_or_none()
            if row is None:
                name = path if dataset is None else f"{path}:{dataset}"
                raise NotFoundError(f"{name} has no policy; `sds policy` lists those there are")
            found = _record(row)
            session.delete(row)
            add_event_row(session, "policy", row.id, "unset", f"{found.name} has none now", {})
            return found


def _policy(path: str, dataset: str | None) -> Select[PolicyRow]:
    return select(PolicyRow).filter_by(path=path, dataset=dataset or "")


def _record(row: PolicyRow) -> records.PolicyRecord:
    mode = records.as_mode(row.mode)
    if mode is None:
        raise damaged("database", f"{row.mode!r:.60} is no mode")
    return records.PolicyRecord(
        path=row.path,
        dataset=row.dataset or None,
        mode=mode,
        set_ns=row.set_ns,
        budget_bytes=row.budget_bytes,
    )
