"""Replicas and the states that they go through."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sqlalchemy import select, update

from sds.catalog import records
from sds.catalog.datasets import dataset_row, of_dataset
from sds.catalog.engine import Database
from sds.catalog.events import add_event_row
from sds.catalog.records import ReplicaState
from sds.catalog.rows import DatasetRow, ReplicaRow
from sds.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.orm import Session

    from sds.organizer.layout import ReplicaLayout
    from sds.organizer.replica import Replica


OPEN_STATES = frozenset({ReplicaState.PLANNED, ReplicaState.BUILDING})
SERVING_STATES = frozenset({ReplicaState.ACTIVE, ReplicaState.VERIFIED})
GONE_STATES = frozenset({ReplicaState.RETIRED, ReplicaState.REVERTED})


class Replicas(Database):
    """Queries of replicas."""

    def begin_replica(
        self, facts: records.DatasetFacts, *, layout: ReplicaLayout, path: str, size_bytes: int
    ) -> records.ReplicaRecord:
        """Note that a replica is about to be built, before its file exists.

        The same replica, begun or built before, keeps its id; what else had this path is replaced.
        """
        now_ns = time.time_ns()
        with self.writing() as session:
            dataset = dataset_row(session, facts)
            earlier = select(ReplicaRow).where(
                ReplicaRow.path == path, ReplicaRow.state.not_in(GONE_STATES)
            )
            for row in session.scalars(earlier).all():
                if (row.dataset_id, row.layout, row.source_identity) == (
                    dataset.id,
                    layout,
                    facts.identity,
                ):
                    return _replica_record(row)
                row.state = ReplicaState.RETIRED
                row.reason = "replaced by a newer replica at the same path"
                row.changed_ns = now_ns
                add_event_row(session, "replica", row.id, row.state, row.reason, {})
            row = ReplicaRow(
                dataset=dataset,
                layout=layout,
                state=ReplicaState.BUILDING,
                path=path,
                source_identity=facts.identity,
                size_bytes=size_bytes,
                created_ns=now_ns,
                changed_ns=now_ns,
                reason="building",
                build_s=None,
                verified_ns=None,
                replica=None,
            )
            session.add(row)
            session.flush()
            add_event_row(session, "replica", row.id, "building", f"{path} is being built", {})
            return _replica_record(row)

    def set_replica(
        self,
        replica_id: int,
        state: ReplicaState,
        reason: str,
        *,
        replica: Replica | None = None,
        build_s: float | None = None,
        numbers: Mapping[str, float] | None = None,
    ) -> records.ReplicaRecord:
        """Move a replica to another state and append the event that says why.

        `replica`: what its file holds, as was found by verifying every byte of it just now.
        """
        with self.writing() as session:
            row = _replica_row(session, replica_id)
            row.state = state
            row.reason = reason
            row.changed_ns = time.time_ns()
            if replica is not None:
                row.replica = replica
                row.verified_ns = row.changed_ns
                row.path = str(replica.path)
                row.size_bytes = replica.size_bytes
                row.source_identity = replica.source_identity
            if build_s is not None:
                row.build_s = build_s
            add_event_row(session, "replica", replica_id, state.value, reason, numbers or {})
            return _replica_record(row)

    def note_verified(self, replica_id: int) -> None:
        """Note that every byte of a replica was found sound just now."""
        with self.writing() as session:
            _replica_row(session, replica_id).verified_ns = time.time_ns()

    def forget_verified(self, *, since_ns: int = 0) -> int:
        """Have replicas that were verified since then verified anew; returns how many."""
        due = (ReplicaRow.state.in_(SERVING_STATES), ReplicaRow.verified_ns >= since_ns)
        with self.writing() as session:
            ids = session.scalars(select(ReplicaRow.id).where(*due)).all()
            session.execute(update(ReplicaRow).where(*due).values(verified_ns=None))
            return len(ids)

    def next_to_verify(self, before_ns: int) -> records.ReplicaRecord | None:
        """Return the replica that was verified longest ago, before that time; None: there is none.

        `before_ns`: ns since 1970; negative: only what was never verified counts.
        """
        never = ReplicaRow.verified_ns.is_(None)
        query = (
            select(ReplicaRow)
            .where(
                ReplicaRow.state.in_(SERVING_STATES),
                never | (ReplicaRow.verified_ns < before_ns),
            )
            .order_by(ReplicaRow.verified_ns.is_not(None), ReplicaRow.verified_ns, ReplicaRow.id)
            .limit(1)
        )
        with self.reading() as session:
            row = session.scalars(query).first()
            return None if row is None else _replica_record(row)

    def replica(self, replica_id: int) -> records.ReplicaRecord:
        """Return one replica.

        Raises
        ------
        NotFoundError
            If there never was one of that id.
        """
        with self.reading() as session:
            return _replica_record(_replica_row(session, replica_id))

    def replicas(
        self,
        file: str | None = None,
        dataset: str | None = None,
        *,
        states: frozenset[ReplicaState] = frozenset(ReplicaState) - GONE_STATES,
    ) -> tuple[records.ReplicaRecord, ...]:
        """Return replicas in some states, oldest first."""
        query = of_dataset(
            select(ReplicaRow).join(ReplicaRow.dataset).join(DatasetRow.source), file, dataset
        ).where(ReplicaRow.state.in_(states))
        with self.reading() as session:
            rows = session.scalars(query.order_by(ReplicaRow.id))
            return tuple(_replica_record(row) for row in rows)


def _replica_row(session: Session, replica_id: int) -> ReplicaRow:
    row = session.get(ReplicaRow, replica_id)
    if row is None:
        message = f"there is no replica {replica_id}; `sds replicas` lists those there are"
        raise NotFoundError(message)
    return row


def _replica_record(row: ReplicaRow) -> records.ReplicaRecord:
    return records.ReplicaRecord(
        id=row.id,
        file=row.dataset.source.path,
        dataset=row.dataset.path,
        order=row.layout.order,
        storage=row.layout.storage,
        chunk_shape=row.layout.chunk_shape,
        filters=row.layout.filters,
        region=row.layout.region,
        state=ReplicaState(row.state),
        path=row.path,
        size_bytes=row.size_bytes,
        stored_bytes=None if row.replica is None else row.replica.stored_bytes,
        created_ns=row.created_ns,
        changed_ns=row.changed_ns,
        reason=row.reason,
        source_identity=row.source_identity,
        build_s=row.build_s,
        verified_ns=row.verified_ns,
        replica=row.replica,
        sort=row.layout.sort,
        segments=row.layout.segments,
    )
