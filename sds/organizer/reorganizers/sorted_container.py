"""The HDF5 file of a sorted replica: the columns in order, row numbers, and what finds rows in it.

docs/reference/replica-format.md describes it. Columns are contiguous, each at an aligned offset;
what is written goes straight to its place.
"""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from sds.hdf5 import row_numbers
from sds.hdf5.columns import TableReader, decode_rates, describe_open_table
from sds.hdf5.row_numbers import RowNumbers
from sds.hdf5.trailer import BLOCK_MAXIMA, BLOCK_MINIMA, FORMAT, widest
from sds.organizer.replica_file import replica as names
from sds.organizer.replica_file.attributes import carry_attributes
from sds.organizer.replica_file.container import (
    CHUNKED_LIBVER,
    create_early,
    open_source,
    write_file_checksums,
    write_provenance,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from sds.organizer.plans.sort_plan import SortPlan

ALIGNMENT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Places:
    """First bytes of the columns, by name, and of the row numbers; the end of the file."""

    columns: dict[str, int]
    row_numbers: int
    end_bytes: int


def column_path(table_path: str, name: str) -> str:
    """Return the HDF5 path of a column in a sorted replica."""
    return posixpath.join(table_path, name)


def create_sorted(staged: Path, plan: SortPlan) -> None:
    """Make `staged` an HDF5 file with room for row numbers and every column, and the provenance."""
    paths = {column.name: column_path(plan.dataset_path, column.name) for column in plan.columns}
    with (
        open_source(plan.source_path) as source,
        h5py.File(
            staged,
            "w",
            libver=CHUNKED_LIBVER,
            locking=False,
            alignment_threshold=ALIGNMENT_BYTES,
            alignment_interval=ALIGNMENT_BYTES,
        ) as target,
    ):
        table = describe_open_table(source, plan.dataset_path, like=plan.sort.key)
        reader = TableReader(source, table, plan.sort.columns)
        left_out = [
            f"column {column.name}: {column.obstacle}"
            for column in table.columns
            if column.obstacle
        ]
        # First, so that what it leaves lies before the columns: HDF5 cuts off what is free at the
        # end of a file, and remembers no other.
        number_type = h5py.h5t.py_create(np.dtype(f"<u{plan.row_number_bytes}"))
        numbers = _create_column(target, None, number_type, plan.n_rows)
        for name, path in paths.items():
            created = _create_column(target, path, reader.file_type(name), plan.n_rows)
            original = reader.dataset(name)
            if original is not None:
                left_out += [
                    f"{name}: {what}" for what in carry_attributes(original, created, (0,))
                ]
        write_provenance(target, plan, left_out)
        target.attrs[FORMAT] = np.uint32(row_numbers.FIRST_FORMAT)
        target.attrs[row_numbers.PLACE] = np.array(
            [numbers.get_offset(), plan.row_number_bytes], np.int64
        )
        target.attrs[names.SORT_KEY] = plan.sort.key
        target.attrs[names.SORT_COLUMNS] = list(plan.sort.columns)
        target.attrs[names.SORT_BLOCK_ROWS] = np.int64(plan.block_rows)
        target.attrs[names.SORT_NAN_ROWS] = np.int64(0)
        rates = decode_rates(source, table, plan.sort.columns)
        target.attrs[names.SORT_DECODE_S_PER_BYTE] = np.array(
            [rates.get(name, 0.0) for name in plan.sort.columns], np.float64
        )
        target.flush()  # whatever HDF5 has to place is placed: nothing takes the numbers' room
        del numbers


def _create_column(
    target: h5py.File, path: str | None, file_type: h5py.h5t.TypeID, n_rows: int
) -> h5py.h5d.DatasetID:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    return create_early(target, path, file_type, (n_rows,), properties)


def find_places(staged: Path, plan: SortPlan) -> Places:
    """Return where the columns lie in a file that :func:`create_sorted` made."""
    with h5py.File(staged, "r", locking=False) as target:
        return Places(
            columns={
                name: int(target[column_path(plan.dataset_path, name)].id.get_offset())
                for name in plan.sort.columns
            },
            row_numbers=RowNumbers(target, plan.n_rows).offset_bytes,
            end_bytes=staged.stat().st_size,
        )


def finish_sorted(staged: Path, plan: SortPlan, *, n_nan: int, build_s: float) -> None:
    """Write minima, maxima, times and the checksum of each block of the file; all of it on disk."""
    with h5py.File(staged, "r+", libver=CHUNKED_LIBVER, locking=False) as target:
        keys = target[column_path(plan.dataset_path, plan.sort.key)]
        minima, maxima = _block_ends(keys, plan.n_rows - n_nan, plan.block_rows)
        target.attrs.modify(names.SORT_NAN_ROWS, np.int64(n_nan))
        target.attrs.modify(names.BUILD_SECONDS, np.float64(build_s))
    write_file_checksums(staged, plan, {BLOCK_MINIMA: minima, BLOCK_MAXIMA: maxima})
    with staged.open("rb") as stream:
        os.fsync(stream.fileno())


def _block_ends(
    keys: h5py.Dataset, n_numbers: int, block_rows: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the first and last key of each block of rows whose key is a number."""
    minima = keys[:n_numbers:block_rows]
    maxima = keys[block_rows - 1 : n_numbers : block_rows]
    if len(maxima) < len(minima):
        maxima = np.concatenate([maxima, keys[n_numbers - 1 : n_numbers]])
    wide = widest(keys.dtype)
    return minima.astype(wide), maxima.astype(wide)
