"""A model of waiting: rates of clients, links and disks, fitted to the times of whole operations.

What operations of many processes take is followed in a network of queues
(`sds.recommender.queues`). Its eight rates are not given: they are found from measured times, as
the coefficients of an equation are. Of operations with more fetches than are followed, the rest
is taken to go on alike, between two ways of reckoning it; one weight is fitted.

1. Half of the patterns are fitted to, half are left to tell the error. The model is the one that
   was judged: it is not fitted again to all.
2. Rates: least squares of log(predicted / measured), of operations with few enough fetches to be
   followed to the end. Trajectories of processes change abruptly with rates, so derivatives are
   taken over wide steps first, over narrower ones later.
3. The weight: likewise, of the others.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.optimize import least_squares

from sds.errors import SdsValueError
from sds.recommender.heldout import heldout_error
from sds.recommender.model import HeldoutError
from sds.recommender.queues import MAX_FETCHES, QueueRates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sds.recommender.queues import Queued, Streams

# Fewer patterns do not tell eight rates apart.
MIN_PATTERNS = 20
# Rates are fitted to at most so many operations, of at most so many fetches.
_MOST_FITTED, _FEW_FETCHES = 200, 5000
# Fewer that are not followed to the end tell no weight.
_LEAST_CUT_OFF = 10
# Derivatives over such a share of a rate, and evaluations with it.
_STAGES = ((0.1, 8), (0.03, 8), (0.01, 15), (0.003, 15))
# In one stage a rate changes at most by exp(1.5); times that err by more than 2 % count less.
_REACH, _CLOSE = 1.5, 0.02
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
    """Return what happens in the queues of each operation, on all processors."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
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
    first = follow_all([operations[i] for i in mine], QueueRates(), _FEW_FETCHES)
    short = [i for i, found in zip(mine, first, strict=True) if found.followed_share == 1.0]
    if len(short) < 2 * len(_RATES):
        raise SdsValueError(
            f"only {len(short)} operations have at most {_FEW_FETCHES} fetches: measure at least "
            f"{4 * len(_RATES)} small ones"
        )
    few = sorted(random.permutation(short)[:_MOST_FITTED].tolist())
    rates = _fit_rates([operations[i] for i in few], measured[few])
    found = follow_all(operations, rates, max_fetches)
    weight = _fit_weight([found[i] for i in mine], measured[mine])
    heldout = heldout_error(
        _seconds([found[i] for i in others], weight),
        measured[others],
        n_groups=len(names) - len(chosen),
        patterns=[patterns[i] for i in others],
    )
    return QueuedModel(rates=rates, weight=weight, heldout=heldout)


def _fit_rates(operations: Sequence[Streams], measured: NDArray[np.float64]) -> QueueRates:
    logs = np.log(astuple(QueueRates()))
    for step, evaluations in _STAGES:
        found = least_squares(
            partial(_rests, operations=operations, measured=measured),
            logs,
            loss="soft_l1",
            f_scale=_CLOSE,
            diff_step=step,
            max_nfev=evaluations,
            bounds=(logs - _REACH, logs + _REACH),
        )
        logs = found.x
    return _rates_of(logs)


def _rates_of(logs: NDArray[np.float64]) -> QueueRates:
    return QueueRates(**dict(zip(_RATES, np.exp(logs).tolist(), strict=True)))


def _rests(
    logs: NDArray[np.float64], *, operations: Sequence[Streams], measured: NDArray[np.float64]
) -> NDArray[np.float64]:
    # With other rates an operation may take a few more fetches.
    found = follow_all(operations, _rates_of(logs), 4 * _FEW_FETCHES)
    rests: NDArray[np.float64] = np.log([one.slowest_s for one in found] / measured)
    return rests


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
