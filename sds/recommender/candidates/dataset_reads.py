"""Input of the choice of replicas: datasets with their reads, and its settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sds.analyzer import AccessPattern, ReadTrail
from sds.engine import IoParameters
from sds.errors import SdsValueError
from sds.geometry import ReplicaLayout
from sds.recommender.candidates.segment_candidates import RecurringTiles
from sds.recommender.models.cost_model import CostModel, builtin_models
from sds.recommender.models.read_cost import StoredArray

BUILD_BYTES_PER_S = 250e6
"""Bytes of a dataset reorganized per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetReads:
    """A dataset, how it is read, and which replicas of it there are.

    Attributes
    ----------
    target
        ``FILE:/path``.
    patterns
        Of all programs and users together.
    models
        Of the original through HDF5 and of a replica through the engine.
    parameters
        What requests and copies cost the engine; None: the built-in figures.
    existing
        Replicas that serve it, of the whole dataset, of parts and of segments; one several times
        where there are several alike.
    trail
        Where its newest reads lay; None where that is not known, or reads are stated.
    hypothetical_tiles
        Segments of `existing` that are not built yet, and how often their tiles had to be read.
    """

    target: str
    array: StoredArray
    patterns: tuple[AccessPattern, ...]
    models: tuple[CostModel, CostModel] = field(default_factory=builtin_models)
    parameters: IoParameters | None = None
    existing: tuple[ReplicaLayout, ...] = ()
    trail: ReadTrail | None = field(default=None, compare=False)
    hypothetical_tiles: tuple[RecurringTiles, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioSettings:
    """Settings of the choice of a portfolio.

    Attributes
    ----------
    build_bytes_per_s
        Bytes of a dataset reorganized per second.
    pay_within_days
        Days within which a layout has to save the time of building it.
    tolerance
        Reads are grouped whose predicted times agree within this share in every layout; the set
        chosen takes at most so much longer than the best (sds.recommender.portfolio.compression).
    n_candidates
        Layouts of one dataset that are compared as a set; those that save most alone.
    """

    build_bytes_per_s: float = BUILD_BYTES_PER_S
    pay_within_days: float = 365.0
    tolerance: float = 0.02
    n_candidates: int = 24

    def __post_init__(self) -> None:
        for name in ("build_bytes_per_s", "pay_within_days", "tolerance", "n_candidates"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SdsValueError(f"{name} must be a positive number, not {value}")
