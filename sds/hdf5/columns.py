"""Tables in HDF5 files, read by columns.

A table is a one-dimensional dataset of compound type, whose members are the columns, or a group of
equally long one-dimensional datasets, as simulations write particles. A row is one element of each.
"""

from __future__ import annotations

import logging
import posixpath
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sds.errors import DatasetNotFoundError, SdsValueError, UnsupportedError
from sds.files import canonical_path
from sds.geometry.replica_layout import Filter
from sds.hdf5.chunk_extents import decode_seconds_per_byte
from sds.hdf5.dataset import (
    DatasetDescription,
    Storage,
    describe_open_dataset,
    get_dataset,
    is_type_of_fixed_size,
    open_hdf5,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    import h5py
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

_N_NAMES_SHOWN = 8
_LARGEST_KEY_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    name
        Of the dataset in its group, or of the member.
    dtype
        As h5py reads it.
    size_bytes
        Of an element in the file.
    obstacle
        Why SDS cannot copy its elements; empty where it can.
    filters
        What must be undone to read it.
    """

    name: str
    dtype: np.dtype[Any]
    size_bytes: int
    obstacle: str
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, and how it is stored.

    Attributes
    ----------
    file
        The file that holds it.
    path
        HDF5 path of the dataset or group.
    n_rows
        Rows.
    columns
        In the order of the members, or by name.
    is_compound
        Whether it is one dataset.
    data_offset_bytes, chunk_shape
        Of a compound dataset; None for a group, whose columns each have their own.
    filters
        All that must be undone to read it.
    stored_bytes
        What the file spends on it.
    row_size_bytes
        Of a row in the file: of a compound dataset with the holes between its members.
    """

    file: Path
    path: str
    n_rows: int
    columns: tuple[Column, ...]
    row_size_bytes: int
    is_compound: bool
    data_offset_bytes: int | None
    chunk_shape: tuple[int, ...] | None
    filters: tuple[Filter, ...]
    stored_bytes: int

    def column(self, name: str) -> Column:
        """Return the column of a name.

        Raises
        ------
        DatasetNotFoundError
            If there is none; names some that there are.
        """
        for column in self.columns:
            if column.name == name:
                return column
        shown = ", ".join(column.name for column in self.columns[:_N_NAMES_SHOWN])
        more = ", ..." if len(self.columns) > _N_NAMES_SHOWN else ""
        message = (
            f"{self.path} in {self.file} has no column {name!r} of {self.n_rows} rows; "
            f"it has {shown or 'none'}{more}"
        )
        raise DatasetNotFoundError(message)

    def named(self, names: Sequence[str] | None) -> tuple[Column, ...]:
        """Return the columns of some names; None: all.

        Raises
        ------
        SdsValueError
            If no name is given, or one twice.
        DatasetNotFoundError
            As `column`.
        """
        if names is None:
            return self.columns
        if not names:
            raise SdsValueError(
                "no columns are named: name at least one, or leave them out for all"
            )
        twice = sorted({name for name in names if list(names).count(name) > 1})
        if twice:
            raise SdsValueError(f"columns {', '.join(twice)} named twice: name each once")
        return tuple(map(self.column, names))

    def dtype_of(self, names: Sequence[str]) -> np.dtype[np.void]:
        """Return the type of rows of some columns."""
        return np.dtype([(name, self.column(name).dtype) for name in names])


def describe_table(file: str | os.PathLike[str], path: str, *, like: str) -> Table:
    """Describe a table and its storage; errors as :func:`describe_open_table`."""
    with open_hdf5(file) as handle:
        return describe_open_table(handle, path, like=like)


@contextmanager
def open_table(
    file: str | os.PathLike[str], path: str, *, like: str
) -> Iterator[tuple[h5py.File, Table]]:
    """Open the file that holds a table, and describe it; errors as :func:`describe_open_table`.

    Where an external link leads to another file, that file, and the path there.
    """
    with open_hdf5(file) as handle:
        table = describe_open_table(handle, path, like=like)
        if canonical_path(table.file) == canonical_path(handle.filename):
            yield handle, table
            return
    with open_hdf5(table.file) as handle:
        yield handle, describe_open_table(handle, table.path, like=like)


def describe_open_table(handle: h5py.File, path: str, *, like: str) -> Table:
    """Describe a table of an open file.

    Parameters
    ----------
    like
        A column that it must have. Of a group, the datasets that are as long as this one are its
        columns; others in it are not.

    Raises
    ------
    DatasetNotFoundError
        If there is nothing of that path, or no such column.
    UnsupportedError
        If it is no table, or the column is of several dimensions or of a type that NumPy lacks.
    """
    import h5py  # noqa: PLC0415

    try:
        found = handle[path]
    except (KeyError, ValueError):
        found = None
    if isinstance(found, h5py.Group):
        table = _describe_group(found, like)
    else:
        table = _describe_compound(get_dataset(handle, path))
    table.column(like)
    return table


def _describe_compound(dataset: h5py.Dataset) -> Table:
    described = describe_open_dataset(dataset, dataset.file.filename)
    if described.dtype.names is None or len(described.extent) != 1 or described.is_null:
        shape = "x".join(map(str, described.extent)) or "scalar"
        message = (
            f"{described.path} in {described.file} is no table: it is of type {described.dtype} "
            f"and extent {shape}; name a one-dimensional dataset of compound type, or a group of "
            "equally long one-dimensional datasets"
        )
        raise UnsupportedError(message)
    file_type = dataset.id.get_type()
    obstacle = _outside(described.storage) or _undefined(described)
    members = {name: fields[0] for name, fields in (described.dtype.fields or {}).items()}
    columns = []
    for index in range(file_type.get_nmembers()):
        name = file_type.get_member_name(index).decode()
        member = file_type.get_member_type(index)
        columns.append(
            Column(
                name=name,
                dtype=members[name],
                size_bytes=int(member.get_size()),
                obstacle=obstacle or _variable(member) or _unnameable(name),
                filters=described.filters,
            )
        )
    return Table(
        file=described.file,
        path=described.path,
        n_rows=described.extent[0],
        columns=tuple(columns),
        row_size_bytes=described.element_size_bytes,
        is_compound=True,
        data_offset_bytes=described.data_offset_bytes,
        chunk_shape=described.chunk_shape,
        filters=described.filters,
        stored_bytes=described.stored_bytes,
    )


def _describe_group(group: h5py.Group, like: str) -> Table:
    import h5py  # noqa: PLC0415

    file = Path(group.file.filename)
    path = posixpath.join(str(group.name), like)
    first = get_dataset(group.file, path)
    if len(first.shape or ()) != 1:
        shape = "x".join(map(str, first.shape or ())) or "scalar"
        message = f"{path} in {file} has extent {shape}: columns are one-dimensional datasets"
        raise UnsupportedError(message)
    columns, filters, stored_bytes = [], {}, 0
    for name in group:
        member = group.get(name)  # None where a link leads nowhere
        if not isinstance(member, h5py.Dataset) or member.shape != first.shape:
            continue
        try:
            described = describe_open_dataset(member, file)
        except UnsupportedError:
            if name == like:
                raise
            continue
        obstacle = (
            _outside(described.storage) or _variable(member.id.get_type()) or _undefined(described)
        )
        if Path(member.file.filename) != file:
            obstacle = f"lies in another file, {member.file.filename}"
        columns.append(
            Column(
                name=name,
                dtype=described.dtype,
                size_bytes=described.element_size_bytes,
                obstacle=obstacle,
                filters=described.filters,
            )
        )
        filters.update({step.code: step for step in described.filters})
        stored_bytes += described.stored_bytes
    return Table(
        file=file,
        path=str(group.name),
        n_rows=int(first.shape[0]),
        columns=tuple(columns),
        row_size_bytes=sum(column.size_bytes for column in columns),
        is_compound=False,
        data_offset_bytes=None,
        chunk_shape=None,
        filters=tuple(filters.values()),
        stored_bytes=stored_bytes,
    )


def _outside(storage: Storage) -> str:
    other = storage in {Storage.EXTERNAL, Storage.VIRTUAL}
    return f"is stored in other files ({storage})" if other else ""


def _undefined(described: DatasetDescription) -> str:
    undefined = described.has_undefined_elements
    return "has elements that were never written and no fill value for them" if undefined else ""


def _variable(file_type: h5py.h5t.TypeID) -> str:
    fixed = is_type_of_fixed_size(file_type)
    return "" if fixed else "holds elements of variable length or references"


def _unnameable(name: str) -> str:
    """Return why no dataset can be called as a member is; empty where one can."""
    if name and name != "." and "/" not in name:
        return ""
    return f"has a name that no dataset can have ({name!r})"


def check_key(column: Column, where: str) -> None:
    """Raise UnsupportedError, naming the reason, for a column that cannot order rows."""
    dtype = column.dtype
    if dtype.kind in "iufb" and dtype.itemsize <= _LARGEST_KEY_BYTES and dtype.subdtype is None:
        return
    kind = "text" if dtype.kind in "SUOT" else f"of type {dtype}"
    message = (
        f"column {column.name!r} of {where} is {kind}: rows are ordered by integers, booleans and "
        f"floating-point numbers of at most {_LARGEST_KEY_BYTES} bytes; name another column"
    )
    raise UnsupportedError(message)


def decode_rates(handle: h5py.File, table: Table, names: Sequence[str]) -> dict[str, float]:
    """Measure the cost of undoing the filters of columns, in seconds per decoded byte.

    Of columns that have filters which can be undone here. All members of a compound dataset are
    undone together, and have the rate of the dataset.
    """
    filtered = [name for name in names if table.column(name).filters]
    if table.is_compound:
        rate = _decode_rate(handle[table.path]) if filtered else None
        return {} if rate is None else dict.fromkeys(names, rate)
    rates = {name: _decode_rate(handle[table.path][name]) for name in filtered}
    return {name: rate for name, rate in rates.items() if rate is not None}


def _decode_rate(dataset: h5py.Dataset) -> float | None:
    try:
        return decode_seconds_per_byte(dataset)
    except UnsupportedError as error:
        log.info("%s", error)
        return None


class TableReader:
    """Reads ranges of rows of some columns of a table in an open file."""

    def __init__(self, handle: h5py.File, table: Table, names: Sequence[str]) -> None:
        self._table = table
        self._names = tuple(names)
        if table.is_compound:
            self._dataset = handle[table.path]
        else:
            self._datasets = {name: handle[posixpath.join(table.path, name)] for name in names}

    def values(self, names: Sequence[str], first: int, n_rows: int) -> dict[str, NDArray[Any]]:
        """Return rows as h5py reads them, by column.

        Raises
        ------
        OSError
            If they cannot be read.
        """
        rows = slice(first, first + n_rows)
        if not names:
            return {}
        if self._table.is_compound:
            found = self._dataset.fields(list(names))[rows]
            return {name: found[name] for name in names}
        return {name: self._datasets[name][rows] for name in names}

    def stored(self, first: int, n_rows: int, *, poison: int = 0) -> dict[str, NDArray[np.void]]:
        """Return rows as they are stored, bit for bit, by column; those of fixed size only.

        Parameters
        ----------
        poison
            Value of each byte that HDF5 leaves as it was.

        Raises
        ------
        OSError
            If they cannot be read.
        """
        if self._table.is_compound:
            in_memory, parts = self._packed
            rows = _read_stored(self._dataset, in_memory, first, n_rows, poison).view(parts)
            return {name: rows[name] for name in self._names}
        return {
            name: _read_stored(dataset, dataset.id.get_type(), first, n_rows, poison)
            for name, dataset in self._datasets.items()
        }

    def file_type(self, name: str) -> h5py.h5t.TypeID:
        """Return the type of a column's elements in the file."""
        if not self._table.is_compound:
            return self._datasets[name].id.get_type().copy()
        of_row = self._dataset.id.get_type()
        return of_row.get_member_type(of_row.get_member_index(name.encode()))

    def dataset(self, name: str) -> h5py.Dataset | None:
        """Return the dataset that is a column; None of a compound table."""
        return None if self._table.is_compound else self._datasets[name]

    @cached_property
    def _packed(self) -> tuple[h5py.h5t.TypeID, np.dtype[np.void]]:
        """The columns that are read side by side without holes: for HDF5, and for NumPy."""
        import h5py  # noqa: PLC0415

        members = [(name, self.file_type(name)) for name in self._names]
        row = h5py.h5t.create(h5py.h5t.COMPOUND, sum(member.get_size() for _, member in members))
        at = 0
        for name, member in members:
            row.insert(name.encode(), at, member)
            at += member.get_size()
        return row, np.dtype([(name, f"V{member.get_size()}") for name, member in members])


def _read_stored(
    dataset: h5py.Dataset, in_memory: h5py.h5t.TypeID, first: int, n_rows: int, poison: int
) -> NDArray[np.void]:
    import h5py  # noqa: PLC0415

    size = in_memory.get_size()
    rows = np.full(n_rows * size, poison, np.uint8).view(f"V{size}")
    in_file = dataset.id.get_space()
    in_file.select_hyperslab((first,), (n_rows,))
    dataset.id.read(h5py.h5s.create_simple((n_rows,)), in_file, rows, mtype=in_memory)
    return rows
