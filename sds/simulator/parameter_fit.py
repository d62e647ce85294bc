"""Fit the parameters of a machine to reads that were timed on it.

How the machine is built has to be known (its stripes, its disks, what its client does); how fast
its parts are is found by simulating the reads with other numbers until the times agree. So the
simulator becomes a model of a real system: `FittedMachine` predicts reads that were not timed,
and says by the reads left out of the fit how far it errs. `hopper()` is not fitted to anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sds.errors import SdsValueError
from sds.log_errors import pair_rms
from sds.simulator.parameters import SimulatorParameters
from sds.simulator.simulation import simulate_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from sds.simulator.operation import Operation

# The searched parameters. Half a revolution after each seek has the effect of settling, and the
# program's own work that of the network's latency: of each pair one is fixed (`searched` says
# which). So is the extra time of longer seeks, on which reads of one file depend little.
FREE = (
    "network_latency_s",
    "client_jitter_s",
    "disk_settle_s",
    "disk_bytes_per_s",
    "disk_first_s",
    "disk_request_s",
)
# Where processes wait for each other's work, it is that instead of the latency.
_SHARED = tuple("client_request_s" if name == "network_latency_s" else name for name in FREE)
# Fewer timed reads do not determine the parameters.
MIN_OPERATIONS = 4 * len(FREE)
# Errors of a tenth and less matter little, those of a factor not much more than others.
_SCALE = 0.1
# Of what calls and pauses take, guesses may be far off; of disks there is a data sheet. Each is
# right within such a factor in two cases of three.
_GUESSES = {"network_latency_s", "client_jitter_s", "disk_request_s", "client_request_s"}
_GUESS_SPREAD, _KNOWN_SPREAD = math.log(2.5), math.log(1.5)
# Draws of the jitter: by which machines are compared, and for predictions.
_DRAWS_COMPARED, _DRAWS = 4, 16
# The search: generations, machines tried in each, and the best kept to draw the next from.
_GENERATIONS, _TRIED, _KEPT = 12, 40, 10
# The last generations' means differ by the draws of chance alone.
_LAST = 3
_LEFT_OUT = 1 / 4
_INTERVAL = 2 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTime:
    """Seconds of a read, and an interval that holds two in three of such reads."""

    seconds: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMachine:
    """A machine whose parameters were fitted to timed reads.

    Attributes
    ----------
    parameters
        Of the simulator.
    log_error, ratio_error
        Of the reads left out: root mean square of log(predicted / measured), and of the difference
        of two such logarithms of one group.
    median_error, interval_error, p95_error
        Of |log(predicted / measured)|, likewise: what half, two in three, 95 % are within. (Errors
        are seldom normal: the root mean square is mostly that of a few.)
    n_fitted, n_left_out
        Reads.
    """

    parameters: SimulatorParameters
    log_error: float
    ratio_error: float
    median_error: float
    interval_error: float
    p95_error: float
    n_fitted: int
    n_left_out: int

    @property
    def name(self) -> str:
        """``simulated``."""
        return "simulated"

    def predict_many(
        self, operations: Sequence[Operation], *, n_threads: int | None = None
    ) -> list[PredictedTime]:
        """Return the predicted time of each operation."""
        factor = math.exp(self.interval_error)
        return [
            PredictedTime(seconds=s, low_s=s / factor, high_s=s * factor)
            for s in mean_seconds(operations, self.parameters, n_threads=n_threads).tolist()
        ]


def fit_machine(
    operations: Sequence[Operation],
    seconds: Sequence[float],
    start: SimulatorParameters,
    *,
    groups: Sequence[str],
    seed: int = 0,
    n_threads: int | None = None,
) -> FittedMachine:
    """Return the machine with the numbers that explain the times of reads best.

    Parameters
    ----------
    operations, seconds
        Reads that were timed, one by one.
    start
        The machine as it is built. Its numbers that are `searched` are so from those given, by
        factors: none may be 0.
    groups
        Of each read: those that belong together (one pattern in several layouts). A quarter of
        the groups, drawn from the seed, is left out of the fit and gives its error.

    Raises
    ------
    SdsValueError
        If there are too few reads, a time is no positive number, or a number to search is 0.
    """
    measured = np.array(seconds, dtype=np.float64)
    if not len(operations) == len(measured) == len(groups):
        raise SdsValueError(
            f"{len(operations)} operations, {len(measured)} times and {len(groups)} groups: give "
            "one of each per read"
        )
    _check_times(measured)
    is_left_out = left_out(groups, seed)
    some = np.flatnonzero(~is_left_out).tolist()
    found = find_numbers(
        [operations[i] for i in some], measured[some], start, seed=seed, n_threads=n_threads
    )
    others = np.flatnonzero(is_left_out).tolist()
    predicted = mean_seconds([operations[i] for i in others], found, n_threads=n_threads)
    errors = np.log(predicted / measured[others])
    log_error = float(np.sqrt(np.mean(errors**2)))
    of_pairs = pair_rms(errors, [groups[i] for i in others])
    return FittedMachine(
        parameters=found,
        log_error=log_error,
        ratio_error=math.sqrt(2.0) * log_error if of_pairs is None else of_pairs,
        median_error=float(np.median(np.abs(errors))),
        interval_error=float(np.quantile(np.abs(errors), _INTERVAL)),
        p95_error=float(np.percentile(np.abs(errors), 95)),
        n_fitted=len(some),
        n_left_out=len(others),
    )


def find_numbers(
    operations: Sequence[Operation],
    seconds: NDArray[np.float64],
    start: SimulatorParameters,
    *,
    seed: int = 0,
    n_threads: int | None = None,
) -> SimulatorParameters:
    """Return the machine with the numbers that explain the times of all these reads best.

    Arguments and errors as of `fit_machine`, which leaves some out.
    """
    measured = np.asarray(seconds, dtype=np.float64)
    _check_times(measured)
    names = searched(start)
    for name in names:
        if not getattr(start, name) > 0:
            raise SdsValueError(f"{name} is {getattr(start, name)}: the search needs a first guess")
    if len(operations) < MIN_OPERATIONS:
        raise SdsValueError(
            f"{len(operations)} timed reads besides those left out are too few for {len(names)} "
            f"numbers: give at least {MIN_OPERATIONS}"
        )

    def loss(logs: NDArray[np.float64], first_draw: int) -> float:
        machine = replace(_machine(start, logs), jitter_seed=start.jitter_seed + first_draw)
        times = mean_seconds(operations, machine, n_draws=_DRAWS_COMPARED, n_threads=n_threads)
        return float(np.mean(np.log1p((np.log(times / measured) / _SCALE) ** 2)))

    spread = np.array([_GUESS_SPREAD if name in _GUESSES else _KNOWN_SPREAD for name in names])
    random = np.random.default_rng([seed, 6])
    return _machine(start, _search(loss, _logs_of(start), spread, random))


def searched(machine: SimulatorParameters) -> tuple[str, ...]:
    """Return the names of the numbers that are searched of a machine."""
    is_shared = 0 < machine.processors_per_node < machine.processes_per_node
    return _SHARED if is_shared else FREE


def _check_times(measured: NDArray[np.float64]) -> None:
    """Raise SdsValueError, naming a read, unless all times are positive numbers."""
    wrong = ~(np.isfinite(measured) & (measured > 0))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise SdsValueError(f"read {at} took {measured[at]} s: measure it again, or leave it out")


def left_out(groups: Sequence[str], seed: int = 0) -> NDArray[np.bool_]:
    """Return which reads `fit_machine` leaves out of the fit, shape (n,)."""
    names = sorted(set(groups))
    drawn = np.random.default_rng([seed, 5]).permutation(len(names))
    out = {names[i] for i in drawn[: math.ceil(_LEFT_OUT * len(names))]}
    return np.array([group in out for group in groups], dtype=np.bool_)


def _logs_of(machine: SimulatorParameters) -> NDArray[np.float64]:
    return np.log([getattr(machine, name) for name in searched(machine)])


def _machine(start: SimulatorParameters, logs: NDArray[np.float64]) -> SimulatorParameters:
    """Return the machine with other numbers."""
    numbers: dict[str, Any] = dict(zip(searched(start), np.exp(logs).tolist(), strict=True))
    longer_s = start.disk_full_stroke_s - start.disk_settle_s
    return replace(start, **numbers, disk_full_stroke_s=numbers["disk_settle_s"] + longer_s)


def mean_seconds(
    operations: Sequence[Operation],
    parameters: SimulatorParameters,
    *,
    n_draws: int = _DRAWS,
    n_threads: int | None = None,
) -> NDArray[np.float64]:
    """Return the geometric mean of simulated seconds over draws of the jitter, shape (n,)."""
    logs = np.zeros(len(operations))
    for draw in range(n_draws):
        machine = replace(parameters, jitter_seed=parameters.jitter_seed + draw)
        runs = simulate_many(operations, machine, n_threads=n_threads)
        logs += np.log([max(run.seconds, 1e-9) for run in runs])
    return np.asarray(np.exp(logs / n_draws), dtype=np.float64)


def _search(
    loss: Callable[[NDArray[np.float64], int], float],
    at: NDArray[np.float64],
    spread: NDArray[np.float64],
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """Return about where a loss is least, by the cross-entropy method (Rubinstein 1999).

    No derivatives: a nanosecond more can send a head elsewhere. Each generation is compared by
    draws of its own, lest what is found explains nothing but them.
    """
    covariance, means = np.diag(spread**2), []
    for generation in range(_GENERATIONS):
        tried = random.multivariate_normal(at, covariance, _TRIED)
        tried[0] = at
        values = [loss(place, generation * _DRAWS_COMPARED) for place in tried]
        best = tried[np.argsort(values, kind="stable")[:_KEPT]]
        at, covariance = best.mean(axis=0), np.cov(best.T)
        means.append(at)
    return np.asarray(np.mean(means[-_LAST:], axis=0), dtype=np.float64)
