"""Runs a calibration: a temporary file, processes that read it together, and the fits."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sds.calibration.aggregate import aggregate, repeat_error
from sds.calibration.design import (
    ELEMENT_SIZE_BYTES,
    DesignedRead,
    designed_reads,
)
from sds.calibration.engine_timings import measure_engine
from sds.calibration.reader_pool import Readers
from sds.calibration.results import (
    Calibration,
    CalibrationSettings,
    Measurement,
)
from sds.calibration.scratch_file import (
    StoredCopy,
    evict,
    eviction_works,
    file_system_of,
    keeps_pages,
    written_array,
)
from sds.errors import RankDeficientError, SdsValueError
from sds.files import canonical_path
from sds.geometry import LOCAL_DISK_STRIPES, BlockFeatures, Hyperslab, StripeLayout
from sds.hdf5.striping import StripesSource, find_stripes
from sds.recommender.models.cost_model import CacheState, Via, builtin_model
from sds.recommender.models.model_selection import choose_model
from sds.recommender.models.read_cost import (
    StoredArray,
    features_as_stored,
    greatest_features,
    processes_per_ost,
)
from sds.recommender.models.samples import ModelChoice, Samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sds.calibration.scratch_file import WrittenArray

# Share of the progress by when the array is written, its reads are timed, and the engine is
# measured; the rest is fitting models.
_WRITTEN, _READ, _ENGINE = 0.05, 0.75, 0.85
# Of the budget, at most, for the engine: its reads are quick, and few rounds tell enough.
_ENGINE_SHARE = 0.2
# Standard error of log seconds below which a shape is known well enough to leave it to the others.
_CERTAIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A designed read in one stored copy."""

    name: str
    copy: StoredCopy
    read: DesignedRead
    predicted_s: float


@dataclass(slots=True, kw_only=True)
class _Measured:
    """Reads of one way and cache state, as they come in."""

    patterns: list[str] = field(default_factory=list)
    layouts: list[str] = field(default_factory=list)
    features: list[BlockFeatures] = field(default_factory=list)
    processes_per_ost: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def logs_of(self, pattern: str, layout: str) -> list[list[float]]:
        """Return log seconds of a shape's reads, by processes per OST."""
        found: dict[float, list[float]] = defaultdict(list)
        for i, name in enumerate(self.patterns):
            if name == pattern and self.layouts[i] == layout:
                found[self.processes_per_ost[i]].append(math.log(self.seconds[i]))
        return list(found.values())

    def samples(self) -> Samples:
        return Samples(
            patterns=tuple(self.patterns),
            features=tuple(self.features),
            processes_per_ost=tuple(self.processes_per_ost),
            seconds=tuple(self.seconds),
            layouts=tuple(self.layouts),
        )


def calibrate(
    path: str | Path,
    *,
    settings: CalibrationSettings | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Calibration:
    """Measure the file system that holds a directory, and fit the cost models to it.

    Writes one temporary file there, of `settings.space_bytes`, and removes it whatever happens.

    Parameters
    ----------
    path
        A directory on the file system, or a file in one.
    settings
        Default: 256 MiB, one minute, 1, 2 and 4 processes, both ways of reading.
    progress
        Called with the share done, 0 to 1, and what is being done. What it raises ends the
        calibration cleanly.

    Raises
    ------
    NotFoundError, PermissionDeniedError, InsufficientSpaceError
        If the directory does not exist, cannot be written, or has too little room.
    RankDeficientError
        If one process count is requested, and models with P.
    SdsValueError
        If the budget ends before enough was read to fit anything.
    """
    settings = settings or CalibrationSettings()
    progress = progress or (lambda _share, _what: None)
    if len(set(settings.processes)) < 2 and not settings.without_processes:
        raise RankDeficientError(
            f"with {settings.processes[0]} processes in every read, P does not vary: ask for "
            "several process counts (1, 2, 4), or for models without P"
        )
    begin = time.monotonic()
    with written_array(
        Path(path),
        settings.space_bytes,
        seed=settings.seed,
        progress=lambda share, what: progress(share * _WRITTEN, what),
    ) as array:
        file_system = file_system_of(array.directory)
        run = _Run(settings, array)
        with Readers(max(settings.processes), directory=array.directory) as readers:
            complete, cold_method = run.measure(readers, progress)
        engine = measure_engine(
            array.file,
            can_evict=cold_method != _COLD_METHODS[False],
            is_cached=run.is_cached,
            budget_s=settings.budget_s * _ENGINE_SHARE,
            seed=settings.seed,
            progress=lambda share, what: progress(_READ + (_ENGINE - _READ) * share, what),
        )
    if not run.measured:
        raise SdsValueError(
            f"the budget of {settings.budget_s} s ended before anything was read: give more"
        )
    measurements = []
    for i, ((via, cache), measured) in enumerate(sorted(run.measured.items())):
        progress(_ENGINE + (1.0 - _ENGINE) * i / len(run.measured), f"fitting {via}, {cache}")
        measurements.append(
            fit_measurement(
                measured.samples(),
                without_processes=settings.without_processes,
                via=via,
                cache=cache,
            )
        )
    progress(1.0, "done")
    return Calibration(
        path=canonical_path(path),
        file_system=file_system,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        settings=settings,
        elapsed_s=time.monotonic() - begin,
        n_reads=sum(len(m.samples) for m in measurements) + engine.n_reads,
        cold_method=cold_method,
        complete=complete,
        measurements=tuple(measurements),
        engine=engine,
    )


def fit_measurement(
    samples: Samples, *, without_processes: bool, via: Via, cache: CacheState
) -> Measurement:
    """Return the models fitted to reads made in one way: to the median of each shape's reads."""
    aggregated = aggregate(samples)
    choice = choose_model(
        aggregated.samples, without_processes=without_processes, via=via, cache=cache
    )
    return Measurement(
        via=via,
        cache=cache,
        samples=samples,
        choice=_without_residuals(choice),
        n_disturbed=aggregated.n_disturbed,
        repeats=repeat_error(samples),
    )


def _without_residuals(choice: ModelChoice) -> ModelChoice:
    """Return the choice with residuals kept of the chosen model only: they are most of it."""
    fits = [choice.trials[0]]
    for fit in choice.trials[1:]:
        model = fit.model
        if model is not None and model.diagnostics is not None:
            model = replace(model, diagnostics=replace(model.diagnostics, residuals_s=()))
        fits.append(replace(fit, model=model))
    return replace(choice, trials=tuple(fits))


def _layout_name(copy: StoredCopy) -> str:
    """Return the axis order of a copy, e.g. ``2,0,1``."""
    return ",".join(map(str, copy.order))


def _stripes_by_lustre(file: Path) -> StripeLayout | None:
    """Return the striping that most of a file has; None where Lustre says nothing of it."""
    found = find_stripes(file)
    if found.source is StripesSource.ASSUMED:
        return None
    return found.stripes.prevailing(0, file.stat().st_size)


class _Run:
    """The reads of one calibration."""

    def __init__(self, settings: CalibrationSettings, array: WrittenArray) -> None:
        self.settings = settings
        self.array = array
        self.stripes_by_lustre = _stripes_by_lustre(array.file)
        self.stripes = settings.stripes or self.stripes_by_lustre or LOCAL_DISK_STRIPES
        self.random = np.random.default_rng(settings.seed)
        self.is_cached = True
        self.measured: dict[tuple[Via, CacheState], _Measured] = defaultdict(_Measured)
        shapes = [
            self._shape(read, copy)
            for read in designed_reads(array.extent)
            for copy in array.copies
        ]
        # The quick first: what the budget cuts off is what would have used it up.
        self.shapes = sorted(shapes, key=lambda shape: shape.predicted_s)

    def _shape(self, read: DesignedRead, copy: StoredCopy) -> _Shape:
        features = self._features(copy, read.at((0, 0, 0)).permuted(copy.order))
        return _Shape(
            name=f"{read.name}, {copy.dataset}",
            copy=copy,
            read=read,
            predicted_s=builtin_model().seconds(features),
        )

    def _features(self, copy: StoredCopy, slab: Hyperslab) -> BlockFeatures:
        stored = StoredArray(
            extent=copy.extent,
            element_size_bytes=ELEMENT_SIZE_BYTES,
            data_offset_bytes=copy.data_offset_bytes,
            stripes=self.stripes,
            raid=self.settings.raid,
        )
        return features_as_stored(stored, slab)

    def measure(self, readers: Readers, progress: Callable[[float, str], None]) -> tuple[bool, str]:
        """Read every shape, again until the budget ends; return completeness and cold method."""
        settings = self.settings
        file = self.array.file
        fd = os.open(file, os.O_RDONLY)
        try:
            works = eviction_works(fd, file.stat().st_size)
            # Eviction that cannot be seen may be of a file system that caches nothing: every read
            # of it is a cold one.
            self.is_cached = works is not None or keeps_pages(fd, file.stat().st_size)
            begin = time.monotonic()
            complete = True
            # What reads were predicted to take, and took: how far to trust the next prediction.
            predicted_s = took_s = 0.0
            for turn in range(settings.max_rounds):
                for i in self._order_of(turn):
                    shape = self.shapes[i]
                    used = (time.monotonic() - begin) / settings.budget_s
                    # Several reads, each in two cache states, by as many processes.
                    slower = max(1.0, took_s / predicted_s) if predicted_s > 0 else 1.0
                    ahead_s = shape.predicted_s * slower * len(settings.processes)
                    if used >= 1.0 or ahead_s > (1.0 - used) * settings.budget_s:
                        complete &= turn > 0
                        continue
                    share = max(used, turn / settings.max_rounds)
                    progress(_WRITTEN + (_READ - _WRITTEN) * min(share, 1.0), shape.name)
                    for n in settings.processes:
                        for via in settings.vias:
                            predicted_s += shape.predicted_s
                            took_s += self._operation(
                                readers, shape, via, n, cold_fd=None if works is False else fd
                            )
        finally:
            os.close(fd)
        return complete, _COLD_METHODS[works] if self.is_cached else _NOT_CACHED

    def _order_of(self, turn: int) -> Sequence[int]:
        """Return in which order shapes are read in a turn.

        1. The quick first, once: what the budget cuts off is what would have used it up.
        2. In an order drawn, so that no drift of the device is taken for a difference of shapes.
        3. From then on, likewise, those of which it is least known what they take; the others are
           left out for as long as there are more uncertain ones.
        """
        n = len(self.shapes)
        if turn == 0:
            return range(n)
        drawn = [int(i) for i in self.random.permutation(n)]
        if turn == 1:
            return drawn
        unsure = [self._uncertainty(self.shapes[i]) for i in range(n)]
        ranked = sorted(unsure)
        # Not fewer than half of the shapes, of these the noisiest quarter of all twice.
        noisy = [i for i in drawn if unsure[i] >= min(_CERTAIN, ranked[n // 2])]
        return [*noisy, *(i for i in noisy if unsure[i] >= ranked[n - n // 4 - 1])]

    def _uncertainty(self, shape: _Shape) -> float:
        """Return the greatest standard error of log seconds of a shape's reads, of any way."""
        key = shape.read.name, _layout_name(shape.copy)
        errors = [
            float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
            for measured in self.measured.values()
            for logs in measured.logs_of(*key)
            if len(logs) > 1
        ]
        return max(errors, default=math.inf)

    def _operation(
        self, readers: Readers, shape: _Shape, via: Via, n: int, *, cold_fd: int | None
    ) -> float:
        """Let n processes read a shape, each elsewhere, cold and warm; return the longer time."""
        slabs = []
        for _ in range(n):
            start = tuple(
                int(self.random.integers(room)) for room in shape.read.room(self.array.extent)
            )
            slabs.append(shape.read.at(start).permuted(shape.copy.order))
        requests = [self.array.request(shape.copy, slab, via=via) for slab in slabs]
        features = greatest_features([self._features(shape.copy, slab) for slab in slabs])
        p = processes_per_ost(features, n_concurrent=n, stripe_count=self.stripes.stripe_count)
        first_s = readers.read(
            requests, before=None if cold_fd is None else (lambda: evict(cold_fd))
        )
        times = {CacheState.WARM: readers.read(requests)} if self.is_cached else {}
        if cold_fd is not None:
            times[CacheState.COLD] = first_s
        for cache, seconds in times.items():
            measured = self.measured[via, cache]
            measured.patterns.append(shape.read.name)
            measured.layouts.append(_layout_name(shape.copy))
            measured.features.append(features)
            measured.processes_per_ost.append(p)
            measured.seconds.append(seconds)
        return max(first_s, *times.values())


_NOT_CACHED = "none needed: this file system keeps nothing of what is read in memory"
_COLD_METHODS = {
    True: "posix_fadvise DONTNEED on the file before each read, seen to empty this system's page "
    "cache of it; what devices and servers keep is not emptied",
    None: "posix_fadvise DONTNEED on the file before each read; this file system does not tell "
    "whether that empties the page cache",
    False: "none: posix_fadvise DONTNEED left the file in memory (a memory file system, or one "
    "that was still writing it), so there are no cold reads",
}
