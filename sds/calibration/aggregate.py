"""Reads of one shape, repeated elsewhere: the median of each stands for it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from sds.recommender.models.samples import Samples

# A read that took this multiple of the median of its like was disturbed by something else.
_DISTURBED = 3.0
# Of fewer it cannot be said which one was.
_FEWEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatedSamples:
    """One read per shape and number of processes.

    Attributes
    ----------
    samples
        Of each shape the read with the median time.
    n_disturbed
        Outliers: reads that took over three times the median of their like, and count for nothing.
    """

    samples: Samples
    n_disturbed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatError:
    """Spread of the times of reads of one shape: no model predicts one read better.

    Of |log(seconds / median of the other reads of its shape)|.

    Attributes
    ----------
    median, p95, rms
        Median, 95th percentile and root mean square over all reads that were repeated.
    n
        Reads that were repeated.
    """

    median: float
    p95: float
    rms: float
    n: int


def repeat_error(samples: Samples) -> RepeatError | None:
    """Return by how much reads of one shape differ; None where none was repeated."""
    seconds = np.log(np.array(samples.seconds))
    apart = [
        abs(seconds[i] - float(np.median([seconds[j] for j in group if j != i])))
        for group in _shapes(samples).values()
        if len(group) > 1
        for i in group
    ]
    if not apart:
        return None
    return RepeatError(
        median=float(np.median(apart)),
        p95=float(np.percentile(apart, 95.0)),
        rms=float(np.sqrt(np.mean(np.square(apart)))),
        n=len(apart),
    )


def _shapes(samples: Samples) -> dict[tuple[str, str, float], list[int]]:
    """Return the reads of each pattern in each layout, as read by as many processes."""
    groups: dict[tuple[str, str, float], list[int]] = defaultdict(list)
    layouts = samples.layouts or ("",) * len(samples)
    for i, key in enumerate(zip(samples.patterns, layouts, samples.p, strict=True)):
        groups[key].append(i)
    return groups


def aggregate(samples: Samples) -> AggregatedSamples:
    """Return, for each pattern and number of processes, the read with the median time.

    Of an even number the quicker of the two in the middle: disturbances only ever add time.
    """
    seconds = np.array(samples.seconds)
    chosen, n_disturbed = [], 0
    for group in _shapes(samples).values():
        ranked = sorted(group, key=lambda i: seconds[i])
        if len(ranked) >= _FEWEST:
            limit = _DISTURBED * float(np.median(seconds[ranked]))
            calm = [i for i in ranked if seconds[i] <= limit]
            n_disturbed += len(ranked) - len(calm)
            ranked = calm
        chosen.append(ranked[(len(ranked) - 1) // 2])
    return AggregatedSamples(samples=samples.take(sorted(chosen)), n_disturbed=n_disturbed)
