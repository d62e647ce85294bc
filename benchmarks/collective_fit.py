"""Liu 2014, Eq. 5, fitted to simulated collective reads: both phases, and their held-out error.

    python -m benchmarks.collective_fit [--scale 64] [--library N]

Patterns of the protocol of Table I (lines, planes and cubes) in three layouts, read collectively by
64 to 512 processes through 4 to 32 aggregators, drawn from a seed before anything is simulated. The
simulator tells the two phases apart: reading, and handing out what was read. Every time is
simulated.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.table1.collective import cross_validate_collective, fit_collective
from benchmarks.table1.operation_features import measure_operation
from benchmarks.table1.protocol import Experiment, draw_library
from sds.errors import RankDeficientError
from sds.geometry import ContiguousLayout, IoMode
from sds.recommender.models.cost_model import GapKind, HeldoutError
from sds.recommender.models.samples import Samples
from sds.simulator import Operation, hopper, simulate_many

_PROCESSES = (64, 128, 256, 512)
_AGGREGATORS = (4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Collective reads, and the simulated times of their phases."""

    samples: Samples
    io_s: tuple[float, ...]
    shuffle_s: tuple[float, ...]


def simulated(experiment: Experiment, n_each: int, seed: int) -> Simulated:
    """Return patterns in all layouts, each by processes and aggregators drawn."""
    random = np.random.default_rng([seed, 5])
    patterns, layouts, operations, io_s, shuffle_s = [], [], [], [], []
    for n_processes in _PROCESSES:
        own = replace(experiment, n_processes=n_processes)
        for pattern in draw_library(seed + n_processes, own, n_each):
            n_aggregators = int(random.choice(_AGGREGATORS))
            machine = replace(hopper(), n_aggregators=n_aggregators)
            stored = [
                Operation.of(
                    tuple(own.extent[a] for a in order),
                    pattern.reads().permuted(order),
                    element_size_bytes=own.element_size_bytes,
                    mode=IoMode.COLLECTIVE,
                )
                for order in own.orders
            ]
            times = simulate_many(stored, machine, n_threads=os.cpu_count() or 1)
            for i, (order, time) in enumerate(zip(own.orders, times, strict=True)):
                patterns.append(f"{pattern.name} by {n_processes}")
                layouts.append(own.layout_name(i))
                operations.append(
                    measure_operation(
                        own.extent,
                        pattern.reads(),
                        ContiguousLayout(element_size_bytes=own.element_size_bytes, order=order),
                        own.stripes,
                        own.raid,
                        mode=IoMode.COLLECTIVE,
                        n_aggregators=n_aggregators,
                    )
                )
                io_s.append(time.io_s)
                shuffle_s.append(time.shuffle_s)
    samples = Samples(
        patterns=tuple(patterns),
        layouts=tuple(layouts),
        operations=tuple(operations),
        seconds=tuple(a + b for a, b in zip(io_s, shuffle_s, strict=True)),
    )
    return Simulated(samples, tuple(io_s), tuple(shuffle_s))


def _error(error: HeldoutError) -> str:
    return (
        f"{error.r_squared or 0:.3f}; {error.median:.2f}, {error.p95:.2f}; "
        f"{error.rank_correlation:.2f}"
    )


def main() -> None:
    """Simulate, fit, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=1, help="1/scale of the array: 1, 8, 64")
    parser.add_argument("--library", type=int, default=20, help="patterns of each kind")
    parser.add_argument("--seed", type=int, default=77)
    arguments = parser.parse_args()
    whole = Experiment()
    experiment = replace(whole, extent=whole.scaled(arguments.scale))
    made = simulated(experiment, arguments.library, arguments.seed)
    io, shuffle = np.array(made.io_s), np.array(made.shuffle_s)
    print(
        f"Simulated collective reads: array {experiment.extent}, {len(made.samples)} operations of "
        f"{len(set(made.samples.patterns))} patterns; I/O {io.min():.3g} to {io.max():.3g} s, "
        f"shuffle {shuffle.min():.3g} to {shuffle.max():.3g} s.\n"
    )
    print(
        "| block gap | weights | R^2 in sample: I/O, shuffle | left out: R^2; abs log error, "
        "median and 95 %; rank correlation: I/O | shuffle | both | floored |"
    )
    print("|" + "---|" * 7)
    times = {"io_s": made.io_s, "shuffle_s": made.shuffle_s}
    for relative in (False, True):
        for gap in GapKind:
            begin = f"| {gap} | {'relative' if relative else 'none'} |"
            try:
                fit = fit_collective(made.samples, **times, gap=gap, relative=relative)
                error = cross_validate_collective(made.samples, **times, gap=gap, relative=relative)
            except RankDeficientError as refused:
                print(f"{begin} {refused} |" + " |" * 4)
                continue
            print(
                f"{begin} {fit.io.r_squared:.3f}, {fit.shuffle.r_squared:.3f} | "
                f"{_error(error.io)} | {_error(error.shuffle)} | {_error(error.whole)} | "
                f"{error.n_floored} |"
            )
            if not relative:
                for phase, d in (("I/O", fit.io), ("shuffle", fit.shuffle)):
                    terms = zip(d.terms, d.p_values, strict=True)
                    print(
                        f"<!-- {phase}: p " + ", ".join(f"{t} {p:.2g}" for t, p in terms) + " -->"
                    )


if __name__ == "__main__":
    main()
