"""Which columns of a table to sort replicas by, for queries that are stated. Values.

Traces cannot tell: a program that looks for energies above a threshold reads whole columns, and
compares them out of sight. So the conditions, and how often they are asked, are stated; which share
of the rows each key leaves over is estimated from a sample.

1. Candidates are the columns that conditions compare, each with all columns that its queries need.
2. A query takes the least of: the scan, and each replica predicted faster than it.
3. Of all sets of candidates within the budget, that which saves most a day wins, build times spread
   over the days within which they must pay. A table has few keys: all sets are looked at.
"""

from __future__ import annotations

import itertools
import math
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sds.columns import Table
from sds.engine import IoParameters
from sds.errors import SdsValueError
from sds.query_costs import predict_query
from sds.recommender.portfolio import PortfolioSettings, Saving

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Times = list[tuple[float, float, float]]
    """Of each query: predicted, with the shares at their best, at their worst."""

# Beyond so many, sets are too many to look at: those that save most alone.
_MOST_KEYS = 10
_NORMAL_95 = 1.96
_SMALL_ROW_NUMBERS = 1 << 32


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
        n, z2 = self.n_sampled, _NORMAL_95**2
        share = self.n_left / n
        middle = (share + z2 / (2 * n)) / (1 + z2 / n)
        half = math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) * _NORMAL_95 / (1 + z2 / n)
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

    @property
    def read(self) -> tuple[str, ...]:
        """All columns that it needs."""
        return tuple(dict.fromkeys((*self.compared, *self.returned)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SortCandidate:
    """A sorted replica to build, or not.

    Attributes
    ----------
    key, columns
        As of ``sds reorganize --sort KEY --columns COLUMNS``.
    saving
        Seconds a day, beside the other replicas of the set; of one declined, alone.
    serves
        Conditions that it would answer, as written.
    size_bytes, build_s, break_even_days
        Space, time to build, and after which time that is saved; None where nothing is.
    command
        What a user types to build it.
    reason
        Why, or why not, in one sentence.
    """

    key: str
    columns: tuple[str, ...]
    saving: Saving
    serves: tuple[str, ...]
    size_bytes: int
    build_s: float
    break_even_days: float | None
    command: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SortAdvice:
    """What to sort a table by, or nothing.

    Attributes
    ----------
    chosen, declined
        Those that save most first.
    budget_bytes, used_bytes
        Space for them, and what they take.
    seconds_now, seconds_then
        Predicted time of all queries of a day, as things are and with `chosen`.
    calibrated
        Whether the costs of requests and bytes were measured on this file system.
    """

    target: str
    chosen: tuple[SortCandidate, ...]
    declined: tuple[SortCandidate, ...]
    budget_bytes: int
    used_bytes: int
    seconds_now: float
    seconds_then: float
    calibrated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """What is asked, and what each query takes by a scan."""

    target: str
    table: Table
    queries: tuple[StatedQuery, ...]
    scans: tuple[float, ...]
    parameters: IoParameters
    budget_bytes: int
    settings: PortfolioSettings


@dataclass(frozen=True, slots=True)
class _Key:
    """A candidate with the times of all queries: predicted, and at both ends of the shares."""

    name: str
    columns: tuple[str, ...]
    size_bytes: int
    build_s: float
    seconds: tuple[tuple[float, float, float], ...]


def advise_sorting(
    table: Table,
    queries: Sequence[StatedQuery],
    *,
    target: str,
    budget_bytes: int,
    parameters: IoParameters,
    existing: Sequence[tuple[str, tuple[str, ...]]] = (),
    settings: PortfolioSettings | None = None,
) -> SortAdvice:
    """Return by which columns to sort replicas of a table.

    Parameters
    ----------
    target
        ``FILE:/table``, for the commands.
    budget_bytes
        Space for new replicas.
    parameters
        What reads from the file system cost.
    existing
        Key and columns of sorted replicas that there are.

    Raises
    ------
    SdsValueError
        If no query is stated, or one is asked a number of times that is not positive.
    """
    _check(queries, budget_bytes)
    problem = _Problem(
        target=target,
        table=table,
        queries=tuple(queries),
        scans=tuple(_scan_s(table, query, parameters) for query in queries),
        parameters=parameters,
        budget_bytes=budget_bytes,
        settings=settings or PortfolioSettings(),
    )
    now = [(scan_s, scan_s, scan_s) for scan_s in problem.scans]
    for key, columns in existing:
        now = _least(now, _times(problem, key, columns))
    names = dict.fromkeys(name for query in queries for name in query.compared)
    keys = [_candidate(problem, name) for name in names]
    keys.sort(key=lambda key: -_saved(problem, now, [key]))
    best = _best_set(problem, now, keys)
    return SortAdvice(
        target=target,
        chosen=tuple(_described(problem, key, now, best) for key in best),
        declined=tuple(_declined(problem, key, now) for key in keys if key not in best),
        budget_bytes=budget_bytes,
        used_bytes=sum(key.size_bytes for key in best),
        seconds_now=_total(problem, now)[0],
        seconds_then=_total(problem, _with(now, best))[0],
        calibrated=parameters.is_measured,
    )


def _best_set(problem: _Problem, now: _Times, keys: Sequence[_Key]) -> list[_Key]:
    """Return the set that saves most, build times spread; none where none saves anything."""
    best: list[_Key] = []
    most = 0.0
    for n in range(1, min(len(keys), _MOST_KEYS) + 1):
        for chosen in itertools.combinations(keys[:_MOST_KEYS], n):
            if sum(key.size_bytes for key in chosen) > problem.budget_bytes:
                continue
            build_s = sum(key.build_s for key in chosen)
            net = _saved(problem, now, chosen) - build_s / problem.settings.pay_within_days
            if net > most:
                best, most = list(chosen), net
    return best


def _check(queries: Sequence[StatedQuery], budget_bytes: int) -> None:
    if not queries:
        message = "no query is stated: conditions leave no trace, write them, as --query 'e > 1.3'"
        raise SdsValueError(message)
    for query in queries:
        if not (math.isfinite(query.per_day) and query.per_day > 0):
            message = f"query {query.text!r} asked {query.per_day} times a day: give at least one"
            raise SdsValueError(message)
    if budget_bytes < 0:
        message = f"a budget of {budget_bytes} bytes: give 0 or more"
        raise SdsValueError(message)


def _scan_s(table: Table, query: StatedQuery, parameters: IoParameters) -> float:
    """Return what a scan takes, of cached files: the least that it can."""
    return predict_query(
        table, query.compared, query.returned, n_matching=0, n_ranges=1, parameters=parameters
    ).scan_s[0]


def _times(problem: _Problem, key: str, columns: Sequence[str]) -> _Times:
    """Return what each query takes with one replica: predicted, at best, at worst."""
    table = problem.table
    times = []
    for query, scan_s in zip(problem.queries, problem.scans, strict=True):
        share = next((share for share in query.shares if share.key == key), None)
        if share is None or not set(query.read) <= set(columns):
            times.append((scan_s, scan_s, scan_s))
            continue
        found = []
        for part in share.interval():
            costs = predict_query(
                table,
                query.compared,
                query.returned,
                n_matching=math.ceil(part * table.n_rows),
                n_ranges=1,
                parameters=problem.parameters,
            )
            # As sds.query decides; a sorted replica is no slower than the scan that it replaces.
            found.append(min(scan_s, costs.sorted_s[0]) if costs.is_sorted_faster else scan_s)
        times.append((found[0], found[1], found[2]))
    return times


def _candidate(problem: _Problem, key: str) -> _Key:
    table = problem.table
    mine = [query for query in problem.queries if key in query.compared]
    columns = tuple(dict.fromkeys((key, *(name for query in mine for name in query.read))))
    number_bytes = 4 if table.n_rows <= _SMALL_ROW_NUMBERS else 8
    row_bytes = sum(table.column(name).size_bytes for name in columns) + number_bytes
    size_bytes = table.n_rows * row_bytes
    return _Key(
        name=key,
        columns=columns,
        size_bytes=size_bytes,
        build_s=size_bytes / problem.settings.build_bytes_per_s,
        seconds=tuple(_times(problem, key, columns)),
    )


def _least(a: _Times, b: _Times) -> _Times:
    return [(min(x[0], y[0]), min(x[1], y[1]), min(x[2], y[2])) for x, y in zip(a, b, strict=True)]


def _with(now: _Times, chosen: Sequence[_Key]) -> _Times:
    times = list(now)
    for key in chosen:
        times = _least(times, list(key.seconds))
    return times


def _total(problem: _Problem, times: _Times) -> tuple[float, float, float]:
    """Return the seconds of a day."""
    weighted = [
        [query.per_day * part for part in time]
        for query, time in zip(problem.queries, times, strict=True)
    ]
    middle, least, most = (math.fsum(part) for part in zip(*weighted, strict=True))
    return middle, least, most


def _saved(problem: _Problem, now: _Times, chosen: Sequence[_Key]) -> float:
    return _total(problem, now)[0] - _total(problem, _with(now, chosen))[0]


def _described(
    problem: _Problem, key: _Key, now: _Times, chosen: Sequence[_Key], *, reason: str = ""
) -> SortCandidate:
    """Return a candidate with what it saves beside the others of a set."""
    without = _with(now, [other for other in chosen if other is not key])
    then = _least(without, list(key.seconds))
    before, after = _total(problem, without), _total(problem, then)
    saving = Saving(
        seconds=before[0] - after[0],
        # Shares at their worst, and at their best.
        low=min(before[2] - after[2], before[0] - after[0]),
        high=max(before[1] - after[1], before[0] - after[0]),
    )
    served = zip(problem.queries, without, then, strict=True)
    serves = tuple(query.text for query, old, new in served if new[0] < old[0])
    columns = ",".join(f"`{name}`" if "," in name else name for name in key.columns)
    words = ("sds", "reorganize", problem.target, "--sort", key.name, "--columns", columns)
    return SortCandidate(
        key=key.name,
        columns=key.columns,
        saving=saving,
        serves=serves,
        size_bytes=key.size_bytes,
        build_s=key.build_s,
        break_even_days=key.build_s / saving.seconds if saving.seconds > 0 else None,
        command=shlex.join(words),
        reason=reason or f"answers {len(serves)} of {len(problem.queries)} queries without a scan",
    )


def _declined(problem: _Problem, key: _Key, now: _Times) -> SortCandidate:
    """Return a candidate that was not chosen, with what it would save alone, and why not."""
    alone = _described(problem, key, now, [key])
    within_days = problem.settings.pay_within_days
    if alone.break_even_days is None:
        reason = "no query is predicted to be faster: too many rows match, or one is there already"
    elif key.size_bytes > problem.budget_bytes:
        reason = f"its {key.size_bytes} bytes are more than the budget of {problem.budget_bytes}"
    elif alone.break_even_days > within_days:
        reason = f"takes longer to build than it saves in {within_days:g} days"
    else:
        reason = "others within the budget save more"
    return replace(alone, reason=reason)
