"""How a read of many runs would be carried out: pure plans, and the costs they are made from."""

from sds.engine.parameters import (
    CHEN_2014_READS,
    CHEN_2014_WRITES,
    IoParameters,
    PmdCosts,
    builtin_parameters,
)
from sds.engine.plan import (
    Cache,
    Executor,
    FileState,
    PlanOptions,
    ReadPlan,
    Strategy,
    StrategyPlan,
    compare_strategies,
    plan_extents,
    plan_selection,
)

__all__ = [
    "CHEN_2014_READS",
    "CHEN_2014_WRITES",
    "Cache",
    "Executor",
    "FileState",
    "IoParameters",
    "PlanOptions",
    "PmdCosts",
    "ReadPlan",
    "Strategy",
    "StrategyPlan",
    "builtin_parameters",
    "compare_strategies",
    "plan_extents",
    "plan_selection",
]
