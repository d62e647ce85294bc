"""Data of figures, kept for as long as the calibration that they show is the same.

What a model predicts of reads that it has not seen takes a fit for each pattern: half a second to
some seconds. A page with four figures, looked at twice, makes them once.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from sds.plots.data import figure_data

if TYPE_CHECKING:
    from sds.catalog.records import CalibrationRecord
    from sds.plots.kinds import Kind
    from sds.plots.values import FigureData
    from sds.recommender.calibration import Calibration
    from sds.recommender.model import CacheState, Via

# A few ways of reading, cache states and models of each kind; more is somebody trying names.
_MOST = 64


class Figures:
    """Figures of calibrations, each made once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[int, Calibration] = {}
        self._made: dict[tuple[int, Kind, Via, CacheState | None, str | None], FigureData] = {}

    def of(
        self,
        record: CalibrationRecord,
        kind: Kind,
        *,
        via: Via,
        cache: CacheState | None,
        model: str | None,
    ) -> FigureData:
        """Return what a figure shows; arguments and errors as `sds.plots.data.figure_data`."""
        key = record.id, kind, via, cache, model
        with self._lock:
            # Models fitted to traces as well replace those before under the same id.
            if self._known.get(record.id) != record.calibration:
                self._known[record.id] = record.calibration
                self._made = {k: made for k, made in self._made.items() if k[0] != record.id}
            found = self._made.get(key)
        if found is not None:
            return found
        found = figure_data(kind, record.calibration, via=via, cache=cache, model=model)
        with self._lock:
            # Of another calibration meanwhile: then this one is the caller's alone.
            if self._known.get(record.id) == record.calibration:
                self._made[key] = found
            while len(self._made) > _MOST:
                del self._made[next(iter(self._made))]
        return found
