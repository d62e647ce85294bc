"""Verify that a sorted replica holds the rows of its source, each once, and in order.

Both files are read once, from end to end, by HDF5. Of each column the sum of a hash of all pairs
(row number, element) is compared: sums do not depend on the order, and are equal where the same
pairs were summed. The hash has 64 bits and a random key that is drawn for each comparison, so that
what differs passes with a chance of 2**-64. That the rows are in order is looked at one by one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sds.hdf5.columns import TableReader, describe_open_table
from sds.hdf5.row_numbers import RowNumbers
from sds.hdf5.trailer import BLOCK_MAXIMA, BLOCK_MINIMA, block_ends
from sds.organizer.reorganizers.key_encoding import nan_key, ordered_keys
from sds.organizer.reorganizers.sorted_container import column_path
from sds.organizer.replica_file import replica as names
from sds.organizer.replica_file.container import open_source
from sds.organizer.verify import (
    POISON_OF_REPLICA,
    POISON_OF_SOURCE,
    compare_with_original,
    reading_back,
    unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import h5py
    from numpy.typing import NDArray

    from sds.hdf5.columns import Table
    from sds.organizer.plans.sort_plan import SortPlan
    from sds.organizer.progress import Progress
    from sds.organizer.replica_file.replica import Replica
    from sds.organizer.verify import VerificationReport

_MASK = (1 << 64) - 1
# Rows at once: pairs and hashes stay in the second-level cache.
_WINDOW_ROWS = 1 << 15


def compare_with_table(
    replica: Replica, plan: SortPlan, *, progress: Progress | None = None
) -> VerificationReport:
    """Check a replica against its checksums, then every row of it against the source.

    Errors as of :func:`sds.organizer.verify.compare_with_original`.
    """
    row_bytes = plan.size_bytes // plan.n_rows
    return compare_with_original(
        replica,
        plan,
        lambda advance: _compare(replica, plan, lambda n_rows: advance(n_rows * row_bytes)),
        compared_bytes=2 * plan.size_bytes,
        progress=progress,
    )


def _compare(replica: Replica, plan: SortPlan, advance: Callable[[int], None]) -> tuple[str, ...]:
    """Return a sentence for each way in which the rows differ."""
    return differences(replica, plan, [look_through(replica, plan, draw_key(), (0, 1), advance)])


def draw_key() -> int:
    """Return the key of a comparison, which all parts of it share."""
    return secrets.randbits(64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Sums and order of a part of the rows of a source, and of as many of a replica.

    Attributes
    ----------
    expected, found
        Of each column the sum of hashes, in the source and in the replica.
    in_order
        Whether the rows of the replica are in order, also behind the one before them.
    n_nan
        Keys of the replica that are NaN.
    """

    expected: dict[str, int]
    found: dict[str, int]
    in_order: bool
    n_nan: int


def look_through(
    replica: Replica,
    plan: SortPlan,
    key: int,
    share: tuple[int, int],
    advance: Callable[[int], None],
) -> Seen:
    """Read a part of the rows of both files.

    Parameters
    ----------
    share
        Number of the part, and number of all parts.
    advance
        Called with the number of rows read since its last call.
    """
    sums = _Sums(plan.sort.columns, key)
    expected = sums.new()
    with open_source(plan.source_path) as source:
        table = describe_open_table(source, plan.dataset_path, like=plan.sort.key)
        reader = TableReader(source, table, plan.sort.columns)
        spans = whole_chunks(plan.n_rows, _longest_chunk(reader, table, plan), plan.run_rows)
        for first, n_read in _part(spans, share):
            rows = reader.stored(first, n_read, poison=POISON_OF_SOURCE)
            for at, n_rows in _windows(n_read):
                numbers = np.arange(first + at, first + at + n_rows, dtype=np.uint64)
                part = {name: column[at : at + n_rows] for name, column in rows.items()}
                sums.add(expected, numbers, part)
                advance(n_rows)
    try:
        with reading_back(replica) as copy:
            found, in_order, n_nan = _of_replica(copy, plan, sums, share, advance)
    except OSError as error:
        raise unreadable(replica, error) from error
    return Seen(expected=expected, found=found, in_order=in_order, n_nan=n_nan)


def differences(replica: Replica, plan: SortPlan, parts: Sequence[Seen]) -> tuple[str, ...]:
    """Return a sentence for each way in which the rows differ, of all parts."""
    problems = []
    n_nan = sum(part.n_nan for part in parts)
    if not all(part.in_order for part in parts):
        problems.append(f"the rows of {replica.path} are not in order")
    try:
        with reading_back(replica) as copy:
            stored_nan = int(copy.attrs[names.SORT_NAN_ROWS])
            if n_nan != stored_nan:
                problems.append(f"{replica.path} counts {stored_nan} NaN of {n_nan}")
            if not _ends_fit(copy, plan, n_nan):
                problems.append(f"minima and maxima of {replica.path} are not those of its blocks")
    except OSError as error:
        raise unreadable(replica, error) from error
    for name in plan.sort.columns:
        expected, found = (
            sum(of_part[name] for of_part in side) & _MASK
            for side in ([part.expected for part in parts], [part.found for part in parts])
        )
        if expected != found:
            problems.append(
                f"column {name!r} of {replica.path} does not hold the elements of "
                f"{plan.source_path}"
            )
    return tuple(problems)


def _of_replica(
    copy: h5py.File,
    plan: SortPlan,
    sums: _Sums,
    share: tuple[int, int],
    advance: Callable[[int], None],
) -> tuple[dict[str, int], bool, int]:
    """Return the sums of a part of the rows, whether they are in order, and their NaN."""
    table = describe_open_table(copy, plan.dataset_path, like=plan.sort.key)
    reader = TableReader(copy, table, plan.sort.columns)
    row_numbers = RowNumbers(copy, plan.n_rows)
    found = sums.new()

    def encoded(first: int, n_rows: int) -> NDArray[np.unsignedinteger[Any]]:
        return ordered_keys(reader.values([plan.sort.key], first, n_rows)[plan.sort.key])

    is_float = table.column(plan.sort.key).dtype.kind == "f"
    in_order = True
    n_nan = 0
    before: tuple[NDArray[Any], NDArray[Any]] | None = None
    for first, n_rows in _part(_windows(plan.n_rows), share):
        if before is None and first > 0:
            before = encoded(first - 1, 1), row_numbers.read(first - 1, 1)
        numbers = row_numbers.read(first, n_rows)
        sums.add(found, numbers, reader.stored(first, n_rows, poison=POISON_OF_REPLICA))
        keys = encoded(first, n_rows)
        if is_float:
            n_nan += int(np.count_nonzero(keys == nan_key(keys.dtype)))
        if before is not None:  # the last row of the window before
            in_order &= _are_ordered(
                np.concatenate([before[0], keys[:1]]), np.concatenate([before[1], numbers[:1]])
            )
        in_order &= _are_ordered(keys, numbers)
        before = keys[-1:], numbers[-1:]
        advance(n_rows)
    return found, in_order, n_nan


def _part(spans: Sequence[tuple[int, int]], share: tuple[int, int]) -> Sequence[tuple[int, int]]:
    """Return the spans of a part: neighbors, so that each reads on where it was."""
    number, n_parts = share
    return spans[len(spans) * number // n_parts : len(spans) * (number + 1) // n_parts]


def _are_ordered(keys: NDArray[Any], numbers: NDArray[np.uint64]) -> bool:
    """Return whether keys do not fall, and row numbers rise among equal keys."""
    fine = (keys[1:] > keys[:-1]) | ((keys[1:] == keys[:-1]) & (numbers[1:] > numbers[:-1]))
    return bool(fine.all())


def _ends_fit(copy: h5py.File, plan: SortPlan, n_nan: int) -> bool:
    """Return whether the minima and maxima are the first and last keys of the blocks."""
    keys = copy[column_path(plan.dataset_path, plan.sort.key)]
    minima, maxima = (block_ends(copy, name, keys.dtype) for name in (BLOCK_MINIMA, BLOCK_MAXIMA))
    n_numbers = plan.n_rows - n_nan
    block_rows = int(copy.attrs[names.SORT_BLOCK_ROWS])  # another SDS may have chosen otherwise
    if block_rows < 1:
        return False
    firsts = range(0, n_numbers, block_rows)
    if not len(minima) == len(maxima) == len(firsts):
        return False
    ends = [(first, min(first + block_rows, n_numbers) - 1) for first in firsts]
    return all(
        keys[first] == least and keys[last] == most
        for (first, last), least, most in zip(ends, minima, maxima, strict=True)
    )


def _longest_chunk(reader: TableReader, table: Table, plan: SortPlan) -> int:
    """Return the rows of the longest chunk that is filtered; 0 where none is."""
    if table.is_compound:
        return table.chunk_shape[0] if table.filters and table.chunk_shape else 0
    filtered = (name for name in plan.sort.columns if table.column(name).filters)
    datasets = (reader.dataset(name) for name in filtered)
    return max((found.chunks[0] for found in datasets if found is not None), default=0)


def whole_chunks(n_rows: int, chunk_rows: int, most_rows: int) -> Sequence[tuple[int, int]]:
    """Return first row and number of rows of what is read at once.

    HDF5 keeps no chunk that is larger than its cache, and would undo its filters for each window.
    So whole chunks are read, about a window of rows and at least one chunk; where those have more
    than `most_rows`, that many rows, but no less than a window.
    """
    at_once = _WINDOW_ROWS
    if chunk_rows:
        chunks = chunk_rows * max(1, _WINDOW_ROWS // chunk_rows)
        at_once = chunks if chunks <= most_rows else max(_WINDOW_ROWS, most_rows)
    return [(first, min(at_once, n_rows - first)) for first in range(0, n_rows, at_once)]


def _windows(n_rows: int) -> Sequence[tuple[int, int]]:
    return [(first, min(_WINDOW_ROWS, n_rows - first)) for first in range(0, n_rows, _WINDOW_ROWS)]


class _Sums:
    """Sums of hashes of (row number, element), one per column, under one random key."""

    def __init__(self, columns: Sequence[str], key: int) -> None:
        self._columns = columns
        self._key = np.uint64(key)

    def new(self) -> dict[str, int]:
        """Return sums of nothing."""
        return dict.fromkeys(self._columns, 0)

    def add(
        self,
        sums: dict[str, int],
        numbers: NDArray[np.uint64],
        columns: dict[str, NDArray[np.void]],
    ) -> None:
        """Add rows to sums."""
        of_rows = _mixed(numbers + self._key)
        for name in self._columns:
            hashed = of_rows.copy()
            for word in _words(columns[name]):
                hashed = _mixed((hashed ^ word) + self._key)
            sums[name] = (sums[name] + int(hashed.sum(dtype=np.uint64))) & _MASK


def _words(elements: NDArray[np.void]) -> Sequence[NDArray[np.uint64]]:
    """Return elements as words of 8 bytes, filled up with zeros: one array per word."""
    size = elements.dtype.itemsize
    if size in {1, 2, 4, 8}:
        return [np.ascontiguousarray(elements).view(f"u{size}").astype(np.uint64)]
    n_words = -(-size // 8)
    padded = np.zeros((len(elements), n_words * 8), np.uint8)
    packed = np.ascontiguousarray(elements).view(np.uint8).reshape(len(elements), size)
    padded[:, :size] = packed
    words = padded.view(np.uint64)
    return [words[:, index] for index in range(n_words)]


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words in which every bit depends on every bit (Steele 2014, SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
