"""``sds.query``: the rows of a table for which a condition holds, as a scan would find them.

A scan reads the columns that the condition names, part by part, and of parts in which it holds the
other columns. Where a sorted replica is published, its minima and maxima tell how many rows match;
where reading those is predicted to be faster than the scan, whether the files are cached or not,
they come from there. Anything unexpected about the replica: the scan.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sds.client.open_files import is_written_through_h5py, version_in_hdf5
from sds.engine import builtin_parameters
from sds.engine.file_system_costs import measured_parameters
from sds.errors import SdsError, SdsValueError, SourceChangedError, UnsupportedError
from sds.files import canonical_path
from sds.hdf5.columns import Table, TableReader, open_table
from sds.hdf5.identity import Version, identity_from, identity_of, version_of
from sds.home import default_home, is_redirection_off
from sds.queries.conditions import Condition, check_comparable, parse_condition
from sds.queries.query_cost import WINDOW_BYTES, predict_query
from sds.queries.sorted_table import NotUsableError, SortedTable, row_ranges
from sds.redirect.sorted_replicas import find_sorted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import h5py

    from sds.engine import IoParameters
    from sds.home import Home
    from sds.redirect.sorted_replicas import SortedReplica

log = logging.getLogger(__name__)

_STRATEGIES = ("auto", "scan", "sorted")
# What a replica that is not as expected leads to; of its attributes also the type may be another.
_UNUSABLE = (NotUsableError, SdsError, OSError, RuntimeError, KeyError, TypeError, ValueError)


def query(
    file: str | os.PathLike[str],
    condition: str,
    *,
    table: str,
    columns: Sequence[str] | None = None,
    order: Literal["row", "key"] = "row",
    strategy: Literal["auto", "scan", "sorted"] = "auto",
) -> NDArray[np.void]:
    """Return the rows of a table for which a condition holds.

    Parameters
    ----------
    file
        An HDF5 file.
    condition
        Comparisons of columns with numbers, joined by ``and`` and ``or``; see
        :mod:`sds.queries.conditions`. A row matches where NumPy says so of its elements.
    table
        HDF5 path of a one-dimensional dataset of compound type, or of a group of equally long
        one-dimensional datasets. Of a group, those as long as the first column of the condition.
    columns
        What to return of a row; None: all columns.
    order
        ``row``: as in the file. ``key``: by the first column of the condition, NaN last, rows that
        are equal there as in the file.
    strategy
        ``auto``: a sorted replica where that is predicted to be faster. To compare with: ``scan``,
        ``sorted``.

    Returns
    -------
    Shape (n,), one field per column, of the types that h5py reads.

    Raises
    ------
    SdsValueError
        If the condition is none, or `order` or `strategy` is unknown.
    DatasetNotFoundError, UnsupportedError
        If there is no such table or column, or a column of the condition is no number; if strategy
        ``sorted`` is named and no sorted replica can answer.
    FileMissingError, NotHdf5Error, ...
        If the file cannot be opened.
    OSError
        If it cannot be read.
    """
    where = parse_condition(condition)
    if order not in {"row", "key"}:
        message = f"order {order!r} is unknown: 'row' as in the file, 'key' by {where.columns[0]}"
        raise SdsValueError(message)
    if strategy not in _STRATEGIES:
        message = f"no strategy is called {strategy!r}; there are {', '.join(_STRATEGIES)}"
        raise SdsValueError(message)
    with open_table(file, table, like=where.columns[0]) as (handle, described):
        parsed = _ParsedQuery(
            condition=where,
            table=described,
            columns=tuple(column.name for column in described.named(columns)),
        )
        for name in where.columns:
            check_comparable(name, described.column(name).dtype)
        matches = None
        if strategy != "scan":
            opened = version_in_hdf5(handle.id)
            matches = _from_replica(parsed, opened, default_home(), always=strategy == "sorted")
        if matches is None and strategy == "sorted":
            message = (
                f"no sorted replica of {described.path} in {described.file} can answer "
                f"{condition!r} with columns {', '.join(parsed.columns)}: build one by sds "
                "reorganize --sort, or leave the strategy at 'auto'"
            )
            raise UnsupportedError(message)
        if matches is None:
            matches = _scan(handle, parsed)
    return matches.ordered(parsed, order)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParsedQuery:
    """Parsed query: a condition, and the columns to return of a table."""

    condition: Condition
    table: Table
    columns: tuple[str, ...]

    @property
    def key(self) -> str:
        """The column that orders by key."""
        return self.condition.columns[0]

    @property
    def read(self) -> tuple[str, ...]:
        """Columns that are looked at or returned."""
        return tuple(dict.fromkeys((*self.condition.columns, *self.columns)))

    @property
    def result_dtype(self) -> np.dtype[np.void]:
        """Type of a row of the result."""
        return self.table.dtype_of(self.columns)


@dataclass(slots=True)
class _Matches:
    """Matching rows: their numbers, and parts of the result; in any order."""

    numbers: list[NDArray[np.integer[Any]]]
    parts: list[NDArray[np.void]]
    keys: list[NDArray[Any]]
    is_in_row_order: bool

    def add(
        self,
        parsed: _ParsedQuery,
        numbers: NDArray[np.integer[Any]],
        values: dict[str, NDArray[Any]],
    ) -> None:
        """Add rows."""
        part = np.empty(len(numbers), parsed.result_dtype)
        for name in parsed.columns:
            part[name] = values[name]
        self.numbers.append(numbers)
        self.parts.append(part)
        self.keys.append(values[parsed.key])

    def ordered(self, parsed: _ParsedQuery, order: Literal["row", "key"]) -> NDArray[np.void]:
        """Return the result."""
        rows = _joined(self.parts, parsed.result_dtype)
        place = None
        if not self.is_in_row_order:
            place = np.argsort(_joined(self.numbers, np.dtype(np.int64)), kind="stable")
        if order == "key":
            keys = _joined(self.keys, parsed.table.column(parsed.key).dtype)
            keys = keys if place is None else keys[place]
            by_key = np.argsort(keys, kind="stable")
            place = by_key if place is None else place[by_key]
        return rows if place is None else rows[place]


def _joined(parts: list[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    if len(parts) == 1:
        return parts[0]
    joined = np.empty(sum(map(len, parts)), dtype)
    at = 0
    for part in parts:
        joined[at : at + len(part)] = part
        at += len(part)
    return joined


def _scan(handle: h5py.File, parsed: _ParsedQuery) -> _Matches:
    """Return the matching rows of the original, read part by part."""
    reader = TableReader(handle, parsed.table, parsed.read)
    compared = parsed.condition.columns
    others = tuple(name for name in parsed.columns if name not in compared)
    matches = _Matches([], [], [], is_in_row_order=True)
    for first, n_rows in _windows(0, parsed.table.n_rows, parsed):
        values = reader.values(compared, first, n_rows)
        at = np.flatnonzero(parsed.condition.holds(values))
        if not len(at):
            continue
        matching = {name: values[name][at] for name in compared}
        # Of the other columns no more than lies between the first match and the last.
        low, n_read = int(at[0]), int(at[-1] - at[0]) + 1
        rest = reader.values(others, first + low, n_read)
        matching |= {name: rest[name][at - low] for name in others}
        matches.add(parsed, at + first, matching)
    return matches


def _windows(first: int, end: int, parsed: _ParsedQuery) -> Iterator[tuple[int, int]]:
    """Yield first row and number of rows of parts that fit into the memory."""
    row_bytes = sum(parsed.table.column(name).dtype.itemsize for name in parsed.read)
    at_once = max(1, WINDOW_BYTES // row_bytes)
    for start in range(first, end, at_once):
        yield start, min(at_once, end - start)


def _from_replica(
    parsed: _ParsedQuery, opened: Version | None, home: Home, *, always: bool
) -> _Matches | None:
    """Return the matching rows from a sorted replica; None where the original is to be scanned.

    `opened`: the version of the file that HDF5 reads, to which the path has to lead still.
    """
    if is_redirection_off(os.environ) or home.disabled.exists():
        return None
    source = Path(canonical_path(parsed.table.file))
    try:
        before = source.stat()
        if version_of(before) != opened or is_written_through_h5py(opened):
            return None  # the path leads to another file now, or HDF5 may hold bytes back
        for replica in find_sorted(home, source, before):
            if replica.table != parsed.table.path or not _holds(replica, parsed):
                continue
            with SortedTable(replica, parsed.table, before.st_uid) as sorted_table:
                matches = _if_faster(sorted_table, parsed, home, always=always)
            if matches is None:
                continue
            if identity_of(source) != identity_from(before):
                message = f"{source} changed while its replica was read"
                raise SourceChangedError(message)
            return matches
    except _UNUSABLE as error:
        log.debug("%s:%s is scanned: %s", source, parsed.table.path, error)
    return None


def _holds(replica: SortedReplica, parsed: _ParsedQuery) -> bool:
    """Return whether a replica has the columns, and its key says something about the condition."""
    return replica.key in parsed.condition.columns and set(parsed.read) <= set(replica.columns)


def _if_faster(
    sorted_table: SortedTable, parsed: _ParsedQuery, home: Home, *, always: bool
) -> _Matches | None:
    """Return the matching rows of a replica; None where the scan is predicted to be faster."""
    ranges, is_exact = row_ranges(parsed.condition, sorted_table)
    n_matching = sum(end - first for first, end in ranges)
    costs = predict_query(
        parsed.table,
        parsed.condition.columns,
        parsed.columns,
        n_matching=n_matching,
        n_ranges=len(ranges),
        parameters=_parameters(home, parsed.table.file),
        decode_s_per_byte=sorted_table.decode_s_per_byte,
    )
    log.debug("%s: %s", sorted_table.path, costs)
    if not (always or costs.is_sorted_faster):
        return None
    matches = _Matches([], [], [], is_in_row_order=False)
    for first, end in ranges:
        for start, n_rows in _windows(first, end, parsed):
            numbers, values = sorted_table.rows(parsed.read, start, n_rows)
            if not is_exact:
                at = np.flatnonzero(parsed.condition.holds(values))
                numbers = numbers[at]
                values = {name: of_name[at] for name, of_name in values.items()}
            matches.add(parsed, numbers, values)
    return matches


def _parameters(home: Home, file: Path) -> IoParameters:
    return measured_parameters(home, file) or builtin_parameters()
