"""Organizer that sorts the rows of a table, in one process, writing while it reads.

1. The table is read in runs of as many rows as the memory holds. Each is sorted, stably.
2. Where there are several, they go to a temporary file without a name on the replica's disk: a kill
   leaves nothing of it behind. Then they are merged. The merge holds the next keys of each run.
   What comes before the smallest of their last keys cannot be preceded by anything that is still
   on disk, so it is put in order at once and appended to the columns of the replica.

Rows with equal keys keep the order of the source, in runs and between them.
"""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sds.errors import FormatError
from sds.hdf5.columns import TableReader, describe_open_table
from sds.organizer.reorganizers.key_encoding import nan_key, ordered_keys
from sds.organizer.reorganizers.sort_verify import compare_with_table
from sds.organizer.reorganizers.sorted_container import (
    Places,
    create_sorted,
    find_places,
    finish_sorted,
)
from sds.organizer.replica_file.container import open_source
from sds.organizer.replica_file.filters import require_filters
from sds.organizer.replica_file.replica import describe_replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import IO

    from sds.organizer.plans.sort_plan import SortPlan
    from sds.organizer.progress import Checkpoint, Progress
    from sds.organizer.replica_file.replica import Replica
    from sds.organizer.verify import VerificationReport

ROW_NUMBERS = ""
"""Stands for the column of row numbers, which no dataset can be called."""


class Sorter:
    """Sorts tables by one column."""

    name = "sorter"

    def execute(
        self,
        plan: SortPlan,
        staged: Path,
        *,
        checkpoint: Checkpoint,  # noqa: ARG002  (a sort that was killed begins anew)
        progress: Progress | None = None,
    ) -> Replica:
        """Write the replica; see :class:`sds.organizer.protocol.Builder`."""
        began_s = time.monotonic()
        what = f"{plan.dataset_path} in {plan.source_path}"
        require_filters(plan.source_filters, what, encode=False)
        create_sorted(staged, plan)
        places = find_places(staged, plan)
        with _Output(staged, plan, places) as output, _RunReader(plan) as reader:
            _sort(plan, reader, output, progress)
            n_nan = reader.n_nan
        finish_sorted(staged, plan, n_nan=n_nan, build_s=time.monotonic() - began_s)
        return describe_replica(staged)

    def verify(
        self, replica: Replica, plan: SortPlan, *, progress: Progress | None = None
    ) -> VerificationReport:
        """Compare every row of the replica, read back from disk, with the original."""
        return compare_with_table(replica, plan, progress=progress)


@dataclass(frozen=True, slots=True)
class _Run:
    """A sorted run in memory."""

    keys: NDArray[np.unsignedinteger[Any]]
    rows: NDArray[np.unsignedinteger[Any]]
    place: NDArray[np.intp]
    columns: dict[str, NDArray[np.void]]


class _RunReader:
    """Reads runs of the source and sorts them."""

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

    def read(self, index: int) -> _Run:
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
        return _Run(keys=keys[place], rows=rows, place=place, columns=columns)


class _Output:
    """The columns of the replica, each written from its beginning to its end."""

    def __init__(self, staged: Path, plan: SortPlan, places: Places) -> None:
        self._staged = staged
        self._at = {ROW_NUMBERS: places.row_numbers} | places.columns
        self._end = max(
            places.row_numbers + plan.n_rows * plan.row_number_bytes,
            *(
                places.columns[column.name] + plan.n_rows * column.size_bytes
                for column in plan.columns
            ),
        )
        self._first = min(self._at.values())

    def __enter__(self) -> Self:
        self._descriptor = os.open(self._staged, os.O_RDWR | os.O_CLOEXEC)
        try:
            # Takes the space now: a full disk is found before the work, not after it.
            os.posix_fallocate(self._descriptor, self._first, self._end - self._first)
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def append(self, name: str, elements: NDArray[Any]) -> None:
        """Write the next elements of a column."""
        _write(self._descriptor, self._at[name], elements)
        self._at[name] += elements.nbytes


def _sort(plan: SortPlan, reader: _RunReader, output: _Output, progress: Progress | None) -> None:
    """Sort the rows into the columns of the replica."""
    passes = 1 if plan.n_runs == 1 else 2

    def advance(rows_done: int) -> None:
        if progress is not None:
            row_bytes = plan.size_bytes // plan.n_rows
            progress("copy", rows_done * row_bytes // passes, plan.size_bytes)

    if plan.n_runs == 1:
        _append_run(reader.read(0), output)
        advance(plan.n_rows)
        return
    with (
        tempfile.TemporaryFile(dir=plan.output.parent, prefix=".sds-runs-") as file,
        ThreadPoolExecutor(1, thread_name_prefix="sds-write") as pool,
    ):
        runs = _RunFile(plan, file)
        for index in range(plan.n_runs):
            runs.store(index, reader.read(index))
            advance(plan.run(index)[0] + plan.run(index)[1])
        _merge(plan, runs, output, pool, lambda rows: advance(plan.n_rows + rows))


def _append_run(run: _Run, output: _Output) -> None:
    """Write the only run to the replica."""
    output.append(ROW_NUMBERS, run.rows)
    for name, elements in run.columns.items():
        output.append(name, elements[run.place])


class _RunFile:
    """The runs on disk: each its keys, row numbers and columns, one behind the other."""

    def __init__(self, plan: SortPlan, file: IO[bytes]) -> None:
        self._plan = plan
        self._descriptor = file.fileno()
        self._types = {ROW_NUMBERS: np.dtype(f"<u{plan.row_number_bytes}")} | {
            column.name: np.dtype(f"V{column.size_bytes}") for column in plan.columns
        }
        self._key_type = np.dtype(f"u{plan.key_size_bytes}")

    @property
    def parts(self) -> Iterable[str]:
        """Row numbers and columns."""
        return self._types

    def _offset(self, run: int, name: str | None) -> int:
        """Return where the keys (None) or a part of a run begin."""
        first, n_rows = self._plan.run(run)
        of_row = self._key_type.itemsize + sum(kind.itemsize for kind in self._types.values())
        at = first * of_row
        if name is None:
            return at
        at += n_rows * self._key_type.itemsize
        for part, kind in self._types.items():
            if part == name:
                break
            at += n_rows * kind.itemsize
        return at

    def store(self, index: int, run: _Run) -> None:
        """Write a run."""
        _write(self._descriptor, self._offset(index, None), run.keys)
        _write(self._descriptor, self._offset(index, ROW_NUMBERS), run.rows)
        for name, elements in run.columns.items():
            _write(self._descriptor, self._offset(index, name), elements[run.place])

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


def _merge(
    plan: SortPlan,
    runs: _RunFile,
    output: _Output,
    pool: ThreadPoolExecutor,
    advance: Callable[[int], None],
) -> None:
    """Merge the runs into the columns of the replica."""
    lengths = [plan.run(index)[1] for index in range(plan.n_runs)]
    done = [0] * plan.n_runs  # rows of each run that are in the replica
    held = [np.empty(0, f"u{plan.key_size_bytes}") for _ in lengths]
    writing: Future[None] | None = None
    n_written = 0
    while n_written < plan.n_rows:
        for run, length in enumerate(lengths):
            n_more = min(plan.merge_rows, length - done[run]) - len(held[run])
            if n_more > 0:
                more = runs.keys(run, done[run] + len(held[run]), n_more)
                held[run] = np.concatenate([held[run], more])
        taken = _safe_counts(held)
        place = np.argsort(
            np.concatenate([keys[:n] for keys, n in zip(held, taken, strict=True)]), kind="stable"
        )
        for name in runs.parts:
            elements = runs.empty(name, len(place))
            at = 0
            for run, n_rows in enumerate(taken):
                if n_rows:
                    runs.read_into(run, name, done[run], elements[at : at + n_rows])
                at += n_rows
            ordered = elements[place]
            if writing is not None:
                writing.result()
            writing = pool.submit(output.append, name, ordered)
        for run, n_rows in enumerate(taken):
            held[run] = held[run][n_rows:]
            done[run] += n_rows
        n_written += len(place)
        advance(n_written)
    if writing is not None:
        writing.result()


def _safe_counts(held: list[NDArray[np.unsignedinteger[Any]]]) -> list[int]:
    """Return how many of the next keys of each run nothing on disk can precede.

    The runs that hold none are at their end. The cut is the smallest of the last keys, of equal
    ones that of the first run: rows of later runs with the same key have to wait for the rest of
    that run.
    """
    last, cut_run = min((int(keys[-1]), run) for run, keys in enumerate(held) if len(keys))
    return [
        int(np.searchsorted(keys, keys.dtype.type(last), "right" if run <= cut_run else "left"))
        for run, keys in enumerate(held)
    ]


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
            message = f"the temporary file of runs ends at byte {offset_bytes + done}"
            raise OSError(message)
        done += got
