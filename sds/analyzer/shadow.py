"""Shadow test of a replica: the reads that it serves against those that it leaves alone.

A replica in shadow is chosen for a read as any other, and then serves it or leaves it alone, by
chance. Both sides are reads of the same programs at the same time, for which the same was
predicted, so that their times can be compared without a model.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from sds.analyzer.read_times import ReadTimes, added_times
from sds.text import time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer.patterns import AccessPattern

SHADOW_PERMILLE = 500
"""Share of the reads that a replica in shadow serves, in thousandths."""
LOOKS = (10, 20, 50, 100, 200, 500, 1000, 2000)
"""Reads that a replica has served in a window when its test is looked at."""
WINDOW_READS = 100
"""Reads that a replica serves in the first window."""
SLOWER = 1.1
"""A kind of read that takes more than this times as long speaks against a replica."""
WORTH = 0.05
"""Share of the time that a replica has to save, or it is not worth its space."""
# Kinds of fewer reads on either side are taken together.
_FEWEST = 10
_OTHERS = "other reads"
# Standard errors by which sides must differ: by chance in one or two of a hundred whole tests.
_STANDARD_ERRORS = 3.0


class ShadowOutcome(StrEnum):
    """Outcome of a shadow test so far."""

    OPEN = "open"
    FASTER = "faster"
    NOT_FASTER = "not faster"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowTest:
    """State of a shadow test.

    Attributes
    ----------
    window
        The first finds a new replica on the device, and what it is compared with often in memory:
        it can show a gain, but not that there is none. The second can.
    n_seen
        Reads that the replica had served in this window at the last look.
    before
        Times of both sides that were counted before the window, by `AccessPattern.shape_key`: the
        replica's first, or None.
    """

    window: int = 1
    n_seen: int = 0
    before: dict[str, tuple[ReadTimes | None, ReadTimes | None]] = field(default_factory=dict)


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
        The same of those that it left alone.
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
    test
        To go on with.
    """

    outcome: ShadowOutcome
    reason: str
    n: int
    saved_s: float
    error_s: float
    classes: tuple[ShadowClass, ...]
    test: ShadowTest


def shadow_result(
    patterns: Sequence[AccessPattern], replica_id: int, test: ShadowTest
) -> ShadowResult:
    """Return what the reads of a window say of a replica.

    Parameters
    ----------
    patterns
        Of the dataset, as counted so far.
    test
        A new one, or as an earlier result has it.

    Notes
    -----
    A test is looked at when the replica has served `LOOKS` reads of a window, so that looking often
    decides nothing. It is faster where it saved time, by 3 standard errors, and no pattern is shown
    to take more than `SLOWER` times as long. It is not faster where, in the second window, one is
    shown to, where 100 reads and more saved less than `WORTH` of the time, by a standard error, and
    where 2000 are not enough to tell.

    Times within a bucket of the traced histogram are unknown to a factor of two; the variances are
    the greatest that its reads can have.
    """
    sides = {
        pattern.shape_key: (
            _of_replica(pattern.times, replica_id), _of_replica(pattern.left_alone, replica_id)
        )
        for pattern in patterns
    }  # fmt: skip
    classes = _classes(patterns, sides, test)
    n = sum(each.n for each in classes)
    saved_s = math.fsum(each.saved_s for each in classes)
    error_s = math.sqrt(math.fsum((each.n * each.error_s) ** 2 for each in classes))
    look = max((look for look in LOOKS if look <= n), default=0)
    found = ShadowResult(
        outcome=ShadowOutcome.OPEN,
        reason="too few reads to tell" if not look else f"not decided: {_said(classes)}",
        n=n,
        saved_s=saved_s,
        error_s=error_s,
        classes=classes,
        test=test,
    )
    if look <= test.n_seen:
        return found
    slower = [each for each in classes if each.is_slower]
    left_alone_s = math.fsum(each.n * each.others_mean_s for each in classes)
    is_last = test.window > 1
    if not slower and saved_s > _STANDARD_ERRORS * error_s:
        return replace(
            found,
            outcome=ShadowOutcome.FASTER,
            reason=f"measured faster in shadow: {_said(classes)}",
        )
    if is_last and slower:
        return replace(
            found,
            outcome=ShadowOutcome.NOT_FASTER,
            reason=f"measured slower in shadow: {_said(slower)}",
        )
    is_useless = look >= WINDOW_READS and saved_s + error_s < WORTH * left_alone_s
    if is_last and (is_useless or look == LOOKS[-1]):
        return replace(
            found,
            outcome=ShadowOutcome.NOT_FASTER,
            reason=f"no gain measured in shadow: {_said(classes)}",
        )
    if look >= WINDOW_READS and not is_last:
        return replace(found, test=ShadowTest(window=test.window + 1, before=sides))
    return replace(found, test=replace(test, n_seen=look))


def _said(classes: Sequence[ShadowClass]) -> str:
    """Return the times of the class of which most was read, in words."""
    most = max(classes, key=lambda each: each.n * each.mean_s)
    return (
        f"{most.description}, {most.n} reads of {time_text(most.mean_s)} on average against "
        f"{most.n_others} of {time_text(most.others_mean_s)}"
    )


def _of_replica(times: Sequence[ReadTimes], replica_id: int) -> ReadTimes | None:
    """Return the times that are kept under the id of a replica."""
    return next((each for each in times if each.served_by == replica_id), None)


def _classes(
    patterns: Sequence[AccessPattern],
    sides: dict[str, tuple[ReadTimes | None, ReadTimes | None]],
    test: ShadowTest,
) -> tuple[ShadowClass, ...]:
    """Return what is compared within a window: each pattern, those of few reads as one."""
    found, few = [], []
    for pattern in patterns:
        before = test.before.get(pattern.shape_key, (None, None))
        mine, others = (
            _since(*each) for each in zip(sides[pattern.shape_key], before, strict=True)
        )
        if mine is not None and others is not None and min(mine.n, others.n) >= _FEWEST:
            found.append(_class_of(pattern.description, mine, others))
        else:
            few.append((mine, others))
    mine, others = (
        added_times(some) if (some := [each for each in side if each is not None]) else None
        for side in (zip(*few, strict=True) if few else ((), ()))
    )
    if mine is not None and others is not None and min(mine.n, others.n) >= _FEWEST:
        found.append(_class_of(_OTHERS, mine, others))
    return tuple(found)


def _class_of(description: str, mine: ReadTimes, others: ReadTimes) -> ShadowClass:
    """Return the comparison of both sides."""
    mine_variance = _variance(mine) / mine.n
    others_variance = _variance(others) / others.n
    excess_s = mine.mean_s - SLOWER * others.mean_s
    excess_error_s = math.sqrt(mine_variance + SLOWER**2 * others_variance)
    return ShadowClass(
        description=description,
        n=mine.n,
        mean_s=mine.mean_s,
        n_others=others.n,
        others_mean_s=others.mean_s,
        error_s=math.sqrt(mine_variance + others_variance),
        is_slower=excess_s > _STANDARD_ERRORS * excess_error_s,
    )


def _since(now: ReadTimes | None, before: ReadTimes | None) -> ReadTimes | None:
    """Return the times that were counted since; None where there are none."""
    if now is None or before is None:
        return now
    if before.n > now.n:  # times were forgotten since, with what lay in the file before
        return now
    if before.n == now.n:
        return None
    left = Counter(dict(now.histogram))
    left.subtract(dict(before.histogram))
    return replace(
        now,
        n=now.n - before.n,
        total_s=max(0.0, now.total_s - before.total_s),
        histogram=tuple(sorted((bucket, n) for bucket, n in left.items() if n > 0)),
    )


def _variance(times: ReadTimes) -> float:
    """Return the greatest variance that times in these buckets can have about their middles."""
    ends = [times.ends_of_bucket(number) for number in range(len(times.histogram))]
    counts = [n for _, n in times.histogram]
    n = sum(counts)
    if not n:
        return 0.0
    middles = [(low + high) / 2 for low, high in ends]
    mean = math.fsum(k * m for k, m in zip(counts, middles, strict=True)) / n
    return (
        math.fsum(
            k * ((middle - mean) ** 2 + (high - low) ** 2 / 4)
            for k, middle, (low, high) in zip(counts, middles, ends, strict=True)
        )
        / n
    )
