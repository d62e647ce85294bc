"""Input of the choice of replicas: datasets with their reads, and its settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from sds.analyzer import AccessPattern, ReadTrail
from sds.engine import IoParameters
from sds.errors import SdsValueError
from sds.geometry import ReplicaLayout
from sds.geometry.storage_layout import GIB
from sds.recommender.candidates.replica_cost import BuildRates
from sds.recommender.candidates.segment_candidates import RecurringTiles
from sds.recommender.models.cost_model import CostModel, builtin_models
from sds.recommender.models.read_cost import StoredArray


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
    replica_ids
        By which traces name replicas, those that are alike together. What is not in `existing` is
        gone, or supposed to be taken away.
    trail
        Where its newest reads lay; None where that is not known, or reads are stated.
    hypothetical_tiles
        Segments of `existing` that are not built yet, and how often their tiles had to be read.
    build_rates
        How fast its replicas are built.
    """

    target: str
    array: StoredArray
    patterns: tuple[AccessPattern, ...]
    models: tuple[CostModel, CostModel] = field(default_factory=builtin_models)
    parameters: IoParameters | None = None
    existing: tuple[ReplicaLayout, ...] = ()
    replica_ids: Mapping[ReplicaLayout, tuple[int, ...]] = field(default_factory=dict)
    trail: ReadTrail | None = field(default=None, compare=False)
    hypothetical_tiles: tuple[RecurringTiles, ...] = ()
    build_rates: BuildRates = field(default_factory=BuildRates)

    @property
    def known_layouts(self) -> tuple[ReplicaLayout, ...]:
        """Replicas that exist, and behind them those that were measured and are taken away."""
        away = (layout for layout in self.replica_ids if layout not in self.existing)
        return (*self.existing, *away)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioSettings:
    """Settings of the choice of a portfolio.

    Attributes
    ----------
    pay_within_days
        Days within which a layout has to save the time of building it.
    space_s_per_gib
        Seconds that each GiB of a layout has to save a day: of two that save nearly the same the
        smaller is taken. Not negative.
    tolerance
        Reads are grouped whose predicted times agree within this share in every layout; the set
        chosen takes at most so much longer than the best (sds.recommender.portfolio.compression).
    n_candidates
        Layouts of one dataset that are compared as a set; those that save most alone.
    """

    pay_within_days: float = 365.0
    space_s_per_gib: float = 0.02
    tolerance: float = 0.02
    n_candidates: int = 24

    def __post_init__(self) -> None:
        for name in ("pay_within_days", "tolerance", "n_candidates"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SdsValueError(f"{name} must be a positive number, not {value}")
        if not 0 <= self.space_s_per_gib < math.inf:
            raise SdsValueError(
                f"space_s_per_gib must be finite and not negative, not {self.space_s_per_gib}"
            )

    def space_s(self, size_bytes: int) -> float:
        """Return the seconds a day that a layout has to save for its space."""
        return self.space_s_per_gib * size_bytes / GIB
