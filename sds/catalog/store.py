"""Every query of the catalog but those of the job queue (:mod:`sds.catalog.queue`).

Each public method is one transaction, kept whole or not at all.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import func, select

from sds.analyzer import merge_patterns
from sds.catalog import records
from sds.catalog.engine import Database, open_engine
from sds.catalog.migrate import check_revision, upgrade
from sds.catalog.records import ReplicaState
from sds.catalog.rows import (
    CalibrationRow,
    DatasetRow,
    EventRow,
    PatternRow,
    RecommendationRow,
    ReplicaRow,
    SourceFileRow,
    SpoolFileRow,
)
from sds.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Select
    from sqlalchemy.orm import Session

    from sds.analyzer import AccessPattern
    from sds.identity import FileIdentity
    from sds.organizer.layout import ReplicaLayout
    from sds.organizer.replica import Replica
    from sds.recommender import Recommendation
    from sds.recommender.calibration import Calibration

_Query = TypeVar("_Query", bound="Select[*tuple[Any, ...]]")

OPEN_STATES = frozenset({ReplicaState.PLANNED, ReplicaState.BUILDING})
GONE_STATES = frozenset({ReplicaState.RETIRED, ReplicaState.REVERTED})


class Store(Database):
    """The catalog of one home."""

    @classmethod
    def open(cls, url: str) -> Store:
        """Open a catalog, creating it where there is none.

        Raises
        ------
        CatalogError
            If it is of another revision, or would lie on a network file system.
        ConfigurationError
            If the URL cannot be used.
        """
        engine = open_engine(url)
        try:
            if not check_revision(engine):
                upgrade(engine)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine)

    def put_dataset(self, facts: records.DatasetFacts) -> int:
        """Return the id of a dataset, adding it or renewing what is known of it."""
        with self.writing() as session:
            return _dataset_row(session, facts).id

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
                row.complete = advance.complete
                row.n_reads += advance.n_reads
                row.dropped_reads = advance.dropped_reads
                row.changed_ns = now_ns
                if advance.problem and advance.problem != row.problem:
                    _add_event(session, "spool", row.id, "damaged", advance.problem, {})
                row.problem = advance.problem
            for facts, pattern in patterns:
                _add_pattern(session, _dataset_row(session, facts), pattern)
        return True

    def patterns(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[records.PatternRecord, ...]:
        """Return access patterns, those that lose most time first."""
        query = _of_dataset(
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

    def add_recommendation(
        self, facts: records.DatasetFacts, recommendation: Recommendation
    ) -> records.RecommendationRecord:
        """Keep advice that was given."""
        with self.writing() as session:
            row = RecommendationRow(
                dataset=_dataset_row(session, facts),
                created_ns=time.time_ns(),
                recommendation=recommendation,
            )
            session.add(row)
            session.flush()
            return _recommendation_record(row)

    def recommendations(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[records.RecommendationRecord, ...]:
        """Return the newest advice for each dataset."""
        newest = select(func.max(RecommendationRow.id)).group_by(RecommendationRow.dataset_id)
        query = _of_dataset(
            select(RecommendationRow).join(RecommendationRow.dataset).join(DatasetRow.source),
            file,
            dataset,
        ).where(RecommendationRow.id.in_(newest))
        with self.reading() as session:
            rows = session.scalars(query.order_by(RecommendationRow.id.desc()))
            return tuple(_recommendation_record(row) for row in rows)

    def begin_replica(
        self, facts: records.DatasetFacts, *, layout: ReplicaLayout, path: str, size_bytes: int
    ) -> records.ReplicaRecord:
        """Note that a replica is about to be built, before its file exists.

        The same replica, begun or built before, keeps its id; what else had this path is replaced.
        """
        now_ns = time.time_ns()
        with self.writing() as session:
            dataset = _dataset_row(session, facts)
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
                _add_event(session, "replica", row.id, row.state, row.reason, {})
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
                replica=None,
            )
            session.add(row)
            session.flush()
            _add_event(session, "replica", row.id, "building", f"{path} is being built", {})
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
        """Move a replica to another state and append the event that says why."""
        with self.writing() as session:
            row = _replica_row(session, replica_id)
            row.state = state
            row.reason = reason
            row.changed_ns = time.time_ns()
            if replica is not None:
                row.replica = replica
                row.path = str(replica.path)
                row.size_bytes = replica.size_bytes
                row.source_identity = replica.source_identity
            if build_s is not None:
                row.build_s = build_s
            _add_event(session, "replica", replica_id, state.value, reason, numbers or {})
            return _replica_record(row)

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
        query = _of_dataset(
            select(ReplicaRow).join(ReplicaRow.dataset).join(DatasetRow.source), file, dataset
        ).where(ReplicaRow.state.in_(states))
        with self.reading() as session:
            rows = session.scalars(query.order_by(ReplicaRow.id))
            return tuple(_replica_record(row) for row in rows)

    def add_calibration(
        self, *, mount_point: str, device: int, calibration: Calibration
    ) -> records.CalibrationRecord:
        """Keep the measured models of a file system."""
        with self.writing() as session:
            row = CalibrationRow(
                mount_point=mount_point,
                device=device,
                created_ns=time.time_ns(),
                calibration=calibration,
            )
            session.add(row)
            session.flush()
            _add_event(session, "calibration", row.id, "stored", f"{mount_point} measured", {})
            return _calibration_record(row)

    def calibrations(self) -> tuple[records.CalibrationRecord, ...]:
        """Return the newest calibration of each file system."""
        newest = select(func.max(CalibrationRow.id)).group_by(
            CalibrationRow.mount_point, CalibrationRow.device
        )
        query = select(CalibrationRow).where(CalibrationRow.id.in_(newest))
        with self.reading() as session:
            rows = session.scalars(query.order_by(CalibrationRow.id.desc()))
            return tuple(_calibration_record(row) for row in rows)

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
            _add_event(session, subject, subject_id, kind, reason, numbers or {})

    def events(self, limit: int) -> tuple[records.EventRecord, ...]:
        """Return the newest events, newest first."""
        query = select(EventRow).order_by(EventRow.id.desc()).limit(limit)
        with self.reading() as session:
            return tuple(
                records.EventRecord(
                    id=row.id,
                    time_ns=row.time_ns,
                    subject=row.subject,
                    subject_id=row.subject_id,
                    kind=row.kind,
                    reason=row.reason,
                    numbers=row.numbers,
                )
                for row in session.scalars(query)
            )


def _of_dataset(query: _Query, file: str | None, dataset: str | None) -> _Query:
    if file is not None:
        query = query.where(SourceFileRow.path == file)
    if dataset is not None:
        query = query.where(DatasetRow.path == dataset)
    return query


def _source_row(session: Session, path: str, identity: FileIdentity) -> SourceFileRow:
    row = session.scalars(select(SourceFileRow).filter_by(path=path)).one_or_none()
    if row is None:
        row = SourceFileRow(path=path, identity=identity, seen_ns=time.time_ns())
        session.add(row)
    elif row.identity != identity:
        row.identity = identity
        row.seen_ns = time.time_ns()
    return row


def _dataset_row(session: Session, facts: records.DatasetFacts) -> DatasetRow:
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


def _spool_row(session: Session, advance: records.SpoolAdvance) -> SpoolFileRow:
    query = select(SpoolFileRow).filter_by(name=advance.name, inode=advance.inode)
    row = session.scalars(query).one_or_none()
    if row is None:
        row = SpoolFileRow(
            name=advance.name,
            inode=advance.inode,
            offset_bytes=0,
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


def _replica_row(session: Session, replica_id: int) -> ReplicaRow:
    row = session.get(ReplicaRow, replica_id)
    if row is None:
        message = f"there is no replica {replica_id}; `sds replicas` lists those there are"
        raise NotFoundError(message)
    return row


def _add_event(  # noqa: PLR0917  (in the order of the columns)
    session: Session,
    subject: str,
    subject_id: int | None,
    kind: str,
    reason: str,
    numbers: Mapping[str, float],
) -> None:
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


def _spool_record(row: SpoolFileRow) -> records.SpoolRecord:
    return records.SpoolRecord(
        name=row.name,
        inode=row.inode,
        offset_bytes=row.offset_bytes,
        complete=row.complete,
        n_reads=row.n_reads,
        dropped_reads=row.dropped_reads,
        changed_ns=row.changed_ns,
        problem=row.problem,
    )


def _recommendation_record(row: RecommendationRow) -> records.RecommendationRecord:
    return records.RecommendationRecord(
        id=row.id,
        file=row.dataset.source.path,
        dataset=row.dataset.path,
        created_ns=row.created_ns,
        recommendation=row.recommendation,
    )


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
        replica=row.replica,
    )


def _calibration_record(row: CalibrationRow) -> records.CalibrationRecord:
    return records.CalibrationRecord(
        id=row.id,
        mount_point=row.mount_point,
        device=row.device,
        created_ns=row.created_ns,
        calibration=row.calibration,
    )
