"""A model of waiting: rates of clients, links and disks, fitted to the times of whole operations.

What operations of many processes take is followed in a network of queues
(`sds.recommender.queues`). Its nine rates are not given: they are found from measured times, as
the coefficients of an equation are. Of operations with more fetches than are followed, the rest
is taken to go on alike, between two ways of reckoning it; one weight is fitted.

1. Half of the patterns are fitted to, half are left to tell the error. The model is the one that
   was judged: it is not fitted again to all.
2. Rates: least squares of log(predicted / measured), of operations with few fetches. Trajectories
   of processes change abruptly with rates, the more so the longer they are: derivatives are taken
   over wide steps of the shortest operations first, over narrower ones and of longer ones later.
   What changes times by little is lost among those that change abruptly: so each rate is then
   tried at some distance, and operations that err by more than most count ever less, for as long
   as that halves the median error.
3. The weight: likewise, of the others.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sds.errors import SdsValueError
from sds.recommender.heldout import heldout_error
from sds.recommender.model import HeldoutError
from sds.recommender.queues import MAX_FETCHES, QueueRates, Streams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sds.recommender.queues import Queued

# Fewer patterns do not tell nine rates apart.
MIN_PATTERNS = 20
# Rates are fitted to at most so many operations, of at most so many fetches.
_MOST_FITTED, _FEW_FETCHES = 200, 5000
# Each keeps what servers have read, in at most 96 MiB.
_MOST_AT_ONCE = 16
# Fewer that are not followed to the end tell no weight.
_LEAST_CUT_OFF = 10
# Derivatives over such a share of a rate, and errors beyond which operations count less; of
# operations with at most so many fetches first, and with so many in all rounds after that.
_FIRST_FETCHES, _FIRST = 300, ((0.1, 0.1), (0.03, 0.02), (0.01, 0.01))
_THEN_FETCHES, _THEN = 1000, (0.01, 0.003)
_MOST_ROUNDS, _EVALUATIONS = 8, 12
# A round begins by trying each rate so far away, as logarithms. Times are no more exact than that.
_TRIED = (1.2, 0.6, 0.3, 0.1, 0.03)
_EXACT = 1e-7
# By one descent a rate changes at most by exp(1.5).
_REACH = 1.5
_RATES = tuple(f.name for f in fields(QueueRates))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedModel:
    """Fitted rates, and how far to trust what follows from them.

    Attributes
    ----------
    rates
        Of clients, links and disks.
    weight
        Where an operation is not followed to the end: share of the logarithm that has what is
        left take as long as the slowest process; the rest has it dealt evenly.
    heldout
        Error on patterns that it was not fitted to.
    """

    rates: QueueRates
    weight: float
    heldout: HeldoutError | None = None

    @property
    def name(self) -> str:
        """``queued``."""
        return "queued"

    @property
    def log_error(self) -> float:
        """Standard deviation of log(predicted / measured), from the held-out error."""
        return self.heldout.rms if self.heldout is not None else float("inf")

    @property
    def ratio_error(self) -> float:
        """Standard deviation of the logarithm of the ratio of two predictions."""
        if self.heldout is None or self.heldout.ratio_rms is None:
            return float(np.sqrt(2.0)) * self.log_error
        return self.heldout.ratio_rms

    def predict_many(
        self, operations: Sequence[Streams], *, max_fetches: int = MAX_FETCHES
    ) -> NDArray[np.float64]:
        """Return the predicted times of operations, shape (n,), on all processors."""
        return _seconds(follow_all(operations, self.rates, max_fetches), self.weight)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return what `from_arrays` takes: the rates and the weight, by name."""
        return {
            **{name: np.array(getattr(self.rates, name)) for name in _RATES},
            "weight": np.array(self.weight),
        }

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, NDArray[np.float64]], heldout: HeldoutError | None = None
    ) -> Self:
        """Return the model that `arrays` was called of."""
        missing = {*_RATES, "weight"} - set(arrays)
        if missing:
            raise SdsValueError(
                f"a queued model needs {', '.join(sorted(missing))}, which is not there: fit it "
                "again"
            )
        given = {name: _number(arrays[name], name) for name in (*_RATES, "weight")}
        weight = given.pop("weight")
        if not 0.0 <= weight <= 1.0:
            raise SdsValueError(
                f"weight is {weight}, a share is 0 to 1: the model is damaged, fit it again"
            )
        return cls(rates=QueueRates(**given), weight=weight, heldout=heldout)


def _number(array: NDArray[np.float64], name: str) -> float:
    if np.shape(array) != () or not np.issubdtype(np.asarray(array).dtype, np.floating):
        raise SdsValueError(f"{name} is {array!r}, no number: the model is damaged, fit it again")
    return float(array)


def follow_all(operations: Sequence[Streams], rates: QueueRates, max_fetches: int) -> list[Queued]:
    """Return what happens in the queues of each operation, on all processors, but at most 16.

    Takes at most 96 MiB on each of them.
    """
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, os.cpu_count() or 1)) as pool:
        return list(
            pool.map(lambda streams: streams.follow(rates, max_fetches=max_fetches), operations)
        )


def fit_queued(
    operations: Sequence[Streams],
    seconds: Sequence[float],
    patterns: Sequence[str],
    *,
    seed: int = 0,
    max_fetches: int = MAX_FETCHES,
) -> QueuedModel:
    """Return the model fitted to half of the patterns, with its error on the other half.

    Parameters
    ----------
    operations, seconds, patterns
        What was fetched, the time it took, and a name; operations of one name are held out
        together.
    seed
        Of which half is which.
    max_fetches
        To be followed of one operation.

    Raises
    ------
    SdsValueError
        If there are fewer than `MIN_PATTERNS` patterns, times that are not positive, or too few
        operations that can be followed to the end.
    """
    names = sorted(set(patterns))
    if not len(operations) == len(seconds) == len(patterns):
        raise SdsValueError(
            f"{len(operations)} operations, {len(seconds)} times and {len(patterns)} names: give "
            "one of each"
        )
    if len(names) < MIN_PATTERNS:
        raise SdsValueError(
            f"{len(names)} patterns are too few to tell what clients, links and disks take: "
            f"measure at least {MIN_PATTERNS}, or fit the service model"
        )
    measured = np.array(seconds, dtype=np.float64)
    is_time = np.isfinite(measured) & (measured > 0)
    if not is_time.all():
        raise SdsValueError(
            f"an operation took {measured[~is_time].tolist()[:1]} s: measure it again, or "
            "leave it out"
        )
    if not all(len(streams) for streams in operations):
        raise SdsValueError("an operation reads nothing: leave it out, it teaches no rates")
    random = np.random.default_rng(seed)
    chosen = {names[i] for i in random.permutation(len(names))[: len(names) // 2]}
    is_chosen = np.array([name in chosen for name in patterns])
    mine, others = np.flatnonzero(is_chosen).tolist(), np.flatnonzero(~is_chosen).tolist()
    rates = _fit_rates([operations[i] for i in mine], measured[mine], random)
    found = follow_all(operations, rates, max_fetches)
    weight = _fit_weight([found[i] for i in mine], measured[mine])
    heldout = heldout_error(
        _seconds([found[i] for i in others], weight),
        measured[others],
        n_groups=len(names) - len(chosen),
        patterns=[patterns[i] for i in others],
    )
    return QueuedModel(rates=rates, weight=weight, heldout=heldout)


@dataclass(frozen=True, slots=True)
class _Timed:
    """Operations of few fetches, and their times."""

    operations: list[Streams]
    measured: NDArray[np.float64]
    few_fetches: int

    def errors(self, logs: NDArray[np.float64]) -> NDArray[np.float64]:
        # With other rates an operation may take a few more fetches.
        found = follow_all(self.operations, _rates_of(logs), 4 * self.few_fetches)
        errors: NDArray[np.float64] = np.log([one.slowest_s for one in found] / self.measured)
        return errors

    def median_error(self, logs: NDArray[np.float64]) -> float:
        return max(_EXACT, float(np.median(np.abs(self.errors(logs)))))


def _short(
    operations: Sequence[Streams], measured: NDArray[np.float64], random: np.random.Generator
) -> Callable[[int], _Timed]:
    """Return what gives the operations with at most so many fetches, or twice as many as rates."""
    least = 2 * len(_RATES)
    found = follow_all(operations, QueueRates(), _FEW_FETCHES)
    whole = [i for i, one in enumerate(found) if one.followed_share == 1.0]
    if len(whole) < least:
        raise SdsValueError(
            f"only {len(whole)} operations have at most {_FEW_FETCHES} fetches: measure at least "
            f"{2 * least} small ones"
        )
    whole = random.permutation(whole).tolist()

    def of(few_fetches: int) -> _Timed:
        few = [i for i in whole if found[i].fetches <= few_fetches]
        if len(few) < least:
            few = sorted(whole, key=lambda i: found[i].fetches)[:least]
        few = sorted(few[:_MOST_FITTED])
        most = max(few_fetches, *(int(found[i].fetches) for i in few))
        return _Timed([operations[i] for i in few], measured[few], most)

    return of


def _fit_rates(
    operations: Sequence[Streams], measured: NDArray[np.float64], random: np.random.Generator
) -> QueueRates:
    short = _short(operations, measured, random)
    logs = np.log(astuple(QueueRates()))
    few = short(_FIRST_FETCHES)
    for step, close in _FIRST:
        logs = _descend(logs, few, step, close)
    more = short(_THEN_FETCHES)
    error = more.median_error(logs)
    for _ in range(_MOST_ROUNDS):
        found = _step_aside(logs, more, error)
        for step in _THEN:
            found = _descend(found, more, step, more.median_error(found))
        before, error = error, more.median_error(found)
        if error < before:
            logs = found
        if error > before / 2:
            break
    return _rates_of(logs)


def _descend(
    logs: NDArray[np.float64], timed: _Timed, step: float, close: float
) -> NDArray[np.float64]:
    found: NDArray[np.float64] = least_squares(
        timed.errors,
        logs,
        loss="soft_l1",
        f_scale=close,
        diff_step=step,
        max_nfev=_EVALUATIONS,
        bounds=(logs - _REACH, logs + _REACH),
    ).x
    return found


def _step_aside(logs: NDArray[np.float64], timed: _Timed, close: float) -> NDArray[np.float64]:
    """Return where more times agree, one rate after another tried at some distances."""

    def loss(at: NDArray[np.float64]) -> float:
        return float(np.log1p((timed.errors(at) / close) ** 2).sum())

    best, least = logs, loss(logs)
    for rate in np.eye(len(logs)):
        for distance in (*_TRIED, *(-one for one in _TRIED)):
            at = best + distance * rate
            if (value := loss(at)) < least:
                best, least = at, value
    return best


def _rates_of(logs: NDArray[np.float64]) -> QueueRates:
    return QueueRates(**dict(zip(_RATES, np.exp(logs).tolist(), strict=True)))


def _fit_weight(found: Sequence[Queued], measured: NDArray[np.float64]) -> float:
    """Return the weight that fits those best that were not followed to the end."""
    cut_off = np.array([one.followed_share < 1.0 for one in found])
    if cut_off.sum() < _LEAST_CUT_OFF:
        return 0.5
    slowest = np.log([one.slowest_s for one in found])[cut_off]
    even = np.log([one.even_s for one in found])[cut_off]
    apart = slowest - even
    square = float(apart @ apart)
    if square == 0.0:
        return 0.5
    return float(np.clip(apart @ (np.log(measured[cut_off]) - even) / square, 0.0, 1.0))


def _seconds(found: Sequence[Queued], weight: float) -> NDArray[np.float64]:
    slowest = np.array([one.slowest_s for one in found])
    even = np.array([one.even_s for one in found])
    seconds: NDArray[np.float64] = slowest**weight * even ** (1.0 - weight)
    return seconds
