"""Simulate reads."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from sds import _native
from sds.errors import LayoutError, SdsValueError
from sds.geometry import IoMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.simulator.operation import Operation
    from sds.simulator.parameters import SimulatorParameters

_S_PER_NS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTime:
    """Simulated time of a read, with its requests and waits.

    Attributes
    ----------
    seconds
        Until the last process had its last byte.
    io_s, shuffle_s
        Of them: reading, and handing out what aggregators have read (0 where independent).
    bytes_useful
        Bytes requested by all processes.
    requests
        Of the programs; in a collective read, of the aggregators.
    messages, bytes_sent
        Replies of OSTs.
    disk_accesses, disk_seeks, bytes_from_disks
        Over all data disks.
    positioning_s
        Seeks, rotation and reading through gaps, summed over all data disks.
    ost_busy_s, disk_busy_s
        For each OST of the file, how long it sent, and how long the busiest of its disks worked.
    events, clients
        What the simulation itself took: events and runs looked at, and processes followed.
    kind
        Always "simulated": no figure here is measured.
    """

    seconds: float
    io_s: float
    shuffle_s: float
    bytes_useful: int
    requests: int
    messages: int
    bytes_sent: int
    disk_accesses: int
    disk_seeks: int
    bytes_from_disks: int
    positioning_s: float
    ost_busy_s: tuple[float, ...]
    disk_busy_s: tuple[float, ...]
    events: int
    clients: int
    kind: Literal["simulated"] = "simulated"


def simulate(operation: Operation, parameters: SimulatorParameters) -> SimulatedTime:
    """Return how long a read would take on the file system described.

    The same arguments always give the same result, to the last bit. The GIL is released meanwhile.

    Raises
    ------
    LayoutError
        If the file is larger than its disks.
    SdsValueError
        If ``max_events`` of the parameters did not suffice, or the read would take 36 years.
    """
    _check_fits(operation, parameters)
    found = simulated(operation, parameters)
    return SimulatedTime(
        seconds=found["elapsed_ns"] * _S_PER_NS,
        io_s=found["io_ns"] * _S_PER_NS,
        shuffle_s=found["shuffle_ns"] * _S_PER_NS,
        bytes_useful=found["bytes_useful"],
        requests=found["requests"],
        messages=found["messages"],
        bytes_sent=found["bytes_sent"],
        disk_accesses=found["disk_accesses"],
        disk_seeks=found["disk_seeks"],
        bytes_from_disks=found["bytes_from_disk"],
        positioning_s=found["positioning_ns"] * _S_PER_NS,
        ost_busy_s=tuple(ns * _S_PER_NS for ns in found["link_busy_ns"]),
        disk_busy_s=tuple(ns * _S_PER_NS for ns in found["disk_busy_ns"]),
        events=found["events"],
        clients=found["clients"],
    )


def simulated(
    operation: Operation, parameters: SimulatorParameters, *, request_by_request: bool = False
) -> _native.Simulated:
    """Return the native simulator's counts: integers, times in nanoseconds.

    request_by_request: without the shortcuts for equal requests, for comparison; slow.
    """
    return _native.simulate(
        extent=operation.extent,
        element_bytes=operation.element_size_bytes,
        offset_bytes=operation.data_offset_bytes,
        selections=operation.slabs,
        is_collective=operation.mode is IoMode.COLLECTIVE,
        strategy=operation.strategy.code,
        list_depth=operation.list_depth,
        sieve_buffer_bytes=operation.sieve_buffer_bytes,
        parameters=parameters.native(),
        is_request_by_request=request_by_request,
    )


def _check_fits(operation: Operation, parameters: SimulatorParameters) -> None:
    """Raise LayoutError where an object has more bytes for a disk than a disk holds."""
    stripes, raid = parameters.stripes, parameters.raid
    size = math.prod(operation.extent) * operation.element_size_bytes + operation.data_offset_bytes
    per_ost = math.ceil(size / stripes.stripe_size_bytes / stripes.stripe_count)
    per_disk = per_ost * stripes.stripe_size_bytes // raid.data_disks
    if per_disk > parameters.disk_capacity_bytes:
        message = (
            f"a file of {size} bytes puts {per_disk} on each disk, which holds "
            f"{parameters.disk_capacity_bytes}; stripe it over more OSTs"
        )
        raise LayoutError(message)


def simulate_many(
    operations: Sequence[Operation],
    parameters: SimulatorParameters,
    *,
    n_threads: int | None = None,
) -> list[SimulatedTime]:
    """Return `simulate` of each operation, in their order, several at a time.

    ``n_threads``: as many as this process may use processors, where None.
    """
    if n_threads is not None and n_threads < 1:
        raise SdsValueError(f"n_threads is {n_threads}; give at least 1")
    threads = n_threads or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(max_workers=threads) as pool:
        return list(pool.map(partial(simulate, parameters=parameters), operations))
