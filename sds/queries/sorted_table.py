"""Read the matching rows of a sorted replica.

docs/reference/replica-format.md describes the file. Rows with matching keys lie side by side: a
comparison of the key holds for a run of rows from the first or to the last, so that minima and
maxima leave one block to look into at either end.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from sds.hdf5.columns import TableReader, describe_open_table
from sds.hdf5.identity import identity_from
from sds.hdf5.row_numbers import RowNumbers
from sds.hdf5.trailer import BLOCK_MAXIMA, BLOCK_MINIMA, FORMAT, block_ends
from sds.queries.conditions import Comparison, compare
from sds.redirect.write_permissions import check_trusted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sds.hdf5.columns import Table
    from sds.queries.conditions import Condition
    from sds.redirect.sorted_replicas import SortedReplica

    RowRanges = list[tuple[int, int]]

_SORTED_FORMATS = (3, 5, 6)


class NotUsableError(Exception):
    """A replica that is not what was published, or does not fit its source."""


class SortedTable:
    """An open sorted replica.

    Parameters
    ----------
    replica
        As it was published.
    source
        The table that it is a replica of.
    source_owner
        Who owns that file; the replica must belong to the same, or to this user.

    Attributes
    ----------
    decode_s_per_byte
        What undoing the filters of columns of the source takes, as far as that was measured.
    """

    def __init__(self, replica: SortedReplica, source: Table, source_owner: int) -> None:
        self.path: Path = replica.path
        self.key = replica.key
        self._replica = replica
        self._source = source
        self._owner = source_owner
        self._blocks: dict[int, NDArray[Any]] = {}

    def __enter__(self) -> Self:
        import h5py  # noqa: PLC0415  (import sds must not load the HDF5 library)

        self._file = h5py.File(self.path, "r", locking=False, rdcc_nbytes=0)
        try:
            self._check()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _check(self) -> None:
        found = os.fstat(self._file.id.get_vfd_handle())
        check_trusted(self.path, found, self._owner)
        if identity_from(found) != self._replica.identity:
            message = f"{self.path} is not the file that was published"
            raise NotUsableError(message)
        attributes, columns = self._file.attrs, self._replica.columns
        self._table = describe_open_table(self._file, self._replica.table, like=self.key)
        key_type = self._table.column(self.key).dtype
        self._minima = block_ends(self._file, BLOCK_MINIMA, key_type)
        self._maxima = block_ends(self._file, BLOCK_MAXIMA, key_type)
        self.n_rows = self._table.n_rows
        self._numbers = RowNumbers(self._file, self.n_rows)
        self.n_numbers = self.n_rows - int(attributes["sds_sort_nan_rows"])
        self._block_rows = int(attributes["sds_sort_block_rows"])
        kept = attributes.get("sds_sort_decode_s_per_byte", np.zeros(len(columns)))
        rates = np.atleast_1d(kept).astype(np.float64)
        self.decode_s_per_byte = {
            name: float(rate)
            for name, rate in zip(columns, rates, strict=True)
            if 0 < rate < np.inf
        }
        fits = (
            int(attributes[FORMAT]) in _SORTED_FORMATS
            and attributes["sds_sort_key"] == self.key
            and self.n_rows == self._source.n_rows
            and 0 <= self.n_numbers <= self.n_rows
            and self._block_rows > 0
            and len(self._minima) == len(self._maxima) == -(-self.n_numbers // self._block_rows)
            and all(
                self._table.column(name).dtype == self._source.column(name).dtype
                for name in columns
            )
        )
        if not fits:
            message = f"{self.path} does not fit {self._source.file}:{self._source.path}"
            raise NotUsableError(message)

    def n_before(self, sign: Literal["<", "<="], number: float) -> int:
        """Return how many keys are less than a number, or at most it; NaN is neither."""
        whole = int(np.count_nonzero(compare(self._maxima, sign, number)))
        if whole == len(self._maxima):
            return self.n_numbers
        if not compare(self._minima[whole : whole + 1], sign, number)[0]:
            return whole * self._block_rows
        within = np.count_nonzero(compare(self._block(whole), sign, number))
        return whole * self._block_rows + int(within)

    def _block(self, index: int) -> NDArray[Any]:
        """Return the keys of a block."""
        if index not in self._blocks:
            first = index * self._block_rows
            n_rows = min(self._block_rows, self.n_numbers - first)
            reader = TableReader(self._file, self._table, [self.key])
            self._blocks[index] = reader.values([self.key], first, n_rows)[self.key]
        return self._blocks[index]

    def rows(
        self, names: Sequence[str], first: int, n_rows: int
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
        """Return consecutive rows in the order of the key: their numbers in the source, columns.

        Raises
        ------
        NotUsableError
            If a number is that of no row.
        """
        numbers = self._numbers.read(first, n_rows).astype(np.int64)
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < self.n_rows:
            message = f"{self.path} numbers rows that do not exist"
            raise NotUsableError(message)
        reader = TableReader(self._file, self._table, names)
        return numbers, reader.values(names, first, n_rows)


def row_ranges(condition: Condition, table: SortedTable) -> tuple[RowRanges, bool]:
    """Return which rows of a sorted table a condition leaves over.

    Returns
    -------
    ranges, is_exact
        First row and end of each, ascending, disjoint, none empty; whether the condition holds in
        all of them, or other columns have to be looked at.
    """
    if isinstance(condition, Comparison):
        if condition.column != table.key:
            return _not_empty([(0, table.n_rows)]), False
        return _not_empty(_matching(condition, table)), True
    found = [row_ranges(part, table) for part in condition.parts]
    is_exact = all(exact for _, exact in found)
    ranges = found[0][0]
    for other, _ in found[1:]:
        ranges = _both(ranges, other) if condition.word == "and" else _either(ranges, other)
    return ranges, is_exact


def _matching(comparison: Comparison, table: SortedTable) -> RowRanges:
    """Return the rows in which a comparison of the key holds."""
    number, sign = comparison.number, comparison.sign
    if number != number:  # noqa: PLR0124  (NaN is unequal to everything)
        return [(0, table.n_rows)] if sign == "!=" else []
    if sign in {"<", "<="}:
        return [(0, table.n_before("<" if sign == "<" else "<=", number))]
    if sign in {">", ">="}:
        return [(table.n_before("<=" if sign == ">" else "<", number), table.n_numbers)]
    less, most = table.n_before("<", number), table.n_before("<=", number)
    if sign == "==":
        return [(less, most)]
    return [(0, less), (most, table.n_rows)]  # NaN, too


def _not_empty(ranges: RowRanges) -> RowRanges:
    return [(first, end) for first, end in ranges if first < end]


def _both(a: RowRanges, b: RowRanges) -> RowRanges:
    """Return what lies in ranges of both lists."""
    found = []
    at = other = 0
    while at < len(a) and other < len(b):
        first, end = max(a[at][0], b[other][0]), min(a[at][1], b[other][1])
        if first < end:
            found.append((first, end))
        if a[at][1] < b[other][1]:
            at += 1
        else:
            other += 1
    return found


def _either(a: RowRanges, b: RowRanges) -> RowRanges:
    """Return what lies in ranges of at least one list; those that touch become one."""
    found: RowRanges = []
    for first, end in sorted([*a, *b]):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found
