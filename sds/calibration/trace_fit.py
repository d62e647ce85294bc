"""Traced reads beside a calibration: their errors, and models fitted to them as well.

A traced read tells what it took, what it selected and who served it, not whether the cache held it.
It is taken for a cold or a warm one, whichever prediction is nearer. The reads of the calibration
stay the base: of traced ones at most a few of each kind count, and of a kind their median, so that
a program that reads one plane a million times does not fit the model to that plane.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from sds.calibration.drift import Change, ReadError, find_change, noise_of
from sds.errors import SdsValueError
from sds.geometry import BlockFeatures
from sds.recommender.models.cost_model import CacheState, CostModel, Via

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.calibration.results import Calibration, Measurement
    from sds.recommender.models.samples import Samples

# Of one kind, the newest.
_MOST_OF_A_KIND = 9
# Kinds at most per shape that the calibration measured.
_MOST_KINDS_PER_SHAPE = 1.0
# Further off than this many standard deviations, a read was disturbed, or is of another kind.
_MOST_DEVIATIONS = 3.0
_TRACED = "traced"


class LeftOut(StrEnum):
    """Reason why a traced read is left out of those that models are fitted to."""

    LAYOUT = "the dataset is in chunks, filtered or not stored as one piece"
    SELECTION = "its selection is irregular or empty"
    COLLECTIVE = "it was collective"
    ELSEWHERE = "it was served from another file system"
    REPLICA = "the replica that served it is not known, in chunks, or holds a part only"
    UNCOUNTED = "what it touched could not be counted"
    NO_MODEL = "reads of its way were not calibrated, or its time is no number"
    FAR = "it took far longer or shorter than models and their errors allow"
    ENOUGH = "others of its kind, or newer kinds, say the same"

    @property
    def remedy(self) -> str:
        """Remedy open to a user; empty where none is needed."""
        return _REMEDIES.get(self, "")


_REMEDIES = {
    LeftOut.ELSEWHERE: "calibrate that file system too",
    LeftOut.REPLICA: "bring the catalog up to date with sds status",
    LeftOut.NO_MODEL: "run sds calibrate again, with both ways of reading",
    LeftOut.FAR: "if there are many, the storage has changed or was busy: run sds calibrate again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRead:
    """One read of a program, or the mean of a loop of reads.

    Attributes
    ----------
    group
        What tells reads of one kind: dataset, shape, and who served it.
    start_ns
        When, nanoseconds since 1970.
    seconds
        How long it took; of a loop, each of its reads in the mean.
    n_reads
        Of the loop.
    via
        Through HDF5, or by the engine.
    features
        Of what was read, in the layout that served it.
    processes_per_ost
        P of Liu 2014.
    """

    group: str
    start_ns: int
    seconds: float
    via: Via
    features: BlockFeatures
    processes_per_ost: float = 1.0
    n_reads: int = 1


def change_since(calibration: Calibration, reads: Sequence[TracedRead]) -> Change | None:
    """Return whether reads after a calibration say that the file system has changed since."""
    spread = {(m.via, m.cache): noise_of(designed_samples(m)) for m in calibration.measurements}
    errors = []
    for read in sorted(reads, key=lambda r: r.start_ns):
        states = _predicted(calibration, read)
        if not states or not _is_time(read.seconds):
            continue
        nearest, model, predicted = min(
            states, key=lambda state: abs(math.log(read.seconds / state[2]))
        )
        low, high = min(s for _, _, s in states), max(s for _, _, s in states)
        inside = low <= read.seconds <= high
        errors.append(
            ReadError(
                group=read.group,
                log_error=0.0 if inside else math.log(read.seconds / predicted),
                model_error=model.log_error,
                noise=spread[read.via, nearest],
            )
        )
    return find_change(errors)


def refit(calibration: Calibration, reads: Sequence[TracedRead]) -> Calibration:
    """Return a calibration whose models were fitted to traced reads as well.

    The same calibration, where they add nothing to what it has: to refit twice is to refit once.
    """
    return refit_explained(calibration, reads)[0]


def refit_explained(
    calibration: Calibration, reads: Sequence[TracedRead]
) -> tuple[Calibration, dict[LeftOut, int]]:
    """Return the same as `refit`, and how many reads it left out, by the reason."""
    from sds.calibration.run import fit_measurement  # noqa: PLC0415 - statsmodels

    designed, by_state, counts = _sorted_out(calibration, reads)
    base = {(m.via, m.cache): m for m in designed.measurements}
    measurements = []
    for old in calibration.measurements:
        own = base[old.via, old.cache].samples
        there = by_state[old.via, old.cache]
        chosen = _chosen(there, _n_shapes(own))
        counts[LeftOut.ENOUGH] += _n_reads(there) - _n_reads(chosen)
        samples = _joined(own, chosen)
        if samples == old.samples:
            measurements.append(old)
            continue
        fitted = fit_measurement(
            samples,
            without_processes=calibration.settings.without_processes,
            via=old.via,
            cache=old.cache,
        )
        n_traced = len(samples) - len(own)
        measurements.append(replace(fitted, n_traced=n_traced))
    left_out = {reason: n for reason, n in counts.items() if n}
    if tuple(measurements) == calibration.measurements:
        return calibration, left_out
    return replace(calibration, measurements=tuple(measurements)), left_out


def _sorted_out(
    calibration: Calibration, reads: Sequence[TracedRead]
) -> tuple[Calibration, dict[tuple[Via, CacheState], list[TracedRead]], Counter[LeftOut]]:
    """Return a calibration without traces, the reads that may be fitted, and why not the others."""
    measurements = tuple(
        _without_traces(m, calibration.settings.without_processes) for m in calibration.measurements
    )
    designed = replace(calibration, measurements=measurements)
    by_state: dict[tuple[Via, CacheState], list[TracedRead]] = defaultdict(list)
    counts: Counter[LeftOut] = Counter()
    for read in reads:
        states = _predicted(designed, read)
        if not states or not _is_time(read.seconds):
            counts[LeftOut.NO_MODEL] += read.n_reads
            continue
        nearest, model, predicted = min(
            states, key=lambda state: abs(math.log(read.seconds / state[2]))
        )
        if abs(math.log(read.seconds / predicted)) <= _MOST_DEVIATIONS * model.log_error:
            by_state[read.via, nearest].append(read)
        else:
            counts[LeftOut.FAR] += read.n_reads
    return designed, by_state, counts


def designed_samples(measurement: Measurement) -> Samples:
    """Return the reads that the calibration itself made."""
    n = len(measurement.samples) - measurement.n_traced
    return measurement.samples.take(range(n)) if measurement.n_traced else measurement.samples


def _without_traces(measurement: Measurement, without_processes: bool) -> Measurement:  # noqa: FBT001
    from sds.calibration.run import fit_measurement  # noqa: PLC0415 - statsmodels

    if not measurement.n_traced:
        return measurement
    return fit_measurement(
        designed_samples(measurement),
        without_processes=without_processes,
        via=measurement.via,
        cache=measurement.cache,
    )


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds > 0


def _predicted(
    calibration: Calibration, read: TracedRead
) -> list[tuple[CacheState, CostModel, float]]:
    """Return the predictions of a read, by the cache states that were measured."""
    return [
        (m.cache, m.choice.chosen, seconds)
        for m in calibration.measurements
        if m.via is read.via
        and (
            seconds := m.choice.chosen.seconds(
                read.features, processes_per_ost=read.processes_per_ost
            )
        )
        > 0
    ]


def _n_reads(records: Sequence[TracedRead]) -> int:
    """Return how many reads records stand for."""
    return sum(record.n_reads for record in records)


def _n_shapes(samples: Samples) -> int:
    """Return how many shapes were read, each counted once for each layout."""
    layouts = samples.layouts or ("",) * len(samples)
    return len(set(zip(samples.patterns, layouts, strict=True)))


def _chosen(reads: Sequence[TracedRead], n_shapes: int) -> list[TracedRead]:
    """Return the newest few of each kind, of the kinds that were read last."""
    kinds: dict[str, list[TracedRead]] = defaultdict(list)
    for read in sorted(reads, key=lambda r: (-r.start_ns, r.group, r.seconds)):
        kinds[read.group].append(read)
    most = max(1, int(_MOST_KINDS_PER_SHAPE * n_shapes))
    return [read for group in list(kinds)[:most] for read in kinds[group][:_MOST_OF_A_KIND]]


def _joined(samples: Samples, reads: Sequence[TracedRead]) -> Samples:
    """Return a calibration's reads with traced ones behind them."""
    if samples.operations:
        raise SdsValueError(
            "this calibration knows whole operations, traces know single reads: calibrate again"
        )
    return replace(
        samples,
        patterns=(*samples.patterns, *(f"{_TRACED}: {read.group}" for read in reads)),
        features=(*samples.features, *(read.features for read in reads)),
        processes_per_ost=(
            *samples.processes_per_ost,
            *(read.processes_per_ost for read in reads),
        ),
        seconds=(*samples.seconds, *(read.seconds for read in reads)),
        # As programs read them, from whatever layout there was: held out together.
        layouts=(*samples.layouts, *(_TRACED for _ in reads)) if samples.layouts else (),
    )
