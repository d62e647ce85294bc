"""Sieve model: what reads through HDF5 cost by the requests that HDF5 really makes.

HDF5 reads a contiguous dataset through a buffer of 64 KiB: a plane of rows 4 KiB apart is one
sequential scan, however many runs it is made of, and a request per run would overrate it tenfold
(native/include/sds/cost.h, SDS_MODEL_SIEVE).
"""

from __future__ import annotations

from dataclasses import dataclass

from sds.recommender.models.cost_model import GapKind, ModelKind
from sds.recommender.models.log_regression import LogFitter


@dataclass(frozen=True, kw_only=True)
class SieveFitter(LogFitter):
    """Fit of the sieve model."""

    kind: ModelKind = ModelKind.SIEVE
    gap: GapKind = GapKind.COUNT
