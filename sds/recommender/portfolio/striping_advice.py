"""Advice on how a file system should stripe new replicas. Only advice: SDS stripes nothing."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import SdsValueError
from sds.geometry import StripeLayout
from sds.geometry.storage_layout import MIB
from sds.recommender.candidates.class_costs import (
    predicted_costs,
    reads_in_segments,
    usable_patterns,
)
from sds.recommender.candidates.read_classes import classes_in_parts, newest_read_ns, regions_of
from sds.recommender.portfolio.confidence import probability_faster
from sds.recommender.portfolio.gates import NoiseGates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.recommender.candidates.dataset_reads import DatasetReads

_SIZES_BYTES = (MIB, 4 * MIB, 16 * MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeAdvice:
    """Advice on the striping of the directory in which replicas are made.

    Attributes
    ----------
    stripes
        None: leave it as it is.
    seconds_now, seconds_then
        Predicted time of the reads of a day that replicas serve.
    speedup, confidence
        Of the one over the other.
    command
        What a user types before building; None where it is left.
    reason
        Why, in one sentence.
    """

    stripes: StripeLayout | None
    seconds_now: float
    seconds_then: float
    speedup: float
    confidence: float
    command: str | None
    reason: str


def advise_stripes(
    datasets: Sequence[DatasetReads],
    *,
    directory: str,
    n_osts: int,
    allowed: bool,
    gates: NoiseGates | None = None,
) -> StripeAdvice:
    """Return how the directory of the replicas of some datasets should be striped.

    Parameters
    ----------
    datasets
        With the replicas that are to be built as their `existing` ones; only what those serve
        counts, for an original is never striped anew.
    directory
        Where replicas are made.
    n_osts
        OSTs of the file system; 1: it has no stripes.
    allowed
        Whether the site lets users choose stripes. Where not nothing is advised.
    """
    if n_osts < 1:
        raise SdsValueError(f"a file system of {n_osts} OSTs; give at least 1")
    if not allowed:
        return _left("this site does not let users choose stripes")
    if n_osts == 1:
        return _left("the file system has no stripes to choose (setting ost_count)")
    gates = gates or NoiseGates()
    present_s = _seconds(datasets, None)
    if present_s <= 0:
        return _left("no reads would be served from replicas")
    counts = sorted({*(1 << k for k in range(n_osts.bit_length()) if 1 << k <= n_osts), n_osts})
    tried = []
    for count in counts:
        for size_bytes in _SIZES_BYTES:
            stripes = StripeLayout(stripe_size_bytes=size_bytes, stripe_count=count)
            tried.append((_seconds(datasets, stripes), count, size_bytes, stripes))
    then_s, _, _, stripes = min(tried, key=lambda t: t[:3])
    speedup = present_s / then_s if then_s > 0 else 1.0
    models = datasets[0].models
    confidence = probability_faster(speedup, math.hypot(models[0].log_error, models[1].log_error))
    if speedup < gates.min_speedup or confidence < gates.min_confidence:
        return StripeAdvice(
            stripes=None,
            seconds_now=present_s,
            seconds_then=then_s,
            speedup=speedup,
            confidence=confidence,
            command=None,
            reason=(
                f"other stripes would make reads {speedup:.2f} times as fast, which the models "
                f"cannot tell from no gain (confidence {confidence:.0%})"
            ),
        )
    size = f"{stripes.stripe_size_bytes // MIB}M"
    return StripeAdvice(
        stripes=stripes,
        seconds_now=present_s,
        seconds_then=then_s,
        speedup=speedup,
        confidence=confidence,
        command=shlex.join(
            ["lfs", "setstripe", "-c", str(stripes.stripe_count), "-S", size, directory]
        ),
        reason=(
            f"{stripes.stripe_count} stripes of {size} for new replicas: their reads "
            f"{speedup:.1f} times as fast"
        ),
    )


def _left(reason: str) -> StripeAdvice:
    return StripeAdvice(
        stripes=None,
        seconds_now=0.0,
        seconds_then=0.0,
        speedup=1.0,
        confidence=1.0,
        command=None,
        reason=reason,
    )


def _seconds(datasets: Sequence[DatasetReads], stripes: StripeLayout | None) -> float:
    """Return the time of the reads of a day that replicas serve, striped so; None: as now."""
    total = 0.0
    for dataset in datasets:
        striped = dataset
        if stripes is not None:
            striped = replace(dataset, array=replace(dataset.array, stripes=stripes))
        patterns = usable_patterns(dataset)
        until_ns = newest_read_ns(patterns)
        boxes = regions_of(dataset.existing, dataset.array.extent)
        segments = reads_in_segments(dataset)
        classes = [
            read
            for pattern in patterns
            if not pattern.irregular
            for read in classes_in_parts([pattern], boxes, segments, until_ns=until_ns)
        ]
        if not classes or not dataset.existing:
            continue
        by = predicted_costs(dataset, classes, dataset.existing).chosen()
        there = predicted_costs(striped, classes, dataset.existing).replicas
        rows = np.flatnonzero(by >= 0)
        per_day = np.array([read.per_day for read in classes])
        total += float(there[rows, by[rows]] @ per_day[rows])
    return total
