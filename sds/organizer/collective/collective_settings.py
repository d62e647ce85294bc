"""Settings of collective I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sds.errors import SdsValueError
from sds.geometry.storage_layout import MIB, StripeLayout
from sds.organizer.collective.partition import Partition
from sds.text import choice

# Of MPI: lengths of messages and of their parts are 32-bit integers.
_MAX_BUFFER_BYTES = 1 << 30


class Order(StrEnum):
    """Order in which aggregators work through their file domains.

    ``independent``: there are none, every rank reads or writes what it requests. ``conventional``:
    by offset, each on its own. ``coloring``: no OST serves two aggregators in
    one iteration, in as few iterations as possible. ``greedy``: the same by the rule of Wang 2014,
    to compare with.
    """

    INDEPENDENT = "independent"
    CONVENTIONAL = "conventional"
    COLORING = "coloring"
    GREEDY = "greedy"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSettings:
    """Settings of a collective transfer; the same on every rank.

    Attributes
    ----------
    buffer_bytes
        Collective buffer of an aggregator.
    threshold
        What remains of an OST's data goes into an extended buffer with the item before it where it
        is at most this part of a buffer (Wang 2014, Sec. III.B): 0 to 1. An aggregator takes up to
        ``(1 + threshold) * buffer_bytes``.
    order
        None: ``coloring`` where the file is striped over several OSTs; else ``independent`` where
        the ranges that the ranks request do not reach into each other, and ``conventional`` where
        they do.
    partition
        Of the accessed range among the aggregators.
    n_aggregators
        At most the number of ranks. None: one for each node, and no more than there are OSTs where
        the file is striped over several.
    stripes
        Of the file; None: as Lustre reports it, else one OST.
    """

    buffer_bytes: int = 16 * MIB
    threshold: float = 0.5
    order: Order | None = None
    partition: Partition = Partition.EVEN
    n_aggregators: int | None = None
    stripes: StripeLayout | None = None

    def __post_init__(self) -> None:
        if not 0 < self.buffer_bytes <= _MAX_BUFFER_BYTES:
            message = f"buffer_bytes is {self.buffer_bytes}; give 1 to {_MAX_BUFFER_BYTES}"
            raise SdsValueError(message)
        if not 0 <= self.threshold <= 1:
            raise SdsValueError(f"threshold is {self.threshold}; give 0 to 1")
        object.__setattr__(self, "partition", choice(Partition, self.partition, "partition"))
        if self.order is not None:
            object.__setattr__(self, "order", choice(Order, self.order, "order"))
        if self.n_aggregators is not None and self.n_aggregators < 1:
            raise SdsValueError(f"n_aggregators is {self.n_aggregators}; give at least 1")
