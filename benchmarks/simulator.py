"""How fast reads are simulated: Table I's 72 runs at full size, and with nothing aggregated.

    python -m benchmarks.simulator [--seed S] [--threads N]

512 processes read lines, planes and cubes of Liu 2014's array (1024 x 1024 x 65536 elements of
2 bytes) from three layouts, preset hopper: 24 patterns drawn from a seed, 72 runs. Target: ten
minutes on two cores. Then reads in which every process has a plane of its own, 5 x 10^8 requests
and more. At a 512th of the size every run is made again request by request, and has to give the
same to the last nanosecond. All times of reads are simulated; only those of simulating are not.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.table1.protocol import Experiment, draw_library
from sds import _native
from sds.geometry import IoMode
from sds.simulator import Operation, hopper
from sds.simulator.simulation import simulated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.table1.protocol import Pattern

_N_EACH = 8
_TARGET_S = 600.0
_MACHINE = hopper()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One read of one layout."""

    name: str
    operation: Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What it gave, and how long that took."""

    run: Run
    found: _native.Simulated
    wall_s: float


def simulate(run: Run, *, request_by_request: bool = False) -> Timed:
    """Simulate one run."""
    begin = time.perf_counter()
    found = simulated(run.operation, _MACHINE, request_by_request=request_by_request)
    return Timed(run=run, found=found, wall_s=time.perf_counter() - begin)


def runs_of(
    experiment: Experiment, patterns: Sequence[Pattern], mode: IoMode = IoMode.INDEPENDENT
) -> list[Run]:
    """Return every pattern in every layout."""
    runs = []
    for pattern in patterns:
        stored = Operation.of(
            experiment.extent,
            pattern.reads(),
            element_size_bytes=experiment.element_size_bytes,
            mode=mode,
        )
        runs += [
            Run(name=f"{pattern.name}, layout {i + 1}", operation=stored.stored_as(order))
            for i, order in enumerate(experiment.orders)
        ]
    return runs


def own_planes(experiment: Experiment) -> list[Run]:
    """Return reads in which process i has plane i across one axis, or one of as many apart."""
    runs = []
    for axis, name in enumerate("xyz"):
        n = experiment.extent[axis]
        step = max(1, n // experiment.n_processes)
        slabs = np.ones((experiment.n_processes, 4, 3), dtype=np.int64)
        slabs[:, 0] = 0
        slabs[:, 2] = experiment.extent
        slabs[:, 0, axis] = np.arange(experiment.n_processes) * step % n
        slabs[:, 2, axis] = 1
        read = Operation(
            extent=experiment.extent, element_size_bytes=experiment.element_size_bytes, slabs=slabs
        )
        runs += [
            Run(name=f"a plane across {name} each, layout {i + 1}", operation=read.stored_as(order))
            for i, order in enumerate(experiment.orders)
        ]
    return runs


def print_runs(timed: Sequence[Timed]) -> None:
    """Print one line each."""
    print("\n| run | requests | simulated s | processes followed | events | took s | ns/event |")
    print("|---|---|---|---|---|---|---|")
    for t in timed:
        found = t.found
        print(
            f"| {t.run.name} | {found['requests']:,} | {found['elapsed_ns'] / 1e9:,.3f} | "
            f"{found['clients']} | {found['events']:,} | {t.wall_s:.3f} | "
            f"{t.wall_s * 1e9 / max(1, found['events']):.0f} |"
        )


def full_size(seed: int, threads: int) -> None:
    """Print how long Table I's protocol takes."""
    experiment = Experiment()
    runs = runs_of(experiment, draw_library(seed, experiment, _N_EACH))
    begin = time.perf_counter()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        timed = list(pool.map(simulate, runs))
    wall_s = time.perf_counter() - begin
    requests = [t.found["requests"] for t in timed]
    print(
        f"{len(runs)} runs, seed {seed}, {threads} threads: {wall_s:.1f} s; target "
        f"{_TARGET_S:.0f} s: {'met' if wall_s <= _TARGET_S else 'missed'}. "
        f"{sum(requests):,} requests ({max(requests):,} in one run) by "
        f"{sum(t.found['events'] for t in timed):,} events. The slowest ones:"
    )
    print_runs(sorted(timed, key=lambda t: -t.wall_s)[:6])
    together = runs_of(experiment, draw_library(seed, experiment, _N_EACH), IoMode.COLLECTIVE)
    begin = time.perf_counter()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        slowest = max(pool.map(simulate, together), key=lambda t: t.wall_s)
    print(f"\nThe same, collective: {time.perf_counter() - begin:.1f} s. The slowest one:")
    print_runs([slowest])


def planes(threads: int) -> None:
    """Print how long reads of 5 x 10^8 requests and more take."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        timed = list(pool.map(simulate, own_planes(Experiment())))
    print(f"\nEvery process a plane of its own, {time.perf_counter() - begin:.1f} s:")
    print_runs(timed)


def with_and_without(seed: int, threads: int, *, share: int = 512) -> None:
    """Print what aggregation saves, and that it changes nothing."""
    small = Experiment(extent=Experiment().scaled(share))
    runs = [*runs_of(small, draw_library(seed, small, _N_EACH)), *own_planes(small)]
    print(f"\n{len(runs)} runs of 1/{share} of the size ({small.extent}):\n")
    print("| | events and runs looked at | took s, all threads together | requests/s | events/s |")
    print("|---|---|---|---|---|")
    results = []
    for name, request_by_request in (("aggregated", False), ("request by request", True)):
        with ThreadPoolExecutor(max_workers=threads) as pool:
            timed = list(pool.map(partial(simulate, request_by_request=request_by_request), runs))
        wall_s = sum(t.wall_s for t in timed)
        requests = sum(t.found["requests"] for t in timed)
        events = sum(t.found["events"] for t in timed)
        print(
            f"| {name} | {events:,} | {wall_s:.2f} | {requests / wall_s:,.0f} | "
            f"{events / wall_s:,.0f} |"
        )
        results.append(timed)
    for one, other in zip(*results, strict=True):
        without = dict(other.found)
        for key, value in one.found.items():
            if key not in {"events", "clients"} and value != without[key]:
                message = f"{one.run.name}: {key} differs when nothing is aggregated"
                raise AssertionError(message)
    print("\nEvery time and every count is the same.")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=2014)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    given = parser.parse_args()
    full_size(given.seed, given.threads)
    planes(given.threads)
    with_and_without(given.seed, given.threads)


if __name__ == "__main__":
    main()
