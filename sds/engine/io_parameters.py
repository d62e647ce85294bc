"""Costs of requests and bytes: Chen 2014's symbols, and those that SDS measures besides."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields

from sds import _native
from sds.errors import SdsValueError


@dataclass(frozen=True, slots=True, kw_only=True)
class PmdCosts:
    """Chen 2014, Table 1, in seconds and bytes.

    Attributes
    ----------
    te_s
        To establish a connection with one storage node.
    tt_s_per_byte
        Network.
    startup_s
        ``s``: seek and system call.
    cud_s_per_byte
        Storage.
    lqdep_s
        Latency of outstanding requests.
    """

    te_s: float
    tt_s_per_byte: float
    startup_s: float
    cud_s_per_byte: float
    lqdep_s: float

    def __post_init__(self) -> None:
        _check_costs(self)

    def request_s(self, n_bytes: float, *, clients: float = 1, nodes: float = 1) -> float:
        """Return the seconds of one request (Chen 2014, Table 2).

        ``T = te*p + tt*size/n + p*s + size*cud/n + lqdep``, p being ``clients``, n ``nodes``.
        """
        return _native.pmd_time_s(self.native(), clients, nodes, n_bytes)

    def break_even_bytes(self, *, clients: float = 1, nodes: float = 1) -> float:
        """Return the hole that takes as long to read as the start-up that it saves."""
        return _native.pmd_break_even_bytes(self.native(), clients, nodes)

    def merges(self, hole_bytes: int, *, clients: float = 1, nodes: float = 1) -> bool:
        """Return whether two requests with this hole between them become one (Algorithm 1)."""
        return _native.pmd_merges(self.native(), clients, nodes, hole_bytes)

    def native(self) -> _native.PmdCosts:
        """Return the costs as the core takes them."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class IoParameters:
    """Costs of a file system as one process sees them; docs/explanation/reads.md.

    Attributes
    ----------
    reads, writes, clients, nodes
        Chen 2014's; they direct the strategy "pmd", and the start-up of reads made one at a time.
    queued_startup_s, queue_setup_s, queue_depth
        Of one more request at this depth of the queue; once, before the first of them; the depth.
    buffered_s_per_byte, direct_s_per_byte, direct_setup_s, direct_min_bytes
        From the device, through the page cache and past it; the latter from the
        minimum of bytes on.
    call_s, copy_s_per_byte, cached_copy_s_per_byte, vector_s, hole_s_per_byte, pick_s
        From the page cache: a call; bytes into memory, and into a buffer that stays in the
        second-level cache; of a vectored call a piece with a hole, and the bytes of holes; to pick
        a piece from a buffer.
    map_s, guard_s, table_s, touch_s, load_s, loaded_s_per_byte
        From a mapping: to make it; of each read; of the first load from 2 MiB, from 64 KiB and of
        later ones from a page; bytes.
    is_measured
        Whether they were measured on this file system.
    """

    reads: PmdCosts
    writes: PmdCosts
    clients: float
    nodes: float
    queued_startup_s: float
    queue_setup_s: float
    buffered_s_per_byte: float
    direct_s_per_byte: float
    direct_setup_s: float
    direct_min_bytes: int
    queue_depth: int
    is_measured: bool
    call_s: float
    copy_s_per_byte: float
    cached_copy_s_per_byte: float
    vector_s: float
    hole_s_per_byte: float
    pick_s: float
    map_s: float
    guard_s: float
    table_s: float
    touch_s: float
    load_s: float
    loaded_s_per_byte: float

    def __post_init__(self) -> None:
        _check_costs(self)
        for name in ("clients", "nodes", "queue_depth"):
            if getattr(self, name) < 1:
                raise SdsValueError(f"{name} is {getattr(self, name)}; give at least 1")

    def native(self) -> _native.IoParameters:
        """Return the parameters as the core takes them."""
        return asdict(self)

    @classmethod
    def from_native(cls, found: _native.IoParameters) -> IoParameters:
        """Return the parameters that the core gave."""
        costs = {name: PmdCosts(**found[name]) for name in ("reads", "writes")}
        return cls(**{**found, **costs})


def _check_costs(costs: PmdCosts | IoParameters) -> None:
    for field in fields(costs):
        value = getattr(costs, field.name)
        if isinstance(value, int | float) and not (value >= 0 and math.isfinite(value)):
            raise SdsValueError(f"{field.name} is {value}; give a finite number, 0 or more")


def builtin_parameters() -> IoParameters:
    """Return the costs used until a file system is measured: a small virtual solid-state disk."""
    return IoParameters.from_native(_native.io_parameters())


CHEN_2014_READS, CHEN_2014_WRITES = (PmdCosts(**costs) for costs in _native.chen_2014())
"""Costs measured by Chen 2014: a cluster with solid-state disks and Gigabit Ethernet."""
