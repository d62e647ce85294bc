"""Service model: what a process waits for, servers send, and disks position and read.

F = c0 first visits + c1 runs + c2 trips + least(c5 later fetches, c6 distance between them)
    + c3 bytes sent in step + c4 bytes sent by a server
    + c6 blocks + least(c5 segments, c6 distance between them)

(native/include/sds/cost.h, SDS_MODEL_SERVICE; benchmarks/table1/operation_features.py counts the
terms of whole operations.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sds.recommender.models.cost_model import GapKind, ModelKind
from sds.recommender.models.log_regression import LogFitter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.recommender.models.feature_matrix import FeatureMatrix

# Coefficients of a seek, and of a block read or passed over.
_SEEK, _BLOCK = 5, 6
# Where gaps lie: between one process's fetches, and between the segments of all.
_GAPS = (("later_fetches", "fetch_distance"), ("disk_segments", "disk_distance"))


@dataclass(frozen=True, kw_only=True)
class ServiceFitter(LogFitter):
    """Fit of the service model."""

    kind: ModelKind = ModelKind.SERVICE
    gap: GapKind = GapKind.DISTANCE

    def slopes(
        self,
        terms: NDArray[np.float64],
        features: FeatureMatrix,
        coefficients: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the derivatives; a gap counts as a seek or as its blocks, the lesser."""
        slopes = terms.copy()
        slopes[:, _SEEK] = 0.0
        for number, distance in _GAPS:
            n, passed = features[number], features[distance]
            sought = coefficients[_SEEK] * n < coefficients[_BLOCK] * passed
            slopes[:, _SEEK] += np.where(sought, n, 0.0)
            slopes[:, _BLOCK] += np.where(sought, 0.0, passed)
        return slopes
