"""Predicts what each layout would cost, and says which one to build.

Pure but for `calibrate`, the one edge, which measures a file system. Fitting
(`sds.recommender.fit`, `sds.recommender.choose`) needs statsmodels, and is not imported here.
"""

from sds.recommender.calibration import (
    Calibration,
    CalibrationSettings,
    FileSystem,
    Measurement,
    calibrate,
)
from sds.recommender.cost import StoredArray, contiguous_throughput, predict_read
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
from sds.recommender.rank import rank_layouts
from sds.recommender.recommendation import (
    NoiseGates,
    PatternCost,
    RankedLayout,
    Recommendation,
)
from sds.recommender.samples import ModelChoice, Samples, Trial
from sds.recommender.tables import models_for_advice, models_for_table

__all__ = [
    "CacheState",
    "Calibration",
    "CalibrationSettings",
    "CostModel",
    "FileSystem",
    "FitDiagnostics",
    "GapKind",
    "HeldoutError",
    "Measurement",
    "ModelChoice",
    "ModelKind",
    "NoiseGates",
    "PatternCost",
    "Prediction",
    "RankedLayout",
    "Recommendation",
    "Samples",
    "StoredArray",
    "Trial",
    "Via",
    "builtin_model",
    "calibrate",
    "contiguous_throughput",
    "models_for_advice",
    "models_for_table",
    "predict_read",
    "rank_layouts",
]
