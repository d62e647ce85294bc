"""How well models predict reads that they have not seen, as values and as pictures.

`heldout_reads` makes the predictions, `figure_values` what each figure shows of them, which the
command line prints and REST sends, and `draw`, the only module that imports matplotlib, the
pictures.
"""

from enum import StrEnum


class Kind(StrEnum):
    """What a figure shows."""

    PREDICTED = "predicted"
    RESIDUALS = "residuals"
    SPEEDUPS = "speedups"
    COEFFICIENTS = "coefficients"
