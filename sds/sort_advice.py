"""Advice on sorted replicas for stated queries: the file is sampled, the rest is arithmetic."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sds.columns import TableReader, check_key, check_names, open_table
from sds.conditions import check_comparable, left_over, parse_condition
from sds.engine import builtin_parameters
from sds.engine.measured import measured_parameters
from sds.errors import SdsError, SdsValueError, UnsupportedError
from sds.recommender.sort_keys import KeyShare, SortAdvice, StatedQuery, advise_sorting
from sds.redirect.sorted_replicas import find_sorted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.columns import Table
    from sds.conditions import Condition
    from sds.home import Home

# The sample: so many pieces of so many rows, spread evenly.
_PIECES = 256
_PIECE_ROWS = 1024


def advise_queries(
    file: str,
    table: str,
    queries: Sequence[tuple[str, float]],
    *,
    home: Home,
    columns: Sequence[str] | None = None,
    budget_bytes: int | None = None,
) -> SortAdvice:
    """Return by which columns to sort replicas of a table for some queries.

    Parameters
    ----------
    queries
        Conditions, and how often each is asked a day.
    columns
        What the queries return; None: all columns, where a replica can hold all.
    budget_bytes
        Space for new replicas; None: what is free in the home.

    Raises
    ------
    SdsValueError
        If a condition is none, or there is no query.
    DatasetNotFoundError, UnsupportedError, ...
        As :func:`sds.query`; and if no sorted replica can hold a column that is returned.
    """
    if not queries:
        message = "no query is stated: conditions leave no trace, write them, as --query 'e > 1.3'"
        raise SdsValueError(message)
    parsed = [(text, parse_condition(text), per_day) for text, per_day in queries]
    with open_table(file, table, like=parsed[0][1].columns[0]) as (handle, described):
        returned = _returned(described, columns)
        compared = tuple(dict.fromkeys(name for _, found, _ in parsed for name in found.columns))
        for name in compared:
            check_comparable(name, described.column(name).dtype)
        sample = _sample(TableReader(handle, described, compared), described, compared)
    stated = [
        StatedQuery(
            text=text,
            compared=found.columns,
            returned=returned,
            per_day=per_day,
            shares=_shares(described, found, sample),
        )
        for text, found, per_day in parsed
    ]
    if budget_bytes is None:
        home.create()
        budget_bytes = shutil.disk_usage(home.replicas).free
    return advise_sorting(
        described,
        stated,
        target=f"{described.file}:{described.path}",
        budget_bytes=budget_bytes,
        parameters=measured_parameters(home, described.file) or builtin_parameters(),
        existing=_existing(home, described),
    )


def _returned(table: Table, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns of the results; UnsupportedError where no replica can hold one."""
    if columns is None:
        left_out = [column.name for column in table.columns if column.obstacle]
        if left_out:
            message = (
                f"queries that return all columns of {table.path} read {', '.join(left_out)}, "
                "which no sorted replica can hold: name the columns that they return, as --columns"
            )
            raise UnsupportedError(message)
        return tuple(column.name for column in table.columns)
    names = check_names(columns, "columns")
    for name in names:
        obstacle = table.column(name).obstacle
        if obstacle:
            message = f"column {name!r} of {table.path} {obstacle}: no sorted replica can hold it"
            raise UnsupportedError(message)
    return names


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


def _existing(home: Home, table: Table) -> list[tuple[str, tuple[str, ...]]]:
    """Return key and columns of the sorted replicas that serve a table now."""
    source = Path(os.path.realpath(table.file))
    try:
        found = find_sorted(home, source, source.stat())
    except (SdsError, OSError):
        return []  # what cannot be read answers no query
    return [(entry.key, entry.columns) for entry in found if entry.table == table.path]
