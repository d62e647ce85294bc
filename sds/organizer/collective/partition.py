"""File domains: which aggregator transfers which stripes of a file. Pure.

A partition answers for stripe numbers, so that no stripe, and no lock of one, is shared by two
aggregators (Liao 2008, in Wang 2014, Sec. V).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Partition(StrEnum):
    """Partition of the accessed range of a file among aggregators.

    ``even``: contiguous domains of equal numbers of stripes, as ROMIO makes them. ``cyclic``:
    stripe s belongs to aggregator s modulo their number; where that number divides the stripe
    count, each OST has one aggregator (static-cyclic).
    """

    EVEN = "even"
    CYCLIC = "cyclic"

    def aggregators_of(
        self, stripes: NDArray[np.int64], *, first: int, end: int, n_aggregators: int
    ) -> NDArray[np.int64]:
        """Return the aggregator of each stripe.

        Parameters
        ----------
        stripes
            Stripe numbers, shape (n,), from `first` to before `end`.
        first, end
            The stripes of the range that all processes access.
        """
        if self is Partition.CYCLIC:
            return stripes % n_aggregators
        # Domain i begins with the stripe first + i * n // n_aggregators.
        begins = first + np.arange(n_aggregators, dtype=np.int64) * (end - first) // n_aggregators
        return np.searchsorted(begins, stripes, side="right") - 1
