"""Marks of sources that have to be published, so that no publisher goes through all of them.

The transaction that changes what serves a source marks it; whoever published it then takes the mark
away, unless the source was marked anew meanwhile. What a crash leaves between the two is marked.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sqlalchemy import func, or_, select, type_coerce, update

from sds.catalog import records
from sds.catalog.database import Database
from sds.catalog.records import LIVE_STATES, ReplicaState
from sds.catalog.rows import AsJson, DatasetRow, ReplicaRow, SourceFileRow, StampRow, state_in
from sds.hdf5.identity import FileIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.orm import Session

MARK = "!"
_AFTER_MARKS = chr(ord(MARK) + 1)
_OUTDATED = "0"  # by what no table is made
WATCHED_STATES = LIVE_STATES | {ReplicaState.VERIFIED, ReplicaState.DAMAGED}
"""States of replicas that serve, or would if they were sound."""


class Publications(Database):
    """Queries of what is published."""

    def published(self, file: str) -> str | None:
        """Return how a source was published last: a mark, or by what; None: nothing serves it."""
        with self.reading() as session:
            return session.scalar(select(SourceFileRow.published).filter_by(path=file))

    def set_published(
        self, found: Sequence[tuple[str, str | None, str | None]], stamps: Mapping[str, str]
    ) -> None:
        """Store the publication of each file, given as (file, before, now), and stamps by name.

        A source that was marked since `before` was read keeps its mark.
        """
        with self.writing() as session:
            for file, before, now in found:
                session.execute(
                    update(SourceFileRow)
                    .where(
                        SourceFileRow.path == file,
                        SourceFileRow.published.is_not_distinct_from(before),
                    )
                    .values(published=now)
                )
            for name, value in stamps.items():
                session.merge(StampRow(name=name, value=value))

    def set_stamp(self, name: str, value: str) -> None:
        """Store a stamp in the place of that of its name."""
        with self.writing() as session:
            session.merge(StampRow(name=name, value=value))

    def stamp(self, name: str) -> str | None:
        """Return the fingerprint of a part of the home when it was last found in order."""
        with self.reading() as session:
            return session.scalar(select(StampRow.value).filter_by(name=name))

    def marked_sources(self) -> tuple[str, ...]:
        """Return the sources whose replicas changed and that were not published since."""
        query = select(SourceFileRow.path).where(
            SourceFileRow.published >= MARK, SourceFileRow.published < _AFTER_MARKS
        )
        with self.reading() as session:
            return tuple(session.scalars(query.order_by(SourceFileRow.id)))

    def outdated_sources(self, made_by: str, limit: int | None) -> tuple[str, ...]:
        """Return sources that were published by anything but what `made_by` begins with."""
        column = SourceFileRow.published
        query = select(SourceFileRow.path).where(
            or_(
                (column >= _AFTER_MARKS) & (column < made_by),
                column >= made_by + chr(0x10FFFF),
            )
        )
        with self.reading() as session:
            return tuple(session.scalars(query.limit(limit)))

    def published_sources(self) -> tuple[tuple[str, str], ...]:
        """Return every source that was published, and by what."""
        query = select(SourceFileRow.path, SourceFileRow.published).where(
            SourceFileRow.published.is_not(None)
        )
        with self.reading() as session:
            return tuple((row.path, row.published or "") for row in session.execute(query))

    def watched(self, after: int, n_sources: int) -> tuple[records.WatchedSource, ...]:
        """Return the published sources that follow an id, in order of id, with their replicas."""
        some = (
            select(SourceFileRow.id, SourceFileRow.path)
            .where(SourceFileRow.published.is_not(None), SourceFileRow.id > after)
            .order_by(SourceFileRow.id)
            .limit(n_sources)
        )
        with self.reading() as session:
            files = {row.id: row.path for row in session.execute(some)}
            built = type_coerce(
                func.json_extract(ReplicaRow.replica, "$.identity"), AsJson(FileIdentity)
            )
            query = (
                select(
                    DatasetRow.source_file_id, ReplicaRow.path, ReplicaRow.source_identity, built
                )
                .join(ReplicaRow.dataset)
                .where(DatasetRow.source_file_id.in_(files), state_in(WATCHED_STATES))
            )
            replicas: dict[int, list[tuple[str, FileIdentity, FileIdentity | None]]] = {}
            for number, *replica in session.execute(query):
                replicas.setdefault(number, []).append(tuple(replica))
        return tuple(
            records.WatchedSource(id=number, file=path, replicas=tuple(replicas.get(number, ())))
            for number, path in files.items()
        )

    def last_watched(self) -> int:
        """Return the id of the newest source; 0 where there is none."""
        with self.reading() as session:
            return session.scalar(select(func.max(SourceFileRow.id))) or 0


def is_pending(published: str) -> bool:
    """Return whether what was published of a source is out of date, marked or made otherwise."""
    return published.startswith(MARK) or published == _OUTDATED


def mark_source(source: SourceFileRow) -> None:
    """Mark a source within a transaction: what serves it changes."""
    source.published = f"{MARK}{time.time_ns()}"


def outdate_sources(session: Session) -> None:
    """Mark every published source out of date: the calibrations behind its table changed."""
    session.execute(
        update(SourceFileRow)
        .where(SourceFileRow.published >= _AFTER_MARKS)
        .values(published=_OUTDATED)
    )
