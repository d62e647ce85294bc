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
from sds.recommender.choosing import choose_portfolio, rank_sorting
from sds.recommender.cost import StoredArray, contiguous_throughput, predict_read
from sds.recommender.layouts import ReplicaShape
from sds.recommender.model import (
    CacheState,
    CostModel,
    FitDiagnostics,
    GapKind,
    HeldoutError,
    ModelKind,
    Prediction,
    ReadModel,
    Via,
    builtin_model,
)
from sds.recommender.portfolio import (
    DatasetReads,
    DeclinedLayout,
    ModelNames,
    Portfolio,
    PortfolioLayout,
    PortfolioSettings,
    Saving,
    SortedShape,
)
from sds.recommender.rank import rank_layouts
from sds.recommender.recommendation import (
    NoiseGates,
    PatternCost,
    RankedLayout,
    Recommendation,
)
from sds.recommender.samples import ModelChoice, Samples, Trial
from sds.recommender.sort_keys import KeyShare, QueryRecommendation, StatedQuery, TableQueries
from sds.recommender.stripes import StripeAdvice, advise_stripes
from sds.recommender.supposing import WhatIf, WhatIfPattern, what_if, what_if_sorted
from sds.recommender.tables import models_for_advice, models_for_table

__all__ = [
    "CacheState",
    "Calibration",
    "CalibrationSettings",
    "CostModel",
    "DatasetReads",
    "DeclinedLayout",
    "FileSystem",
    "FitDiagnostics",
    "GapKind",
    "HeldoutError",
    "KeyShare",
    "Measurement",
    "ModelChoice",
    "ModelKind",
    "ModelNames",
    "NoiseGates",
    "PatternCost",
    "Portfolio",
    "PortfolioLayout",
    "PortfolioSettings",
    "Prediction",
    "QueryRecommendation",
    "RankedLayout",
    "ReadModel",
    "Recommendation",
    "ReplicaShape",
    "Samples",
    "Saving",
    "SortedShape",
    "StatedQuery",
    "StoredArray",
    "StripeAdvice",
    "TableQueries",
    "Trial",
    "Via",
    "WhatIf",
    "WhatIfPattern",
    "advise_stripes",
    "builtin_model",
    "calibrate",
    "choose_portfolio",
    "contiguous_throughput",
    "models_for_advice",
    "models_for_table",
    "predict_read",
    "rank_layouts",
    "rank_sorting",
    "what_if",
    "what_if_sorted",
]
