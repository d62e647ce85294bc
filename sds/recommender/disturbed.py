"""Finds reads that something else slowed down: neighbours on shared storage, most of all.

A read that took many times as long as its like says nothing of the layout. Found are those far
above a robust fit to all reads; where they are more than a few, the model is wrong, not the
neighbours, and none is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sds.recommender.samples import Samples
from sds.recommender.service import ServiceFitter

# At least so many times as slow as fitted, and so many robust standard deviations.
_LEAST_FACTOR = 3.0
_DEVIATIONS = 4.0
# Of a normal distribution, per median absolute deviation.
_SIGMA_PER_MAD = 1.4826
# More than this share is no disturbance.
_MOST = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Reads to fit.

    Attributes
    ----------
    samples
        Those that nothing seems to have disturbed.
    left_out
        Indices of the others.
    """

    samples: Samples
    left_out: tuple[int, ...]


def leave_out_disturbed(samples: Samples) -> Kept:
    """Return the reads without those that took far longer than all others would explain.

    Raises
    ------
    SdsValueError
        If there are too few reads to tell.
    """
    seconds = np.array(samples.seconds)
    _, fitted = ServiceFitter(robust=True).solve(samples.measures(), seconds)
    log = np.log(seconds / fitted)
    spread = _SIGMA_PER_MAD * float(np.median(np.abs(log - np.median(log))))
    limit = float(np.median(log)) + max(np.log(_LEAST_FACTOR), _DEVIATIONS * spread)
    slow = np.flatnonzero(log > limit)
    if len(slow) > _MOST * len(samples):
        return Kept(samples=samples, left_out=())
    rest = np.setdiff1d(np.arange(len(samples)), slow)
    return Kept(samples=samples.take(rest.tolist()), left_out=tuple(slow.tolist()))
