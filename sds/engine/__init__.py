"""Plan how a read of many runs is carried out, from the costs of requests and bytes.

Pure but for `sds.engine.file_system_costs`, the file in which programs find measured costs.
"""

from sds.engine.file_system_costs import (
    MeasuredFileSystem,
    load_measured,
    measured_parameters,
    publish_measured,
    read_measured,
)
from sds.engine.io_parameters import (
    CHEN_2014_READS,
    CHEN_2014_WRITES,
    IoParameters,
    PmdCosts,
    builtin_parameters,
)
from sds.engine.read_plan import (
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
    "MeasuredFileSystem",
    "PlanOptions",
    "PmdCosts",
    "ReadPlan",
    "Strategy",
    "StrategyPlan",
    "builtin_parameters",
    "compare_strategies",
    "load_measured",
    "measured_parameters",
    "plan_extents",
    "plan_selection",
    "publish_measured",
    "read_measured",
]
