"""The mounted array, or a disk, as a simulated machine, its numbers fitted to timed reads.

How the array is built is known: stripes, disks, what their data sheet says, that nothing is cached,
that a disk has but its last read, that its elevator goes upwards from the head. What the file
system and the processes of this computer add to that is not, and is fitted:
`sds.simulator.parameter_fit`.

The array really waits; but its disks and the simulator's follow rules of the same kind, which real
disks would follow less strictly. Of a local disk next to nothing is known.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchmarks.table1.protocol import Experiment, Pattern
from sds.geometry import RaidLayout, StripeLayout
from sds.simulator import Operation, hopper
from sds.simulator.parameter_fit import FittedMachine, fit_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.disk_array import DiskArray
    from benchmarks.measured_times import MeasuredTimes
    from sds.simulator import SimulatorParameters

# Of what the kernel asks a FUSE file system for at once.
FETCH_BYTES = 1 << 20
# First guesses of what is fitted besides the disks: a system call, and how long an idle processor
# takes to go on.
_CALL_S, _WAKING_S = 20e-6, 50e-6
# Processes that are told to begin at one time begin within this, in the mean.
_START_S = 0.3e-3
_AT_ONCE = 1e15


def array_machine(array: DiskArray, *, n_processes: int = 1) -> SimulatorParameters:
    """Return the simulated machine before anything is fitted.

    More processes than this one may use processors share those.
    """
    nearest_s = array.seek_s(0)
    alone = replace(
        hopper(),
        stripes=array.stripes,
        raid=array.raid,
        n_osts=array.n_osts,
        page_bytes=1,
        read_ahead_bytes=0,
        rpc_bytes=1 << 40,
        fetch_bytes=FETCH_BYTES,
        processes_per_node=1,
        client_request_s=0.0,
        client_bytes_per_s=_AT_ONCE,
        client_jitter_s=_WAKING_S,
        client_start_s=_START_S,
        network_latency_s=_CALL_S,
        ost_request_s=0.0,
        ost_bytes_per_s=_AT_ONCE,
        ost_forgets=True,
        disk_settle_s=nearest_s,
        disk_full_stroke_s=array.seek_s(array.capacity_bytes),
        disk_revolution_s=0.0,
        disk_bytes_per_s=array.bytes_per_s * array.speed,
        disk_capacity_bytes=array.capacity_bytes,
        disk_first_s=nearest_s + 8 / 15 * (array.seek_s(array.capacity_bytes) - nearest_s),
        disk_request_s=_CALL_S,
    )
    n_processors = len(os.sched_getaffinity(0))
    if n_processes <= n_processors:
        return alone
    return replace(
        alone,
        processes_per_node=n_processes,
        processors_per_node=n_processors,
        client_request_s=_CALL_S,
        network_latency_s=0.0,
    )


def disk_machine(stripes: StripeLayout) -> SimulatorParameters:
    """Return a machine that stands for a local disk, of whose insides nothing is known.

    One queue, the page cache, and its read-ahead; first guesses as of a virtual solid-state disk.
    """
    return replace(
        hopper(),
        stripes=stripes,
        raid=RaidLayout(unit_bytes=1 << 20, data_disks=1, min_request_bytes=4 << 10),
        n_osts=1,
        page_bytes=4 << 10,
        read_ahead_bytes=128 << 10,
        read_ahead_gap_bytes=4 << 10,
        read_ahead_after=1,
        rpc_bytes=1 << 20,
        processes_per_node=8,
        client_request_s=1e-6,
        client_bytes_per_s=5e9,
        client_jitter_s=_CALL_S,
        client_start_s=_START_S,
        network_latency_s=_CALL_S,
        ost_request_s=1e-6,
        ost_bytes_per_s=2e9,
        disk_settle_s=0.1e-3,
        disk_full_stroke_s=0.1e-3,
        disk_revolution_s=0.0,
        disk_bytes_per_s=2e9,
        disk_first_s=0.1e-3,
        disk_request_s=1e-6,
    )


def operations_of(pattern: Pattern, experiment: Experiment) -> list[Operation]:
    """Return a pattern as simulated reads, one per layout."""
    whole = Operation.of(
        experiment.extent, pattern.reads(), element_size_bytes=experiment.element_size_bytes
    )
    return [whole.stored_as(order) for order in experiment.orders]


@dataclass(frozen=True, slots=True)
class Simulated:
    """A fitted machine that predicts patterns in all layouts; what it predicted is kept."""

    experiment: Experiment
    machine: FittedMachine
    known: dict[Pattern, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def fitted(
        cls,
        source: MeasuredTimes,
        training: Sequence[Pattern],
        start: SimulatorParameters,
        *,
        n_threads: int | None = None,
    ) -> Simulated:
        """Return it fitted to the training patterns of a seed."""
        operations = [o for p in training for o in operations_of(p, source.experiment)]
        seconds = [s for p in training for s in source.times(p)]
        names = [p.name for p in training for _ in source.experiment.orders]
        machine = fit_machine(operations, seconds, start, groups=names, n_threads=n_threads)
        return cls(source.experiment, machine)

    @property
    def name(self) -> str:
        """``simulated``."""
        return self.machine.name

    @property
    def ratio_error(self) -> float:
        """Of the fitted machine."""
        return self.machine.ratio_error

    def times(self, pattern: Pattern) -> tuple[float, ...]:
        """Return the predicted seconds of a pattern in each layout."""
        if pattern not in self.known:
            operations = operations_of(pattern, self.experiment)
            self.known[pattern] = tuple(t.seconds for t in self.machine.predict_many(operations))
        return self.known[pattern]
