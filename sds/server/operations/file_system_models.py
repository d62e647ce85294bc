"""Cost models of a file: those of its file system, where it was calibrated."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from sds.calibration.models_in_use import comparable_models, models_for_table
from sds.engine import builtin_parameters
from sds.errors import NotFoundError, SdsValueError, UnreachableError
from sds.geometry import RaidLayout, StripeLayout
from sds.hdf5.striping import StripesSource, find_stripes
from sds.mounts import filesystem_of, look_at
from sds.recommender.models.read_cost import contiguous_throughput

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from sds.calibration.results import Calibration
    from sds.catalog.model_records import CalibrationRecord
    from sds.catalog.store import Store
    from sds.engine import IoParameters
    from sds.recommender.models.cost_model import CostModel
    from sds.server.settings import Settings

_log = logging.getLogger(__name__)


def configured_stripes(settings: Settings) -> StripeLayout | None:
    """Return the striping of files where Lustre does not say; None: it is not set."""
    if not {"stripe_size_bytes", "stripe_count"} & settings.model_fields_set:
        return None
    return StripeLayout(
        stripe_size_bytes=settings.stripe_size_bytes, stripe_count=settings.stripe_count
    )


def configured_raid(settings: Settings) -> RaidLayout:
    """Return how an OST deals bytes to its disks."""
    return RaidLayout(
        unit_bytes=settings.raid_unit_bytes,
        data_disks=settings.raid_data_disks,
        min_request_bytes=settings.raid_min_request_bytes,
    )


class Models:
    """Cost models and disk geometry by path."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._calibrations: tuple[CalibrationRecord, ...] | None = None  # of a snapshot

    def stripes_of(self, path: str | os.PathLike[str]) -> StripeLayout:
        """Return how a file is dealt to OSTs; see `stripes_and_source`."""
        return self.stripes_and_source(path)[0]

    def stripes_and_source(
        self, path: str | os.PathLike[str]
    ) -> tuple[StripeLayout, StripesSource]:
        """Return how a file is dealt to OSTs, and who says so: its file system, or the settings.

        Of a file in several stripe components, as the one that holds most of it: tables and models
        know one striping per file.
        """
        found = find_stripes(path, configured_stripes(self._settings))
        if found.problem is not None:
            _log.warning("striping of %s: %s; taken as %s", path, found.problem, found.source)
        try:
            size_bytes = Path(path).stat().st_size
        except OSError:
            size_bytes = 0  # gone: the component at the beginning
        return found.stripes.prevailing(0, size_bytes), found.source

    def snapshot(self) -> Models:
        """Return the models as they are calibrated now, for use on many files."""
        found = Models(self._store, self._settings)
        found._calibrations = self._store.calibrations()
        return found

    def _known(self) -> tuple[CalibrationRecord, ...]:
        return self._store.calibrations() if self._calibrations is None else self._calibrations

    @property
    def raid(self) -> RaidLayout:
        """RAID layout of the disks of an OST, as configured."""
        return configured_raid(self._settings)

    @property
    def table_settings(self) -> str:
        """Settings that enter redirect tables; a change of them makes the tables out of date."""
        return f"{configured_stripes(self._settings)} {self.raid}"

    def calibration_record(self, path: str | os.PathLike[str]) -> CalibrationRecord | None:
        """Return the newest calibration of the file system that holds a path; None: never."""
        return calibration_holding(Path(path), self._known())

    def calibration(self, path: str | os.PathLike[str]) -> Calibration | None:
        """Return the same without its place in the catalog."""
        record = self.calibration_record(path)
        return None if record is None else record.calibration

    def change_notes(self, path: str | os.PathLike[str] | None = None) -> tuple[str, ...]:
        """Return why file systems, or that of a path, have to be calibrated again."""
        changes = self._store.calibration_changes()
        record = None if path is None else self.calibration_record(path)
        if path is not None and record is None:
            mount_point = str(filesystem_of(Path(path)).mount_point)
            return tuple(
                f"{mount_point} was calibrated as another device and is not the same any more: "
                f"run sds calibrate {Path(path).parent}"
                for known in self._store.calibrations()
                if known.mount_point == mount_point
            )[:1]
        return tuple(
            f"{known.mount_point} has changed since it was calibrated: {changes[known.id]}; "
            f"run sds calibrate {known.calibration.path}"
            for known in (self._store.calibrations() if record is None else (record,))
            if known.id in changes
        )

    def for_table(
        self,
        source: str | os.PathLike[str],
        replica: str | os.PathLike[str],
        *,
        chunked: bool = False,
    ) -> tuple[CostModel, CostModel]:
        """Return the equations that a redirect table carries, the replica's on the safe side.

        A replica in chunks is read through HDF5 like the original. Where source and replica lie on
        different file systems, each has the model of its own, if both were calibrated; else both
        have the built-in one, for two predictions are compared.
        """
        calibrations = self.calibration(source), self.calibration(replica)
        if None in calibrations:
            return models_for_table(None, chunked=chunked)
        of_source, of_replica = (
            models_for_table(calibration, chunked=chunked) for calibration in calibrations
        )
        if of_source[0].calibrated != of_replica[1].calibrated:
            return models_for_table(None, chunked=chunked)
        return of_source[0], of_replica[1]

    def io_parameters(self, path: str | os.PathLike[str]) -> IoParameters:
        """Return what requests and bytes cost: as calibrated, else the built-in figures."""
        calibration = self.calibration(path)
        if calibration is None or calibration.engine is None:
            return builtin_parameters()
        return calibration.engine.parameters

    def contiguous_bytes_per_s(self, path: str | os.PathLike[str]) -> float:
        """Return how fast long reads are: as calibrated, else as the built-in model has it.

        The built-in model also where a file system cannot be looked at.
        """
        try:
            calibration = self.calibration(path)
        except OSError as error:
            _log.warning("%s", error)
            calibration = None
        original, _ = comparable_models(calibration)
        return contiguous_throughput(original)


def calibration_for(
    path: Path | None, calibrations: Sequence[CalibrationRecord]
) -> CalibrationRecord:
    """Return the calibration of the file system that holds a path.

    Parameters
    ----------
    path
        None: of the only one that there is.
    calibrations
        The newest of each file system.

    Raises
    ------
    NotFoundError
        If that file system was not calibrated; it says which were.
    SdsValueError
        If no path is given and several were, or the path is none.
    """
    there = ", ".join(record.mount_point for record in calibrations)
    if path is None:
        if len(calibrations) > 1:
            message = f"several file systems are calibrated ({there}); name a path on one of them"
            raise SdsValueError(message)
        found = calibrations[0] if calibrations else None
    else:
        try:
            found = calibration_holding(path, calibrations)
        except UnreachableError:
            raise
        except (OSError, ValueError) as error:
            message = f"path {str(path)!r} cannot be looked at ({error}); name one that exists"
            raise SdsValueError(message) from error
    if found is None:
        words = "no file system is calibrated"
        if there:
            words = f"the file system of {path} is not calibrated, only {there}"
        message = f"{words}; run `sds calibrate DIRECTORY`"
        raise NotFoundError(message)
    return found


def calibration_holding(
    path: Path, calibrations: Sequence[CalibrationRecord]
) -> CalibrationRecord | None:
    """Return the calibration of the file system that holds a path; None: there is none."""
    if not calibrations:
        return None
    here = str(filesystem_of(path).mount_point), look_at(path, lambda: _device_of(path))
    return next((one for one in calibrations if (one.mount_point, one.device) == here), None)


def _device_of(path: Path) -> int:
    """Return the device number of the nearest existing directory of a path."""
    existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    return existing.stat().st_dev
