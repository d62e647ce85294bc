"""The figures that there are."""

from enum import StrEnum


class Kind(StrEnum):
    """What a figure shows."""

    PREDICTED = "predicted"
    RESIDUALS = "residuals"
    SPEEDUPS = "speedups"
    COEFFICIENTS = "coefficients"
