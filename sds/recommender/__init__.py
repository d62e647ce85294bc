"""Predicts what each layout would cost, and says which one to build.

Pure but for `sds.recommender.calibration`, the one edge, which measures a file system. Fitting
(`sds.recommender.fit`) needs statsmodels, and is not imported here.
"""

from sds.recommender.model import (
    CacheState,
    CostModel,
    FitDiagnostics,
    GapKind,
    HeldoutError,
    ModelKind,
    Prediction,
    Via,
    builtin_model,
)
from sds.recommender.recommendation import (
    NoiseGates,
    PatternCost,
    RankedLayout,
    Recommendation,
)

__all__ = [
    "CacheState",
    "CostModel",
    "FitDiagnostics",
    "GapKind",
    "HeldoutError",
    "ModelKind",
    "NoiseGates",
    "PatternCost",
    "Prediction",
    "RankedLayout",
    "Recommendation",
    "Via",
    "builtin_model",
]
