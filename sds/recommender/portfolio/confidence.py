"""Confidence of a comparison of two predictions."""

from __future__ import annotations

import math

from sds.errors import SdsValueError


def probability_faster(ratio: float, ratio_error: float) -> float:
    """Return the probability that what is predicted `ratio` times as fast is faster at all.

    ratio_error: standard deviation of the logarithm of the ratio.
    """
    if not (ratio > 0 and math.isfinite(ratio) and ratio_error >= 0):
        raise SdsValueError(
            f"cannot compare: a ratio of {ratio} with an error of {ratio_error}; predicted times "
            "must be positive numbers, and errors not negative"
        )
    if ratio_error == 0:
        return 0.5 if ratio == 1 else float(ratio > 1)
    return 0.5 * (1.0 + math.erf(math.log(ratio) / (ratio_error * math.sqrt(2.0))))
