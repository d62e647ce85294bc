"""Advice as it was given, and the measured models behind it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, select

from sds.catalog.database import Database
from sds.catalog.datasets import dataset_row, of_dataset
from sds.catalog.events import add_event_row
from sds.catalog.publications import outdate_sources
from sds.catalog.rows import (
    CalibrationRow,
    DatasetRow,
    EventRow,
    RecommendationRow,
)

if TYPE_CHECKING:
    from sds.calibration.results import Calibration
    from sds.catalog.model_records import (
        CalibrationRecord,
        RecommendationRecord,
    )
    from sds.catalog.records import DatasetFacts
    from sds.recommender.portfolio.values import Recommendation


class Predictions(Database):
    """Queries of recommendations and calibrations."""

    # Which calibrations there were, and the newest of each file system among them.
    _calibrations: tuple[tuple[tuple[int, int | None], ...], tuple[CalibrationRecord, ...]] = (
        (),
        (),
    )

    def add_recommendation(
        self, facts: DatasetFacts, recommendation: Recommendation
    ) -> RecommendationRecord:
        """Keep advice that was given, in the place of what was given before on the dataset."""
        with self.writing() as session:
            dataset = dataset_row(session, facts)
            session.execute(
                delete(RecommendationRow).where(RecommendationRow.dataset_id == dataset.id)
            )
            row = RecommendationRow(
                dataset=dataset,
                created_ns=time.time_ns(),
                recommendation=recommendation,
            )
            session.add(row)
            session.flush()
            return _recommendation_record(row)

    def recommendations(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[RecommendationRecord, ...]:
        """Return the newest advice for each dataset and table."""
        newest = select(func.max(RecommendationRow.id)).group_by(RecommendationRow.dataset_id)
        query = of_dataset(
            select(RecommendationRow).join(RecommendationRow.dataset).join(DatasetRow.source),
            file,
            dataset,
        ).where(RecommendationRow.id.in_(newest))
        with self.reading() as session:
            rows = session.scalars(query.order_by(RecommendationRow.id.desc()))
            return tuple(_recommendation_record(row) for row in rows)

    def add_calibration(
        self, *, mount_point: str, device: int, calibration: Calibration
    ) -> CalibrationRecord:
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
            outdate_sources(session)
            add_event_row(session, "calibration", row.id, "stored", f"{mount_point} measured", {})
            return _calibration_record(row)

    def replace_calibration(self, calibration_id: int, calibration: Calibration) -> None:
        """Keep models of a file system that were fitted anew in place of those before."""
        with self.writing() as session:
            row = session.get_one(CalibrationRow, calibration_id)
            row.calibration = calibration
            row.changed_ns = time.time_ns()
            outdate_sources(session)
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

    def calibrations(self) -> tuple[CalibrationRecord, ...]:
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


def _recommendation_record(row: RecommendationRow) -> RecommendationRecord:
    from sds.catalog.model_records import RecommendationRecord  # noqa: PLC0415

    return RecommendationRecord(
        id=row.id,
        file=row.dataset.source.path,
        dataset=row.dataset.path,
        created_ns=row.created_ns,
        recommendation=row.recommendation,
    )


def _calibration_record(row: CalibrationRow) -> CalibrationRecord:
    from sds.catalog.model_records import CalibrationRecord  # noqa: PLC0415

    return CalibrationRecord(
        id=row.id,
        mount_point=row.mount_point,
        device=row.device,
        created_ns=row.created_ns,
        calibration=row.calibration,
    )
