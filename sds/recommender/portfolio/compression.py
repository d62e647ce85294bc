"""Groups of reads whose predicted cost is alike: thousands of patterns, few decisions.

Liu 2014 names this as future work. The law that holds here: let every read of a group take, in
each layout, within a factor 1 + t of what any other of the group takes, and let the same layouts
serve them all. Let each group stand for its reads with their mean time in each layout. Then for
every set of layouts

    time of all reads  <=  time of all groups  <=  (1 + t) x time of all reads,

with equality on the left for a single layout that serves all of them. So the set that is best for
the groups takes at most 1 + t times as long as the best one.

Proof. A read takes the least of its times in a set. The mean of least times is at most the least
of the mean times, which gives the left side. The least mean is at most the mean in the layout that
is best for one read of the group, which is at most 1 + t times what that read takes there; so it is
for every read of the group, and for their mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sds.errors import SdsValueError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGroups:
    """Reads grouped by predicted cost.

    Attributes
    ----------
    seconds
        Mean time of each group's reads in each layout, shape (n_groups, n_layouts); infinite where
        a layout does not serve them.
    weights
        How often the reads of each group are made, shape (n_groups,).
    group_of
        The group of each read, shape (n_reads,).
    """

    seconds: NDArray[np.float64]
    weights: NDArray[np.float64]
    group_of: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.weights)


def group_by_cost(
    seconds: NDArray[np.float64], weights: NDArray[np.float64], *, tolerance: float
) -> ReadGroups:
    """Return reads grouped so that in each layout their times are within a factor 1 + tolerance.

    Parameters
    ----------
    seconds
        Predicted time of each read in each layout, shape (n_reads, n_layouts), positive; infinite
        where the layout would not serve it.
    weights
        How often each is made, shape (n_reads,), not negative.
    tolerance
        Positive. The greater, the fewer groups.

    Raises
    ------
    SdsValueError
        If a time is not positive, or the arguments do not fit each other.
    """
    seconds = np.asarray(seconds, dtype=np.float64)
    weights = np.asarray(weights, dtype=np.float64)
    if seconds.ndim != 2 or weights.shape != seconds.shape[:1]:
        raise SdsValueError(
            f"times of shape {seconds.shape} and weights of shape {weights.shape} do not fit: "
            "give one row of times and one weight for each read"
        )
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise SdsValueError(f"tolerance must be a positive number, not {tolerance}")
    if np.isnan(seconds).any() or (seconds <= 0).any() or not (weights >= 0).all():
        raise SdsValueError("predicted times must be positive, and weights not negative")
    bins = np.full(seconds.shape, np.iinfo(np.int64).max)
    served = np.isfinite(seconds)
    bins[served] = np.floor(np.log(seconds[served]) / math.log1p(tolerance)).astype(np.int64)
    _, group_of = np.unique(bins, axis=0, return_inverse=True)
    group_of = np.asarray(group_of, dtype=np.intp).reshape(-1)
    n_groups = int(group_of.max()) + 1 if len(group_of) else 0
    total = np.bincount(group_of, weights=weights, minlength=n_groups).astype(np.float64)
    count = np.bincount(group_of, minlength=n_groups)
    # Reads that are never made still have a time: their plain mean.
    share = np.where(total[group_of] > 0, weights, 1.0)
    share = share / np.where(total > 0, total, count)[group_of]
    means = np.zeros((n_groups, seconds.shape[1]))
    np.add.at(means, group_of, np.where(served, seconds, 0.0) * share[:, None])
    unserved = np.zeros((n_groups, seconds.shape[1]), dtype=bool)
    unserved[group_of] = ~served
    means[unserved] = np.inf
    return ReadGroups(seconds=means, weights=total, group_of=group_of)
