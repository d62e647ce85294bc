"""Parameters of the simulated machine."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from sds.errors import LayoutError, SdsValueError
from sds.geometry import HOPPER_RAID, HOPPER_STRIPES, RaidLayout, StripeLayout
from sds.geometry.storage_layout import KIB, MAX_SIZE_BYTES, MIB

_MAX_DISKS = 1 << 18  # of the core, as all of these
_MAX_NUMBER = 1 << 30
_MAX_COST_S = 1e3
_MIN_RATE, _MAX_RATE = 1e3, 1e15
_MAX_EVENTS = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorParameters:
    """A parallel file system and its clients; docs/explanation/simulator.md has the sources.

    Attributes
    ----------
    stripes, raid
        Striping of the file over OSTs, and the RAID of each.
    n_osts
        OSTs that there are; a file may use at most as many.
    page_bytes
        Clients fetch whole pages and keep them.
    read_ahead_bytes, read_ahead_gap_bytes, read_ahead_after
        A request is near where it begins at most this gap behind the end of its process's one
        before. After ``read_ahead_after`` near ones in a row, fetches go on to the next multiple of
        ``read_ahead_bytes``; 0 bytes: never.
    rpc_bytes, max_rpcs_in_flight
        Of one request to an OST at most; of one range on one OST at once.
    processes_per_node
        Processes 0, 1, ... are placed on nodes in this order; those of one node that wait for the
        same range at the same instant share one reply.
    processors_per_node
        Of independent reads: that the processes of a node share for what they do themselves
        (requests, copying, jitter), first come, first served; 0: one for each.
    client_request_s, client_bytes_per_s
        What a process spends on each of its requests besides waiting, and on copying bytes.
    network_latency_s
        One way between a client and an OST.
    ost_request_s, ost_bytes_per_s
        What one reply takes of an OST, and its bytes.
    disk_settle_s, disk_full_stroke_s, disk_capacity_bytes
        A seek takes the time to settle, and up to the full stroke with the root of the distance.
    disk_revolution_s
        Half of it is waited for after each seek.
    disk_bytes_per_s
        Of one disk, reading on without a seek.
    n_aggregators, collective_buffer_bytes
        Of collective reads; never more aggregators than processes.
    shuffle_message_s, shuffle_bytes_per_s
        What handing out a buffer takes of an aggregator.
    max_events
        A simulation that needs more, runs looked at included, is given up with an error.
    fetch_bytes
        A client asks for a longer range in parts of this length, each when the one before has
        come, as kernels cut up what is not to be cached; 0: for all of it at once.
    ost_forgets
        Servers keep nothing of what was read, only each disk what its last request brought; what
        waits meanwhile has to wait for the head to come round again. Of what waits for one place
        the last to come is served first.
    disk_first_s
        Before a disk's first access; 0: the mean seek between two places, and half a revolution.
    disk_request_s
        After each access, before a disk chooses the next: what has come meanwhile is among them.
    client_jitter_s, client_start_s, jitter_seed
        Of independent reads: means of what chance adds to the work for each fetch, and of how late
        it begins (its time counts from there), exponential; drawn from the seed. With 0, processes
        that do the same stay in step.
    """

    stripes: StripeLayout
    raid: RaidLayout
    n_osts: int
    page_bytes: int
    read_ahead_bytes: int
    read_ahead_gap_bytes: int
    read_ahead_after: int
    rpc_bytes: int
    max_rpcs_in_flight: int
    processes_per_node: int
    client_request_s: float
    client_bytes_per_s: float
    network_latency_s: float
    ost_request_s: float
    ost_bytes_per_s: float
    disk_settle_s: float
    disk_full_stroke_s: float
    disk_revolution_s: float
    disk_bytes_per_s: float
    disk_capacity_bytes: int
    n_aggregators: int
    collective_buffer_bytes: int
    shuffle_message_s: float
    shuffle_bytes_per_s: float
    max_events: int
    fetch_bytes: int = 0
    processors_per_node: int = 0
    ost_forgets: bool = False
    disk_first_s: float = 0.0
    disk_request_s: float = 0.0
    client_jitter_s: float = 0.0
    client_start_s: float = 0.0
    jitter_seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name not in {"stripes", "raid"}:
                _check(field.name, getattr(self, field.name))
        if self.stripes.stripe_count > self.n_osts:
            message = (
                f"a file striped over {self.stripes.stripe_count} OSTs does not fit {self.n_osts}; "
                "give a smaller stripe count or more OSTs"
            )
            raise LayoutError(message)
        if self.n_osts * self.raid.data_disks > _MAX_DISKS:
            message = f"{self.n_osts} OSTs of {self.raid.data_disks} disks; at most 2**18 disks"
            raise LayoutError(message)
        for name, size in (
            ("stripe_size_bytes", self.stripes.stripe_size_bytes),
            ("rpc_bytes", self.rpc_bytes),
            ("read_ahead_bytes", self.read_ahead_bytes),
        ):
            if size % self.page_bytes != 0:
                message = f"{name} is {size}, no multiple of page_bytes, {self.page_bytes}"
                raise LayoutError(message)
        if self.disk_full_stroke_s < self.disk_settle_s:
            message = (
                f"the longest seek, {self.disk_full_stroke_s} s, is shorter than the shortest, "
                f"{self.disk_settle_s} s"
            )
            raise SdsValueError(message)

    def native(self) -> dict[str, int | float]:
        """Return the parameters as the core takes them."""
        numbers = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in {"stripes", "raid", "n_osts"}
        }
        return {
            **numbers,
            "stripe_bytes": self.stripes.stripe_size_bytes,
            "stripe_count": self.stripes.stripe_count,
            "unit_bytes": self.raid.unit_bytes,
            "data_disks": self.raid.data_disks,
            "min_request_bytes": self.raid.min_request_bytes,
        }


def _check(name: str, value: float) -> None:
    """Raise SdsValueError unless the core can take a value."""
    low: float
    if name.endswith("_bytes_per_s"):
        low, high = _MIN_RATE, _MAX_RATE
    elif name.endswith("_s"):
        low, high = 0.0, _MAX_COST_S
    elif name == "read_ahead_after":
        low, high = 0, _MAX_NUMBER
    elif name == "ost_forgets":
        low, high = 0, 1
    elif name in {"jitter_seed", "processors_per_node"}:
        low, high = 0, _MAX_NUMBER
    elif name.startswith("read_ahead") or name == "fetch_bytes":
        low, high = 0, MAX_SIZE_BYTES
    elif name.endswith("_bytes"):
        low, high = 1, MAX_SIZE_BYTES
    else:
        low, high = 1, _MAX_EVENTS if name == "max_events" else _MAX_NUMBER
    if not (math.isfinite(value) and low <= value <= high):
        raise SdsValueError(f"{name} is {value}; give {low:g} to {high:g}")
    if isinstance(low, int) and int(value) != value:
        raise SdsValueError(f"{name} is {value}; give a whole number")


def hopper() -> SimulatorParameters:
    """Return Hopper's ``/scratch2`` as Liu 2014 describes it, and what such systems were made of.

    From the paper (Sec. IV and VI): 156 OSTs of which a file uses 100, stripes of 1 MiB, RAID 6 of
    8+2 disks with blocks of 512 bytes and requests of at least 4 KiB, a peak of 35 GB/s over all
    OSTs, nodes of two 12-core processors, 16 aggregators with buffers of 16 MiB. (It read with 512
    and 1024 processes: that is the operation's.)

    From Lustre (its manual, llite/rw.c): requests of 256 pages of 4 KiB, 8 of them
    in flight, read-ahead in steps of 1 MiB with the third of reads within 8 pages of each other.

    From data sheets of 7200 rpm enterprise disks of 2010 to 2014: 2 TB, 1 ms from track to track,
    8.5 ms on average between two places (15 ms over the full stroke by the law above), 120 MB/s
    on average over the surface.

    Orders of magnitude, known no better: 10 us for a request through HDF5, MPI-IO and the system
    call; 1.2 GB/s into one process through the Lustre client; 50 us from a compute node through
    a router to a server; 20 us of a server per reply; 10 us per message and 3 GB/s of an
    aggregator when it hands out.
    """
    return SimulatorParameters(
        stripes=HOPPER_STRIPES,
        raid=HOPPER_RAID,
        n_osts=156,
        page_bytes=4 * KIB,
        read_ahead_bytes=MIB,
        read_ahead_gap_bytes=32 * KIB,
        read_ahead_after=2,
        rpc_bytes=MIB,
        max_rpcs_in_flight=8,
        processes_per_node=24,
        client_request_s=10e-6,
        client_bytes_per_s=1.2e9,
        network_latency_s=50e-6,
        ost_request_s=20e-6,
        ost_bytes_per_s=35e9 / 156,
        disk_settle_s=1e-3,
        disk_full_stroke_s=15e-3,
        disk_revolution_s=60 / 7200,
        disk_bytes_per_s=120e6,
        disk_capacity_bytes=2 * 10**12,
        n_aggregators=16,
        collective_buffer_bytes=16 * MIB,
        shuffle_message_s=10e-6,
        shuffle_bytes_per_s=3e9,
        max_events=10**10,
    )


def striped(stripes: StripeLayout, raid: RaidLayout, *, n_osts: int) -> SimulatorParameters:
    """Return a machine of which only stripes and RAID are known, for its numbers to be fitted.

    The rest is as in `hopper`; what is 0 there, and searched, has a first guess: a process woken
    within 50 us, 10 ms to a disk's first access, 20 us between two.

    Raises
    ------
    LayoutError
        If a stripe is no multiple of a page.
    """
    return replace(
        hopper(),
        stripes=stripes,
        raid=raid,
        n_osts=max(n_osts, stripes.stripe_count),
        client_jitter_s=50e-6,
        disk_first_s=10e-3,
        disk_request_s=20e-6,
    )
