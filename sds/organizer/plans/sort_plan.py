"""Plan of a sort: what it reads, holds and writes, decided before it touches a file.

A table that fits into the memory is sorted there. A larger one is sorted in runs, which lie behind
the end of the staged file until they are merged, piece by piece.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from sds.errors import UnsupportedError
from sds.geometry import Box
from sds.geometry.least_memory import FIXED_BYTES
from sds.geometry.replica_layout import ReplicaLayout, SortOrder
from sds.hdf5.columns import check_key
from sds.organizer.plans.reorganization_plan import (
    METADATA_ROOM_BYTES,
    CopyPlan,
    too_little_memory,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sds.hdf5.columns import Table
    from sds.hdf5.identity import FileIdentity

SORTER = "sorter"
# Of each row in memory besides its columns, twice: key, ordered key, place, room to sort.
_ROW_OVERHEAD_BYTES = 48
# A merge that holds less of each run spends its time on requests.
_LEAST_MERGED_ROWS = 1024
# Rows per minimum and maximum: a block of 8-byte keys is one request of 128 KiB.
_BLOCK_ROWS = 16384
_MAX_BLOCKS = 1 << 16
_SMALL_ROW_NUMBER = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedColumn:
    """A column as the replica holds it."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SortPlan(CopyPlan):
    """One sort, whole.

    An element is a row: of the source all of its columns and what lies between them, of the replica
    the columns that it holds and a number. Its `order` is the one axis, its `region` all rows; the
    space needed includes that of the runs.

    Attributes
    ----------
    columns
        What the replica holds of a row, besides its number.
    is_compound
        Whether the source is one dataset.
    key_size_bytes, row_number_bytes
        Of a key, and of the number of a row.
    run_rows
        Rows that are sorted at once.
    merge_rows
        Rows of each run in a piece of the merge, in the mean; 0 where there is one run.
    block_rows
        Rows of the replica per minimum and maximum of the key.
    """

    columns: tuple[SortedColumn, ...]
    is_compound: bool
    key_size_bytes: int
    row_number_bytes: int
    run_rows: int
    merge_rows: int
    block_rows: int

    @property
    def sort(self) -> SortOrder:
        """Key and columns."""
        if self.layout.sort is None:
            message = f"the plan of {self.dataset_path} names no key"
            raise UnsupportedError(message)
        return self.layout.sort

    @property
    def n_rows(self) -> int:
        """Rows."""
        return self.extent[0]

    @property
    def n_runs(self) -> int:
        """Runs; one where the table fits into the memory."""
        return -(-self.n_rows // self.run_rows)

    def in_runs(self) -> Self:
        """Return the plan where the rows are sorted in runs though the memory holds them all."""
        if self.n_runs > 1:
            return self
        needed = self.space_needed_bytes + self.size_bytes + self.n_rows * self.key_size_bytes
        return replace(self, space_needed_bytes=needed)

    def run(self, index: int) -> tuple[int, int]:
        """Return the first row of a run and the number of its rows."""
        first = index * self.run_rows
        return first, min(self.run_rows, self.n_rows - first)


def plan_sort(
    table: Table,
    identity: FileIdentity,
    *,
    key: str,
    columns: Sequence[str] | None,
    memory_bytes: int,
    output: Path,
) -> SortPlan:
    """Return the plan that sorts the rows of a table by a column.

    Parameters
    ----------
    columns
        What the replica is to hold besides the key, in any order. None: all that can be copied.

    Raises
    ------
    DatasetNotFoundError
        If a column does not exist.
    UnsupportedError
        If the table is empty, the key is no number, or a column that is named cannot be copied.
    ConfigurationError
        If the memory is too small.
    SdsValueError
        If a column is named twice.
    """
    where = f"{table.path} in {table.file}"
    check_key(table.column(key), where)
    if table.n_rows == 0:
        message = f"{where} has no rows: there is nothing to sort"
        raise UnsupportedError(message)
    names = _chosen(table, key, columns)
    held = tuple(
        SortedColumn(name=name, size_bytes=table.column(name).size_bytes) for name in names
    )
    number_bytes = 4 if table.n_rows <= _SMALL_ROW_NUMBER else 8
    row_bytes = sum(column.size_bytes for column in held) + number_bytes
    key_bytes = table.column(key).dtype.itemsize
    run_rows, merge_rows, taken_bytes = _choose_runs(table, row_bytes, memory_bytes)
    size_bytes = table.n_rows * row_bytes
    runs_bytes = size_bytes + table.n_rows * key_bytes if merge_rows else 0
    block_rows = _BLOCK_ROWS
    while block_rows * _MAX_BLOCKS < table.n_rows:
        block_rows *= 2
    return SortPlan(
        organizer=SORTER,
        source_path=table.file,
        dataset_path=table.path,
        source_identity=identity,
        extent=(table.n_rows,),
        element_size_bytes=table.row_size_bytes,
        layout=ReplicaLayout(
            order=(0,),
            chunk_shape=None,
            filters=(),
            region=Box.whole((table.n_rows,)),
            sort=SortOrder(key=key, columns=names),
        ),
        columns=held,
        is_compound=table.is_compound,
        data_offset_bytes=table.data_offset_bytes,
        source_chunk_shape=table.chunk_shape,
        source_filters=table.filters,
        source_stored_bytes=table.stored_bytes,
        key_size_bytes=key_bytes,
        row_number_bytes=number_bytes,
        run_rows=run_rows,
        merge_rows=merge_rows,
        block_rows=block_rows,
        output=output,
        memory_bytes=taken_bytes,
        size_bytes=size_bytes,
        space_needed_bytes=size_bytes + runs_bytes + METADATA_ROOM_BYTES,
    )


def _chosen(table: Table, key: str, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns that the replica will hold."""
    if table.column(key).obstacle:
        message = f"column {key!r} of {table.path} in {table.file} {table.column(key).obstacle}"
        raise UnsupportedError(message)
    if columns is None:
        columns = [column.name for column in table.columns if not column.obstacle]
    for column in table.named(columns):
        if column.obstacle:
            message = (
                f"column {column.name!r} of {table.path} in {table.file} {column.obstacle}: leave "
                "it out of the columns"
            )
            raise UnsupportedError(message)
    # As in the table, so that there is one replica of them whichever way they were named.
    return (key, *(c.name for c in table.columns if c.name in columns and c.name != key))


def _choose_runs(table: Table, row_bytes: int, allowed_bytes: int) -> tuple[int, int, int]:
    """Return the rows of a run, the rows of each that the merge holds, and the memory taken."""
    # Of a row in memory: as read, and once more in order.
    of_row = 2 * row_bytes + _ROW_OVERHEAD_BYTES
    room_bytes = allowed_bytes - FIXED_BYTES
    if table.n_rows * of_row <= room_bytes:
        return table.n_rows, 0, FIXED_BYTES + table.n_rows * of_row
    run_rows = max(1, room_bytes // of_row)
    n_runs = -(-table.n_rows // run_rows)
    merge_rows = run_rows // n_runs
    if merge_rows < _LEAST_MERGED_ROWS:
        # merge_rows = room**2 / (of_row**2 * n_rows), solved for the room.
        needed = of_row * (_LEAST_MERGED_ROWS * table.n_rows) ** 0.5 * 1.01 + FIXED_BYTES
        purpose = f"to sort the {table.n_rows} rows of {table.path} by merging {n_runs} runs"
        raise too_little_memory(allowed_bytes, purpose, int(needed))
    return run_rows, merge_rows, FIXED_BYTES + run_rows * of_row
