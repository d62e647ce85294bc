"""Records of access patterns, of advice and of measured models."""

from __future__ import annotations

from dataclasses import dataclass

from sds.analyzer import AccessPattern
from sds.calibration.results import Calibration
from sds.recommender.portfolio.values import Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRecord:
    """One way in which a dataset is read, summed over all ingested traces."""

    id: int
    file: str
    dataset: str
    pattern: AccessPattern


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationRecord:
    """Advice for one dataset or table, as it was given."""

    id: int
    file: str
    dataset: str
    created_ns: int
    recommendation: Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """The measured models of one file system."""

    id: int
    mount_point: str
    device: int
    created_ns: int
    calibration: Calibration
