"""Errors of predicted times: logarithms of predicted over measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def pair_rms(log_errors: NDArray[np.float64], groups: Sequence[str]) -> float | None:
    """Return the root mean square of the difference of two errors of one group; None without any.

    Of n values with standard deviation s about their mean, all pairs differ by 2 s^2 n / (n - 1)
    in the mean square.
    """
    _, which = np.unique(np.array(groups), return_inverse=True)
    n = np.bincount(which)
    n_pairs = np.sum(n * (n - 1)) / 2
    if n_pairs == 0:
        return None
    mean = np.bincount(which, weights=log_errors) / n
    squares = np.bincount(which, weights=(log_errors - mean[which]) ** 2)
    return float(np.sqrt(np.sum(squares * n) / n_pairs))
