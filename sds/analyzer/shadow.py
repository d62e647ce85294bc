"""Shadow test of a replica: what it serves of its reads against what serves the others.

A replica in shadow serves a share of the reads that it would serve; the connector spreads that
share evenly over them, so that both sides read the same dataset in the same programs at the same
time, and their times can be compared without a model.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from sds.analyzer.read_times import ReadTimes, added_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer.patterns import AccessPattern

SHADOW_PERMILLE = 500
"""Share of the reads that a replica in shadow serves, in thousandths."""
WINDOW_READS = 100
"""Reads of a replica after which a window of its test ends."""
SLOWER = 1.1
"""A kind of read that takes more than this times as long speaks against a replica."""
# Of fewer reads on either side nothing is said.
_FEWEST = 10
# Standard errors by which sides must differ: each test is looked at several times.
_STANDARD_ERRORS = 3.0


class ShadowOutcome(StrEnum):
    """Outcome of a shadow test so far."""

    OPEN = "open"
    FASTER = "faster"
    NOT_FASTER = "not faster"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowTest:
    """State of a shadow test: the times that were counted before its window.

    Attributes
    ----------
    window
        The first finds a new replica on the device, and what it is compared with often in memory:
        it can show a gain, but not that there is none. The second can.
    before
        By `AccessPattern.shape_key`.
    """

    window: int = 1
    before: dict[str, tuple[ReadTimes, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowClass:
    """Reads of one pattern within a window of a shadow test.

    Attributes
    ----------
    description
        The pattern in words.
    n, mean_s
        Reads that the replica served, and their mean time.
    n_others, others_mean_s
        The same of those that went where they went before.
    error_s
        Standard error of the difference of the means.
    is_slower
        Whether the replica is shown to take more than `SLOWER` times as long.
    """

    description: str
    n: int
    mean_s: float
    n_others: int
    others_mean_s: float
    error_s: float
    is_slower: bool

    @property
    def saved_s(self) -> float:
        """Seconds that the replica saved; below zero where it cost time."""
        return self.n * (self.others_mean_s - self.mean_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowResult:
    """Outcome of a shadow test, and the numbers behind it.

    Attributes
    ----------
    n, saved_s
        Reads of the window that the replica served and that are compared, and what it saved.
    error_s
        Standard error of that.
    next_test
        The test to go on with, where a window has ended and nothing is decided.
    """

    outcome: ShadowOutcome
    reason: str
    n: int
    saved_s: float
    error_s: float
    classes: tuple[ShadowClass, ...]
    next_test: ShadowTest | None = None


def begin_shadow(
    patterns: Sequence[AccessPattern], replica_id: int, *, window: int = 1
) -> ShadowTest:
    """Return a test that compares what is read from now on.

    patterns: of the dataset, as counted so far.
    """
    return ShadowTest(
        window=window,
        before={
            pattern.shape_key: tuple(
                added_times(side) for side in _sides(pattern.times, replica_id) if side
            )
            for pattern in patterns
            if pattern.times
        },
    )


def shadow_result(
    patterns: Sequence[AccessPattern], replica_id: int, test: ShadowTest
) -> ShadowResult:
    """Return what the reads since a test began say of a replica.

    Parameters
    ----------
    patterns
        Of the dataset, as counted so far; collective reads have no times of their own.
    test
        As `begin_shadow` returned it.

    Notes
    -----
    A replica is faster where it saved time, by 3 standard errors, and no pattern of at least 10
    reads on either side is shown to take more than 1.1 times as long. It is not where one is, or
    where 100 reads of the second window have shown no gain. Variances follow from the traced
    histograms, whose buckets are factors of two: they are bounds from above for times that lie
    close together.
    """
    found = [_class_of(pattern, replica_id, test) for pattern in patterns]
    classes = tuple(each for each in found if each is not None)
    n = sum(each.n for each in classes)
    saved_s = math.fsum(each.saved_s for each in classes)
    error_s = math.sqrt(math.fsum((each.n * each.error_s) ** 2 for each in classes))
    slower = [each for each in classes if each.is_slower]
    outcome, reason, next_test = ShadowOutcome.OPEN, "too few reads yet", None
    if classes and not slower and saved_s > _STANDARD_ERRORS * error_s:
        outcome = ShadowOutcome.FASTER
        reason = f"measured faster in shadow: {_said(classes)}"
    elif test.window > 1 and slower:
        outcome = ShadowOutcome.NOT_FASTER
        reason = f"measured slower in shadow: {_said(slower)}"
    elif n >= WINDOW_READS and test.window > 1:
        outcome = ShadowOutcome.NOT_FASTER
        reason = f"no gain measured in shadow: {_said(classes)}"
    elif n >= WINDOW_READS:
        reason = "nothing is decided by the first window"
        next_test = begin_shadow(patterns, replica_id, window=test.window + 1)
    return ShadowResult(
        outcome=outcome,
        reason=reason,
        n=n,
        saved_s=saved_s,
        error_s=error_s,
        classes=classes,
        next_test=next_test,
    )


def _said(classes: Sequence[ShadowClass]) -> str:
    """Return the times of the class of which most was read, in words."""
    most = max(classes, key=lambda each: each.n * each.mean_s)
    return (
        f"{most.description}, {most.n} reads of {most.mean_s:.3g} s on average against "
        f"{most.n_others} of {most.others_mean_s:.3g} s"
    )


def _sides(times: Sequence[ReadTimes], replica_id: int) -> tuple[list[ReadTimes], list[ReadTimes]]:
    """Return the times of a replica, and those of whatever served the other reads."""
    mine = [each for each in times if each.served_by == replica_id]
    return mine, [each for each in times if each.served_by != replica_id]


def _class_of(pattern: AccessPattern, replica_id: int, test: ShadowTest) -> ShadowClass | None:
    """Return what is compared of a pattern; None where either side has too few reads."""
    before = _sides(test.before.get(pattern.shape_key, ()), replica_id)
    now = _sides(pattern.times, replica_id)
    mine, others = (_since(*each) for each in zip(now, before, strict=True))
    if mine is None or others is None or min(mine.n, others.n) < _FEWEST:
        return None
    mine_variance = _variance(mine) / mine.n
    others_variance = _variance(others) / others.n
    excess_s = mine.mean_s - SLOWER * others.mean_s
    excess_error_s = math.sqrt(mine_variance + SLOWER**2 * others_variance)
    return ShadowClass(
        description=pattern.description,
        n=mine.n,
        mean_s=mine.mean_s,
        n_others=others.n,
        others_mean_s=others.mean_s,
        error_s=math.sqrt(mine_variance + others_variance),
        is_slower=excess_s > _STANDARD_ERRORS * excess_error_s,
    )


def _since(now: Sequence[ReadTimes], before: Sequence[ReadTimes]) -> ReadTimes | None:
    """Return the times that were counted since; None where there are none."""
    if not now:
        return None
    whole = added_times(now)
    if not before:
        return whole
    earlier = added_times(before)
    if earlier.n > whole.n:  # times were forgotten since, with what lay in the file before
        return whole
    if earlier.n == whole.n:
        return None
    left = Counter(dict(whole.histogram))
    left.subtract(dict(earlier.histogram))
    return replace(
        whole,
        n=whole.n - earlier.n,
        total_s=max(0.0, whole.total_s - earlier.total_s),
        histogram=tuple(sorted((bucket, n) for bucket, n in left.items() if n > 0)),
    )


def _variance(times: ReadTimes) -> float:
    """Return the variance of times that are spread evenly over their buckets."""
    ends = [times.ends_of_bucket(number) for number in range(len(times.histogram))]
    counts = [n for _, n in times.histogram]
    n = sum(counts)
    if not n:
        return 0.0
    middles = [(low + high) / 2 for low, high in ends]
    mean = math.fsum(n * m for n, m in zip(counts, middles, strict=True)) / n
    return (
        math.fsum(
            k * ((middle - mean) ** 2 + (high - low) ** 2 / 12)
            for k, middle, (low, high) in zip(counts, middles, ends, strict=True)
        )
        / n
    )
