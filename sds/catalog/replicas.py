"""Replicas and the states that they go through."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import contains_eager

from sds.catalog import records
from sds.catalog.database import Database
from sds.catalog.datasets import dataset_row, of_dataset
from sds.catalog.events import add_event_row
from sds.catalog.publications import mark_source
from sds.catalog.records import LIVE_STATES, ReplicaState
from sds.catalog.rows import DatasetRow, ReplicaRow, SourceFileRow, record_of, state_in
from sds.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Select
    from sqlalchemy.orm import Session

    from sds.analyzer.shadow import ShadowTest
    from sds.catalog.replica_records import ReplicaRecord
    from sds.geometry.replica_layout import ReplicaLayout
    from sds.hdf5.identity import FileIdentity
    from sds.organizer.replica_file.replica import Replica


REMOVED = "removed by request"
"""Reason of a replica that a person removed."""
OPEN_STATES = frozenset({ReplicaState.PLANNED, ReplicaState.BUILDING})
SERVING_STATES = LIVE_STATES | {ReplicaState.VERIFIED}
EVICTABLE_STATES = LIVE_STATES | {ReplicaState.DAMAGED}
_STORED = func.coalesce(ReplicaRow.stored_bytes, ReplicaRow.size_bytes)
GONE_STATES = frozenset({ReplicaState.RETIRED, ReplicaState.REVERTED})
_UNTESTED_STATES = GONE_STATES | {ReplicaState.ACTIVE}  # any test in shadow is over


class Replicas(Database):
    """Queries of replicas."""

    def begin_replica(
        self,
        facts: records.DatasetFacts,
        *,
        layout: ReplicaLayout,
        path: str,
        size_bytes: int,
        shadow_test: ShadowTest | None = None,
        pinned: bool = True,
        predicted_saving_s_per_read: float | None = None,
    ) -> ReplicaRecord:
        """Note that a replica is about to be built, before its file exists.

        The same replica, begun or built before, keeps its id, and is pinned from now on where it
        is asked for so; what else had this path is replaced. One that was pinned is pinned again
        where it is built of another state of its source.

        Parameters
        ----------
        shadow_test
            None: it serves all reads once it is built.
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
                    if shadow_test is None:
                        # Asked for by name: it is not reverted, whatever its test says from now on.
                        row.shadow_test = None
                        if row.state == ReplicaState.SHADOW:
                            _move(session, row, ReplicaState.ACTIVE, "asked for by name", {})
                    row.pinned |= pinned
                    if row.predicted_saving_s_per_read is None:
                        row.predicted_saving_s_per_read = predicted_saving_s_per_read
                    return _replica_record(row)
                mark_source(dataset.source)
                row.state = ReplicaState.RETIRED
                row.reason = "replaced by a newer replica at the same path"
                row.changed_ns = now_ns
                add_event_row(session, "replica", row.id, row.state, row.reason, {})
            pinned = pinned or _was_pinned(dataset, layout, facts.identity)
            row = ReplicaRow(
                dataset=dataset,
                layout=layout,
                state=ReplicaState.BUILDING,
                path=path,
                source_identity=facts.identity,
                size_bytes=size_bytes,
                stored_bytes=None,
                n_tiles=0 if layout.segments is None else len(layout.segments.tiles),
                has_file=True,
                created_ns=now_ns,
                changed_ns=now_ns,
                reason="building",
                build_s=None,
                verified_ns=None,
                replica=None,
                shadow_test=shadow_test,
                pinned=pinned,
                predicted_saving_s_per_read=predicted_saving_s_per_read,
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
    ) -> ReplicaRecord:
        """Move a replica to another state and append the event that says why.

        What is gone stays as it is, and a replica whose test in shadow has ended meanwhile is
        active where it was to be in shadow: the record that is returned tells.

        `replica`: what its file holds, as was found by verifying every byte of it just now.
        """
        with self.writing() as session:
            row = _replica_row(session, replica_id)
            if row.state in GONE_STATES:
                return _replica_record(row)
            if state == ReplicaState.SHADOW and row.shadow_test is None:
                state = ReplicaState.ACTIVE
                reason = row.reason if row.state == state else reason
            _move(session, row, state, reason, numbers or {})
            if replica is not None:
                row.replica = replica
                row.verified_ns = row.changed_ns
                row.path = str(replica.path)
                row.size_bytes = replica.size_bytes
                row.stored_bytes = replica.stored_bytes
                row.has_file = True
                row.source_identity = replica.source_identity
            if build_s is not None:
                row.build_s = build_s
            return _replica_record(row)

    def pin_replica(self, replica_id: int, *, pinned: bool) -> ReplicaRecord:
        """Say whether the server may not remove a replica by itself; return it.

        Raises
        ------
        NotFoundError
            If there never was one of that id, or it is gone.
        """
        with self.writing() as session:
            row = _replica_row(session, replica_id)
            if row.state in GONE_STATES:
                raise NotFoundError(f"replica {replica_id} is {row.state}: {row.reason}")
            row.pinned = pinned
            return _replica_record(row)

    def evict_replicas(self, reasons: Mapping[int, str]) -> tuple[ReplicaRecord, ...]:
        """Retire replicas, each for a reason; none of them where one is pinned or gone by now."""
        with self.writing() as session:
            rows = [_replica_row(session, replica_id) for replica_id in reasons]
            if any(row.pinned or row.state not in EVICTABLE_STATES for row in rows):
                return ()
            for row in rows:
                _move(session, row, ReplicaState.RETIRED, reasons[row.id], {})
            return tuple(map(_replica_record, rows))

    def shadow_tests(self) -> tuple[tuple[ReplicaRecord, ShadowTest], ...]:
        """Return the replicas in shadow, oldest first, with the tests that they undergo."""
        query = (
            select(ReplicaRow)
            .join(ReplicaRow.dataset)
            .join(DatasetRow.source)
            .where(ReplicaRow.state == ReplicaState.SHADOW, ReplicaRow.shadow_test.is_not(None))
            .options(contains_eager(ReplicaRow.dataset).contains_eager(DatasetRow.source))
            .order_by(ReplicaRow.id)
        )
        with self.reading() as session:
            rows = session.scalars(query)
            return tuple((_replica_record(row), row.shadow_test) for row in rows)

    def go_on_with_shadow(self, replica_id: int, test: ShadowTest, next_test: ShadowTest) -> None:
        """Note how far the test of a replica is, unless it is another by now."""
        with self.writing() as session:
            row = _replica_row(session, replica_id)
            if row.state == ReplicaState.SHADOW and row.shadow_test == test:
                row.shadow_test = next_test

    def end_shadow(
        self,
        replica_id: int,
        test: ShadowTest,
        state: ReplicaState,
        reason: str,
        numbers: Mapping[str, float],
    ) -> ReplicaRecord | None:
        """Move a replica in shadow to the state in which its test ends, as `set_replica`.

        None where it is in another state by now, or in another test.
        """
        with self.writing() as session:
            row = _replica_row(session, replica_id)
            if row.state != ReplicaState.SHADOW or row.shadow_test != test:
                return None
            _move(session, row, state, reason, numbers)
            return _replica_record(row)

    def bytes_beside(self, path: str) -> int:
        """Return the bytes on disk of all replicas but the one at a path, as far as is known."""
        query = select(func.sum(_STORED)).where(
            ReplicaRow.path != path, ReplicaRow.state.not_in(GONE_STATES)
        )
        with self.reading() as session:
            return int(session.scalar(query) or 0)

    def bytes_by_dataset(self, beside: str = "") -> dict[tuple[str, str], int]:
        """Return the same by file and path of their datasets."""
        query = (
            select(SourceFileRow.path, DatasetRow.path, func.sum(_STORED))
            .join(ReplicaRow.dataset)
            .join(DatasetRow.source)
            .where(ReplicaRow.path != beside, ReplicaRow.state.not_in(GONE_STATES))
            .group_by(SourceFileRow.path, DatasetRow.path)
        )
        with self.reading() as session:
            return {(file, dataset): int(n) for file, dataset, n in session.execute(query)}

    def note_verified(self, replica_id: int) -> None:
        """Note that every byte of a replica was found sound just now."""
        with self.writing() as session:
            _replica_row(session, replica_id).verified_ns = time.time_ns()

    def forget_verified(self, *, since_ns: int = 0) -> int:
        """Mark replicas that were verified since then as due again; returns their number."""
        due = (ReplicaRow.state.in_(SERVING_STATES), ReplicaRow.verified_ns >= since_ns)
        with self.writing() as session:
            ids = session.scalars(select(ReplicaRow.id).where(*due)).all()
            session.execute(update(ReplicaRow).where(*due).values(verified_ns=None))
            return len(ids)

    def verified_longest_ago(self, limit: int) -> list[tuple[int, int | None]]:
        """Return ids of serving replicas and when each was verified; those that never were first.

        Every row is looked at.
        """
        query = (
            select(ReplicaRow.id, ReplicaRow.verified_ns)
            .where(ReplicaRow.state.in_(SERVING_STATES))
            .order_by(ReplicaRow.verified_ns.is_not(None), ReplicaRow.verified_ns, ReplicaRow.id)
            .limit(limit)
        )
        with self.reading() as session:
            return [(row.id, row.verified_ns) for row in session.execute(query)]

    def replica(self, replica_id: int) -> ReplicaRecord:
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
        path: str | None = None,
        states: frozenset[ReplicaState] = frozenset(ReplicaState) - GONE_STATES,
        after: int = 0,
        limit: int | None = None,
    ) -> tuple[ReplicaRecord, ...]:
        """Return replicas in some states, oldest first.

        Parameters
        ----------
        file, dataset
            Of this source, this dataset of it; None: of any.
        path
            That have or had this file; None: any.
        after, limit
            Start behind the replica of that id, and return at most this many; None: all.
        """
        query = (
            _chosen(select(ReplicaRow), file, dataset, path, states, few=limit is None)
            .where(ReplicaRow.id > after)
            .options(contains_eager(ReplicaRow.dataset).contains_eager(DatasetRow.source))
            .order_by(ReplicaRow.id)
            .limit(limit)
        )
        with self.reading() as session:
            return tuple(_replica_record(row) for row in session.scalars(query))

    def newest_builds(self, limit: int) -> tuple[ReplicaRecord, ...]:
        """Return the replicas that were built last, whatever has become of them, newest first."""
        query = (
            select(ReplicaRow)
            .join(ReplicaRow.dataset)
            .join(DatasetRow.source)
            .where(ReplicaRow.build_s.is_not(None), ReplicaRow.stored_bytes.is_not(None))
            .options(contains_eager(ReplicaRow.dataset).contains_eager(DatasetRow.source))
            .order_by(ReplicaRow.id.desc())
            .limit(limit)
        )
        with self.reading() as session:
            return tuple(_replica_record(row) for row in session.scalars(query))

    def count_replicas(
        self,
        file: str | None = None,
        dataset: str | None = None,
        *,
        path: str | None = None,
        states: frozenset[ReplicaState] = frozenset(ReplicaState) - GONE_STATES,
    ) -> int:
        """Return how many replicas `replicas` returns without a limit."""
        if file is None and dataset is None and path is None:
            query = select(func.count()).where(ReplicaRow.state.in_(states))
        else:
            query = _chosen(select(func.count()), file, dataset, path, states, few=True)
        with self.reading() as session:
            return session.scalar(query) or 0

    def replica_counts(self) -> records.ReplicaCounts:
        """Return how many replicas there are in each state, and what they take."""
        query = select(
            ReplicaRow.state,
            func.count(),
            func.sum(func.coalesce(ReplicaRow.stored_bytes, ReplicaRow.size_bytes)),
            func.sum(ReplicaRow.n_tiles),
        ).group_by(ReplicaRow.state)
        with self.reading() as session:
            found = {ReplicaState(state): sums for state, *sums in session.execute(query)}
        here = [sums for state, sums in found.items() if state not in GONE_STATES]
        return records.ReplicaCounts(
            by_state={
                state.value: found[state][0] if state in found and state not in GONE_STATES else 0
                for state in ReplicaState
            },
            stored_bytes=sum(stored_bytes for _, stored_bytes, _ in here),
            tiles=sum(tiles for *_, tiles in here),
        )

    def uncollected_replicas(self, limit: int | None) -> tuple[ReplicaRecord, ...]:
        """Return replicas that are gone, but whose file may still be there."""
        query = (
            select(ReplicaRow)
            .join(ReplicaRow.dataset)
            .join(DatasetRow.source)
            .where(ReplicaRow.state.in_(GONE_STATES), ReplicaRow.has_file)
            .options(contains_eager(ReplicaRow.dataset).contains_eager(DatasetRow.source))
            .limit(limit)
        )
        with self.reading() as session:
            return tuple(_replica_record(row) for row in session.scalars(query))

    def set_collected(self, replica_id: int) -> None:
        """Note that the file of a replica that is gone is deleted, or is not ours to delete."""
        with self.writing() as session:
            _replica_row(session, replica_id).has_file = False


def _move(
    session: Session,
    row: ReplicaRow,
    state: ReplicaState,
    reason: str,
    numbers: Mapping[str, float],
) -> None:
    """Move a replica to another state and append the event that says why."""
    row.state = state
    row.reason = reason
    mark_source(row.dataset.source)
    row.changed_ns = time.time_ns()
    if state in _UNTESTED_STATES:
        row.shadow_test = None
    add_event_row(session, "replica", row.id, state.value, reason, numbers)


def _was_pinned(dataset: DatasetRow, layout: ReplicaLayout, identity: FileIdentity) -> bool:
    """Return whether the newest replica like this was pinned until its source changed."""
    like = [row for row in dataset.replicas if row.layout == layout]
    newest = max(like, key=lambda row: row.id, default=None)
    return (
        newest is not None
        and newest.pinned
        and newest.source_identity != identity
        and newest.reason != REMOVED
    )


def _replica_row(session: Session, replica_id: int) -> ReplicaRow:
    row = session.get(ReplicaRow, replica_id)
    if row is None:
        message = f"there is no replica {replica_id}; `sds replicas` lists those there are"
        raise NotFoundError(message)
    return row


def _chosen(
    query: Select[Any],
    file: str | None,
    dataset: str | None,
    path: str | None,
    states: frozenset[ReplicaState],
    *,
    few: bool,
) -> Select[Any]:
    """Return a query of replicas, restricted; None: not by that.

    `few`: where nothing else restricts it, rows are looked up by their states.
    """
    is_by_state = few and file is None and dataset is None and path is None
    query = query.select_from(ReplicaRow).join(ReplicaRow.dataset).join(DatasetRow.source)
    if path is not None:
        query = query.where(ReplicaRow.path == path)
    is_in = ReplicaRow.state.in_(states) if is_by_state else state_in(states)
    return of_dataset(query, file, dataset).where(is_in)


def _replica_record(row: ReplicaRow) -> ReplicaRecord:
    from sds.catalog.replica_records import ReplicaRecord  # noqa: PLC0415  (NumPy)

    layout = ("order", "storage", "chunk_shape", "filters", "region", "sort", "segments")
    return record_of(
        ReplicaRecord,
        row,
        file=row.dataset.source.path,
        dataset=row.dataset.path,
        stored_bytes=None if row.replica is None else row.replica.stored_bytes,
        in_shadow=row.shadow_test is not None,
        **{name: getattr(row.layout, name) for name in layout},
    )
