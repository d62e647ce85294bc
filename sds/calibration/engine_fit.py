"""Fits the read engine's parameters to timed reads: pure.

The planner predicts a read from its shape and some twenty costs (native/include/sds/io_model.h).
Here the costs are sought with which it predicts the times that were measured: least squares of the
logarithms, so that a microsecond and a second count alike. What no read tells anything about stays
as it was before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sds import _native
from sds.engine import Cache, Executor, IoParameters
from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# How much a measured time counts against what was believed of a cost before, per factor of e.
_PRIOR_WEIGHT = 0.03
# No cost is fitted to be further than this from what was believed: outliers stay outliers.
_MOST_FACTOR = 1000.0

_COSTS = tuple(
    field.name for field in fields(IoParameters) if field.name.endswith(("_s", "_s_per_byte"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """One shape of read that the engine was made to carry out in one way.

    Attributes
    ----------
    run_bytes, stride_bytes, n_runs
        Number of runs, bytes of each, and bytes from begin to begin.
    executor, cache
        How they were read, and whether the page cache held them.
    is_mapped
        Whether the file had been mapped and loaded from before.
    queue_depth
        Requests in flight; 0: the engine's own.
    seconds
        Median of what was measured.
    """

    run_bytes: int
    stride_bytes: int
    n_runs: int
    executor: Executor
    cache: Cache
    is_mapped: bool = False
    queue_depth: int = 0
    seconds: float

    def predicted_s(self, parameters: _native.IoParameters) -> float:
        """Return the seconds that the planner expects."""
        has_many = self.n_runs > 1
        return _native.plan_runs(
            0,
            self.run_bytes,
            (self.n_runs,) if has_many else (),
            (self.stride_bytes,) if has_many else (),
            parameters=parameters,
            executor=self.executor,
            cache=self.cache,
            is_mapped=self.is_mapped,
            queue_depth=self.queue_depth,
            may_map=True,
            may_queue=True,
            may_read_directly=True,
        )["predicted_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFit:
    """Parameters, and how well the reads they were fitted to are predicted.

    Attributes
    ----------
    parameters
        With `is_measured` set.
    median_log_error, p95_log_error
        Of |log(predicted / measured)| over the samples: in-sample.
    """

    parameters: IoParameters
    median_log_error: float
    p95_log_error: float


def fit_parameters(samples: Sequence[EngineSample], *, start: IoParameters) -> EngineFit:
    """Return the parameters with which the planner predicts the samples best.

    Parameters
    ----------
    samples
        Timed reads.
    start
        What is believed of what the samples do not tell.

    Raises
    ------
    SdsValueError
        If there are no samples, or a time is not positive and finite.
    """
    from scipy.optimize import least_squares  # noqa: PLC0415 - as slow to import as a calibration

    if not samples:
        raise SdsValueError("no timed reads to fit the engine's parameters to: give more time")
    measured = np.array([sample.seconds for sample in samples])
    if not np.all(np.isfinite(measured) & (measured > 0)):
        worst = measured[~(np.isfinite(measured) & (measured > 0))][0]
        raise SdsValueError(f"a read cannot have taken {worst} s: measure again")
    before = np.log(_costs_of(start))

    def errors(costs: NDArray[np.float64]) -> NDArray[np.float64]:
        parameters = _with_costs(start, np.exp(costs)).native()
        return np.log([sample.predicted_s(parameters) for sample in samples] / measured)

    def residuals(costs: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate((errors(costs), _PRIOR_WEIGHT * (costs - before)))

    reach = math.log(_MOST_FACTOR)
    bounds = (before - reach, before + reach)
    found = least_squares(residuals, before, bounds=bounds, loss="soft_l1", f_scale=0.3)
    # From near the truth on, a read that another program disturbed need not bend the rest.
    found = least_squares(residuals, found.x, bounds=bounds, loss="cauchy", f_scale=0.3)
    left = np.abs(errors(found.x))
    return EngineFit(
        parameters=replace(_with_costs(start, np.exp(found.x)), is_measured=True),
        median_log_error=float(np.median(left)),
        p95_log_error=float(np.quantile(left, 0.95)),
    )


def best_depth(seconds_per_request: dict[int, float]) -> int:
    """Return the least depth at which requests take at most a tenth longer than at the best."""
    best_s = min(seconds_per_request.values())
    return min(depth for depth, s in seconds_per_request.items() if s <= 1.1 * best_s)


def _costs_of(parameters: IoParameters) -> NDArray[np.float64]:
    """Return what is fitted: of Chen 2014's costs two, then those of `_COSTS`."""
    reads = parameters.reads
    others = (getattr(parameters, name) for name in _COSTS)
    return np.array([reads.startup_s, reads.cud_s_per_byte, *others])


def _with_costs(start: IoParameters, costs: NDArray[np.float64]) -> IoParameters:
    """Return the parameters with other costs, in the order of `_costs_of`."""
    startup_s, cud_s_per_byte, *others = (float(cost) for cost in costs)
    fitted: dict[str, Any] = dict(zip(_COSTS, others, strict=True))
    reads = replace(start.reads, startup_s=startup_s, cud_s_per_byte=cud_s_per_byte)
    return replace(start, reads=reads, **fitted)
