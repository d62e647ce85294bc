"""The tables of the catalog. A row holds keys, relations and what queries ask for.

Domain objects are stored whole, as JSON in one column (:class:`AsJson`): their fields are declared
once, by the stage that makes them. Stored JSON is a format, so a change of such a field needs a
migration as a change of a column does.
"""

from __future__ import annotations

import pkgutil
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import JsonValue, TypeAdapter
from sqlalchemy import (
    BigInteger,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.types import TypeDecorator

from sds.catalog.database import damaged
from sds.catalog.read_histories import AsTrail
from sds.catalog.records import JobState, ReplicaState
from sds.hdf5.identity import FileIdentity

if TYPE_CHECKING:
    from collections.abc import Collection

    from _typeshed import DataclassInstance
    from sqlalchemy import ColumnElement
    from sqlalchemy.engine import Dialect


Record = TypeVar("Record", bound="DataclassInstance")


class AsJson(TypeDecorator[Any]):
    """Store a value of one type whole, as JSON text.

    `kind`: the type, or its name as ``module:name``, which is imported at the first value.
    """

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:  # noqa: ANN401  (any type that pydantic can serialise)
        super().__init__()
        self.kind = kind

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        kind = pkgutil.resolve_name(self.kind) if isinstance(self.kind, str) else self.kind
        return TypeAdapter(kind)

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
            name = getattr(self.kind, "__name__", str(self.kind)).rpartition(":")[2]
            raise damaged("database", f"{value!r:.60} is no {name}") from error


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


class _Checked(TypeDecorator[Any]):
    """Store a number or text. SQLite keeps what it is given, whatever the column's type says."""

    kinds: ClassVar[tuple[type, ...]]

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ANN401, ARG002
        """Return a value of the column's type or NULL; CatalogError where it is of another."""
        if value is not None and type(value) not in self.kinds:
            raise damaged("database", f"{value!r:.60} is no {self.kinds[0].__name__}")
        return value


class Whole(_Checked):
    """A whole number of 64 bits."""

    impl = BigInteger
    cache_ok = True
    kinds = (int,)


class Real(_Checked):
    """A floating-point number; SQLite returns those of sums without a fraction as whole ones."""

    impl = Float
    cache_ok = True
    kinds = (float, int)


class Words(_Checked):
    """Text."""

    impl = Text
    cache_ok = True
    kinds = (str,)


class Prose(Words):
    """Text for people; bytes that are not UTF-8, of names in it, are stored as escapes."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ANN401, ARG002
        """Return text that SQLite takes."""
        return None if value is None else value.encode("utf-8", "backslashreplace").decode()


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
    type_annotation_map: ClassVar[dict[Any, Any]] = {int: Whole, float: Real, str: Words}


def record_of(kind: type[Record], row: Any, **others: Any) -> Record:  # noqa: ANN401
    """Return a record whose fields are the columns of a row of the same names, and `others`."""
    columns = {field.name for field in fields(kind)} - others.keys()
    return kind(**{name: getattr(row, name) for name in columns}, **others)


def _stored(name: str, *, nullable: bool = False) -> Mapped[Any]:
    """Return a column of JSON, of a type that is imported when a value is read."""
    return mapped_column(AsJson(name), nullable=nullable)


class SourceFileRow(Base):
    """A file that was read or reorganized."""

    __tablename__ = "source_file"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    path: Mapped[str] = mapped_column(unique=True)
    identity: Mapped[FileIdentity] = mapped_column(AsJson(FileIdentity))
    seen_ns: Mapped[int]
    # NULL: no replica serves it. MUST_PUBLISH and a time: its replicas changed, its table has not
    # yet. Else what the table was made by, and which files there are of it.
    published: Mapped[str | None] = mapped_column(index=True)

    datasets: Mapped[list[DatasetRow]] = relationship(back_populates="source")


class DatasetRow(Base):
    """A dataset of a source file."""

    __tablename__ = "dataset"
    __table_args__ = (UniqueConstraint("source_file_id", "path"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    source_file_id: Mapped[int] = mapped_column(ForeignKey("source_file.id"), index=True)
    path: Mapped[str]
    extent: Mapped[tuple[int, ...]] = mapped_column(AsJson(tuple[int, ...]))
    element_size_bytes: Mapped[int]
    storage: Mapped[str]
    data_offset_bytes: Mapped[int | None]
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

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"), index=True)
    shape: Mapped[str]  # what makes two reads the same pattern
    n_reads: Mapped[int]  # calls of HDF5, as a trace counts them
    bytes_read: Mapped[int]
    elapsed_s: Mapped[float]
    time_lost_s: Mapped[float]
    first_ns: Mapped[int]
    last_ns: Mapped[int]
    pattern: Mapped[Any] = _stored("sds.analyzer:AccessPattern")

    dataset: Mapped[DatasetRow] = relationship(back_populates="patterns")


class TrailRow(Base):
    """Positions of the newest reads of a dataset; reads counted before trails existed have none.

    It changes in the transaction that counts the reads.
    """

    __tablename__ = "trail"
    __table_args__ = (UniqueConstraint("dataset_id"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id", ondelete="CASCADE"))
    trail: Mapped[Any] = mapped_column(AsTrail, nullable=False)


class RecommendationRow(Base):
    """Advice as it was given."""

    __tablename__ = "recommendation"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"), index=True)
    created_ns: Mapped[int]
    recommendation: Mapped[Any] = _stored("sds.recommender.portfolio.values:Recommendation")

    dataset: Mapped[DatasetRow] = relationship()


class ReplicaRow(Base):
    """A reorganized copy of a dataset, from its plan to its end."""

    __tablename__ = "replica"
    __table_args__ = (
        # Finds replicas by state, and holds the sums of each.
        Index("ix_replica_state", "state", "has_file", "size_bytes", "stored_bytes", "n_tiles"),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"), index=True)
    layout: Mapped[Any] = _stored("sds.geometry.replica_layout:ReplicaLayout")
    state: Mapped[ReplicaState] = mapped_column(AsState(ReplicaState))
    path: Mapped[str] = mapped_column(index=True)
    source_identity: Mapped[FileIdentity] = mapped_column(AsJson(FileIdentity))
    size_bytes: Mapped[int]
    stored_bytes: Mapped[int | None]  # as in `replica`
    n_tiles: Mapped[int]  # as in `layout`
    has_file: Mapped[bool]  # False: deleted, or once retired not ours to delete
    created_ns: Mapped[int]
    changed_ns: Mapped[int]
    reason: Mapped[str] = mapped_column(Prose())
    build_s: Mapped[float | None]
    verified_ns: Mapped[int | None]
    replica: Mapped[Any] = _stored("sds.organizer.replica_file.replica:Replica", nullable=True)
    # NULL: it is not tested in shadow, or no longer.
    shadow_test: Mapped[Any] = _stored("sds.analyzer.shadow:ShadowTest", nullable=True)
    pinned: Mapped[bool] = mapped_column(server_default="1")
    predicted_saving_s_per_read: Mapped[float | None]

    dataset: Mapped[DatasetRow] = relationship(back_populates="replicas")


def state_in(states: Collection[ReplicaState]) -> ColumnElement[bool]:
    """Return the SQL condition that a replica is in some state, without the index of states.

    Most rows are in one state. SQLite does not know, and would look for the rows of a source among
    all those of a state; an expression keeps it from the index of states.
    """
    return (ReplicaRow.state + "").in_(states)


class JobRow(Base):
    """Long work and how far it is."""

    __tablename__ = "job"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    state: Mapped[JobState] = mapped_column(AsState(JobState), index=True)
    request: Mapped[Any] = _stored("sds.catalog.requests:JobRequest")
    progress: Mapped[float]
    attempts: Mapped[int]
    error: Mapped[str] = mapped_column(Prose())
    result: Mapped[dict[str, JsonValue] | None] = mapped_column(AsJson(dict[str, JsonValue]))
    cancel_requested: Mapped[bool]
    created_ns: Mapped[int]
    started_ns: Mapped[int | None]
    finished_ns: Mapped[int | None]
    priority: Mapped[int] = mapped_column(server_default="0")


class SpoolFileRow(Base):
    """Progress of counting a spool file. Kept when the file is gone: it never counts twice."""

    __tablename__ = "spool_file"
    __table_args__ = (UniqueConstraint("name", "inode"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str]
    inode: Mapped[int] = mapped_column(AsJson(int))  # of 64 bits without sign
    offset_bytes: Mapped[int]
    size_bytes: Mapped[int]
    complete: Mapped[bool]
    n_reads: Mapped[int]
    dropped_reads: Mapped[int]
    changed_ns: Mapped[int]
    problem: Mapped[str] = mapped_column(Prose())


class CalibrationRow(Base):
    """The measured models of a file system; the newest of a mount point is used."""

    __tablename__ = "calibration"
    __table_args__ = (Index("ix_calibration_mount_point_created_ns", "mount_point", "created_ns"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    mount_point: Mapped[str]
    device: Mapped[int]
    created_ns: Mapped[int]
    calibration: Mapped[Any] = _stored("sds.calibration.results:Calibration")
    changed_ns: Mapped[int | None]  # when it was fitted anew


class EventRow(Base):
    """Event with its reason and the numbers behind it. Only ever appended."""

    __tablename__ = "event"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    time_ns: Mapped[int] = mapped_column(index=True)
    subject: Mapped[str]
    subject_id: Mapped[int | None]
    kind: Mapped[str]
    reason: Mapped[str] = mapped_column(Prose())
    numbers: Mapped[dict[str, float]] = mapped_column(AsJson(dict[str, float]))


class PolicyRow(Base):
    """The mode of the evaluator for a directory, a file or a dataset, and space for replicas."""

    __tablename__ = "policy"
    __table_args__ = (UniqueConstraint("path", "dataset"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    path: Mapped[str]
    dataset: Mapped[str]  # empty: of all of the file or directory
    mode: Mapped[str]
    set_ns: Mapped[int]
    budget_bytes: Mapped[int | None]


class StatedReadsRow(Base):
    """Reads of a dataset that programs are going to make, as a person says."""

    __tablename__ = "stated_reads"
    __table_args__ = (UniqueConstraint("dataset_id", "selection"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id", ondelete="CASCADE"))
    selection: Mapped[str]
    n_reads_per_day: Mapped[int]
    stated_ns: Mapped[int]

    dataset: Mapped[DatasetRow] = relationship()


class StampRow(Base):
    """Fingerprint, by name, of a part of the home when it was last found in order."""

    __tablename__ = "stamp"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
