"""Sort keys for replicas of a table, from stated queries. Pure: values in, values out.

Traces cannot tell: a program that looks for energies above a threshold reads whole columns, and
compares them out of sight. So the conditions, and how often each is queried, are stated; which
share of the rows each key leaves over is estimated from a sample.

1. Keys are the columns that conditions compare. Of each key there is a candidate with the columns
   of each query, one with those of all, and those between as queries join that it saves most for.
2. A query takes the least of: the scan, and each replica that `sds.query` would take.
3. What is chosen of them is chosen beside all other layouts
   (`sds.recommender.portfolio.portfolio_selection`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from sds.engine import IoParameters
from sds.errors import SdsValueError
from sds.geometry import Box, ReplicaLayout, SortOrder
from sds.hdf5.columns import Table
from sds.queries.conditions import deciding_columns, parse_condition
from sds.queries.query_cost import predict_query
from sds.recommender.candidates.replica_cost import BuildRates, build_command, build_seconds
from sds.recommender.models.cost_model import SIGMAS_95, UNCALIBRATED_LOG_ERROR
from sds.recommender.portfolio.values import ModelNames
from sds.recommender.portfolio.workload import Candidate, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from sds.queries.query_cost import QueryCosts
    from sds.recommender.candidates.dataset_reads import PortfolioSettings

_SMALL_ROW_NUMBERS = 1 << 32
_MOST_PER_DAY = 1e12
_N_NAMED = 3
# Standard deviation of log(predicted / measured) where requests and bytes were measured: more than
# scans and sorted replicas were seen to err in their ratio (docs/explanation/portfolio.md).
_MEASURED_LOG_ERROR = math.log(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShare:
    """Share of the rows that a key leaves over for a query, estimated from a sample.

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
        Times that it is made a day.
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
                f"query {self.text!r} made {self.per_day} times a day: give a positive number, at "
                f"most {_MOST_PER_DAY:g}"
            )
            raise SdsValueError(message)

    @property
    def read(self) -> tuple[str, ...]:
        """All columns that it needs."""
        return tuple(dict.fromkeys((*self.compared, *self.returned)))

    def share_of(self, key: str) -> KeyShare | None:
        """Return the share of the rows that a key leaves over; None of other columns."""
        return next((share for share in self.shares if share.key == key), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQueries:
    """A table, its queries, and which sorted replicas of it there are.

    Attributes
    ----------
    target
        ``FILE:/table``.
    stated
        Queries of all programs and users together.
    parameters
        What reads from the file system cost.
    existing
        Sorted replicas that answer queries now; one several times where there are several alike.
    decode_s_per_byte
        What undoing the filters of a column takes, measured; see `sds.queries.query_cost`.
    build_rates
        How fast its replicas are built.
    """

    target: str
    table: Table
    stated: tuple[StatedQuery, ...]
    parameters: IoParameters
    existing: tuple[ReplicaLayout, ...] = ()
    decode_s_per_byte: Mapping[str, float] = field(default_factory=dict)
    build_rates: BuildRates = field(default_factory=BuildRates)

    def __post_init__(self) -> None:
        if not self.stated:
            message = (
                f"no query of {self.target} is stated: conditions leave no trace, write them, as "
                "--query 'e > 1.3'"
            )
            raise SdsValueError(message)

    def layout(self, key: str, names: Iterable[str]) -> ReplicaLayout:
        """Return the replica of a key and some columns; their order is the table's."""
        held = {key, *names}
        others = (c.name for c in self.table.columns if c.name in held and c.name != key)
        self.table.column(key)
        return ReplicaLayout(
            order=(0,),
            region=Box.whole((self.table.n_rows,)),
            sort=SortOrder(key=key, columns=(key, *others)),
        )

    def size_bytes(self, layout: ReplicaLayout) -> int:
        """Return the bytes of a replica: its columns, and the number of each row."""
        number_bytes = 4 if self.table.n_rows <= _SMALL_ROW_NUMBERS else 8
        row_bytes = sum(self.table.column(name).size_bytes for name in _columns(layout))
        return self.table.n_rows * (row_bytes + number_bytes)

    @property
    def log_error(self) -> float:
        """Standard deviation of log(predicted / measured), of scans and of sorted replicas."""
        return _MEASURED_LOG_ERROR if self.parameters.is_measured else UNCALIBRATED_LOG_ERROR

    @property
    def model_name(self) -> str:
        """Name of the model that predicts."""
        return f"{'measured' if self.parameters.is_measured else 'builtin'} costs of queries"


def query_workload(
    queries: TableQueries,
    settings: PortfolioSettings,
    *,
    layouts: tuple[ReplicaLayout, ...] | None = None,
) -> Workload:
    """Return a table's queries in sorted replicas; None: in all that may be worth building."""
    scans = np.array([_scan_s(queries, query) for query in queries.stated]).T
    now = scans.copy()
    for layout in queries.existing:
        now = np.fmin(now, _times_in(queries, layout))
    chosen = _candidates(queries) if layouts is None else layouts
    there = np.stack(
        [np.zeros((*now.shape,)), *(_times_in(queries, layout) for layout in chosen)], axis=2
    )[:, :, 1:]
    per_day = np.array([query.per_day for query in queries.stated])
    if layouts is None:
        gains = np.fmax(now[0][:, None] - there[0], 0.0)
        alone = per_day @ np.where(np.isfinite(gains), gains, 0.0)
        best = [int(c) for c in np.argsort(-alone, kind="stable") if alone[c] > 0]
        kept = sorted(best[: int(settings.n_candidates)])
        chosen, there = tuple(chosen[c] for c in kept), there[:, :, kept]
    factor = math.exp(SIGMAS_95 * queries.log_error)
    notes = []
    if not chosen:
        notes.append(_why_nothing(queries))
    return Workload(
        target=queries.target,
        unit="query",
        candidates=tuple(_candidate(queries, layout) for layout in chosen),
        now=now[0],
        is_measured=np.zeros(len(now[0]), dtype=np.bool_),
        seconds=there[0],
        bounds=(now[1:], there[1:]),
        per_day=per_day,
        observed=per_day,
        descriptions=tuple(query.text for query in queries.stated),
        stated=True,
        n_patterns=len(queries.stated),
        calibrated=queries.parameters.is_measured,
        models=ModelNames(
            original=queries.model_name,
            replica=queries.model_name,
            interval_original=factor,
            interval_replica=factor,
            predicted="queries",
        ),
        # Two sorted replicas err in the same way; a scan and a sorted replica do not.
        log_errors=(queries.log_error, queries.log_error),
        ratio_errors=(queries.log_error, queries.log_error),
        notes=tuple(f"{queries.target}: {words}" for words in notes),
    )


def _candidate(queries: TableQueries, layout: ReplicaLayout) -> Candidate:
    """Return a sorted replica as a candidate."""
    size_bytes = queries.size_bytes(layout)
    held = sum(queries.table.column(name).size_bytes for name in _columns(layout))
    return Candidate(
        layout=layout,
        name=layout.describe(layout.region.extent),
        command=build_command(layout, layout.region.extent, queries.target),
        size_bytes=size_bytes,
        build_s=build_seconds(size_bytes, queries.build_rates.of_rows),
        min_reads=0,
        is_partial=False,
        space=held / queries.table.row_size_bytes,
        model=1,
    )


def _columns(layout: ReplicaLayout) -> tuple[str, ...]:
    """Return the columns that a sorted replica holds."""
    return () if layout.sort is None else layout.sort.columns


def _why_nothing(queries: TableQueries) -> str:
    if not queries.table.n_rows:
        return "the table has no rows: nothing to sort"
    why: dict[str, list[str]] = {}
    for query in queries.stated:
        why.setdefault(_why_scanned(queries, query), []).append(query.text)
    if len(why) == 1:
        return next(iter(why))
    return "; ".join(f"{words} ({_some(texts)})" for words, texts in why.items())


def _why_scanned(queries: TableQueries, query: StatedQuery) -> str:
    """Return why no candidate answers a query faster than it is answered now."""
    alone = replace(queries, stated=(query,))
    for name in query.read:
        obstacle = queries.table.column(name).obstacle
        if obstacle:
            return f"column {name!r} {obstacle}: no sorted replica can hold it"
    answered = any(np.isfinite(_times_in(alone, layout)).any() for layout in queries.existing)
    checks = (
        (not query.shares, "no column that the conditions compare can order rows"),
        (answered, "its sorted replicas answer these queries already"),
        (
            not _costs(queries, query, 0.0).is_sorted_faster,
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


def _candidates(queries: TableQueries) -> tuple[ReplicaLayout, ...]:
    """Return the replicas to consider: each key with the columns of one, several, all queries."""
    found: dict[ReplicaLayout, None] = {}
    if not queries.table.n_rows:
        return ()
    for key in dict.fromkeys(share.key for query in queries.stated for share in query.shares):
        mine = [
            query
            for query in queries.stated
            if query.share_of(key) and not any(queries.table.column(n).obstacle for n in query.read)
        ]
        for query in mine:
            found[queries.layout(key, query.read)] = None
        together: set[str] = set()
        for query in sorted(mine, key=lambda query: -_gain(queries, key, query)):
            together |= set(query.read)
            found[queries.layout(key, together)] = None
    return tuple(layout for layout in found if layout not in queries.existing)


def _gain(queries: TableQueries, key: str, query: StatedQuery) -> float:
    """Return what a query would save a day with a replica of its own."""
    with_it = _sorted_s(queries, query, key)[0]
    return query.per_day * max(0.0, _scan_s(queries, query)[0] - with_it)


def _scan_s(queries: TableQueries, query: StatedQuery) -> tuple[float, float, float]:
    """Return what a scan of a cached file takes, by what matches: as sampled, and at both ends.

    What matches is at most what the best key leaves over.
    """
    shares = [share.interval() for share in query.shares] or [(1.0, 0.0, 1.0)]
    least = min(shares)
    found = [_costs(queries, query, part).scattered_scan_s for part in least]
    return found[0], found[1], found[2]


def _times_in(queries: TableQueries, layout: ReplicaLayout) -> NDArray[np.float64]:
    """Return what each query takes from a replica, shape (3, n); infinite where it scans."""
    times = np.full((3, len(queries.stated)), np.inf)
    for i, query in enumerate(queries.stated):
        if layout.sort is not None and set(query.read) <= set(layout.sort.columns):
            times[:, i] = _sorted_s(queries, query, layout.sort.key)
    return times


def _sorted_s(queries: TableQueries, query: StatedQuery, key: str) -> tuple[float, float, float]:
    """Return what a query takes from a replica of a key; infinite where `sds.query` would scan."""
    share = query.share_of(key)
    if share is None:
        return math.inf, math.inf, math.inf
    found = []
    for part in share.interval():
        costs = _costs(queries, query, part)
        found.append(costs.sorted_s[0] if costs.is_sorted_faster else costs.scattered_scan_s)
    # Where the share as sampled leads to a scan, nothing is served.
    scans = not _costs(queries, query, share.interval()[0]).is_sorted_faster
    return (math.inf, math.inf, math.inf) if scans else (found[0], found[1], found[2])


def _costs(queries: TableQueries, query: StatedQuery, share: float) -> QueryCosts:
    return predict_query(
        queries.table,
        query.compared,
        query.returned,
        n_matching=math.ceil(share * queries.table.n_rows),
        n_ranges=1,
        parameters=queries.parameters,
        decode_s_per_byte=queries.decode_s_per_byte,
    )


def _some(texts: Sequence[str]) -> str:
    """Return the first of several conditions, and how many more there are."""
    named = ", ".join(map(repr, texts[:_N_NAMED]))
    return named if len(texts) <= _N_NAMED else f"{named} and {len(texts) - _N_NAMED} more"
