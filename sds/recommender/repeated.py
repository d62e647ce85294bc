"""Reads of one shape, repeated elsewhere: the median of each stands for it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from sds.recommender.samples import Samples

# A read that took so many times the median of its like was disturbed by something else.
_DISTURBED = 3.0
# Of fewer it cannot be said which one was.
_FEWEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """One read per shape and number of processes.

    Attributes
    ----------
    samples
        Of each shape the read with the median time.
    n_disturbed
        Reads that took over three times the median of their like, and count for nothing.
    """

    samples: Samples
    n_disturbed: int


def settle(samples: Samples) -> Settled:
    """Return of each pattern, as read by as many processes, the read with the median time.

    Of an even number the quicker of the two in the middle: disturbances only ever add time.
    """
    groups: dict[tuple[str, str, float], list[int]] = defaultdict(list)
    layouts = samples.layouts or ("",) * len(samples)
    for i, key in enumerate(zip(samples.patterns, layouts, samples.p, strict=True)):
        groups[key].append(i)
    seconds = np.array(samples.seconds)
    kept, n_disturbed = [], 0
    for group in groups.values():
        ranked = sorted(group, key=lambda i: seconds[i])
        if len(ranked) >= _FEWEST:
            limit = _DISTURBED * float(np.median(seconds[ranked]))
            calm = [i for i in ranked if seconds[i] <= limit]
            n_disturbed += len(ranked) - len(calm)
            ranked = calm
        kept.append(ranked[(len(ranked) - 1) // 2])
    return Settled(samples=samples.take(sorted(kept)), n_disturbed=n_disturbed)
