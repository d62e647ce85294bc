"""Accuracy of models on held-out reads, as values and as pictures.

`heldout_reads` makes the predictions, `figure_values` what each figure shows of them, which the
command line prints and REST sends, and `draw`, the only module that imports matplotlib, the
pictures.
"""

from enum import StrEnum


class Kind(StrEnum):
    """Kind of figure."""

    PREDICTED = "predicted"
    RESIDUALS = "residuals"
    SPEEDUPS = "speedups"
    COEFFICIENTS = "coefficients"
