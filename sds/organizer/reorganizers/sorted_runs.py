"""Sorted runs of a table's rows, and the pieces in which they are merged.

Runs lie one behind the other: of each its keys, row numbers and columns. Of every so many keys of a
run one is kept as a sample. A cut of the whole order goes behind one of all samples; how many rows
of each run precede it is then counted exactly (regular sampling: Shi and Schaeffer 1992). The rows
between two cuts are a piece: it has its place in the replica, and can be merged by any process that
can read the runs. Rows with equal keys go by the number of their run and their place in it, as in
the source.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sds.errors import FormatError
from sds.hdf5.columns import TableReader, describe_open_table
from sds.organizer.reorganizers.key_encoding import nan_key, ordered_keys
from sds.organizer.replica_file.container import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from typing import Literal

    from sds.organizer.plans.sort_plan import SortPlan
    from sds.organizer.reorganizers.sorted_container import Places

ROW_NUMBERS = ""
"""Stands for the column of row numbers, which no dataset can be called."""

_SAMPLED_ROWS = 4096
_ALIGNMENT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SortedRun:
    """A run in memory.

    Attributes
    ----------
    keys, rows
        Encoded keys and row numbers, sorted.
    place
        Where the sorted rows are in `columns`, which are as read.
    """

    keys: NDArray[np.unsignedinteger[Any]]
    rows: NDArray[np.unsignedinteger[Any]]
    place: NDArray[np.intp]
    columns: dict[str, NDArray[np.void]]


class RunReader:
    """Reads runs of the source and sorts them, each stably."""

    def __init__(self, plan: SortPlan) -> None:
        self._plan = plan
        self.n_nan = 0

    def __enter__(self) -> Self:
        plan = self._plan
        self._file = open_source(plan.source_path)
        try:
            table = describe_open_table(self._file, plan.dataset_path, like=plan.sort.key)
            self._reader = TableReader(self._file, table, plan.sort.columns)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, index: int) -> SortedRun:
        """Return a run, sorted."""
        plan = self._plan
        first, n_rows = plan.run(index)
        try:
            values = self._reader.values([plan.sort.key], first, n_rows)[plan.sort.key]
            columns = self._reader.stored(first, n_rows)
        except OSError as error:
            if error.errno:
                raise  # the disk, not what is on it
            message = (
                f"{plan.dataset_path} in {plan.source_path} cannot be read ({error}): it is "
                "damaged; copy the file again from where it came"
            )
            raise FormatError(message) from error
        keys = ordered_keys(values)
        if values.dtype.kind == "f":
            self.n_nan += int(np.count_nonzero(keys == nan_key(keys.dtype)))
        del values
        place = np.argsort(keys, kind="stable")
        rows = (place + first).astype(f"<u{plan.row_number_bytes}")
        return SortedRun(keys=keys[place], rows=rows, place=place, columns=columns)


class SortedOutput:
    """The staged file: each column in its place, and behind the file's end room for runs."""

    def __init__(self, staged: Path, plan: SortPlan, places: Places) -> None:
        self._staged = staged
        self._plan = plan
        self._at = {ROW_NUMBERS: places.row_numbers} | places.columns
        self._end_bytes = places.end_bytes

    def __enter__(self) -> Self:
        self.descriptor = os.open(self._staged, os.O_RDWR | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    @property
    def begin_of_runs(self) -> int:
        """First byte of the runs."""
        return -(-self._end_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES

    def take_space(self) -> None:
        """Take the space of the columns: a full disk is found before the work, not after it."""
        first = min(self._at.values())
        os.posix_fallocate(self.descriptor, first, self._end_bytes - first)

    def write(self, name: str, first_row: int, elements: NDArray[Any]) -> None:
        """Write elements of a column from a row on."""
        _write(self.descriptor, self._at[name] + first_row * elements.itemsize, elements)

    def drop_runs(self) -> None:
        """Cut the runs off."""
        os.ftruncate(self.descriptor, self._end_bytes)


class RunFile:
    """Runs on disk, in an open file from a byte on."""

    def __init__(
        self, plan: SortPlan, descriptor: int, begin_bytes: int, *, piece_rows: int
    ) -> None:
        self._plan = plan
        self._descriptor = descriptor
        self._begin_bytes = begin_bytes
        self._types = {ROW_NUMBERS: np.dtype(f"<u{plan.row_number_bytes}")} | {
            column.name: np.dtype(f"V{column.size_bytes}") for column in plan.columns
        }
        self._key_type = np.dtype(f"u{plan.key_size_bytes}")
        # Half of a piece is what cuts may miss: less than `step` rows of each run.
        self.step = max(1, min(_SAMPLED_ROWS, piece_rows // (2 * plan.n_runs)))

    @property
    def parts(self) -> Iterable[str]:
        """Row numbers and columns."""
        return self._types

    def _offset(self, run: int, name: str | None) -> int:
        """Return where the keys (None) or a part of a run begin."""
        first, n_rows = self._plan.run(run)
        of_row = self._key_type.itemsize + sum(kind.itemsize for kind in self._types.values())
        at = self._begin_bytes + first * of_row
        if name is None:
            return at
        at += n_rows * self._key_type.itemsize
        for part, kind in self._types.items():
            if part == name:
                break
            at += n_rows * kind.itemsize
        return at

    def store(self, index: int, run: SortedRun) -> NDArray[np.unsignedinteger[Any]]:
        """Write a run; return its samples, the last of each `step` keys."""
        _write(self._descriptor, self._offset(index, None), run.keys)
        _write(self._descriptor, self._offset(index, ROW_NUMBERS), run.rows)
        for name, elements in run.columns.items():
            _write(self._descriptor, self._offset(index, name), elements[run.place])
        return run.keys[self.step - 1 :: self.step].copy()

    def keys(self, run: int, first: int, n_rows: int) -> NDArray[np.unsignedinteger[Any]]:
        """Return keys of a run."""
        keys = np.empty(n_rows, self._key_type)
        _read(self._descriptor, self._offset(run, None) + first * keys.itemsize, keys)
        return keys

    def read_into(self, run: int, name: str, first: int, out: NDArray[Any]) -> None:
        """Fill an array with elements of a part of a run."""
        _read(self._descriptor, self._offset(run, name) + first * out.itemsize, out)

    def empty(self, name: str, n_rows: int) -> NDArray[Any]:
        """Return room for elements of a part."""
        return np.empty(n_rows, self._types[name])

    def rows_before(
        self,
        run: int,
        samples: NDArray[np.unsignedinteger[Any]],
        key: np.unsignedinteger[Any],
        side: Literal["left", "right"],
    ) -> int:
        """Return how many keys of a run are less than a key (left), or equal to it too (right)."""
        first = int(np.searchsorted(samples, key, side)) * self.step
        n_rows = min(self.step, self._plan.run(run)[1] - first)
        return first + int(np.searchsorted(self.keys(run, first, n_rows), key, side))


@dataclass(frozen=True, slots=True)
class Cut:
    """A place in the whole order: behind a row of a run, and all that precede that.

    Attributes
    ----------
    key
        Encoded, of that row.
    rows
        Number of rows of the run up to and with that one.
    """

    key: np.unsignedinteger[Any]
    run: int
    rows: int


def choose_cuts(
    samples: Sequence[NDArray[np.unsignedinteger[Any]]], step: int, piece_rows: int
) -> list[Cut]:
    """Return cuts between which lie at most `piece_rows` rows, where `step` allows it.

    Parameters
    ----------
    samples
        Of each run every `step`-th key.
    """
    n_runs = len(samples)
    keys = np.concatenate(samples)
    runs = np.repeat(np.arange(n_runs), [len(of_run) for of_run in samples])
    rows = np.concatenate([step * np.arange(1, len(of_run) + 1) for of_run in samples])
    # Of each run fewer than `step` rows lie in a piece besides those that its samples stand for.
    every = max(1, (piece_rows - n_runs * (step - 1)) // step)
    chosen = np.argsort(keys, kind="stable")[every - 1 :: every]
    return [Cut(key=keys[i], run=int(runs[i]), rows=int(rows[i])) for i in chosen]


def rows_before_cuts(
    runs: RunFile,
    cuts: Sequence[Cut],
    samples: dict[int, NDArray[np.unsignedinteger[Any]]],
    n_runs: int,
) -> NDArray[np.int64]:
    """Return how many rows of each run precede each cut, shape (cuts, runs).

    Parameters
    ----------
    samples
        Of the runs that are looked at; others get zeros.
    """
    before = np.zeros((len(cuts), n_runs), np.int64)
    for number, cut in enumerate(cuts):
        for run, of_run in samples.items():
            if run == cut.run:
                before[number, run] = cut.rows
            else:
                side: Literal["left", "right"] = "right" if run < cut.run else "left"
                before[number, run] = runs.rows_before(run, of_run, cut.key, side)
    return before


def piece_bounds(before: NDArray[np.int64], plan: SortPlan) -> NDArray[np.int64]:
    """Return the rows of each run before each piece and the end, shape (pieces + 1, runs)."""
    lengths = [plan.run(index)[1] for index in range(plan.n_runs)]
    return np.vstack([np.zeros((1, plan.n_runs), np.int64), before, np.array([lengths])])


def merge_pieces(
    runs: RunFile,
    bounds: NDArray[np.int64],
    pieces: Sequence[int],
    output: SortedOutput,
    advance: Callable[[int], None],
) -> None:
    """Merge pieces of the runs into the columns of the replica, writing one while reading the next.

    Parameters
    ----------
    bounds
        As of :func:`piece_bounds`: piece i has the rows between the i-th bounds and the next.
    advance
        Called with the rows of each piece.
    """
    writing: Future[None] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="sds-write") as pool:
        for piece in pieces:
            first_row = int(bounds[piece].sum())
            slices = [
                (run, int(first), int(end - first))
                for run, (first, end) in enumerate(zip(*bounds[piece : piece + 2], strict=True))
                if end > first
            ]
            if not slices:
                continue
            keys = np.concatenate([runs.keys(*of_run) for of_run in slices])
            place = np.argsort(keys, kind="stable")
            n_rows = len(keys)
            del keys
            for name in runs.parts:
                elements = runs.empty(name, n_rows)
                at = 0
                for run, first, n_of_run in slices:
                    runs.read_into(run, name, first, elements[at : at + n_of_run])
                    at += n_of_run
                ordered = elements[place]
                if writing is not None:
                    writing.result()
                writing = pool.submit(output.write, name, first_row, ordered)
            advance(n_rows)
        if writing is not None:
            writing.result()


def _write(descriptor: int, offset_bytes: int, elements: NDArray[Any]) -> None:
    """Write all bytes of an array to a place in a file."""
    view = np.ascontiguousarray(elements).view(np.uint8).reshape(-1).data
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset_bytes + done)


def _read(descriptor: int, offset_bytes: int, out: NDArray[Any]) -> None:
    """Fill an array from a place in a file."""
    view = out.view(np.uint8).reshape(-1).data
    done = 0
    while done < len(view):
        got = os.preadv(descriptor, [view[done:]], offset_bytes + done)
        if not got:
            message = f"the runs of the sort end at byte {offset_bytes + done} of their file"
            raise OSError(message)
        done += got
