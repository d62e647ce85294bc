"""How long processes that read at one time wait in the queues of servers.

A network of queues (native/include/sds/queues.h): clients fetch what Lustre's would of their runs,
servers' disks and links serve them. Nothing of the storage's speed is known here: `QueueRates` are
given, or fitted to measured times (`sds.recommender.queued`).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds import _native
from sds.errors import SdsValueError
from sds.geometry import StripeLayout
from sds.recommender.operation import LUSTRE_CLIENT, ClientReads

if TYPE_CHECKING:
    from sds.geometry import ContiguousLayout, ProcessReads

# Of one operation, so many fetches are followed; what is left is taken to go on alike. They take a
# processor some ten seconds.
MAX_FETCHES = 40_000_000
_MAX_NODES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRates:
    """What clients, links and disks take, seconds; `sds_queue_rates` explains each.

    By default round figures of no storage in particular: where fits begin.
    """

    run_s: float = 5e-6
    run_byte_s: float = 5e-10
    trip_s: float = 200e-6
    reply_s: float = 50e-6
    sent_byte_s: float = 7e-9
    first_s: float = 8e-3
    seek_s: float = 8e-3
    reach_s: float = 2e-4
    read_byte_s: float = 2e-9

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0.0 <= value <= 1e3:
                raise SdsValueError(f"{field.name} is {value}; give 0 to 1000 s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """What was seen of an operation in its queues; `sds_queued` explains each."""

    slowest_s: float
    even_s: float
    followed_s: float
    followed_share: float
    least_share: float
    disk_s: float
    link_s: float
    working_s: float
    fetches: float
    fetched_bytes: float
    reads: float
    read_bytes: float
    seeks: float


if (tuple(f.name for f in fields(QueueRates)), tuple(f.name for f in fields(Queued))) != (
    _native.QUEUE_RATES,
    _native.QUEUED,
):
    raise ImportError(
        f"the native core has queues of {_native.QUEUE_RATES} and {_native.QUEUED}: it was built "
        "from another version; install the package again"
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Streams:
    """What the processes of one operation fetch; those that fetch the same are one stream.

    Attributes
    ----------
    begin, run_bytes
        First byte in the file and length of the runs, shape (n,).
    counts, strides
        Levels in which runs recur, the innermost last, shape (n, levels).
    nodes
        A bit for each node that has such processes, shape (n,).
    stripes, client
        Where bytes lie, and how clients fetch.
    end_bytes
        Of the data, whole pages: nothing is read ahead beyond.
    """

    begin: NDArray[np.int64]
    run_bytes: NDArray[np.int64]
    counts: NDArray[np.int64]
    strides: NDArray[np.int64]
    nodes: NDArray[np.uint64]
    stripes: StripeLayout
    client: ClientReads
    end_bytes: int

    def __len__(self) -> int:
        return len(self.begin)

    def follow(self, rates: QueueRates, *, max_fetches: int = MAX_FETCHES) -> Queued:
        """Return what happens in the queues until so many fetches have been made.

        Or until what servers have read lies in so many places that it takes 64 MiB to remember
        (96 in between): 1.8 million places of 64 pages.

        Raises
        ------
        SdsValueError
            If stripes or windows are no whole numbers of pages.
        LimitError
            If it takes longer than 36 years, or has more than 2^20 messages under way.
        """
        if len(self) == 0:
            nothing = dict.fromkeys((f.name for f in fields(Queued)), 0.0)
            return Queued(**{**nothing, "followed_share": 1.0, "least_share": 1.0})
        found = _native.follow_queues(
            begin=self.begin,
            run_bytes=self.run_bytes,
            counts=self.counts,
            strides=self.strides,
            nodes=self.nodes,
            stripe_bytes=self.stripes.stripe_size_bytes,
            stripe_count=self.stripes.stripe_count,
            page_bytes=self.client.page_bytes,
            gap_bytes=self.client.gap_bytes,
            window_bytes=self.client.window_bytes,
            after=self.client.after,
            end_bytes=self.end_bytes,
            message_bytes=self.client.message_bytes,
            in_flight=self.client.in_flight,
            rates=np.array(astuple(rates)),
            max_fetches=max_fetches,
        )
        return Queued(**dict(zip(_native.QUEUED, found, strict=True)))


def streams_of(
    extent: tuple[int, ...],
    reads: ProcessReads,
    layout: ContiguousLayout,
    stripes: StripeLayout,
    *,
    client: ClientReads = LUSTRE_CLIENT,
) -> Streams:
    """Return what processes fetch that read independently.

    Processes whose runs touch the same pages in the same order are one stream. Of more than 64
    nodes neighbours count as one.

    Parameters
    ----------
    extent, reads
        The array as its readers know it; ``layout.order`` says how its axes are stored.
    layout, stripes
        Where its bytes lie.
    client
        How runs become fetches.
    """
    if layout.order is not None:
        reads = reads.permuted(layout.order)
        extent = tuple(extent[axis] for axis in layout.order)
    element, page = layout.element_size_bytes, client.page_bytes
    number = np.flatnonzero(((reads.count > 0) & (reads.block > 0)).all(axis=1))
    of_element = np.cumprod((1, *extent[:0:-1]), dtype=np.int64)[::-1][: len(extent)]
    begin = layout.data_offset_bytes + element * (reads.start[number] @ of_element)
    chosen = np.column_stack([reads.count, reads.stride, reads.block])[number]
    _, first, which = np.unique(chosen, axis=0, return_index=True, return_inverse=True)
    which = which.ravel()
    lengths, counts, strides, granules = _shapes(extent, reads, number[first], element, page)
    # Runs that are equal but for a shift within a granule touch the same pages.
    granule, length = granules[which], lengths[which]
    track = np.column_stack([which, begin // granule, (begin + length - 1) // granule])
    _, one, stream = np.unique(track, axis=0, return_index=True, return_inverse=True)
    node = number // client.processes_per_node
    n_nodes = int(node[-1]) + 1 if len(node) else 1
    if n_nodes > _MAX_NODES:
        node = node * _MAX_NODES // n_nodes
    nodes = np.zeros(len(one), dtype=np.uint64)
    np.bitwise_or.at(nodes, stream.ravel(), np.uint64(1) << node.astype(np.uint64))
    end = layout.data_offset_bytes + element * int(np.prod(extent, dtype=np.int64))
    return Streams(
        begin=begin[one],
        run_bytes=length[one],
        counts=np.ascontiguousarray(counts[which[one]]),
        strides=np.ascontiguousarray(strides[which[one]]),
        nodes=nodes,
        stripes=stripes,
        client=client,
        end_bytes=-(-end // page) * page,
    )


def _shapes(
    extent: tuple[int, ...],
    reads: ProcessReads,
    processes: NDArray[np.intp],
    element_bytes: int,
    page_bytes: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return run length, counts, strides and granule of the runs of some processes."""
    found = [
        _native.runs(
            extent,
            element_bytes,
            0,
            reads.start[process].tolist(),
            reads.stride[process].tolist(),
            reads.count[process].tolist(),
            reads.block[process].tolist(),
        )
        for process in processes
    ]
    levels = [
        [(n, stride) for n, stride in zip(counts, strides, strict=True) if n > 1]
        for _, _, counts, strides in found
    ]
    most = max(1, *(len(of) for of in levels)) if levels else 1
    shape = np.array([[(1, 0)] * (most - len(of)) + of for of in levels], dtype=np.int64).reshape(
        len(levels), most, 2
    )
    granules = [int(np.gcd.reduce([page_bytes, *(stride for _, stride in of)])) for of in levels]
    return (
        np.array([run_bytes for _, run_bytes, _, _ in found], dtype=np.int64),
        shape[:, :, 0],
        shape[:, :, 1],
        np.array(granules, dtype=np.int64),
    )
