"""What the recommender says: layouts ranked by the time they save, each with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sds.errors import SdsValueError


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseGates:
    """What must be exceeded before a layout is advised.

    Attributes
    ----------
    min_calls
        HDF5 reads seen. Not logical reads: a loop over all planes is one of those, and yet has
        shown often enough what it reads. Stated patterns pass: the user vouches for them.
    min_total_s
        Predicted time of all reads in the layouts that exist.
    min_saving_s
        Predicted saving of all reads, seconds.
    min_speedup
        Time now over time then, of the reads that the new layout would serve.
    min_confidence
        Probability that the new layout is faster at all, given the error of the model.
    """

    min_calls: int = 3
    min_total_s: float = 0.1
    min_saving_s: float = 0.05
    min_speedup: float = 1.5
    min_confidence: float = 0.9

    def __post_init__(self) -> None:
        least = (self.min_calls, self.min_total_s, self.min_saving_s)
        if not all(math.isfinite(value) and value >= 0 for value in least):
            raise SdsValueError(f"gates must be finite and not negative: {self}")
        if not 1.0 <= self.min_speedup < math.inf or not 0.0 <= self.min_confidence < 1.0:
            raise SdsValueError(
                f"min_speedup must be at least 1 and min_confidence in [0, 1): {self}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternCost:
    """One pattern's predicted cost before and after.

    Attributes
    ----------
    pattern
        In words, e.g. ``plane fixing axis 2``.
    n_reads
        Logical reads counted.
    seconds_now, seconds_then
        Predicted time of all of them, in the layouts that exist and with the new one added.
    served_by_replica
        Whether the new layout would serve them.
    """

    pattern: str
    n_reads: int
    seconds_now: float
    seconds_then: float
    served_by_replica: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedLayout:
    """One candidate: a replica of some axis order, or leaving things as they are.

    Attributes
    ----------
    order
        Replica axis i is source axis order[i]; None: leave it.
    predicted_s_now, predicted_s
        Predicted time of all reads counted, now and with this layout added.
    benefit_s, benefit_s_per_day
        Their difference, in total and per day of the time observed (at least one day).
    speedup
        Time now over time then of the reads that it would serve; 1 where it serves none.
    confidence
        Probability in [0, 1] that it is faster, given the error of the models; 1 for None.
    size_bytes, build_cost_s, break_even_reads
        Space, time to build, and the reads (of the mix observed) after which it has paid;
        None where it never does.
    advised
        Whether it passes every gate and is the best that does.
    reason
        Why, in one sentence.
    command
        What a user types to build it; None for "leave it".
    patterns
        Per pattern.
    """

    order: tuple[int, ...] | None
    predicted_s_now: float
    predicted_s: float
    benefit_s: float
    benefit_s_per_day: float
    speedup: float
    confidence: float
    size_bytes: int
    build_cost_s: float
    break_even_reads: int | None
    advised: bool
    reason: str
    command: str | None
    patterns: tuple[PatternCost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Every candidate for one dataset, the advised one first.

    Attributes
    ----------
    candidates
        Ranked; exactly one is advised, the first.
    calibrated
        Whether the models were fitted to this file system.
    model_original, model_replica
        Their names.
    reason
        The advice in one or two sentences.
    n_reads
        Logical reads that it rests on.
    interval_original, interval_replica
        The factors, up or down, that 19 of 20 reads are within of what these models predict; None
        in advice from before they were kept.
    """

    candidates: tuple[RankedLayout, ...]
    calibrated: bool
    model_original: str
    model_replica: str
    reason: str
    n_reads: int
    interval_original: float | None = None
    interval_replica: float | None = None

    @property
    def best(self) -> RankedLayout:
        """The advised candidate."""
        return self.candidates[0]

    @property
    def order(self) -> tuple[int, ...] | None:
        """The advised axis order; None: leave it."""
        return self.best.order

    @property
    def command(self) -> str | None:
        """What a user types to follow the advice; None where it is to leave things."""
        return self.best.command
