"""Portfolios: sets of layouts, for one dataset or many, under one budget of space. Values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from sds.geometry import ReplicaLayout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sds.recommender.models.cost_model import CostModel

NO_QUERY_STATED = (
    "tables sorted by a key are considered where queries are stated, for those leave no trace: "
    "sds advise FILE:/TABLE --query CONDITION"
)


Basis = Literal["measured", "predicted", "mixed"]
"""Origin of times: traced reads, models, or some of both."""


def basis_of(is_measured: Iterable[bool]) -> Basis:
    """Return the origin of several times, of which each was measured or not."""
    found = set(is_measured)
    return "mixed" if len(found) > 1 else "measured" if True in found else "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Predicted seconds saved a day, with the interval that holds in 19 of 20 cases.

    `low` below zero: it may cost time.
    """

    seconds: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCoverage:
    """Shares of a dataset and its reads that a replica covers, each from 0 to 1.

    Attributes
    ----------
    space
        Of the dataset's elements those that it holds.
    reads
        Of the reads (or queries) of a day those that it would serve beside the other replicas.
    seconds
        Of their present time that of the reads which it could serve.
    """

    space: float
    reads: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNames:
    """The models that predicted the reads of datasets, or the queries of tables.

    Attributes
    ----------
    original, replica
        Of the original through HDF5, and of contiguous replicas through the engine.
    interval_original, interval_replica
        Within which factor 19 of 20 times are of what they say.
    predicted
        Whose times.
    """

    original: str
    replica: str
    interval_original: float
    interval_replica: float
    predicted: Literal["reads", "queries"]

    @classmethod
    def of(cls, models: tuple[CostModel, CostModel]) -> ModelNames:
        """Return the names of (the original's, the replica's) models."""
        original, replica = models
        return cls(
            original=original.name,
            replica=replica.name,
            interval_original=math.exp(original.interval_log),
            interval_replica=math.exp(replica.interval_log),
            predicted="reads",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioLayout:
    """One replica to build.

    Attributes
    ----------
    target
        ``FILE:/path``.
    layout, name
        How it is stored, and the same in words.
    min_reads
        Of segments how often their tiles had been read; else 0.
    saving
        What it saves beside the others: what would be lost without it.
    speedup
        Time without it over time with it, of the reads that it would serve.
    confidence
        Probability that it is faster at all, given the error of the models.
    reads_per_day
        HDF5 reads, or queries, that it would serve.
    serves
        Their patterns in words, or their conditions, those that gain most first.
    shares
        Of the dataset, its reads and their time.
    holds
        The same in words where it holds a part; empty where it holds all.
    size_bytes, build_s
        Space, and time to build.
    break_even_days
        After which the time to build is saved.
    alike
        Others in its place that the models cannot tell from it.
    command
        What a user types to build it.
    reason
        Why, in one sentence.
    """

    target: str
    layout: ReplicaLayout
    name: str
    min_reads: int
    saving: Saving
    speedup: float
    confidence: float
    reads_per_day: float
    serves: tuple[str, ...]
    shares: ReplicaCoverage
    holds: str
    size_bytes: int
    build_s: float
    break_even_days: float
    alike: tuple[str, ...]
    command: str
    reason: str

    @property
    def saved_s_per_read(self) -> float | None:
        """Seconds that it saves of a read, or query, that it serves; None where it serves none."""
        return self.saving.seconds / self.reads_per_day if self.reads_per_day > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclinedLayout:
    """A layout that would save time alone, and why it is not in the portfolio."""

    target: str
    layout: ReplicaLayout
    name: str
    saving_s_per_day: float
    size_bytes: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class DatasetTimes:
    """Time of the reads or queries of one dataset a day, as things are and with a portfolio.

    Attributes
    ----------
    seconds_now, seconds_then, saving
        Of reads that are as cold or warm as those that were traced; of queries, and of reads that
        were not traced, as predicted from cold cache.
    basis
        Whether `seconds_now` is measured or predicted.
    measured_s_now
        Of the reads as they were traced, by whatever served them; None where reads or queries are
        stated.
    cold_s_now, cold_s_then, warm_s_now, warm_s_then
        Predicted of the same reads from cold cache, and where all that they read is in memory; None
        of queries.
    rewritten_chunks, rewritten_s
        Chunk shape in which the dataset itself, written anew, would be read well instead, and the
        seconds of the same reads then; None where that gains less than half, or where several
        replicas are to be built.
    """

    target: str
    seconds_now: float
    seconds_then: float
    saving: Saving
    calibrated: bool
    models: ModelNames
    basis: Basis = "predicted"
    measured_s_now: float | None = None
    cold_s_now: float | None = None
    cold_s_then: float | None = None
    warm_s_now: float | None = None
    warm_s_then: float | None = None
    rewritten_chunks: tuple[int, ...] | None = None
    rewritten_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Recommendation(DatasetTimes):
    """The part of a portfolio that is of one dataset or table; attributes as of `Portfolio`."""

    layouts: tuple[PortfolioLayout, ...]
    declined: tuple[DeclinedLayout, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Portfolio:
    """Layouts to build for several datasets; may be none.

    Attributes
    ----------
    layouts
        What to build, those that save most first.
    declined
        What not to, per dataset those that would save most alone.
    budget_bytes, used_bytes
        Space for replicas besides those that exist (None: no limit), and what `layouts` take.
    seconds_now, seconds_then, saving, basis, measured_s_now
        Of all reads and queries of a day; as of `DatasetTimes`.
    cold_s_now, cold_s_then, warm_s_now, warm_s_then
        Predicted of all reads of a day; None where there are queries.
    bound_s_per_day
        No set of the layouts compared saves more within the budget, less what building and space
        are worth by `PortfolioSettings`.
    exact
        Whether the set is known to be the best of those compared.
    calibrated
        Whether all predictions come from models fitted to the file systems.
    models
        By which reads and queries were predicted, each once: datasets on several file systems have
        several.
    n_patterns, n_groups
        Patterns and queries, and groups of those whose predicted cost is alike.
    notes
        What was left out, and why.
    datasets
        The times of each dataset and table.
    """

    layouts: tuple[PortfolioLayout, ...]
    declined: tuple[DeclinedLayout, ...]
    budget_bytes: int | None
    used_bytes: int
    seconds_now: float
    seconds_then: float
    saving: Saving
    basis: Basis
    bound_s_per_day: float
    exact: bool
    calibrated: bool
    models: tuple[ModelNames, ...]
    n_patterns: int
    n_groups: int
    notes: tuple[str, ...]
    datasets: tuple[DatasetTimes, ...]
    measured_s_now: float | None = None
    cold_s_now: float | None = None
    cold_s_then: float | None = None
    warm_s_now: float | None = None
    warm_s_then: float | None = None

    def of_each(self) -> tuple[Recommendation, ...]:
        """Return the part of each dataset and table."""
        return tuple(
            Recommendation(
                layouts=tuple(x for x in self.layouts if x.target == one.target),
                declined=tuple(x for x in self.declined if x.target == one.target),
                **vars(one),
            )
            for one in self.datasets
        )


def saving_interval(now_s: float, then_s: float, log_errors: tuple[float, float]) -> Saving:
    """Return now - then with the interval that follows from the errors of both predictions.

    Both errors are taken to be normal in the logarithm, independent, and the same for all reads
    that are summed: errors of a model do not cancel over reads of one dataset.
    """
    if now_s == then_s:
        return Saving(seconds=0.0, low=0.0, high=0.0)
    steps = _NORMAL_QUANTILES
    now = now_s * np.exp(log_errors[0] * steps)
    then = then_s * np.exp(log_errors[1] * steps)
    low, high = np.quantile(np.subtract.outer(now, then), (0.025, 0.975))
    saving = now_s - then_s
    return Saving(seconds=saving, low=min(saving, float(low)), high=max(saving, float(high)))


def sum_of_savings(savings: Sequence[Saving]) -> Saving:
    """Return the sum; errors are taken not to cancel."""
    return Saving(
        seconds=math.fsum(s.seconds for s in savings),
        low=math.fsum(s.low for s in savings),
        high=math.fsum(s.high for s in savings),
    )


def _normal_quantiles(n: int) -> tuple[float, ...]:
    """Return the middles of n equally probable parts of the normal distribution."""
    return tuple(NormalDist().inv_cdf((i + 0.5) / n) for i in range(n))


_NORMAL_QUANTILES = np.array(_normal_quantiles(101))
