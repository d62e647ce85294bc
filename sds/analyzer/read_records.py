"""Records of a trace as arrays: the reads of one dataset by one process.

A record is one read, or the reads of up to four nested loops (native/include/sds/trace_format.h).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_RECORDS_AT_ONCE = 4096
SELECT_NONE = 0
SELECT_ALL = 1
SELECT_HYPERSLAB = 2
SELECT_IRREGULAR = 3
SELECT_POINTS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadRecords:
    """Reads of one dataset by one process: n records, in any order.

    Attributes
    ----------
    process
        Key of the process, the same in every batch that it comes in.
    extent, element_size_bytes
        The dataset, rank r.
    selection_kind
        SELECT_* codes (sds_selection_kind), shape (n,).
    start, stride, count, block
        Selection of the first read of each record, shape (n, r); the bounding box where
        irregular. Ignored where everything is selected.
    n_elements
        Elements that each single read selects, shape (n,).
    repeat
        Turns of each loop, outermost first, 1 where a loop is not used, shape (n, n_loops).
    advance
        What each turn adds to the start, shape (n, n_loops, r).
    start_ns, last_start_ns
        Start of the first and of the last read, nanoseconds since the epoch, shape (n,).
    elapsed_ns, elapsed_min_ns, elapsed_max_ns
        Sum, least and greatest over the record's reads, shape (n,).
    latency
        Reads of [2^b, 2^(b+1)) ns, shape (n, 40).
    thread
        Ordinal of the thread in its process, shape (n,).
    served_by
        0: the original, through HDF5; -1: the original, read by SDS's engine; else a replica's id,
        shape (n,).
    left_by
        Id of the replica in shadow that left the reads alone; 0: none did, shape (n,).
    collective
        Whether collective MPI transfers, shape (n,).
    """

    process: str
    extent: tuple[int, ...]
    element_size_bytes: int
    selection_kind: NDArray[np.int64]
    start: NDArray[np.int64]
    stride: NDArray[np.int64]
    count: NDArray[np.int64]
    block: NDArray[np.int64]
    n_elements: NDArray[np.int64]
    repeat: NDArray[np.int64]
    advance: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    last_start_ns: NDArray[np.int64]
    elapsed_ns: NDArray[np.int64]
    elapsed_min_ns: NDArray[np.int64]
    elapsed_max_ns: NDArray[np.int64]
    latency: NDArray[np.uint32]
    thread: NDArray[np.int64]
    served_by: NDArray[np.int64]
    left_by: NDArray[np.int64]
    collective: NDArray[np.bool_]

    def __post_init__(self) -> None:
        n, rank = len(self.selection_kind), len(self.extent)
        for name in ("start", "stride", "count", "block"):
            if getattr(self, name).shape != (n, rank):
                raise SdsValueError(
                    f"{name} has shape {getattr(self, name).shape}, not {(n, rank)}: one row per "
                    "record, one column per axis"
                )
        n_loops = self.repeat.shape[1] if self.repeat.ndim == 2 else 0
        if self.repeat.shape != (n, n_loops) or self.advance.shape != (n, n_loops, rank):
            raise SdsValueError(
                f"loops have shapes {self.repeat.shape} and {self.advance.shape}, not "
                f"({n}, loops) and ({n}, loops, {rank})"
            )
        for name in _OF_RECORD:
            if getattr(self, name).shape != (n,):
                raise SdsValueError(f"{name} has shape {getattr(self, name).shape}, not {(n,)}")
        if n and int(self.repeat.min(initial=1)) < 1:
            raise SdsValueError("a loop turns at least once: repeat must be >= 1")
        if self.element_size_bytes <= 0:
            raise SdsValueError(
                f"element size must be positive, not {self.element_size_bytes} bytes"
            )

    def __len__(self) -> int:
        return len(self.selection_kind)

    def rows(self, index: NDArray[np.int64]) -> ReadRecords:
        """Return some of the records, in the order given; one may come several times."""
        return replace(self, **{name: getattr(self, name)[index] for name in _COLUMNS})

    @property
    def n_calls(self) -> NDArray[np.int64]:
        """HDF5 reads per record, shape (n,)."""
        turns: NDArray[np.int64] = np.prod(self.repeat, axis=1, dtype=np.int64)
        return turns


_OF_RECORD = (
    "n_elements",
    "start_ns",
    "last_start_ns",
    "elapsed_ns",
    "elapsed_min_ns",
    "elapsed_max_ns",
    "thread",
    "served_by",
    "left_by",
)
_COLUMNS = tuple(
    field.name
    for field in fields(ReadRecords)
    if field.name not in {"process", "extent", "element_size_bytes"}
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedRecords:
    """Reads of one dataset by several processes, as one batch: work per batch is done once.

    Attributes
    ----------
    records
        Of all; threads are numbered anew, apart for each process, and the process is empty.
    processes
        Keys, each once.
    process_of_thread
        Which process each thread is of.
    """

    records: ReadRecords
    processes: tuple[str, ...]
    process_of_thread: NDArray[np.int64]


def join_records(batches: Sequence[ReadRecords]) -> Iterator[JoinedRecords]:
    """Yield batches of one dataset joined: those of one extent, some thousand records at once."""
    alike: dict[tuple[object, ...], list[ReadRecords]] = {}
    for batch in batches:
        key = batch.extent, batch.element_size_bytes, batch.repeat.shape[1]
        alike.setdefault(key, []).append(batch)
    for every in alike.values():
        some: list[ReadRecords] = []
        n_records = 0
        for batch in every:
            if some and n_records + len(batch) > _RECORDS_AT_ONCE:
                yield _joined(some)
                some, n_records = [], 0
            some.append(batch)
            n_records += len(batch)
        yield _joined(some)


def _joined(batches: Sequence[ReadRecords]) -> JoinedRecords:
    numbers = {name: i for i, name in enumerate(dict.fromkeys(b.process for b in batches))}
    process = np.repeat([numbers[b.process] for b in batches], [len(b) for b in batches])
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(batch, name) for batch in batches]) for name in _COLUMNS
    }
    owners, columns["thread"] = np.unique(
        np.stack([process, columns["thread"]]), axis=1, return_inverse=True
    )
    columns["thread"] = columns["thread"].reshape(-1)
    return JoinedRecords(
        records=replace(batches[0], process="", **columns),
        processes=tuple(numbers),
        process_of_thread=owners[0],
    )
