"""Advice as it was given, and the measured models behind it."""

from __future__ import annotations

import base64
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from sds.catalog import records
from sds.catalog.datasets import dataset_row, of_dataset
from sds.catalog.engine import Database
from sds.catalog.events import add_event_row
from sds.catalog.publications import outdate_sources
from sds.catalog.rows import (
    CalibrationRow,
    DatasetRow,
    EventRow,
    LearnedModelRow,
    QueryRecommendationRow,
    RecommendationRow,
)
from sds.errors import SdsValueError
from sds.recommender.learned import VERSION
from sds.recommender.samples import Lesson

if TYPE_CHECKING:
    from collections.abc import Callable

    from sds.recommender import QueryRecommendation, Recommendation
    from sds.recommender.calibration import Calibration, Measurement
    from sds.recommender.learned import LearnedModel

log = logging.getLogger(__name__)


class Predictions(Database):
    """Queries of recommendations and calibrations."""

    # Which calibrations there were, and the newest of each file system among them.
    _calibrations: tuple[
        tuple[tuple[int, int | None], ...], tuple[records.CalibrationRecord, ...]
    ] = ((), ())

    def add_recommendation(
        self, facts: records.DatasetFacts, recommendation: Recommendation
    ) -> records.RecommendationRecord:
        """Keep advice that was given."""
        with self.writing() as session:
            row = RecommendationRow(
                dataset=dataset_row(session, facts),
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
        query = of_dataset(
            select(RecommendationRow).join(RecommendationRow.dataset).join(DatasetRow.source),
            file,
            dataset,
        ).where(RecommendationRow.id.in_(newest))
        with self.reading() as session:
            rows = session.scalars(query.order_by(RecommendationRow.id.desc()))
            return tuple(_recommendation_record(row) for row in rows)

    def add_query_recommendation(
        self, facts: records.DatasetFacts, recommendation: QueryRecommendation
    ) -> records.QueryRecommendationRecord:
        """Keep advice on sorting a table that was given."""
        with self.writing() as session:
            row = QueryRecommendationRow(
                dataset=dataset_row(session, facts),
                created_ns=time.time_ns(),
                recommendation=recommendation,
            )
            session.add(row)
            session.flush()
            return _query_recommendation_record(row)

    def query_recommendations(
        self, file: str | None = None, table: str | None = None
    ) -> tuple[records.QueryRecommendationRecord, ...]:
        """Return the newest advice on sorting each table."""
        kind = QueryRecommendationRow
        newest = select(func.max(kind.id)).group_by(kind.dataset_id)
        query = of_dataset(
            select(kind).join(kind.dataset).join(DatasetRow.source), file, table
        ).where(kind.id.in_(newest))
        with self.reading() as session:
            rows = session.scalars(query.order_by(kind.id.desc()))
            return tuple(_query_recommendation_record(row) for row in rows)

    def add_calibration(
        self, *, mount_point: str, device: int, calibration: Calibration
    ) -> records.CalibrationRecord:
        """Keep the measured models of a file system."""
        with self.writing() as session:
            row = CalibrationRow(
                mount_point=mount_point,
                device=device,
                created_ns=time.time_ns(),
                calibration=_without_arrays(calibration),
                learned=_learned_rows(calibration),
            )
            session.add(row)
            session.flush()
            outdate_sources(session)
            add_event_row(session, "calibration", row.id, "stored", f"{mount_point} measured", {})
            return _calibration_record(row)

    def replace_calibration(self, calibration_id: int, calibration: Calibration) -> None:
        """Keep models of a file system that were fitted anew in place of those before."""
        with self.writing() as session:
            row = session.get_one(CalibrationRow, calibration_id)
            row.calibration = _without_arrays(calibration)
            row.changed_ns = time.time_ns()
            outdate_sources(session)
            row.learned.clear()
            session.flush()  # before others of the same key are added
            row.learned = _learned_rows(calibration)
            add_event_row(
                session,
                "calibration",
                calibration_id,
                "refitted",
                f"{row.mount_point}: models fitted to traced reads as well",
                {"traced_reads": float(sum(m.n_traced for m in calibration.measurements))},
            )

    def calibration_changes(self) -> dict[int, str]:
        """Return what was last said of the file systems that changed since they were measured.

        By the calibration's id.
        """
        query = (
            select(EventRow)
            .where(EventRow.subject == "calibration", EventRow.kind == "changed")
            .order_by(EventRow.id)
        )
        with self.reading() as session:
            return {
                row.subject_id: row.reason
                for row in session.scalars(query)
                if row.subject_id is not None
            }

    def calibrations(self) -> tuple[records.CalibrationRecord, ...]:
        """Return the newest calibration of each file system.

        They are read anew where one was added or fitted anew since, in whichever process.
        """
        column = CalibrationRow
        version = select(column.id, column.changed_ns).order_by(column.id)
        newest = select(func.max(column.id)).group_by(column.mount_point, column.device)
        query = select(column).where(column.id.in_(newest))
        with self.reading() as session:
            now = tuple((number, changed_ns) for number, changed_ns in session.execute(version))
            version_read, found = self._calibrations
            if version_read != now:
                rows = session.scalars(query.order_by(column.id.desc()))
                found = tuple(_calibration_record(row) for row in rows)
                self._calibrations = now, found
        return found

    def calibrated_mount_points(self) -> tuple[str, ...]:
        """Return the mount points of `calibrations`."""
        column = CalibrationRow
        newest = select(func.max(column.id)).group_by(column.mount_point, column.device)
        query = select(column.mount_point).where(column.id.in_(newest)).order_by(column.id.desc())
        with self.reading() as session:
            return tuple(session.scalars(query))


def _recommendation_record(row: RecommendationRow) -> records.RecommendationRecord:
    return records.RecommendationRecord(
        id=row.id,
        file=row.dataset.source.path,
        dataset=row.dataset.path,
        created_ns=row.created_ns,
        recommendation=row.recommendation,
    )


def _query_recommendation_record(row: QueryRecommendationRow) -> records.QueryRecommendationRecord:
    return records.QueryRecommendationRecord(
        id=row.id,
        file=row.dataset.source.path,
        table=row.dataset.path,
        created_ns=row.created_ns,
        recommendation=row.recommendation,
    )


def _calibration_record(row: CalibrationRow) -> records.CalibrationRecord:
    return records.CalibrationRecord(
        id=row.id,
        mount_point=row.mount_point,
        device=row.device,
        created_ns=row.created_ns,
        calibration=_with_arrays(row),
    )


def _learned_rows(calibration: Calibration) -> list[LearnedModelRow]:
    return [
        LearnedModelRow(
            via=m.via, cache=m.cache, version=VERSION, arrays=base64.b64decode(model.arrays)
        )
        for m in calibration.measurements
        if m.lesson is not None and (model := m.lesson.model) is not None
    ]


def _without_arrays(calibration: Calibration) -> Calibration:
    """Return a calibration whose learned models are described only."""
    return _with_lessons(
        calibration, lambda _, model: Lesson(model=replace(model, arrays=""), refused="")
    )


def _with_arrays(row: CalibrationRow) -> Calibration:
    """Return a calibration as it was measured.

    A learned model that this version cannot read is not used; the lesson says so.
    """
    stored = {(one.via, one.cache): one.arrays for one in row.learned}

    def joined(measurement: Measurement, model: LearnedModel) -> Lesson:
        arrays = stored.get((measurement.via, measurement.cache), b"")
        whole = replace(model, arrays=base64.b64encode(arrays).decode("ascii"))
        try:
            whole.check()
        except SdsValueError as error:
            log.warning("%s, %s: %s", row.mount_point, measurement.via, error)
            return Lesson(model=None, refused=str(error))
        return Lesson(model=whole)

    return _with_lessons(row.calibration, joined)


def _with_lessons(
    calibration: Calibration, changed: Callable[[Measurement, LearnedModel], Lesson]
) -> Calibration:
    """Return a calibration with changed lessons, where something was learned."""
    measurements = []
    for measurement in calibration.measurements:
        lesson = measurement.lesson
        if lesson is not None and lesson.model is not None:
            found = changed(measurement, lesson.model)
            lesson = replace(found, refused=found.refused or lesson.refused)
        measurements.append(replace(measurement, lesson=lesson))
    return replace(calibration, measurements=tuple(measurements))
