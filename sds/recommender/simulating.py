"""Fits a described machine to the cold reads of a calibration, and judges it beside other models.

1. What each read asked of the storage is worked out (`sds.recommender.asked`); where that has no
   regular form, or takes too many requests, the read counts for nothing here.
2. A quarter of the patterns is left out, in all layouts, by all numbers of processes, through HDF5
   and by the engine. The machine's numbers are searched with the others.
3. The best other model is chosen and fitted anew without those patterns. For each way of reading
   the machine is used where it predicts them plainly better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.asked import operation_of
from sds.recommender.choose import BETTER, choose_model, learn_model
from sds.recommender.heldout import heldout_error, paired_names
from sds.recommender.model import CacheState, Via
from sds.recommender.placed import PlacedRead
from sds.recommender.samples import Samples
from sds.recommender.simulated import MAX_REQUESTS, Simulation, n_requests
from sds.simulator import Operation
from sds.simulator.fit import find_numbers, left_out, mean_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.engine import IoParameters
    from sds.simulator import SimulatorParameters

# Requests of all reads that are fitted to, and of one of them: they are simulated some thousand
# times, at some microseconds each. Reads with more judge only.
_MOST_FITTED = 30_000
_MOST_OF_ONE = 2_000
# So few reads left out judge nothing.
_FEWEST_JUDGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSamples:
    """Cold reads of one way, of each shape one, and where they lay: n of both."""

    via: Via
    samples: Samples
    placed: Sequence[PlacedRead]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reads:
    """Reads of one way that can be simulated: their indices among its samples, and as what."""

    of: PlacedSamples
    kept: list[int]
    operations: list[Operation]

    @property
    def samples(self) -> Samples:
        return self.of.samples.take(self.kept)

    @property
    def n_excluded(self) -> int:
        return len(self.of.samples) - len(self.kept)


def fit_simulation(
    ways: Sequence[PlacedSamples],
    start: SimulatorParameters,
    *,
    engine: IoParameters | None,
    without_processes: bool,
    n_threads: int | None = None,
) -> dict[Via, Simulation]:
    """Return the machine fitted to reads of all ways together, judged by those of each.

    Parameters
    ----------
    ways
        Cold reads.
    start
        The machine as it is described.
    engine
        By which costs programs' reads are planned; those of calibrations are by the built-in ones.
    without_processes
        As of `sds.recommender.choose.choose_model`.
    """
    reads = [_simulated(way, start) for way in ways]
    held_out = _held_out(reads)
    operations, seconds = _fitted(reads, held_out)
    try:
        parameters = find_numbers(operations, np.array(seconds), start, n_threads=n_threads)
    except SdsValueError as error:
        return {
            each.of.via: Simulation(refused=str(error), n_excluded=each.n_excluded)
            for each in reads
        }
    judged = {
        each.of.via: _judged(
            each, held_out, parameters, without_processes=without_processes, n_threads=n_threads
        )
        for each in reads
    }
    return {
        each.of.via: replace(
            judged[each.of.via],
            n_fitted=len(operations),
            n_excluded=each.n_excluded,
            engine=engine,
        )
        for each in reads
    }


def _simulated(way: PlacedSamples, start: SimulatorParameters) -> _Reads:
    """Return the reads of a way that can be simulated."""
    kept: list[int] = []
    operations: list[Operation] = []
    for i, (read, features) in enumerate(zip(way.placed, way.samples.features, strict=True)):
        try:
            operation = operation_of(read, way.via, features=features)
            if n_requests(operation) > MAX_REQUESTS:
                continue
            mean_seconds([operation], start, n_draws=1)
        except SdsValueError:  # it has no regular form, or does not fit the machine
            continue
        kept.append(i)
        operations.append(operation)
    return _Reads(of=way, kept=kept, operations=operations)


def _held_out(reads: Sequence[_Reads]) -> frozenset[str]:
    """Return the patterns that judge, and are not fitted to."""
    names = [name for each in reads for name in each.samples.patterns]
    return frozenset(name for name, is_out in zip(names, left_out(names), strict=True) if is_out)


def _fitted(
    reads: Sequence[_Reads], held_out: frozenset[str]
) -> tuple[list[Operation], list[float]]:
    """Return the reads to fit to: those with the fewest requests, as many as there is time for."""
    some = [
        (n_requests(operation), operation, seconds)
        for each in reads
        for operation, seconds, name in zip(
            each.operations, each.samples.seconds, each.samples.patterns, strict=True
        )
        if name not in held_out
    ]
    some.sort(key=lambda one: one[0])
    total = np.cumsum([n for n, _, _ in some])
    chosen = [
        one
        for one, n in zip(some, total, strict=True)
        if n <= _MOST_FITTED and one[0] <= _MOST_OF_ONE
    ]
    return [operation for _, operation, _ in chosen], [seconds for _, _, seconds in chosen]


def _judged(
    reads: _Reads,
    held_out: frozenset[str],
    parameters: SimulatorParameters,
    *,
    without_processes: bool,
    n_threads: int | None,
) -> Simulation:
    """Return the fitted machine with its error on the patterns left out, and that of others."""
    samples = reads.samples
    out = [i for i, name in enumerate(samples.patterns) if name in held_out]
    if len(out) < _FEWEST_JUDGES:
        return Simulation(
            refused=f"{len(out)} reads are left to judge it by, {_FEWEST_JUDGES} are needed: give "
            "the calibration a larger budget"
        )
    tests = samples.take(out)
    measured = np.array(tests.seconds)
    # The others may learn from reads that cannot be simulated, too.
    every = reads.of.samples
    training = every.take([i for i, name in enumerate(every.patterns) if name not in held_out])
    try:
        predicted = mean_seconds(
            [reads.operations[i] for i in out], parameters, n_threads=n_threads
        )
        other = _other_times(training, tests, reads.of.via, without_processes=without_processes)
    except (RankDeficientError, SdsValueError) as error:
        return Simulation(refused=str(error))
    heldout = heldout_error(
        predicted, measured, n_groups=len(set(tests.patterns)), patterns=paired_names(tests)
    )
    other_rms = float(np.sqrt(np.mean(np.log(other / measured) ** 2)))
    refused = ""
    if heldout.rms > BETTER * other_rms:
        refused = (
            f"others predict what neither has seen as well (error {other_rms:.3g}, simulated "
            f"{heldout.rms:.3g})"
        )
    return Simulation(
        parameters=parameters,
        heldout=heldout,
        other_rms=other_rms,
        n_left_out=len(out),
        refused=refused,
    )


def _other_times(
    training: Samples, tests: Samples, via: Via, *, without_processes: bool
) -> NDArray[np.float64]:
    """Return the times of reads predicted by the best other model, chosen without them."""
    cache = CacheState.COLD
    choice = choose_model(training, without_processes=without_processes, via=via, cache=cache)
    lesson = learn_model(
        training, choice, without_processes=without_processes, via=via, cache=cache
    )
    model = choice.chosen if lesson.model is None or lesson.refused else lesson.model
    return model.predict_many(tests.measures())
