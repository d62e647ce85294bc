"""Stated queries as the recommender takes them: the file is sampled, its replicas looked up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sds.engine import builtin_parameters
from sds.engine.file_system_costs import measured_parameters
from sds.errors import SdsError, SdsValueError, UnsupportedError
from sds.files import canonical_path
from sds.hdf5.columns import TableReader, check_key, decode_rates, open_table
from sds.queries.conditions import check_comparable, left_over, parse_condition
from sds.recommender.candidates.replica_cost import BuildRates
from sds.recommender.portfolio.sort_keys import KeyShare, StatedQuery, TableQueries
from sds.redirect.sorted_replicas import find_sorted

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from sds.engine import IoParameters
    from sds.geometry import ReplicaLayout
    from sds.hdf5.columns import Table
    from sds.home import Home
    from sds.queries.conditions import Condition

# The sample: pieces, and rows of each, spread evenly.
_PIECES = 256
_PIECE_ROWS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """A query as a user states it.

    Attributes
    ----------
    condition
        See `sds.queries.conditions`.
    columns
        What it returns; None: all columns, where a replica can hold all.
    per_day
        Times that it is made a day.
    """

    condition: str
    columns: tuple[str, ...] | None = None
    per_day: float = 1.0


def sample_queries(
    file: str | os.PathLike[str],
    table: str,
    queries: Sequence[QueryRequest],
    *,
    home: Home,
    parameters: IoParameters | None = None,
    build_rates: BuildRates | None = None,
) -> TableQueries:
    """Return queries of a table, with the rows that each key leaves over, and its sorted replicas.

    Parameters
    ----------
    home
        Whose sorted replicas answer.
    parameters
        What reads from the file system cost; None: as measured, where it was, else built in.
    build_rates
        How fast replicas are built; None: the built-in rates.

    Raises
    ------
    SdsValueError
        If a condition is none, or there is no query.
    DatasetNotFoundError, UnsupportedError, ...
        As :func:`sds.query`; and if no sorted replica can hold a column that is returned.
    """
    if not queries:
        message = (
            f"no query of {file}:{table} is stated: conditions leave no trace, write them, as "
            "--query 'e > 1.3'"
        )
        raise SdsValueError(message)
    parsed = [parse_condition(query.condition) for query in queries]
    with open_table(file, table, like=parsed[0].columns[0]) as (handle, described):
        returned = [_returned(described, query.columns) for query in queries]
        compared = tuple(dict.fromkeys(name for found in parsed for name in found.columns))
        for name in compared:
            check_comparable(name, described.column(name).dtype)
        sample = _sample(TableReader(handle, described, compared), described, compared)
        read = tuple(dict.fromkeys((*compared, *(n for names in returned for n in names))))
        decode_s_per_byte = decode_rates(handle, described, read)
    stated = tuple(
        StatedQuery(
            text=query.condition,
            compared=found.columns,
            returned=names,
            per_day=query.per_day,
            shares=_shares(described, found, sample),
        )
        for query, found, names in zip(queries, parsed, returned, strict=True)
    )
    if parameters is None:
        parameters = measured_parameters(home, described.file) or builtin_parameters()
    table_queries = TableQueries(
        target=f"{described.file}:{described.path}",
        table=described,
        stated=stated,
        parameters=parameters,
        decode_s_per_byte=decode_s_per_byte,
        build_rates=build_rates or BuildRates(),
    )
    return replace(table_queries, existing=_existing(home, table_queries))


def _returned(table: Table, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns of the results; UnsupportedError where no replica can hold one."""
    found = table.named(columns)
    left_out = [column for column in found if column.obstacle]
    if left_out and columns is None:
        names = ", ".join(column.name for column in left_out)
        message = (
            f"queries that return all columns of {table.path} read {names}, which no sorted "
            "replica can hold: name the columns that they return, as --columns"
        )
        raise UnsupportedError(message)
    for column in left_out:
        message = (
            f"column {column.name!r} of {table.path} {column.obstacle}: no sorted replica can "
            "hold it"
        )
        raise UnsupportedError(message)
    return tuple(column.name for column in found)


def _sample(
    reader: TableReader, table: Table, names: Sequence[str]
) -> dict[str, np.ndarray[tuple[int], np.dtype[np.generic]]]:
    """Return columns of rows that are spread over a table."""
    n_rows = min(_PIECE_ROWS, max(1, -(-table.n_rows // _PIECES)))
    firsts = np.unique(np.linspace(0, max(0, table.n_rows - n_rows), _PIECES).astype(np.int64))
    pieces = [reader.values(names, int(first), n_rows) for first in firsts]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in names}


def _shares(
    table: Table,
    condition: Condition,
    sample: dict[str, np.ndarray[tuple[int], np.dtype[np.generic]]],
) -> tuple[KeyShare, ...]:
    """Return what each column that can be a key leaves over."""
    shares = []
    for name in condition.columns:
        column = table.column(name)
        try:
            check_key(column, table.path)
        except UnsupportedError:
            continue
        if column.obstacle:
            continue
        left = left_over(condition, {name: sample[name]})
        shares.append(KeyShare(key=name, n_left=int(np.count_nonzero(left)), n_sampled=len(left)))
    return tuple(shares)


def _existing(home: Home, queries: TableQueries) -> tuple[ReplicaLayout, ...]:
    """Return the sorted replicas that answer queries of a table now."""
    source = Path(canonical_path(queries.table.file))
    try:
        found = find_sorted(home, source, source.stat())
    except (SdsError, OSError):
        return ()  # what cannot be read answers no query
    there = {column.name for column in queries.table.columns}
    return tuple(
        queries.layout(entry.key, entry.columns)
        for entry in found
        if entry.table == queries.table.path and set(entry.columns) <= there
    )
