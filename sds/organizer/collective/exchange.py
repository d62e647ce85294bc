"""Plan of a collective transfer: who exchanges which bytes with whom, in which iteration.

Every rank computes the same schedule; what else it knows is its own part. Both ends of a message
cut the same pieces at the same places, so that they need not tell each other what it holds.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds.organizer.collective import schedule
from sds.organizer.collective.collective_settings import Order
from sds.organizer.collective.pieces import (
    NO_PIECES,
    Pieces,
    cut_at_items,
    cut_at_stripes,
    item_begins,
    merge,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mpi4py.MPI import Comm

    from sds.geometry.storage_layout import StripeLayout
    from sds.organizer.collective.collective_settings import CollectiveSettings

_SCHEDULES: dict[Order, Callable[[NDArray[np.int64]], NDArray[np.int64]]] = {
    Order.CONVENTIONAL: schedule.in_turn,
    Order.COLORING: schedule.edge_coloring,
    Order.GREEDY: schedule.greedy,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Message:
    """Bytes that this rank exchanges with another, and where they lie in its memory.

    Attributes
    ----------
    peer
        The other rank.
    displacements, lengths
        Bytes, shape (n,).
    """

    peer: int
    displacements: NDArray[np.int64]
    lengths: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """Data that an aggregator reads or writes in one iteration.

    Attributes
    ----------
    offsets, lengths
        Regions of the file, ascending; they lie one behind the other in the buffer.
    messages
        To or from each rank that requests some of it; displacements are of the buffer.
    """

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    messages: list[Message]

    @property
    def n_bytes(self) -> int:
        """Bytes of the regions."""
        return int(self.lengths.sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exchange:
    """Plan of a collective transfer, as one rank needs it.

    Attributes
    ----------
    n_iterations
        The same on all ranks.
    messages
        Of each iteration in which this rank has some: with aggregators.
    items
        Of each iteration in which this rank, as an aggregator, transfers one.
    """

    n_iterations: int
    messages: dict[int, list[Message]]
    items: dict[int, Item]


def plan_exchange(
    comm: Comm,
    pieces: Pieces,
    *,
    span: tuple[int, int],
    aggregators: Sequence[int],
    stripes: StripeLayout,
    order: Order,
    settings: CollectiveSettings,
) -> Exchange:
    """Plan a transfer, on all ranks together.

    Parameters
    ----------
    pieces
        What this rank requests.
    span
        First byte and end of what all ranks request.
    aggregators
        Their ranks.
    order
        Not `Order.INDEPENDENT`.
    """
    domains = _Domains(span, len(aggregators), stripes, order, settings)
    mine = domains.divide(pieces)
    requested = _send_requests(comm, aggregators, mine)
    groups = [
        domains.group_items([of_rank.get(group) for of_rank in requested])
        for group in range(domains.n_groups if comm.rank in aggregators else 0)
    ]
    begins = _share_begins(comm, aggregators, groups)
    counts = np.array([[len(begin) for begin in of_one] for of_one in begins], np.int64)
    iterations = _SCHEDULES[order](counts)

    def times(aggregator: int, group: int) -> list[int]:
        """Return the iteration of each item of a group."""
        return np.flatnonzero(iterations[:, aggregator] == group).tolist()

    messages: dict[int, list[Message]] = {}
    for index, peer in enumerate(aggregators):
        for group, part in mine[index].items():
            when = times(index, group)
            for item, within in _by_item(part, begins[index][group]):
                messages.setdefault(when[item], []).append(
                    Message(peer=peer, displacements=within.memory, lengths=within.lengths)
                )
    items: dict[int, Item] = {}
    for group, (regions, begin) in enumerate(groups):
        when = times(aggregators.index(comm.rank), group)
        for item, within in _by_item(regions, begin):
            items[when[item]] = Item(offsets=within.offsets, lengths=within.lengths, messages=[])
        for peer, of_rank in enumerate(requested):
            if group in of_rank:
                for item, within in _by_item(of_rank[group], begin):
                    _add_message(items[when[item]], peer, within)
    return Exchange(
        n_iterations=len(iterations),
        messages=messages,
        items=items,
    )


class _Domains:
    """File domains of the aggregators, and the groups in each: of an OST, or one of all."""

    def __init__(
        self,
        span: tuple[int, int],
        n_aggregators: int,
        stripes: StripeLayout,
        order: Order,
        settings: CollectiveSettings,
    ) -> None:
        self._settings = settings
        self._stripes = stripes
        self._n_aggregators = n_aggregators
        self.n_groups = 1 if order is Order.CONVENTIONAL else stripes.stripe_count
        self._first = span[0] // stripes.stripe_size_bytes
        self._end = -(-span[1] // stripes.stripe_size_bytes)

    def divide(self, pieces: Pieces) -> list[dict[int, Pieces]]:
        """Return the pieces of each aggregator's domain by group, in order of their offsets."""
        if self._n_aggregators == self.n_groups == 1:
            return [{0: pieces.sorted()} if len(pieces) else {}]
        pieces = cut_at_stripes(pieces, self._stripes.stripe_size_bytes)
        stripes = pieces.offsets // self._stripes.stripe_size_bytes
        owners = self._settings.partition.aggregators_of(
            stripes, first=self._first, end=self._end, n_aggregators=self._n_aggregators
        )
        keys = owners * self.n_groups + stripes % self.n_groups
        order = np.lexsort((pieces.offsets, keys))
        pieces, keys = pieces.take(order), keys[order]
        domains: list[dict[int, Pieces]] = [{} for _ in range(self._n_aggregators)]
        for first, end in _equal(keys):
            owner, group = divmod(int(keys[first]), self.n_groups)
            domains[owner][group] = pieces.take(slice(first, end))
        return domains

    def group_items(self, parts: Sequence[Pieces | None]) -> tuple[Pieces, NDArray[np.int64]]:
        """Return what all ranks request of a group, and where its items begin."""
        some = [part for part in parts if part is not None]
        if not some:
            return NO_PIECES, NO_PIECES.offsets
        offsets, lengths = merge(
            np.concatenate([part.offsets for part in some]),
            np.concatenate([part.lengths for part in some]),
        )
        begins = item_begins(
            offsets,
            lengths,
            buffer_bytes=self._settings.buffer_bytes,
            threshold=self._settings.threshold,
        )
        return Pieces(offsets=offsets, lengths=lengths, memory=np.zeros_like(offsets)), begins


def _equal(keys: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield first index and end of each run of equal keys."""
    changes = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    yield from itertools.pairwise([0, *changes.tolist(), len(keys)] if len(keys) else [])


def _by_item(pieces: Pieces, begins: NDArray[np.int64]) -> Iterator[tuple[int, Pieces]]:
    """Yield the items that pieces of a group touch, and the parts of pieces in each."""
    if len(begins) == 1:
        yield 0, pieces
        return
    parts, items = cut_at_items(pieces, begins)
    order = np.argsort(items, kind="stable")
    parts, items = parts.take(order), items[order]
    for first, end in _equal(items):
        yield int(items[first]), parts.take(slice(first, end))


def _add_message(item: Item, peer: int, parts: Pieces) -> None:
    """Add what a rank requests of an item, with its places in the buffer."""
    places = np.cumsum(item.lengths) - item.lengths
    region = np.searchsorted(item.offsets, parts.offsets, side="right") - 1
    displacements = places[region] + (parts.offsets - item.offsets[region])
    item.messages.append(Message(peer=peer, displacements=displacements, lengths=parts.lengths))


def _send_requests(
    comm: Comm, aggregators: Sequence[int], mine: list[dict[int, Pieces]]
) -> list[dict[int, Pieces]]:
    """Send each aggregator what is requested of it; return what each rank requests of this one."""
    rows: list[NDArray[np.int64]] = [np.zeros((0, 3), np.int64) for _ in range(comm.size)]
    for rank, groups in zip(aggregators, mine, strict=True):
        rows[rank] = np.concatenate(
            [rows[rank]]
            + [
                np.stack([np.full(len(part), group), part.offsets, part.lengths], axis=1)
                for group, part in groups.items()
            ]
        )
    n_sent = [row.size for row in rows]
    n_received = comm.alltoall(n_sent)
    received = np.empty(sum(n_received), np.int64)
    comm.Alltoallv([np.concatenate(rows).reshape(-1), n_sent], [received, n_received])
    ends = np.cumsum(n_received)
    return [_of_rows(part.reshape(-1, 3)) for part in np.split(received, ends[:-1].astype(np.intp))]


def _of_rows(rows: NDArray[np.int64]) -> dict[int, Pieces]:
    groups = {}
    for first, end in _equal(rows[:, 0]):
        offsets, lengths = rows[first:end, 1].copy(), rows[first:end, 2].copy()
        groups[int(rows[first, 0])] = Pieces(
            offsets=offsets, lengths=lengths, memory=np.zeros_like(offsets)
        )
    return groups


def _share_begins(
    comm: Comm,
    aggregators: Sequence[int],
    groups: list[tuple[Pieces, NDArray[np.int64]]],
) -> list[list[NDArray[np.int64]]]:
    """Return where the items of each aggregator begin, by group."""
    mine = [begins for _, begins in groups]
    return [comm.bcast(mine if comm.rank == rank else None, root=rank) for rank in aggregators]
