"""Two-phase collective I/O on mpi4py, in the iterations of a schedule.

The range that all ranks access is divided among aggregators (`partition`). Each collects what the
ranks request of its file domain and cuts it into items (`pieces.item_begins`); all ranks compute
one schedule of the items (`schedule`). In an iteration, an aggregator reads one item and sends each
rank its bytes, or receives them and writes the item: MPI moves them straight between the
aggregator's buffer and the memory of the ranks, by datatypes.

An error of one rank is raised on all of them, after the last iteration: no rank waits for one that
has given up.

Source: Wang 2014.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from sds import _native
from sds.errors import SdsError, SdsValueError
from sds.files import open_regular, path_error
from sds.geometry.storage_layout import LOCAL_DISK_STRIPES, StripeLayout
from sds.hdf5.striping import find_stripes
from sds.organizer.collective.agreement import on_all, raise_on_all
from sds.organizer.collective.collective_settings import CollectiveSettings, Order
from sds.organizer.collective.exchange import plan_exchange
from sds.organizer.collective.pieces import NO_PIECES, Pieces, match_regions

if TYPE_CHECKING:
    from mpi4py.MPI import Comm, Datatype, Request
    from numpy.typing import NDArray

    from sds.organizer.collective.exchange import Exchange, Item, Message

    Regions = NDArray[np.integer[Any]]
    Lists = tuple[Regions, Regions, Regions | None, Regions | None]

# MPI promises tags up to this.
_MAX_TAG = 32767
_MAX_OFFSET = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveReport:
    """Report on a collective transfer, as seen by one rank.

    Attributes
    ----------
    order
        The order that was taken.
    n_aggregators, n_iterations
        Of all ranks together; 0 where the order is independent.
    io_bytes
        Read or written by this rank.
    io_s, total_s
        Seconds that this rank read or wrote, and that the call took.
    """

    order: Order
    n_aggregators: int
    n_iterations: int
    io_bytes: int
    io_s: float
    total_s: float


def read_all(  # noqa: PLR0917  (as sds.read_list)
    comm: Comm,
    file: str | os.PathLike[str],
    file_offsets: Regions,
    file_lengths: Regions,
    mem_offsets: Regions | None,
    mem_lengths: Regions | None,
    out: NDArray[np.generic],
    settings: CollectiveSettings | None = None,
) -> CollectiveReport:
    """Read regions of a file into memory, on all ranks of a communicator together.

    Each rank passes its own regions, which may be none. Those of the file may overlap, also with
    those of other ranks. Memory then holds what :func:`sds.read_list` would leave there.

    Parameters
    ----------
    file
        The same on all ranks. Aggregators open it.
    file_offsets, file_lengths
        Bytes, shape (n,).
    mem_offsets, mem_lengths
        Bytes in `out`, shape (m,). Both None: the bytes go one region after the other from the
        first byte of `out` on.
    out
        A C-contiguous array that can be written.
    settings
        The same on all ranks; None: the defaults.

    Raises
    ------
    SdsValueError
        If regions are negative, their sums differ, or one reaches outside of `out` or overlaps
        another there. Nothing is read.
    TruncatedFileError, FileMissingError, PermissionDeniedError, OSError
        If an aggregator cannot read; the regions of `out` are then undefined.
    SdsError
        On the other ranks, when one of these is raised on one rank; names that rank.
    """
    return _transfer(
        comm, file, (file_offsets, file_lengths, mem_offsets, mem_lengths), out,
        settings, is_write=False,
    )  # fmt: skip


def write_all(  # noqa: PLR0917  (as sds.write_list)
    comm: Comm,
    file: str | os.PathLike[str],
    file_offsets: Regions,
    file_lengths: Regions,
    mem_offsets: Regions | None,
    mem_lengths: Regions | None,
    data: NDArray[np.generic],
    settings: CollectiveSettings | None = None,
) -> CollectiveReport:
    """Write regions of memory to a file that exists, on all ranks of a communicator together.

    Parameters as of :func:`read_all`. No byte between the regions is read or written. The file is
    not synced to disk.

    Raises
    ------
    SdsValueError
        As of :func:`read_all`; also if regions of one rank overlap in the file. Nothing is
        written. Where those of two ranks overlap, the bytes of either are written.
    FileMissingError, PermissionDeniedError, OSError
        If an aggregator cannot write; some regions may be written then.
    SdsError
        On the other ranks, when one of these is raised on one rank; names that rank.
    """
    return _transfer(
        comm, file, (file_offsets, file_lengths, mem_offsets, mem_lengths), data,
        settings, is_write=True,
    )  # fmt: skip


def _transfer(
    comm: Comm,
    file: str | os.PathLike[str],
    regions: Lists,
    memory: NDArray[np.generic],
    settings: CollectiveSettings | None,
    *,
    is_write: bool,
) -> CollectiveReport:
    began_s = time.perf_counter()
    settings = settings or CollectiveSettings()
    request = _agree(comm, file, regions, memory, settings, is_write=is_write)
    storage = _Storage(file, is_write=is_write)
    into = memory.reshape(-1).view(np.uint8)
    n_iterations = 0
    try:
        if request.order is Order.INDEPENDENT:
            storage.open()
            pieces = request.pieces
            storage.access(pieces.offsets, pieces.lengths, pieces.memory, into)
        else:
            if comm.rank in request.aggregators:
                storage.open()
            plan = plan_exchange(
                comm,
                request.pieces,
                span=request.span,
                aggregators=request.aggregators,
                stripes=request.stripes,
                order=request.order,
                settings=settings,
            )
            n_iterations = plan.n_iterations
            carrier = _Carrier(comm, request, plan, storage, into)
            on_all(comm, carrier.prepare)
            carrier.carry_out(is_write=is_write)
        raise_on_all(comm, storage.error)
    finally:
        storage.close()
    return CollectiveReport(
        order=request.order,
        n_aggregators=len(request.aggregators),
        n_iterations=n_iterations,
        io_bytes=storage.n_bytes,
        io_s=storage.seconds,
        total_s=time.perf_counter() - began_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Request:
    """Request of this rank, and what all ranks know of all requests.

    Attributes
    ----------
    pieces
        Of this rank.
    span
        First byte and end of what all ranks request.
    aggregators
        Their ranks; none where the order is independent.
    """

    pieces: Pieces
    span: tuple[int, int]
    order: Order
    stripes: StripeLayout
    aggregators: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """Message of one rank to all others before a transfer.

    Attributes
    ----------
    error
        Why it cannot take part.
    arguments
        File and settings, which must be the same on all.
    span
        First byte and end of what it requests; None where that is nothing.
    stripes
        Of the file; from the first rank alone.
    """

    error: str | None
    arguments: tuple[str, CollectiveSettings]
    node: str
    span: tuple[int, int] | None
    stripes: StripeLayout | None


def _agree(
    comm: Comm,
    file: str | os.PathLike[str],
    regions: Lists,
    memory: NDArray[np.generic],
    settings: CollectiveSettings,
    *,
    is_write: bool,
) -> _Request:
    """Return what is requested, where all ranks may and request the like."""
    error: Exception | None = None
    pieces = NO_PIECES
    try:
        pieces = _pieces(regions, memory, is_write=is_write)
    except Exception as raised:  # noqa: BLE001  (raised below: the other ranks must not wait)
        error = raised
    offer = _Offer(
        error=None if error is None else str(error),
        arguments=(os.fspath(file), settings),
        node=MPI.Get_processor_name(),
        span=pieces.span,
        stripes=(settings.stripes or _stripes_of(file)) if comm.rank == 0 else None,
    )
    offers: list[_Offer] = comm.allgather(offer)
    if error is not None:
        raise error
    for rank, other in enumerate(offers):
        if other.error is not None:
            raise SdsError(f"rank {rank}: {other.error}")
    if any(other.arguments != offers[0].arguments for other in offers):
        raise SdsValueError("ranks name different files or settings; pass the same on all of them")
    stripes = offers[0].stripes or LOCAL_DISK_STRIPES
    spans = [other.span for other in offers if other.span is not None]
    order = settings.order or _best_order(spans, stripes)
    aggregators: list[int] = []
    if order is not Order.INDEPENDENT:
        aggregators = _aggregators([other.node for other in offers], settings, stripes)
    return _Request(
        pieces=pieces,
        span=(min((first for first, _ in spans), default=0), max((e for _, e in spans), default=0)),
        order=order,
        stripes=stripes,
        aggregators=aggregators,
    )


def _best_order(spans: list[tuple[int, int]], stripes: StripeLayout) -> Order:
    """Return the order of a transfer for which none is set, from the ranges of the ranks."""
    if stripes.stripe_count > 1:
        return Order.COLORING
    in_order = sorted(spans)
    reaches = any(end > first for (_, end), (first, _) in itertools.pairwise(in_order))
    return Order.CONVENTIONAL if reaches else Order.INDEPENDENT


def _aggregators(
    nodes: list[str], settings: CollectiveSettings, stripes: StripeLayout
) -> list[int]:
    """Return the ranks that are aggregators: one of each node, then a second of each, ..."""
    seen: Counter[str] = Counter()
    places = []
    for rank, node in enumerate(nodes):
        places.append((seen[node], rank))
        seen[node] += 1
    wanted = settings.n_aggregators
    if wanted is None:
        wanted = len(seen)
        if stripes.stripe_count > 1:
            wanted = min(wanted, stripes.stripe_count)
    return [rank for _, rank in sorted(places)[:wanted]]


def _pieces(regions: Lists, memory: NDArray[np.generic], *, is_write: bool) -> Pieces:
    """Return the pieces of a rank's request.

    Raises
    ------
    SdsValueError
        If they cannot be transferred.
    """
    file_offsets, file_lengths, mem_offsets, mem_lengths = regions
    if (mem_offsets is None) != (mem_lengths is None):
        raise SdsValueError("pass both mem_offsets and mem_lengths, or None for both")
    if not memory.flags.c_contiguous or memory.dtype.hasobject:
        raise SdsValueError("memory is no C-contiguous array of numbers; pass np.empty of a type")
    if not is_write and not memory.flags.writeable:
        raise SdsValueError("out is not writable; pass a copy")
    in_file = _checked("file", file_offsets, file_lengths)
    if mem_offsets is None or mem_lengths is None:
        in_memory = np.cumsum(in_file[1]) - in_file[1], in_file[1]
    else:
        in_memory = _checked("mem", mem_offsets, mem_lengths)
    reach = int((in_memory[0] + in_memory[1]).max(initial=0))
    if reach > memory.nbytes:
        message = f"regions reach to byte {reach} of memory, which has {memory.nbytes}"
        raise SdsValueError(message)
    if mem_offsets is None:
        pieces = Pieces(offsets=in_file[0], lengths=in_file[1], memory=in_memory[0])
    else:
        pieces = match_regions(*in_file, *in_memory)
    if is_write and _overlap(pieces.offsets, pieces.lengths):
        raise SdsValueError("regions of the file overlap; write each byte once")
    if not is_write and _overlap(pieces.memory, pieces.lengths):
        raise SdsValueError("regions of memory overlap; read each byte to one place")
    return pieces


def _overlap(offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> bool:
    """Return whether any two regions have a byte in common."""
    order = np.argsort(offsets, kind="stable")
    ends = (offsets + lengths)[order]
    return bool((offsets[order][1:] < ends[:-1]).any())


def _checked(
    what: str, offsets: Regions, lengths: Regions
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a list of regions as arrays of int64, those of no bytes left out."""
    begins, sizes = np.asarray(offsets), np.asarray(lengths)
    is_odd = begins.ndim != 1 or begins.shape != sizes.shape
    if is_odd or (begins.size and not {begins.dtype.kind, sizes.dtype.kind} <= {"i", "u"}):
        message = (
            f"{what}_offsets are {begins.dtype} of shape {begins.shape}, {what}_lengths "
            f"{sizes.dtype} of shape {sizes.shape}; pass integers, as many of one as of the other"
        )
        raise SdsValueError(message)
    reach = 0 if not begins.size else max(int(begins.max()), int(sizes.max()))
    lowest = 0 if not begins.size else min(int(begins.min()), int(sizes.min()))
    firsts, lengths_of = begins.astype(np.int64), sizes.astype(np.int64)
    if lowest < 0 or reach > _MAX_OFFSET or (firsts > _MAX_OFFSET - lengths_of).any():
        message = f"{what}_offsets or {what}_lengths are negative, or end beyond 2**62 bytes"
        raise SdsValueError(message)
    return firsts[lengths_of > 0], lengths_of[lengths_of > 0]


def _stripes_of(file: str | os.PathLike[str]) -> StripeLayout:
    """Return the striping of a file, of its component without end where it has several."""
    return find_stripes(file).stripes.components[-1].stripes


class _Storage:
    """A file that this rank reads or writes; keeps its first error, and does nothing after it."""

    def __init__(self, file: str | os.PathLike[str], *, is_write: bool) -> None:
        self._file = file
        self._is_write = is_write
        self._descriptor: int | None = None
        self._reader: _native.ReadFile | None = None
        self.error: Exception | None = None
        self.n_bytes = 0
        self.seconds = 0.0

    def open(self) -> None:
        """Open the file."""
        try:
            flags = os.O_WRONLY if self._is_write else os.O_RDONLY
            self._descriptor = open_regular(self._file, flags)
            self._reader = _native.ReadFile(self._descriptor, may_map=False)
        except OSError as error:
            is_ours = isinstance(error, SdsError)
            self.error = error if is_ours else path_error(os.fspath(self._file), error)
        except Exception as error:  # noqa: BLE001  (raised on all ranks later)
            self.error = error

    def access(
        self,
        offsets: NDArray[np.int64],
        lengths: NDArray[np.int64],
        places: NDArray[np.int64] | None,
        memory: NDArray[np.uint8],
    ) -> None:
        """Read or write regions of the file.

        Parameters
        ----------
        places
            Where each lies in memory; None: one behind the other.
        """
        if self.error is not None or self._descriptor is None or self._reader is None:
            return
        began_s = time.perf_counter()
        lists = (offsets, lengths, places, 0 if places is None else lengths)
        try:
            if self._is_write:
                _native.write_list(self._descriptor, *lists, memory.data)
            else:
                _native.read_list(self._reader, *lists, memory.data)
        except Exception as error:  # noqa: BLE001  (raised on all ranks later)
            self.error = error
        self.n_bytes += int(lengths.sum())
        self.seconds += time.perf_counter() - began_s

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)


class _Carrier:
    """Carries out a plan on one rank."""

    def __init__(
        self,
        comm: Comm,
        request: _Request,
        plan: Exchange,
        storage: _Storage,
        memory: NDArray[np.uint8],
    ) -> None:
        self._comm = comm
        self._plan = plan
        self._storage = storage
        self._memory = memory
        self._buffer = np.empty(0, np.uint8)
        # Where OSTs are kept apart, aggregators begin an iteration together.
        self._aggregators: Comm | None = None
        if request.order is not Order.CONVENTIONAL:
            is_one = comm.rank in request.aggregators
            aggregators = comm.Split(0 if is_one else MPI.UNDEFINED, comm.rank)
            self._aggregators = aggregators if is_one else None

    def prepare(self) -> None:
        """Take memory for the largest item."""
        most = max((item.n_bytes for item in self._plan.items.values()), default=0)
        self._buffer = np.empty(most, np.uint8)

    def carry_out(self, *, is_write: bool) -> None:
        """Transfer everything. Errors of the storage are kept there."""
        step = self._write if is_write else self._read
        try:
            for iteration in range(self._plan.n_iterations):
                messages = self._plan.messages.get(iteration, [])
                step(messages, self._plan.items.get(iteration), iteration % _MAX_TAG)
        finally:
            if self._aggregators is not None:
                self._aggregators.Free()

    def _read(self, messages: list[Message], item: Item | None, tag: int) -> None:
        moving = _Moving(self._comm, tag)
        for message in messages:
            moving.receive(self._memory, message)
        if item is not None:
            self._storage.access(item.offsets, item.lengths, None, self._buffer_of(item))
        self._keep_apart()
        if item is not None:
            for message in item.messages:
                moving.send(self._buffer, message)
        moving.finish()

    def _write(self, messages: list[Message], item: Item | None, tag: int) -> None:
        moving = _Moving(self._comm, tag)
        if item is not None:
            for message in item.messages:
                moving.receive(self._buffer, message)
        for message in messages:
            moving.send(self._memory, message)
        moving.finish()
        if item is not None:
            self._storage.access(item.offsets, item.lengths, None, self._buffer_of(item))
        self._keep_apart()

    def _buffer_of(self, item: Item) -> NDArray[np.uint8]:
        return self._buffer[: item.n_bytes]

    def _keep_apart(self) -> None:
        """Wait until no aggregator is at an OST that another goes to next."""
        if self._aggregators is not None:
            self._aggregators.Barrier()


class _Moving:
    """Messages of one iteration that are under way."""

    def __init__(self, comm: Comm, tag: int) -> None:
        self._comm = comm
        self._tag = tag
        self._requests: list[Request] = []
        self._types: list[Datatype] = []

    def send(self, memory: NDArray[np.uint8], message: Message) -> None:
        """Begin to send the bytes of a message from their places in memory."""
        what = [memory, 1, self._type(message)]
        self._requests.append(self._comm.Isend(what, message.peer, self._tag))

    def receive(self, memory: NDArray[np.uint8], message: Message) -> None:
        """Begin to receive the bytes of a message at their places in memory."""
        what = [memory, 1, self._type(message)]
        self._requests.append(self._comm.Irecv(what, message.peer, self._tag))

    def finish(self) -> None:
        """Wait for all of them."""
        MPI.Request.Waitall(self._requests)
        for datatype in self._types:
            datatype.Free()

    def _type(self, message: Message) -> Datatype:
        displacements, lengths = _joined(message.displacements, message.lengths)
        if (lengths == lengths[0]).all():
            datatype = MPI.BYTE.Create_hindexed_block(int(lengths[0]), displacements.tolist())
        else:
            datatype = MPI.BYTE.Create_hindexed(lengths.tolist(), displacements.tolist())
        self._types.append(datatype.Commit())
        return datatype


def _joined(
    displacements: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the parts of a message with those joined that follow each other in memory."""
    follows = displacements[1:] == (displacements + lengths)[:-1]
    firsts = np.flatnonzero(np.append(True, ~follows))
    return displacements[firsts], np.add.reduceat(lengths, firsts)
