"""Spool files as arrays: how one process read its datasets.

The format, and what folds many reads into one record, is native/include/sds/trace_format.h.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sds import _native
from sds.errors import FormatError, SdsValueError

SUFFIX = _native.TRACE_SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProcess:
    """The process that read.

    Attributes
    ----------
    rank, n_ranks
        Of the MPI job; -1 and 1 without one.
    start_ns
        Nanoseconds since the epoch.
    job_id
        Of the batch system; empty outside a job.
    """

    pid: int
    rank: int
    n_ranks: int
    start_ns: int
    host: str
    executable: str
    job_id: str
    user: str

    @property
    def key(self) -> str:
        """Key of the process, the same in each batch of its reads."""
        return f"{self.host}-{self.pid}-{self.start_ns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDataset:
    """A dataset as the process saw it when it opened it.

    Attributes
    ----------
    id
        What the records of the same file call it.
    file, path
        Canonical path of the file; HDF5 path, empty where it is not known.
    identity
        Inode, size (bytes), mtime and ctime (ns) of the file.
    chunk
        Chunk shape; None unless chunked.
    type_class, storage
        H5T_class_t; sds_storage_kind.
    data_offset_bytes
        Of the first element in the file; -1 unless contiguous.
    hdf5_version
        Of the library that read.
    """

    id: int
    file: str
    path: str
    identity: tuple[int, int, int, int]
    extent: tuple[int, ...]
    chunk: tuple[int, ...] | None
    element_bytes: int
    type_class: int
    storage: int
    n_filters: int
    data_offset_bytes: int
    hdf5_version: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceRecords:
    """n records; each stands for the reads of up to four nested loops.

    Read ``(i_0 .. i_3)`` of record r, ``i_l < repeat[r, l]``, starts at
    ``start[r] + sum(i_l * advance[r, l])``; the last loop is the fastest. R is the greatest rank
    among the records; axes behind a record's own rank are zeros.

    Attributes
    ----------
    dataset_id, rank, thread
        Shape (n,). The dataset, its rank, the ordinal of the thread in its process.
    selection_kind
        sds_selection_kind, shape (n,).
    start, stride, count, block
        Selection of the first read, shape (n, R); the bounding box where irregular.
    n_elements
        Elements that each single read selects, shape (n,).
    repeat, advance
        Loops, outermost first, shapes (n, 4) and (n, 4, R); repeat is 1 where there is none.
    n_reads
        Product of repeat, shape (n,).
    start_ns, last_start_ns
        Start of the first and of the last read, nanoseconds since the epoch, shape (n,).
    elapsed_ns, elapsed_min_ns, elapsed_max_ns
        Sum, least and greatest over the reads, shape (n,).
    latency
        Reads of [2^b, 2^(b+1)) ns, shape (n, 40).
    served_by
        0: the original, through HDF5; -1: the original, read by SDS's engine; else a replica's id,
        shape (n,).
    left_by
        Id of the replica in shadow that left the reads alone; 0: none did, shape (n,).
    collective
        Whether collective MPI transfers, shape (n,).
    """

    dataset_id: NDArray[np.int64]
    rank: NDArray[np.int64]
    thread: NDArray[np.int64]
    selection_kind: NDArray[np.int64]
    start: NDArray[np.int64]
    stride: NDArray[np.int64]
    count: NDArray[np.int64]
    block: NDArray[np.int64]
    n_elements: NDArray[np.int64]
    repeat: NDArray[np.int64]
    advance: NDArray[np.int64]
    n_reads: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    last_start_ns: NDArray[np.int64]
    elapsed_ns: NDArray[np.int64]
    elapsed_min_ns: NDArray[np.int64]
    elapsed_max_ns: NDArray[np.int64]
    latency: NDArray[np.uint32]
    served_by: NDArray[np.int64]
    left_by: NDArray[np.int64]
    collective: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.dataset_id)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpoolFile:
    """Contents of a spool file from an offset on.

    Attributes
    ----------
    datasets
        Every dataset described so far, also before the offset.
    offset
        Bytes read to the end of the last whole block: where the next reader goes on, so that no
        read is counted twice.
    is_complete
        False where `max_records` ended the reading.
    torn_bytes
        Behind `offset`: a torn tail, or a block that is being written.
    skipped_bytes
        Damaged, with whole blocks behind them.
    dropped_reads
        Reads left out since the file began, because of its cap or a full disk.
    """

    process: TraceProcess
    datasets: tuple[TraceDataset, ...]
    records: TraceRecords
    offset: int
    is_complete: bool
    torn_bytes: int
    skipped_bytes: int
    dropped_reads: int


def read_spool(
    path: str | os.PathLike[str], start_offset: int = 0, *, max_records: int = 0
) -> SpoolFile:
    """Return the records of a spool file from an offset on.

    Parameters
    ----------
    start_offset
        0, or the `offset` of an earlier result.
    max_records
        Stop behind the block that reaches this many, to bound memory; 0: read all.

    Raises
    ------
    FormatError
        If it is no spool file, or longer than one can be.
    FormatVersionError
        If a newer SDS wrote it.
    OSError
        If it cannot be read.
    """
    size_bytes = os.stat(path).st_size  # noqa: PTH116  (any path)
    if size_bytes > _native.TRACE_MAX_FILE_BYTES:
        message = (
            f"{os.fspath(path)} is {size_bytes} bytes long, and no trace is longer than "
            f"{_native.TRACE_MAX_FILE_BYTES}: it is sparse or damaged, remove it"
        )
        raise FormatError(message)
    found = _native.read_spool(path, start_offset, max_records)
    records = found["records"]
    # As sds_trace_served_by of native/include/sds/trace_format.h: ids are below 2^31.
    left_by = np.maximum(0, (records["served_by"] + (1 << 31)) >> 32)
    return SpoolFile(
        process=TraceProcess(**found["process"]),
        datasets=tuple(TraceDataset(**dataset) for dataset in found["datasets"]),
        records=TraceRecords(
            dataset_id=records["dataset"],
            rank=records["rank"],
            thread=records["thread"],
            selection_kind=records["kind"],
            start=records["start"],
            stride=records["stride"],
            count=records["count"],
            block=records["block"],
            n_elements=records["n_elements"],
            repeat=records["repeat"],
            advance=records["advance"],
            n_reads=records["n_reads"],
            start_ns=records["start_ns"],
            last_start_ns=records["last_start_ns"],
            elapsed_ns=records["elapsed_ns"],
            elapsed_min_ns=records["elapsed_min_ns"],
            elapsed_max_ns=records["elapsed_max_ns"],
            latency=records["latency"],
            served_by=records["served_by"] - (left_by << 32),
            left_by=left_by,
            collective=records["collective"].astype(np.bool_),
        ),
        offset=found["offset"],
        is_complete=found["is_complete"],
        torn_bytes=found["torn_bytes"],
        skipped_bytes=found["skipped_bytes"],
        dropped_reads=found["dropped_reads"],
    )


def expand(records: TraceRecords, index: int) -> NDArray[np.int64]:
    """Return the start of every read of one record, in order.

    Returns
    -------
    Shape (n_reads, rank).

    Raises
    ------
    SdsValueError
        If the record stands for more than 2^26 reads: work with its loops instead.
    """
    n_reads = int(records.n_reads[index])
    if n_reads > 2**26:
        message = f"record {index} stands for {n_reads} reads; work with repeat and advance"
        raise SdsValueError(message)
    rank = int(records.rank[index])
    repeat = tuple(records.repeat[index].tolist())
    turns = np.indices(repeat, dtype=np.int64).reshape(len(repeat), -1)
    starts: NDArray[np.int64] = turns.T @ records.advance[index, :, :rank]
    return starts + records.start[index, :rank]
