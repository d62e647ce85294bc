"""A fitted machine as one more model: reads are simulated, request by request.

It predicts reads of which it is known where they lie (`PlacedRead`). Of features alone, as where
chunk shapes are sought, its baseline predicts. A prediction takes milliseconds to tenths of a
second, so that there is a limit to each and to all of one piece of advice together; beyond it
nothing is guessed: `SimulationLimitError` says so, and who asked predicts everything by the
baseline instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sds.engine import IoParameters
from sds.errors import SdsValueError, SimulationLimitError
from sds.recommender.asked import operation_of
from sds.recommender.model import (
    CacheState,
    HeldoutError,
    ModelKind,
    Prediction,
    ReadModel,
    Via,
    interval_log_of,
    prediction_of,
)
from sds.recommender.placed import PlacedRead
from sds.simulator.fit import mean_seconds
from sds.simulator.parameters import SimulatorParameters

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from sds.geometry import BlockFeatures, StripeLayout
    from sds.recommender.measures import MeasureTable
    from sds.simulator import Operation

SIMULATED = "simulated"
"""Its name where models are listed."""

MAX_REQUESTS = 1 << 16
"""Of all processes of a read that is simulated: a few tenths of a second."""

BUDGET_REQUESTS = 1 << 21
"""Of all reads that are simulated for one piece of advice: some ten seconds."""

NOT_JUDGED_ON_CHUNKS = (
    "reads of chunks are simulated too, but how far the fitted machine errs was not measured on "
    "them: a calibration reads contiguous datasets"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A machine fitted to the cold reads of a calibration, judged by those of one way.

    Attributes
    ----------
    parameters
        Of the simulator; None where it could not be fitted.
    heldout
        Error on patterns left out of the fit.
    other_rms
        That of the best other model on the same reads, which it had not seen either.
    n_fitted, n_left_out
        Reads: of all ways, and of this one.
    n_excluded
        Reads of this way that could not be simulated: they count neither for nor against it.
    engine
        By what costs the engine plans the reads of programs; None: the built-in ones.
    refused
        Why it is not used; empty where it predicts better than every other.
    """

    parameters: SimulatorParameters | None = None
    heldout: HeldoutError | None = None
    other_rms: float | None = None
    n_fitted: int = 0
    n_left_out: int = 0
    n_excluded: int = 0
    engine: IoParameters | None = None
    refused: str = ""

    def __post_init__(self) -> None:
        if not self.refused and (self.parameters is None or self.heldout is None):
            raise SdsValueError(
                "a simulated machine without its numbers or its error: calibrate again"
            )


@dataclass(slots=True, kw_only=True, eq=False)
class SimulationBudget:
    """Requests that may still be simulated for one piece of advice, by all its models."""

    left: int = BUDGET_REQUESTS

    def spend(self, n: int) -> None:
        """Take n requests off, or raise SimulationLimitError where fewer are left."""
        if n > self.left:
            raise SimulationLimitError(f"all reads together take over {BUDGET_REQUESTS:,} requests")
        self.left -= n


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedModel:
    """Predicts reads by simulating them on a fitted machine.

    Attributes
    ----------
    parameters
        Of the machine.
    heldout
        Error on patterns left out.
    baseline
        Predicts from features alone.
    engine
        By what costs the engine plans.
    budget
        Which other models may share.
    """

    parameters: SimulatorParameters
    heldout: HeldoutError
    baseline: ReadModel
    engine: IoParameters | None = None
    budget: SimulationBudget = field(default_factory=SimulationBudget)
    _known: dict[PlacedRead, float] = field(default_factory=dict)
    _asked: set[PlacedRead] = field(default_factory=set)

    @property
    def name(self) -> str:
        """``simulated``."""
        return SIMULATED

    @property
    def kind(self) -> ModelKind:
        """The equation of the baseline."""
        return self.baseline.kind

    @property
    def calibrated(self) -> bool:
        """Whether it was fitted to reads of this file system: always."""
        return True

    @property
    def via(self) -> Via:
        """How reads are made."""
        return self.baseline.via

    @property
    def cache(self) -> CacheState:
        """From what cache state."""
        return self.baseline.cache

    @property
    def heldout_layouts(self) -> HeldoutError | None:
        """None: layouts were not left out of the fit."""
        return None

    @property
    def log_error(self) -> float:
        """Standard deviation of log(predicted / measured), from the held-out error."""
        return self.heldout.rms

    @property
    def ratio_error(self) -> float:
        """Standard deviation of the logarithm of the ratio of two predictions."""
        if self.heldout.ratio_rms is not None:
            return self.heldout.ratio_rms
        return math.sqrt(2.0) * self.log_error

    @property
    def interval_log(self) -> float:
        """Logarithm of the factor, up or down, that 19 of 20 held-out reads are within."""
        return interval_log_of(self.heldout, None)

    @property
    def has_simulated_chunks(self) -> bool:
        """Whether it was asked for reads of chunks, on which it was not judged, since `begin`."""
        return any(read.is_chunks for read in self._asked)

    def begin(self) -> None:
        """Forget what it was asked for, not what it has simulated: another answer begins."""
        self._asked.clear()

    def seconds(self, features: BlockFeatures, *, processes_per_ost: float = 1.0) -> float:
        """Return the time of one read of which only features are known: by the baseline."""
        return self.baseline.seconds(features, processes_per_ost=processes_per_ost)

    def predict(self, features: BlockFeatures, *, processes_per_ost: float = 1.0) -> Prediction:
        """Return the same with the baseline's interval."""
        return self.baseline.predict(features, processes_per_ost=processes_per_ost)

    def predict_many(self, measures: MeasureTable) -> NDArray[np.float64]:
        """Return the times of operations of which only measures are known, shape (n,)."""
        return self.baseline.predict_many(measures)

    def predict_placed(
        self, read: PlacedRead, features: BlockFeatures, stripes: StripeLayout | None
    ) -> Prediction:
        """Return the predicted time of reads at one time, of which it is known where they lie.

        Parameters
        ----------
        read
            Where.
        features
            Of the one that touches most.
        stripes
            Of its file; None where nobody says: then it is taken to be striped as the machine.

        Raises
        ------
        SimulationLimitError
            If it cannot be simulated, or the budget does not suffice; it says why.
        """
        if stripes not in {None, self.parameters.stripes}:
            raise SimulationLimitError(
                "its file is striped otherwise than the machine that was fitted"
            )
        self._asked.add(read)
        if read not in self._known:
            operation = operation_of(read, self.via, features=features, parameters=self.engine)
            self._known[read] = self._simulated(operation)
        return prediction_of(self._known[read], interval_log=self.interval_log, calibrated=True)

    def _simulated(self, operation: Operation) -> float:
        n = n_requests(operation)
        if n > MAX_REQUESTS:
            raise SimulationLimitError(
                f"it takes {n:,} requests, and at most {MAX_REQUESTS:,} are simulated"
            )
        self.budget.spend(n)
        try:
            return float(mean_seconds([operation], self.parameters)[0])
        except SdsValueError as error:
            raise SimulationLimitError(str(error)) from error

    def summary(self) -> str:
        """Return what it is and its held-out error as text for people."""
        error = self.heldout
        return (
            f"simulated machine, {self.via}, {self.cache}: held-out error x"
            f"{math.exp(error.median):.2f} in the median, x{math.exp(error.p95):.2f} in 95 %; "
            f"from features alone {self.baseline.name} predicts"
        )


def n_requests(operation: Operation) -> int:
    """Return the runs of all processes of an operation, each a request or a piece of one."""
    counts, blocks = operation.slabs[:, 2, :], operation.slabs[:, 3, :]
    return sum(
        math.prod(count) * math.prod(block[:-1])
        for count, block in zip(counts.tolist(), blocks.tolist(), strict=True)
    )


def within_budget(
    models: tuple[ReadModel, ReadModel], budget: SimulationBudget
) -> tuple[ReadModel, ReadModel]:
    """Return the models, those that simulate within a budget that they share."""
    original, replica = models
    return _within(original, budget), _within(replica, budget)


def _within(model: ReadModel, budget: SimulationBudget) -> ReadModel:
    return replace(model, budget=budget) if isinstance(model, SimulatedModel) else model


def without_simulation(models: tuple[ReadModel, ReadModel]) -> tuple[ReadModel, ReadModel]:
    """Return the models that predict in place of simulated machines."""
    original, replica = models
    return _baseline(original), _baseline(replica)


def _baseline(model: ReadModel) -> ReadModel:
    return model.baseline if isinstance(model, SimulatedModel) else model


def note_of_limit(error: SimulationLimitError, models: Iterable[ReadModel]) -> str:
    """Return in words why reads were not simulated, and which models predicted them instead."""
    names = " and ".join(dict.fromkeys(_baseline(model).name for model in models))
    return f"predicted by {names}, not by the fitted machine: of one read, {error}"


def begin_answer(models: Iterable[ReadModel]) -> None:
    """Have models forget what answers before were made of."""
    for model in models:
        if isinstance(model, SimulatedModel):
            model.begin()


def notes_on_predictions(models: Iterable[ReadModel]) -> tuple[str, ...]:
    """Return what has to be said of the predictions that an answer is made of."""
    if any(isinstance(model, SimulatedModel) and model.has_simulated_chunks for model in models):
        return (NOT_JUDGED_ON_CHUNKS,)
    return ()
