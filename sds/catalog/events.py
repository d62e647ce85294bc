"""Append-only log of events, each with its reason and the numbers behind it."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from sqlalchemy import select

from sds.catalog import records
from sds.catalog.database import Database
from sds.catalog.rows import EventRow, record_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)


class Events(Database):
    """Queries of events."""

    def add_event(
        self,
        subject: str,
        subject_id: int | None,
        kind: str,
        reason: str,
        numbers: Mapping[str, float] | None = None,
    ) -> None:
        """Append what happened."""
        with self.writing() as session:
            add_event_row(session, subject, subject_id, kind, reason, numbers or {})

    def events(self, limit: int) -> tuple[records.EventRecord, ...]:
        """Return the newest events, newest first."""
        query = select(EventRow).order_by(EventRow.id.desc()).limit(limit)
        with self.reading() as session:
            rows = session.scalars(query)
            return tuple(record_of(records.EventRecord, row) for row in rows)


def add_event_row(  # noqa: PLR0917  (in the order of the columns)
    session: Session,
    subject: str,
    subject_id: int | None,
    kind: str,
    reason: str,
    numbers: Mapping[str, float],
) -> None:
    """Append an event within a transaction."""
    log.info("%s %s %s: %s", subject, "" if subject_id is None else subject_id, kind, reason)
    session.add(
        EventRow(
            time_ns=time.time_ns(),
            subject=subject,
            subject_id=subject_id,
            kind=kind,
            reason=reason,
            numbers=dict(numbers),
        )
    )
