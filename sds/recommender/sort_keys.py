"""Which columns of a table to sort replicas by, for queries that are stated. Values.

Traces cannot tell: a program that looks for energies above a threshold reads whole columns, and
compares them out of sight. So the conditions, and how often they are asked, are stated; which share
of the rows each key leaves over is estimated from a sample.

1. Keys are the columns that conditions compare. Of each key there is a candidate with the columns
   of each query, one with those of all, and those between as queries join that it saves most for.
2. A query takes the least of: the scan, and each replica that `sds.query` would take.
3. What is chosen of them is chosen beside all other layouts (`sds.recommender.choosing`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sds.columns import Table
from sds.conditions import deciding_columns, parse_condition
from sds.engine import IoParameters
from sds.errors import SdsValueError
from sds.query_costs import predict_query
from sds.recommender.demand import AS_NOW
from sds.recommender.layouts import BUILD_START_S
from sds.recommender.model import SIGMAS_95, UNCALIBRATED_LOG_ERROR
from sds.recommender.portfolio import (
    DeclinedLayout,
    ModelNames,
    PortfolioLayout,
    PortfolioSettings,
    SortedShape,
    saving_interval,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from sds.query_costs import QueryCosts
    from sds.recommender.portfolio import Saving

_SMALL_ROW_NUMBERS = 1 << 32
_MOST_PER_DAY = 1e12
_N_NAMED = 3
# Standard deviation of log(predicted / measured) where requests and bytes were measured: more than
# scans and sorted replicas were seen to err in their ratio (docs/explanation/portfolio.md).
_MEASURED_LOG_ERROR = math.log(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShare:
    """Which share of the rows a key leaves over for a query, by a sample.

    Attributes
    ----------
    n_left, n_sampled
        Rows of the sample in which the condition may hold by this column alone, and all of them.
    """

    key: str
    n_left: int
    n_sampled: int

    def interval(self) -> tuple[float, float, float]:
        """Return the share and its 95 % bounds (Wilson 1927); of no row sampled, nothing known."""
        if self.n_sampled == 0:
            return 1.0, 0.0, 1.0
        n, z2 = self.n_sampled, SIGMAS_95**2
        share = self.n_left / n
        middle = (share + z2 / (2 * n)) / (1 + z2 / n)
        half = math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) * SIGMAS_95 / (1 + z2 / n)
        return share, max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedQuery:
    """A query that programs ask.

    Attributes
    ----------
    text
        Its condition.
    compared, returned
        Columns of the condition and of the result.
    per_day
        How often it is asked.
    shares
        One for each column that could be the key.
    """

    text: str
    compared: tuple[str, ...]
    returned: tuple[str, ...]
    per_day: float
    shares: tuple[KeyShare, ...]

    def __post_init__(self) -> None:
        if not 0 < self.per_day <= _MOST_PER_DAY:  # not a number, too
            message = (
                f"query {self.text!r} asked {self.per_day} times a day: give a positive number, at "
                f"most {_MOST_PER_DAY:g}"
            )
            raise SdsValueError(message)

    @property
    def read(self) -> tuple[str, ...]:
        """All columns that it needs."""
        return tuple(dict.fromkeys((*self.compared, *self.returned)))

    def share_of(self, key: str) -> KeyShare | None:
        """Return what a key leaves over; None where it says nothing."""
        return next((share for share in self.shares if share.key == key), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQueries:
    """A table, how it is asked, and which sorted replicas of it there are.

    Attributes
    ----------
    target
        ``FILE:/table``.
    queries
        Of all programs and users together.
    parameters
        What reads from the file system cost.
    existing
        Sorted replicas that answer queries now; one several times where there are several alike.
    decode_s_per_byte
        What undoing the filters of a column takes, measured; see `sds.query_costs`.
    """

    target: str
    table: Table
    queries: tuple[StatedQuery, ...]
    parameters: IoParameters
    existing: tuple[SortedShape, ...] = ()
    decode_s_per_byte: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.queries:
            message = (
                f"no query of {self.target} is stated: conditions leave no trace, write them, as "
                "--query 'e > 1.3'"
            )
            raise SdsValueError(message)

    def shape(self, key: str, names: Iterable[str]) -> SortedShape:
        """Return the replica of a key and some columns; their order is the table's."""
        held = {key, *names}
        others = (c.name for c in self.table.columns if c.name in held and c.name != key)
        self.table.column(key)
        return SortedShape(key=key, columns=(key, *others))

    def size_bytes(self, shape: SortedShape) -> int:
        """Return the bytes of a replica: its columns, and the number of each row."""
        number_bytes = 4 if self.table.n_rows <= _SMALL_ROW_NUMBERS else 8
        row_bytes = sum(self.table.column(name).size_bytes for name in shape.columns)
        return self.table.n_rows * (row_bytes + number_bytes)

    @property
    def log_error(self) -> float:
        """Standard deviation of log(predicted / measured), of scans and of sorted replicas."""
        return _MEASURED_LOG_ERROR if self.parameters.is_measured else UNCALIBRATED_LOG_ERROR

    @property
    def model_name(self) -> str:
        """What predicts."""
        return f"{'measured' if self.parameters.is_measured else 'builtin'} costs of queries"


@dataclass(frozen=True, kw_only=True)
class QueryDemand:
    """Queries of a table, and their predicted times in the replicas there are and might be.

    Attributes
    ----------
    shapes
        Sorted replicas that might be built, m of them.
    settings
        How a portfolio is chosen.
    """

    asked: TableQueries
    shapes: tuple[SortedShape, ...]
    settings: PortfolioSettings

    unit = "query"
    stated = True
    fixed_s_per_day = 0.0

    @property
    def target(self) -> str:
        """``FILE:/table``."""
        return self.asked.target

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each candidate."""
        return tuple(self.asked.size_bytes(shape) for shape in self.shapes)

    @cached_property
    def build_s(self) -> tuple[float, ...]:
        """Seconds to build each candidate."""
        rate = self.settings.build_bytes_per_s
        return tuple(BUILD_START_S + size / rate for size in self.sizes)

    @cached_property
    def _times(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predicted, and at both ends of the shares: now (3, n), and in each candidate (3, n, m).

        The ends are of the shares: least and most rows left over.
        """
        scans = np.array([_scan_s(self.asked, query) for query in self.asked.queries]).T
        now = scans.copy()
        for shape in self.asked.existing:
            now = np.fmin(now, _times_in(self.asked, shape))
        there = [_times_in(self.asked, shape) for shape in self.shapes]
        empty = np.zeros((*now.shape, 0))
        return now, np.stack(there, axis=2) if there else empty

    @property
    def now(self) -> NDArray[np.float64]:
        """Seconds of each query as things are."""
        seconds: NDArray[np.float64] = self._times[0][0]
        return seconds

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Seconds of each query in each candidate."""
        seconds: NDArray[np.float64] = self._times[1][0]
        return seconds

    @cached_property
    def per_day(self) -> NDArray[np.float64]:
        """How often each query is asked."""
        return np.array([query.per_day for query in self.asked.queries])

    @property
    def observed(self) -> NDArray[np.float64]:
        """The same: they are stated."""
        return self.per_day

    @property
    def descriptions(self) -> tuple[str, ...]:
        """Their conditions."""
        return tuple(query.text for query in self.asked.queries)

    @property
    def n_seen(self) -> int:
        """None are seen."""
        return 0

    @property
    def n_patterns(self) -> int:
        """Queries."""
        return len(self.asked.queries)

    @property
    def calibrated(self) -> bool:
        """Whether the costs of requests and bytes were measured on this file system."""
        return self.asked.parameters.is_measured

    @property
    def models(self) -> ModelNames:
        """What predicted."""
        factor = math.exp(SIGMAS_95 * self.asked.log_error)
        name = self.asked.model_name
        return ModelNames(
            original=name,
            replica=name,
            interval_original=factor,
            interval_replica=factor,
            predicted="queries",
        )

    def saving(self, before: NDArray[np.int64], after: NDArray[np.int64]) -> Saving:
        """Return what is saved a day; both errors count, of the costs and of the sample."""
        changed = np.flatnonzero(before != after)
        then, least, most = self._sums(after, changed)
        now, _, _ = self._sums(before, changed)
        error = self.asked.log_error
        return saving_interval(now, then, (error, math.hypot(error, _log_spread(least, most))))

    def _sums(self, by: NDArray[np.int64], some: NDArray[np.int64]) -> tuple[float, float, float]:
        """Return the seconds of a day of some queries: predicted, and at the ends of the shares."""
        now, there = self._times
        sums = []
        for end in range(3):
            each = [now[end, i] if by[i] == AS_NOW else there[end, i, by[i]] for i in some.tolist()]
            sums.append(math.fsum(np.array(each) * self.per_day[some]))
        return sums[0], sums[1], sums[2]

    def ratio_error(self, one: int, other: int) -> float:
        """Return the error of the ratio of two candidates' times: of the costs, and of the sample.

        Two sorted replicas err in the same way; a scan and a sorted replica do not.
        """
        if one != AS_NOW:
            return self.asked.log_error
        served = np.flatnonzero(self.may_serve(other))
        _, least, most = self._sums(np.full(len(self.per_day), other), served)
        return math.hypot(math.sqrt(2.0) * self.asked.log_error, _log_spread(least, most))

    def may_serve(self, candidate: int) -> NDArray[np.bool_]:
        """Return which queries a candidate can answer faster than a scan."""
        return np.isfinite(self.seconds[:, candidate])

    def space_share(self, candidate: int) -> float:
        """Return how much of a row's bytes a candidate holds."""
        table = self.asked.table
        held = sum(table.column(name).size_bytes for name in self.shapes[candidate].columns)
        return held / table.row_size_bytes

    def notes(self) -> list[str]:
        """Return why there are no candidates, and what predictions are worth."""
        notes = []
        if not self.shapes:
            notes.append(self._why_nothing())
        elif not self.calibrated:
            notes.append(
                "predictions are uncalibrated, taken to be wrong by more than a factor of 3 in one "
                "case of three: measure with sds calibrate"
            )
        return [f"{self.target}: {words}" for words in notes]

    def _why_nothing(self) -> str:
        if not self.asked.table.n_rows:
            return "the table has no rows: nothing to sort"
        why: dict[str, list[str]] = {}
        for query in self.asked.queries:
            why.setdefault(self._why_scanned(query), []).append(query.text)
        if len(why) == 1:
            return next(iter(why))
        return "; ".join(f"{words} ({_some(texts)})" for words, texts in why.items())

    def _why_scanned(self, query: StatedQuery) -> str:
        """Return why no candidate answers a query faster than it is answered now."""
        asked, alone = self.asked, replace(self.asked, queries=(query,))
        for name in query.read:
            obstacle = asked.table.column(name).obstacle
            if obstacle:
                return f"column {name!r} {obstacle}: no sorted replica can hold it"
        answered = any(np.isfinite(_times_in(alone, shape)).any() for shape in asked.existing)
        checks = (
            (not query.shares, "no column that the conditions compare can order rows"),
            (answered, "its sorted replicas answer these queries already"),
            (
                not _costs(asked, query, 0.0).is_sorted_faster,
                "a scan takes no longer than opening a sorted replica",
            ),
            (
                not deciding_columns(parse_condition(query.text)),
                (
                    "no column rules out rows by itself, as where 'or' joins conditions on "
                    "several, and a sorted replica finds rows by one"
                ),
            ),
        )
        many = "too many rows match to be found faster than by a scan"
        return next((words for holds, words in checks if holds), many)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRecommendation:
    """What sorting a table would save of stated queries, each replica by itself.

    Attributes
    ----------
    queries
        That were stated.
    alone
        Sorted replicas that would pay, most saving first; which of them to build together, and
        beside other layouts, a portfolio says.
    declined
        Those that would not, and why.
    seconds_now
        Predicted time of all queries of a day, as things are.
    calibrated
        Whether the costs of requests and bytes were measured on this file system.
    models
        What predicted.
    notes
        Why there is nothing to build, and what predictions are worth.
    """

    queries: tuple[StatedQuery, ...]
    alone: tuple[PortfolioLayout, ...]
    declined: tuple[DeclinedLayout, ...]
    seconds_now: float
    calibrated: bool
    models: ModelNames
    notes: tuple[str, ...]


def queries_in_replicas(asked: TableQueries, settings: PortfolioSettings) -> QueryDemand:
    """Return a table's queries with their times in every sorted replica that may be worth it."""
    every = QueryDemand(asked=asked, shapes=_candidates(asked), settings=settings)
    gains = np.fmax(every.now[:, None] - every.seconds, 0.0)
    alone = every.per_day @ np.where(np.isfinite(gains), gains, 0.0)
    best = [int(c) for c in np.argsort(-alone, kind="stable") if alone[c] > 0]
    kept = sorted(best[: int(settings.n_candidates)])
    return QueryDemand(asked=asked, shapes=tuple(every.shapes[c] for c in kept), settings=settings)


def _candidates(asked: TableQueries) -> tuple[SortedShape, ...]:
    """Return the replicas to consider: each key with the columns of one, several, all queries."""
    found: dict[SortedShape, None] = {}
    if not asked.table.n_rows:
        return ()
    for key in dict.fromkeys(share.key for query in asked.queries for share in query.shares):
        mine = [
            query
            for query in asked.queries
            if query.share_of(key) and not any(asked.table.column(n).obstacle for n in query.read)
        ]
        for query in mine:
            found[asked.shape(key, query.read)] = None
        together: set[str] = set()
        for query in sorted(mine, key=lambda query: -_gain(asked, key, query)):
            together |= set(query.read)
            found[asked.shape(key, together)] = None
    return tuple(shape for shape in found if shape not in asked.existing)


def _gain(asked: TableQueries, key: str, query: StatedQuery) -> float:
    """Return what a query would save a day with a replica of its own."""
    with_it = _sorted_s(asked, query, key)[0]
    return query.per_day * max(0.0, _scan_s(asked, query)[0] - with_it)


def _scan_s(asked: TableQueries, query: StatedQuery) -> tuple[float, float, float]:
    """Return what a scan of a cached file takes, by what matches: as sampled, and at both ends.

    What matches is at most what the best key leaves over.
    """
    shares = [share.interval() for share in query.shares] or [(1.0, 0.0, 1.0)]
    least = min(shares)
    found = [_costs(asked, query, part).scattered_scan_s for part in least]
    return found[0], found[1], found[2]


def _times_in(asked: TableQueries, shape: SortedShape) -> NDArray[np.float64]:
    """Return what each query takes from a replica, shape (3, n); infinite where it scans."""
    times = np.full((3, len(asked.queries)), np.inf)
    for i, query in enumerate(asked.queries):
        if set(query.read) <= set(shape.columns):
            times[:, i] = _sorted_s(asked, query, shape.key)
    return times


def _sorted_s(asked: TableQueries, query: StatedQuery, key: str) -> tuple[float, float, float]:
    """Return what a query takes from a replica of a key; infinite where `sds.query` would scan."""
    share = query.share_of(key)
    if share is None:
        return math.inf, math.inf, math.inf
    found = []
    for part in share.interval():
        costs = _costs(asked, query, part)
        found.append(costs.sorted_s[0] if costs.is_sorted_faster else costs.scattered_scan_s)
    # Where the share as sampled leads to a scan, nothing is served.
    scans = not _costs(asked, query, share.interval()[0]).is_sorted_faster
    return (math.inf, math.inf, math.inf) if scans else (found[0], found[1], found[2])


def _costs(asked: TableQueries, query: StatedQuery, share: float) -> QueryCosts:
    return predict_query(
        asked.table,
        query.compared,
        query.returned,
        n_matching=math.ceil(share * asked.table.n_rows),
        n_ranges=1,
        parameters=asked.parameters,
        decode_s_per_byte=asked.decode_s_per_byte,
    )


def _log_spread(least: float, most: float) -> float:
    """Return the standard deviation of a logarithm, of its 95 % bounds."""
    return math.log(most / least) / (2 * SIGMAS_95) if 0 < least < most else 0.0


def _some(texts: Sequence[str]) -> str:
    """Return the first of several conditions, and how many more there are."""
    named = ", ".join(map(repr, texts[:_N_NAMED]))
    return named if len(texts) <= _N_NAMED else f"{named} and {len(texts) - _N_NAMED} more"
