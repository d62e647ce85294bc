"""Tells from traced reads whether a file system still is the one that was calibrated.

A prediction errs by two amounts: by one that belongs to the shape of the read (what the model
cannot tell, the held-out error), the same whenever such reads recur; and by one that differs from
read to read. What is tested is therefore not how wrong predictions are, but whether they become
wrong in another way:

1. Of each read the error is log(measured / predicted). What is not known is whether the cache held
   it: between the warm and the cold prediction the error is 0.
2. Of the errors of a group (reads of one shape of one dataset, served in one way) the next is
   normal, given those before it: its mean is what they tell of the group's own error, shrunk
   towards 0, its variance what is left of that and of the read's. What deviates from that, in
   standard deviations, is independent from read to read, as long as nothing changed.
3. Page's cumulative sums of the deviations, one upwards, one downwards, raise the alarm: Page 1954,
   "Continuous inspection schemes". A single deviation counts at most 3, so that a neighbour that
   kept the storage busy for one read says little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import SdsValueError
from sds.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sds.recommender.models.samples import Samples

# Half the shift, in standard deviations, that is to be found soonest.
_SLACK = 0.5
# With a slack of 0.5, a false alarm once in some 140,000 reads (Siegmund's approximation).
ALARM = 10.0
_MOST_DEVIATION = 3.0
# One dataset alone may itself have become another, on the same file system.
_FEWEST_GROUPS = 2
# Reads of one shape differ by at least so much; calibrations that saw less were too short.
_LEAST_NOISE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadError:
    """One traced read beside its prediction.

    Attributes
    ----------
    group
        What tells reads of one kind: dataset, shape, and who served it.
    log_error
        log(measured / predicted); 0 between the warm and the cold prediction.
    model_error, noise
        Standard deviations of the log error: of the group's own part, and from read to read.
    """

    group: str
    log_error: float
    model_error: float
    noise: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.log_error):
            raise SdsValueError(
                f"a read of {self.group} has the error {self.log_error}: leave out reads whose "
                "time is not a positive number"
            )
        if not (self.model_error >= 0 and self.noise > 0):
            raise SdsValueError(
                f"errors must be spread by more than nothing, not {self.model_error} and "
                f"{self.noise}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Reads take longer, or less long, than predictions and their errors allow.

    Attributes
    ----------
    factor
        Measured over predicted since the change, beyond what was so before: above 1 slower.
    n_reads, n_groups
        That say so.
    """

    factor: float
    n_reads: int
    n_groups: int

    @property
    def text(self) -> str:
        """Description, e.g. ``reads take 2.3 times as long as predicted (14 reads of 3 kinds)``."""
        kinds = f"({counted(self.n_reads, 'read')} of {counted(self.n_groups, 'kind')})"
        if self.factor >= 1:
            return f"reads take {self.factor:.2g} times as long as predicted {kinds}"
        return f"reads take {self.factor:.2g} of the time predicted {kinds}"


@dataclass(slots=True)
class _Sum:
    """A cumulative sum in one direction, since it was last 0."""

    sign: float
    value: float = 0.0
    shifts: list[float] | None = None
    groups: set[str] | None = None

    def add(self, deviation: float, shift: float, group: str) -> bool:
        """Take one deviation; return whether the alarm is due."""
        self.value = max(0.0, self.value + self.sign * deviation - _SLACK)
        if self.value == 0.0:
            self.shifts, self.groups = None, None
            return False
        self.shifts = [*(self.shifts or []), shift]
        self.groups = {*(self.groups or ()), group}
        return self.value > ALARM and len(self.groups) >= _FEWEST_GROUPS


def find_change(errors: Iterable[ReadError]) -> Change | None:
    """Return what changed, by the errors of reads in the order of time; None: nothing."""
    seen: dict[str, list[float]] = {}
    sums = (_Sum(1.0), _Sum(-1.0))
    for error in errors:
        before = seen.setdefault(error.group, [])
        model, noise = error.model_error**2, error.noise**2
        n = len(before)
        expected = model * sum(before) / (n * model + noise) if n else 0.0
        left = model * noise / (n * model + noise) if n else model
        shift = error.log_error - expected
        deviation = shift / math.sqrt(left + noise)
        deviation = max(-_MOST_DEVIATION, min(_MOST_DEVIATION, deviation))
        for total in sums:
            if total.add(deviation, shift, error.group):
                shifts, groups = total.shifts or [], total.groups or set()
                return Change(
                    factor=math.exp(float(np.median(shifts))),
                    n_reads=len(shifts),
                    n_groups=len(groups),
                )
        before.append(error.log_error)
    return None


def noise_of(samples: Samples) -> float:
    """Return the standard deviation of log seconds of reads of one shape, by a calibration.

    From the median absolute deviation, so that disturbed reads do not count.
    """
    groups: dict[tuple[str, str, float], list[float]] = {}
    layouts = samples.layouts or ("",) * len(samples)
    for pattern, layout, p, seconds in zip(
        samples.patterns, layouts, samples.p, samples.seconds, strict=True
    ):
        groups.setdefault((pattern, layout, p), []).append(math.log(seconds))
    apart = [
        abs(value - float(np.median(values)))
        # The median of n values is closer to them than the truth is.
        * math.sqrt(len(values) / (len(values) - 1))
        for values in groups.values()
        if len(values) > 1
        for value in values
    ]
    return max(_LEAST_NOISE, 1.4826 * float(np.median(apart))) if apart else 3.0 * _LEAST_NOISE
