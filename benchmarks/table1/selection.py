"""Selects a layout by predicted times, or refuses to; and what each selection cost.

1. The layout predicted fastest is compared with the original.
2. The probability that it is faster at all follows from the predicted ratio and from the error
   that the model makes of ratios on patterns it has not seen (normal in the logarithm).
3. Below the confidence asked for, advice is refused, and the original stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.errors import SdsValueError
from sds.recommender.portfolio.confidence import probability_faster

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Which layout to read from.

    Attributes
    ----------
    layout
        Index of the layout advised; of the original where advice is refused.
    predicted_best
        Index of the layout predicted fastest.
    refused
        Whether it cannot be told apart from the original.
    probability
        That the one predicted fastest is faster than the original; 1 where it is the original.
    alike
        Others, and the original, that cannot be told apart from the one predicted fastest.
    """

    layout: int
    predicted_best: int
    refused: bool
    probability: float
    alike: tuple[int, ...]


def advise(
    predicted_s: Sequence[float],
    *,
    ratio_error: float,
    min_confidence: float,
    original: int = 0,
) -> Advice:
    """Return the layout predicted fastest, or the original where they cannot be told apart.

    Parameters
    ----------
    predicted_s
        One per layout, seconds.
    ratio_error
        Standard deviation of the logarithm of the ratio of two predictions
        (`CostModel.ratio_error`).
    min_confidence
        Probability, in [0.5, 1), that the advised layout is faster than the original.
    original
        Index of the layout that the data have.

    Raises
    ------
    SdsValueError
        If a time is not a positive number, or an argument out of range.
    """
    if not 0.5 <= min_confidence < 1.0:
        raise SdsValueError(f"min_confidence must be in [0.5, 1), not {min_confidence}")
    if not 0 <= original < len(predicted_s):
        raise SdsValueError(f"there is no layout {original} among {len(predicted_s)}")
    for i, seconds in enumerate(predicted_s):
        if not (math.isfinite(seconds) and seconds > 0):
            raise SdsValueError(
                f"layout {i} is predicted to take {seconds} s: calibrate with reads like these"
            )
    best = min(range(len(predicted_s)), key=lambda i: (predicted_s[i], i != original))
    chances = [probability_faster(s / predicted_s[best], ratio_error) for s in predicted_s]
    probability = 1.0 if best == original else chances[original]
    refused = probability < min_confidence
    return Advice(
        layout=original if refused else best,
        predicted_best=best,
        refused=refused,
        probability=probability,
        alike=tuple(i for i, p in enumerate(chances) if i != best and p < min_confidence),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What following advice cost, once the times in every layout were measured.

    Attributes
    ----------
    pattern
        What was read.
    measured_s, predicted_s
        Per layout.
    advice
        What was advised.
    best
        Index of the layout that was fastest.
    original
        Index of the layout that the data had.
    """

    pattern: str
    measured_s: tuple[float, ...]
    predicted_s: tuple[float, ...]
    advice: Advice
    best: int
    original: int

    @property
    def regret(self) -> float:
        """Share of time lost: of the layout advised over the fastest, less 1."""
        return self.measured_s[self.advice.layout] / self.measured_s[self.best] - 1.0

    @property
    def regret_s(self) -> float:
        """Seconds lost."""
        return self.measured_s[self.advice.layout] - self.measured_s[self.best]

    @property
    def speedup(self) -> float:
        """Time in the original layout over time in the one advised."""
        return self.measured_s[self.original] / self.measured_s[self.advice.layout]

    def within(self, share: float) -> bool:
        """Return whether no more than a share of the least time was lost."""
        return self.regret <= share


def selection_of(
    pattern: str,
    *,
    measured_s: Sequence[float],
    predicted_s: Sequence[float],
    ratio_error: float,
    min_confidence: float,
    original: int = 0,
) -> Selection:
    """Return what following the advice by predicted times would have cost."""
    if len(measured_s) != len(predicted_s):
        raise SdsValueError(
            f"{len(measured_s)} layouts were measured and {len(predicted_s)} predicted"
        )
    if not all(math.isfinite(s) and s > 0 for s in measured_s):
        raise SdsValueError(
            f"{pattern}: measured times {tuple(measured_s)} are not all positive numbers: "
            "measure again, or leave the pattern out"
        )
    return Selection(
        pattern=pattern,
        measured_s=tuple(map(float, measured_s)),
        predicted_s=tuple(map(float, predicted_s)),
        advice=advise(
            predicted_s,
            ratio_error=ratio_error,
            min_confidence=min_confidence,
            original=original,
        ),
        best=min(range(len(measured_s)), key=lambda i: (measured_s[i], i != original)),
        original=original,
    )
