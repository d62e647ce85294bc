"""Gates that a layout has to pass before it is advised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds.errors import SdsValueError
from sds.text import counted, shares_apart, size_text, time_text

if TYPE_CHECKING:
    from sds.recommender.candidates.dataset_reads import PortfolioSettings
    from sds.recommender.portfolio.workload import Candidate, Workload

_PLURAL = {"read": "reads", "query": "queries"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseGates:
    """Thresholds that a layout must exceed to be advised.

    Attributes
    ----------
    min_calls
        HDF5 reads seen. Not logical reads: a loop over all planes is one of those, and yet has
        shown often enough what it reads. Stated patterns pass: the user vouches for them.
    min_total_s
        Time of all reads in the layouts that exist, as traced or predicted.
    min_saving_s
        Saving of all reads, seconds.
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

    @classmethod
    def from_total(cls, min_total_s: float) -> NoiseGates:
        """Return the gates where all reads must take so long; half of it must be saved."""
        return cls(min_total_s=min_total_s, min_saving_s=min_total_s / 2)

    def __post_init__(self) -> None:
        least = (self.min_calls, self.min_total_s, self.min_saving_s)
        if not all(math.isfinite(value) and value >= 0 for value in least):
            raise SdsValueError(f"gates must be finite and not negative: {self}")
        if not 1.0 <= self.min_speedup < math.inf or not 0.0 <= self.min_confidence < 1.0:
            raise SdsValueError(
                f"min_speedup must be at least 1 and min_confidence in [0, 1): {self}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect of one layout beside others.

    Attributes
    ----------
    saving_s, saving_observed_s
        Seconds saved a day, and of all that was observed.
    without_s, with_s, per_day
        Time a day of what it serves without and with it, and how much that is.
    serves
        In words, what gains most first.
    before, after
        By which candidate each of the workload is served.
    """

    saving_s: float
    saving_observed_s: float
    without_s: float
    with_s: float
    per_day: float
    serves: tuple[str, ...]
    before: NDArray[np.int64]
    after: NDArray[np.int64]

    @property
    def speedup(self) -> float:
        """Speed-up of what it serves: time without it over time with it."""
        return self.without_s / self.with_s if self.with_s > 0 else 1.0


def objection(
    workload: Workload,
    candidate: Candidate,
    effect: Effect,
    *,
    confidence: float,
    gates: NoiseGates,
    settings: PortfolioSettings,
) -> str:
    """Return the first gate that a layout fails, in words; empty where it passes all.

    confidence: probability that it is faster than what there is without it.
    """
    plural = _PLURAL[workload.unit]
    total_s = float(workload.now @ workload.observed)
    space_s = settings.space_s(candidate.size_bytes)
    sure, needed = shares_apart(confidence, gates.min_confidence)
    checks = (
        (effect.saving_s > 0, f"no {workload.unit} would be faster"),
        (
            workload.stated or workload.n_seen >= gates.min_calls,
            (
                f"only {counted(workload.n_seen, workload.unit, plural)} seen, fewer than "
                f"{gates.min_calls}"
            ),
        ),
        (
            total_s >= gates.min_total_s,
            f"all {plural} take {time_text(total_s)}, less than {time_text(gates.min_total_s)}",
        ),
        (
            effect.saving_observed_s >= gates.min_saving_s,
            (
                f"it would save {time_text(effect.saving_observed_s)}, less than "
                f"{time_text(gates.min_saving_s)}"
            ),
        ),
        (
            effect.speedup >= gates.min_speedup,
            f"{effect.speedup:.2f} times as fast, gates ask for {gates.min_speedup}",
        ),
        (
            confidence >= gates.min_confidence,
            (
                f"predicted {effect.speedup:.1f} times as fast, which the error of the models "
                f"cannot tell from no gain (confidence {sure}, needed {needed}): "
                "measure with sds calibrate"
            ),
        ),
        (
            candidate.build_s <= effect.saving_s * settings.pay_within_days,
            (
                f"building takes {time_text(candidate.build_s)}, more than it saves in "
                f"{settings.pay_within_days:.0f} days"
            ),
        ),
        (
            effect.saving_s >= space_s,
            (
                f"it would save {time_text(effect.saving_s)} a day, and "
                f"{size_text(candidate.size_bytes)} are worth {time_text(space_s)} "
                "(advice_min_s_per_gib)"
            ),
        ),
    )
    return next((words for passed, words in checks if not passed), "")
