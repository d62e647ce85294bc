"""The tables of the catalog. A row holds keys, relations and what queries ask for.

Domain objects are stored whole, as JSON in one column (:class:`AsJson`): their fields are declared
once, by the stage that makes them. Stored JSON is a format, so a change of such a field needs a
migration as a change of a column does.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue, TypeAdapter
from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.types import TypeDecorator

from sds.analyzer import AccessPattern, ReadTrail
from sds.catalog.engine import damaged
from sds.catalog.records import JobRequest, JobState, ReplicaState
from sds.catalog.trails import AsTrail
from sds.identity import FileIdentity
from sds.organizer.layout import ReplicaLayout
from sds.organizer.replica import Replica
from sds.recommender import QueryRecommendation, Recommendation
from sds.recommender.calibration import Calibration

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import ColumnElement
    from sqlalchemy.engine import Dialect


class AsJson(TypeDecorator[Any]):
    """Store a value of one type whole, as JSON text."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:  # noqa: ANN401  (any type that pydantic can serialise)
        super().__init__()
        self.kind = kind

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.kind)

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ANN401, ARG002
        """Return the JSON of a value; None is NULL."""
        return None if value is None else self._adapter.dump_json(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ANN401, ARG002
        """Return the value of its JSON; CatalogError where it is none."""
        if value is None:
            return None
        try:
            return self._adapter.validate_json(value)
        except ValueError as error:  # pydantic's, or that of the type itself
            problem = f"{value[:60]!r} is no {getattr(self.kind, '__name__', self.kind)}"
            raise damaged("database", problem) from error


class AsState(TypeDecorator[Any]):
    """Store a state as its name."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[ReplicaState | JobState]) -> None:
        super().__init__()
        self.kind = kind

    def process_result_value(self, value: Any, dialect: Dialect) -> ReplicaState | JobState:  # noqa: ANN401, ARG002
        """Return the state of a name; CatalogError where there is none."""
        try:
            return self.kind(value)
        except ValueError as error:
            raise damaged("database", f"{value!r} is no {self.kind.__name__}") from error


class Base(DeclarativeBase):
    """Common to all tables: names of constraints that are the same on every database."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class SourceFileRow(Base):
    """A file that was read or reorganized."""

    __tablename__ = "source_file"

    id: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(Text, unique=True)
    identity: Mapped[FileIdentity] = mapped_column(AsJson(FileIdentity))
    seen_ns: Mapped[int] = mapped_column(BigInteger)
    # NULL: no replica serves it. MUST_PUBLISH and a time: its replicas changed, its table has not
    # yet. Else what the table was made by, and which files there are of it.
    published: Mapped[str | None] = mapped_column(Text, index=True)

    datasets: Mapped[list[DatasetRow]] = relationship(back_populates="source")


class DatasetRow(Base):
    """A dataset of a source file."""

    __tablename__ = "dataset"
    __table_args__ = (UniqueConstraint("source_file_id", "path"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    source_file_id: Mapped[int] = mapped_column(ForeignKey("source_file.id"), index=True)
    path: Mapped[str] = mapped_column(Text)
    extent: Mapped[tuple[int, ...]] = mapped_column(AsJson(tuple[int, ...]))
    element_size_bytes: Mapped[int] = mapped_column(BigInteger)
    storage: Mapped[str] = mapped_column(Text)
    data_offset_bytes: Mapped[int | None] = mapped_column(BigInteger)
    chunk_shape: Mapped[tuple[int, ...] | None] = mapped_column(AsJson(tuple[int, ...]))

    source: Mapped[SourceFileRow] = relationship(back_populates="datasets")
    patterns: Mapped[list[PatternRow]] = relationship(back_populates="dataset")
    replicas: Mapped[list[ReplicaRow]] = relationship(back_populates="dataset")


class PatternRow(Base):
    """One way in which a dataset is read; its counts grow as traces are ingested."""

    __tablename__ = "pattern"
    __table_args__ = (
        UniqueConstraint("dataset_id", "shape"),
        Index("ix_pattern_n_reads", "n_reads", "elapsed_s", "time_lost_s"),  # holds the sums
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"), index=True)
    shape: Mapped[str] = mapped_column(Text)  # what makes two reads the same pattern
    n_reads: Mapped[int] = mapped_column(BigInteger)  # calls of HDF5, as a trace counts them
    bytes_read: Mapped[int] = mapped_column(BigInteger)
    elapsed_s: Mapped[float]
    time_lost_s: Mapped[float]
    first_ns: Mapped[int] = mapped_column(BigInteger)
    last_ns: Mapped[int] = mapped_column(BigInteger)
    pattern: Mapped[AccessPattern] = mapped_column(AsJson(AccessPattern))

    dataset: Mapped[DatasetRow] = relationship(back_populates="patterns")


class TrailRow(Base):
    """Where the newest reads of a dataset lay; what was counted before there were trails has none.

    It changes in the transaction that counts the reads.
    """

    __tablename__ = "trail"
    __table_args__ = (UniqueConstraint("dataset_id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id", ondelete="CASCADE"))
    trail: Mapped[ReadTrail] = mapped_column(AsTrail)


class RecommendationRow(Base):
    """Advice as it was given."""

    __tablename__ = "recommendation"

    id: Mapped[int] = mapped_column(primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"), index=True)
    created_ns: Mapped[int] = mapped_column(BigInteger)
    recommendation: Mapped[Recommendation] = mapped_column(AsJson(Recommendation))

    dataset: Mapped[DatasetRow] = relationship()


class QueryRecommendationRow(Base):
    """Advice on sorting a table, as it was given."""

    __tablename__ = "query_recommendation"

    id: Mapped[int] = mapped_column(primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"), index=True)
    created_ns: Mapped[int] = mapped_column(BigInteger)
    recommendation: Mapped[QueryRecommendation] = mapped_column(AsJson(QueryRecommendation))

    dataset: Mapped[DatasetRow] = relationship()


class ReplicaRow(Base):
    """A reorganized copy of a dataset, from its plan to its end."""

    __tablename__ = "replica"
    __table_args__ = (
        # Finds replicas by state, and holds the sums of each.
        Index("ix_replica_state", "state", "has_file", "size_bytes", "stored_bytes", "n_tiles"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"), index=True)
    layout: Mapped[ReplicaLayout] = mapped_column(AsJson(ReplicaLayout))
    state: Mapped[ReplicaState] = mapped_column(AsState(ReplicaState))
    path: Mapped[str] = mapped_column(Text, index=True)
    source_identity: Mapped[FileIdentity] = mapped_column(AsJson(FileIdentity))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    stored_bytes: Mapped[int | None] = mapped_column(BigInteger)  # as in `replica`
    n_tiles: Mapped[int] = mapped_column(Integer)  # as in `layout`
    has_file: Mapped[bool]  # False: deleted, or once retired not ours to delete
    created_ns: Mapped[int] = mapped_column(BigInteger)
    changed_ns: Mapped[int] = mapped_column(BigInteger)
    reason: Mapped[str] = mapped_column(Text)
    build_s: Mapped[float | None]
    verified_ns: Mapped[int | None] = mapped_column(BigInteger)
    replica: Mapped[Replica | None] = mapped_column(AsJson(Replica))

    dataset: Mapped[DatasetRow] = relationship(back_populates="replicas")


def state_in(states: Collection[ReplicaState]) -> ColumnElement[bool]:
    """Return the condition that a replica is in one of some states, for rows found otherwise.

    Most rows are in one state. SQLite does not know, and would look for the rows of a source among
    all those of a state; an expression keeps it from the index of states.
    """
    return (ReplicaRow.state + "").in_(states)


class JobRow(Base):
    """Long work and how far it is."""

    __tablename__ = "job"

    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[JobState] = mapped_column(AsState(JobState), index=True)
    request: Mapped[JobRequest] = mapped_column(AsJson(JobRequest))
    progress: Mapped[float]
    attempts: Mapped[int] = mapped_column(Integer)
    error: Mapped[str] = mapped_column(Text)
    result: Mapped[dict[str, JsonValue] | None] = mapped_column(AsJson(dict[str, JsonValue]))
    cancel_requested: Mapped[bool]
    created_ns: Mapped[int] = mapped_column(BigInteger)
    started_ns: Mapped[int | None] = mapped_column(BigInteger)
    finished_ns: Mapped[int | None] = mapped_column(BigInteger)


class SpoolFileRow(Base):
    """How far a spool file has been counted. Kept when the file is gone: it never counts twice."""

    __tablename__ = "spool_file"
    __table_args__ = (UniqueConstraint("name", "inode"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    inode: Mapped[int] = mapped_column(AsJson(int))  # of 64 bits without sign
    offset_bytes: Mapped[int] = mapped_column(BigInteger)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    complete: Mapped[bool]
    n_reads: Mapped[int] = mapped_column(BigInteger)
    dropped_reads: Mapped[int] = mapped_column(BigInteger)
    changed_ns: Mapped[int] = mapped_column(BigInteger)
    problem: Mapped[str] = mapped_column(Text)


class CalibrationRow(Base):
    """The measured models of a file system; the newest of a mount point is used."""

    __tablename__ = "calibration"
    __table_args__ = (Index("ix_calibration_mount_point_created_ns", "mount_point", "created_ns"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    mount_point: Mapped[str] = mapped_column(Text)
    device: Mapped[int] = mapped_column(BigInteger)
    created_ns: Mapped[int] = mapped_column(BigInteger)
    # Without the arrays of learned models.
    calibration: Mapped[Calibration] = mapped_column(AsJson(Calibration))
    changed_ns: Mapped[int | None] = mapped_column(BigInteger)  # when it was fitted anew

    learned: Mapped[list[LearnedModelRow]] = relationship(
        back_populates="calibration", cascade="all, delete-orphan"
    )


class LearnedModelRow(Base):
    """The arrays of what was learned from one calibration, of reads made in one way."""

    __tablename__ = "learned_model"
    __table_args__ = (UniqueConstraint("calibration_id", "via", "cache"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    calibration_id: Mapped[int] = mapped_column(ForeignKey("calibration.id", ondelete="CASCADE"))
    via: Mapped[str] = mapped_column(Text)
    cache: Mapped[str] = mapped_column(Text)
    version: Mapped[int]
    arrays: Mapped[bytes] = mapped_column(LargeBinary)

    calibration: Mapped[CalibrationRow] = relationship(back_populates="learned")


class EventRow(Base):
    """What happened, why, and the numbers behind it. Only ever appended."""

    __tablename__ = "event"

    id: Mapped[int] = mapped_column(primary_key=True)
    time_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    subject: Mapped[str] = mapped_column(Text)
    subject_id: Mapped[int | None]
    kind: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    numbers: Mapped[dict[str, float]] = mapped_column(AsJson(dict[str, float]))


class StampRow(Base):
    """What a part of the home looked like when it was last found in order, by name."""

    __tablename__ = "stamp"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    value: Mapped[str] = mapped_column(Text)
